"""The metrics for Prometheus, through prometheus-client: as text, or as a collector for a registry of the user's.

    REGISTRY.register(collector(app))

`/metrics` of the probes gives the same. All is read when Prometheus asks: a run and a beat cost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ._reporting.histogram import Histogram
from ._telemetry.extras import not_importable
from ._telemetry.measures import BUCKETS, MEASURES, Measure, Reading

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.registry import Collector, CollectorRegistry
except ModuleNotFoundError as _error:
    _text = f"singletonjob.prometheus: {not_importable('prometheus_client', _error)}"
    raise ModuleNotFoundError(_text, name=_error.name) from _error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ._app import SingletonJobs

__all__ = ["collector", "exposition"]

LABELS = {"job": "job_name"}
"""Prometheus gives each series a label `job` of its own, the scrape's, and would rename ours to `exported_job`."""

SUFFIXES = {"s": "_seconds"}

_Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily

_FAMILIES: dict[str, Callable[..., _Family]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


def collector(app: SingletonJobs) -> Collector:
    """What a registry of prometheus-client takes to tell of `app`: `REGISTRY.register(collector(app))`.

    One app per registry, for the names are the same: a second one is a `ValueError` of the registry.
    """
    return _AppCollector(app)


def exposition(app: SingletonJobs) -> tuple[bytes, str]:
    """The metrics of `app` in Prometheus' text format, and the content type of that."""
    registry = CollectorRegistry()
    registry.register(collector(app))
    encode, content_type = choose_encoder("")
    return encode(registry), content_type


class _AppCollector(Collector):
    def __init__(self, app: SingletonJobs) -> None:
        self._app = app

    def describe(self) -> Iterator[_Family]:
        """The names alone, so that registering reads nothing and clashes are seen."""
        return (_family(measure) for measure in MEASURES)

    def collect(self) -> Iterator[_Family]:
        """All that is known at this moment. Never raises; an app that does not run leads nothing, and says no more."""
        reading = Reading(self._app)
        for measure in MEASURES:
            family = _family(measure)
            for values, value in measure.points(reading):
                labels = [reading.project, *values]
                if isinstance(value, Histogram):
                    assert isinstance(family, HistogramMetricFamily)  # noqa: S101 - as the measure is one
                    family.add_metric(labels, _buckets(value), value.total)
                else:
                    assert not isinstance(family, HistogramMetricFamily)  # noqa: S101 - as above
                    family.add_metric(labels, value)
            yield family


def _family(measure: Measure) -> _Family:
    name = measure.name.replace(".", "_") + SUFFIXES.get(measure.unit, "")
    labels = ["project", *(LABELS.get(attribute, attribute) for attribute in measure.attributes)]
    return _FAMILIES[measure.kind](name, measure.text, labels=labels)


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    told = [(repr(bound), float(count)) for bound, count in histogram.buckets if bound in BUCKETS]
    return [*told, ("+Inf", float(histogram.count))]
