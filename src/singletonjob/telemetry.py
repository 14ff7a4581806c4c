"""Metrics and traces through OpenTelemetry's API: `instrument(app)`. No SDK is forced, and without one nothing is paid.

Explicit, since importing the API on every start would cost more than importing this library; where the code is not to
be touched, `opentelemetry-instrument singletonjob run jobs:app --otel` does the same.

Counters and gauges are observable: read when the SDK collects. Histograms cannot be, in OpenTelemetry. So those of the
runs are fed by the app's events, once somebody collects, and that of the beats from the last ones at each collection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

from ._core.errors import ConfigError
from ._core.values import RunFinished, RunStarted
from ._telemetry.extras import not_importable
from ._telemetry.measures import BUCKETS, MEASURES, Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from opentelemetry.metrics import CallbackOptions, Histogram, Meter, MeterProvider, Observation
    from opentelemetry.trace import TracerProvider

    from ._app import SingletonJobs
    from ._core.values import Event
    from ._telemetry.measures import Measure

__all__ = ["instrument"]

SCOPE = "singletonjob"

_instrumented: WeakSet[SingletonJobs] = WeakSet()


def instrument(
    app: SingletonJobs,
    *,
    meter_provider: MeterProvider | None = None,
    tracer_provider: TracerProvider | None = None,
    spans: bool | None = None,
) -> None:
    """Tell OpenTelemetry of `app`: its metrics, and a span per run, which is the current one inside the body.

    To be called before the app starts, once; jobs may still be registered after it. The providers default to the
    global ones, set before or after; the histograms of the runs begin when one is set that records, or with its first
    collection. `spans`: True for all jobs, False for none; None: for all but those whose period is known to be below
    1 s. Raises `ConfigError` after the start, at a second call, or where opentelemetry-api is not installed.
    """
    try:
        from opentelemetry import metrics, trace
    except ImportError as error:  # no ModuleNotFoundError where other packages share the namespace `opentelemetry`
        raise ConfigError(f"instrument: {not_importable('opentelemetry', error)}") from error
    from ._telemetry.spans import traced

    if app in _instrumented:
        raise ConfigError("instrument: the app is instrumented already; call it once, in code or by --otel")
    tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
    app.wrap_jobs(lambda job: traced(job, tracer, spans=spans))
    _instrumented.add(app)
    provider = meter_provider or metrics.get_meter_provider()
    telemetry = _Telemetry(app, metrics.get_meter(SCOPE, meter_provider=meter_provider))
    if not type(provider).__module__.startswith(metrics.__name__):  # the API's own record nothing, or stand in for one
        telemetry.listen()


class _Telemetry:
    """The instruments of one app."""

    def __init__(self, app: SingletonJobs, meter: Meter) -> None:
        from opentelemetry.metrics import Observation

        self._app = app
        self._observation = Observation
        self._listening = False
        self._attributes: dict[str, dict[str, str]] = {}  # of each job's runs
        self._lateness: dict[str, float] = {}  # of runs in flight: the counters, too, take a run at its end
        self._node, self._beat = "", 0  # the last beat recorded, by number, and of which start of the app
        self._histograms: dict[str, Histogram] = {}
        makers = {"counter": meter.create_observable_counter, "gauge": meter.create_observable_gauge}
        for measure in MEASURES:
            if measure.kind == "histogram":
                self._histograms[measure.name] = meter.create_histogram(
                    measure.name, measure.unit, measure.text, explicit_bucket_boundaries_advisory=BUCKETS
                )
            else:
                makers[measure.kind](measure.name, [self._observer(measure)], measure.unit, measure.text)

    def listen(self) -> None:
        """Record each run from now on."""
        if not self._listening:
            self._listening = True
            self._app.subscribe(self._record)

    def _observer(self, measure: Measure) -> Callable[[CallbackOptions], Iterable[Observation]]:
        keys = [f"{SCOPE}.{attribute}" for attribute in ("project", *measure.attributes)]

        def observe(_options: CallbackOptions) -> Iterable[Observation]:
            reading = Reading(self._app)
            if measure is MEASURES[0]:  # once per collection
                self.listen()  # somebody does collect
                self._record_beats(reading)
            for values, value in measure.points(reading):
                if isinstance(value, int | float):
                    attributes = dict(zip(keys, (reading.project, *values), strict=True))
                    yield self._observation(value, attributes)

        return observe

    def _record(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self._lateness[event.job] = event.lateness
        elif isinstance(event, RunFinished):
            attributes, lateness = self._of(event.job), self._lateness.pop(event.job, None)
            self._histograms["singletonjob.run.duration"].record(event.duration, attributes)
            if lateness is not None:
                self._histograms["singletonjob.run.lateness"].record(lateness, attributes)

    def _of(self, job: str) -> dict[str, str]:
        attributes = self._attributes.get(job)
        if attributes is None:
            project = Reading(self._app).project
            attributes = self._attributes[job] = {f"{SCOPE}.project": project, f"{SCOPE}.job": job}
        return attributes

    def _record_beats(self, reading: Reading) -> None:
        beats = reading.beats
        if beats is None:
            return
        if beats.node_id != self._node:
            self._node, self._beat = beats.node_id, 0
        for number, seconds in beats.recent:
            if number > self._beat:
                self._beat = number
                self._histograms["singletonjob.beat.duration"].record(seconds, {f"{SCOPE}.project": beats.project})
