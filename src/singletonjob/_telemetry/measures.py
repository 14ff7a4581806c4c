"""What is measured, once for OpenTelemetry and for Prometheus: names, units, attributes, and where each value is from.

All but the histograms of OpenTelemetry are read from plain counters when somebody collects, so a run costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from .._core.errors import ConfigError
from .._reporting.histogram import BOUNDS, Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from .._jobs.sources import Resolved
    from .._reporting.health import Health
    from .._reporting.heartbeat_counters import BeatStats
    from .._reporting.job_counters import JobStats

__all__ = ["BUCKETS", "MEASURES", "Measure", "Reading"]

BUCKETS = tuple(bound for place, bound in enumerate(BOUNDS) if bound >= 1e-4 and place % 6 in {0, 2, 4})
"""The buckets that are told: 1, 2 and 5 of each power of ten from 100 us to 500 s, since each is a time series."""

Point: TypeAlias = "tuple[tuple[str, ...], float | Histogram]"
"""The values of a measure's attributes, the project's left out, and what was measured with these."""


class Measured(Protocol):
    """An app, as far as it is measured."""

    def beats(self) -> BeatStats | None: ...

    def stats(self) -> Mapping[str, JobStats]: ...

    def health(self) -> Health: ...

    def is_leader(self, name: str, /) -> bool: ...

    def resolved(self) -> Resolved: ...


class Reading:
    """An app as it stands; each part is read when it is asked for, and once. Never raises, also while the app stops."""

    def __init__(self, app: Measured) -> None:
        self._app = app

    @cached_property
    def beats(self) -> BeatStats | None:
        return self._app.beats()

    @cached_property
    def stats(self) -> Mapping[str, JobStats]:
        return self._app.stats()

    @cached_property
    def project(self) -> str:
        if self.beats is not None:
            return self.beats.project
        try:
            setting = self._app.resolved().app.get("project")
        except ConfigError:  # the start says it; the name is the least of it
            setting = None
        return "" if setting is None else str(setting.value)

    @cached_property
    def leads(self) -> Mapping[str, bool]:
        """For each job of the app, whether this replica leads it at this moment."""
        return {job: self._app.is_leader(job) for job in self._app.health().jobs}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One instrument.

    `name` is the one for OpenTelemetry. `unit` is a UCUM code; those in braces only say what is counted. `attributes`
    are without their prefix and without `project`, which each point has. A histogram's points are `Histogram`s, all
    others' are numbers.
    """

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    unit: str
    text: str
    attributes: tuple[str, ...] = ("job",)
    points: Callable[[Reading], Iterable[Point]]


def _of_jobs(value: Callable[[JobStats], float | Histogram | None]) -> Callable[[Reading], Iterator[Point]]:
    """One value of each job's stats; none where that is None."""

    def points(reading: Reading) -> Iterator[Point]:
        for job, stats in reading.stats.items():
            if (found := value(stats)) is not None:
                yield (job,), found

    return points


def _of_each(values: Callable[[JobStats], Mapping[str, int]]) -> Callable[[Reading], Iterator[Point]]:
    """Some values of each job's stats, each by its name."""

    def points(reading: Reading) -> Iterator[Point]:
        for job, stats in reading.stats.items():
            for name, value in values(stats).items():
                yield (job, name), value

    return points


def _of_beats(points: Callable[[BeatStats], Iterable[Point]]) -> Callable[[Reading], Iterable[Point]]:
    """What the heartbeat knows; nothing while the app does not run."""
    return lambda reading: () if reading.beats is None else points(reading.beats)


MEASURES = (
    Measure(
        name="singletonjob.leader",
        kind="gauge",
        unit="{leader}",
        text="1 while this replica leads the job, else 0",
        points=lambda reading: [((job,), int(leads)) for job, leads in reading.leads.items()],
    ),
    Measure(
        name="singletonjob.replica.info",
        kind="gauge",
        unit="{replica}",
        text="1 while the app runs; its attribute is the node id, the value of the lease's key and in the log lines",
        attributes=("node",),
        points=_of_beats(lambda beats: [((beats.node_id,), 1)]),
    ),
    Measure(
        name="singletonjob.terms",
        kind="counter",
        unit="{term}",
        text="Terms that this replica began",
        points=_of_jobs(lambda stats: stats.terms),
    ),
    Measure(
        name="singletonjob.step_downs",
        kind="counter",
        unit="{term}",
        text="Terms that ended, by the reason",
        attributes=("job", "reason"),
        points=_of_beats(lambda beats: beats.stepped_down.items()),
    ),
    Measure(
        name="singletonjob.lease.remaining",
        kind="gauge",
        unit="s",
        text="Usable lease left, renewals to come not counted; 0 where this replica does not lead",
        points=_of_beats(lambda beats: [((job,), left) for job, left in beats.remaining.items()]),
    ),
    Measure(
        name="singletonjob.paused",
        kind="gauge",
        unit="{job}",
        text="1 while an operator has paused the job, as far as the store has told this replica, else 0",
        points=_of_beats(lambda beats: [((job,), int(paused)) for job, paused in beats.paused.items()]),
    ),
    Measure(
        name="singletonjob.beats",
        kind="counter",
        unit="{request}",
        text="Requests to the store, by its verdict; unknown: no answer came",
        attributes=("verdict",),
        points=_of_beats(lambda beats: [((verdict,), count) for verdict, count in beats.verdicts.items()]),
    ),
    Measure(
        name="singletonjob.beat.failures",
        kind="counter",
        unit="{beat}",
        text="Beats that got no usable answer of the store; some of them only ask for its time and have no verdict",
        attributes=(),
        points=_of_beats(lambda beats: [((), beats.failures)]),
    ),
    Measure(
        name="singletonjob.beat.duration",
        kind="histogram",
        unit="s",
        text="From a beat's request to the store's answer",
        attributes=(),
        points=_of_beats(lambda beats: [((), beats.duration)]),
    ),
    Measure(
        name="singletonjob.store.up",
        kind="gauge",
        unit="{store}",
        text="1 while the store serves this replica, else 0",
        attributes=(),
        points=_of_beats(lambda beats: [((), int(beats.store_up))]),
    ),
    Measure(
        name="singletonjob.runs",
        kind="counter",
        unit="{run}",
        text="Runs that ended, by outcome",
        attributes=("job", "outcome"),
        points=_of_each(
            lambda stats: {
                "ok": stats.ok,
                "failed": stats.failed,
                "cancelled": stats.cancelled,
                "timeout": stats.timeout,
            }
        ),
    ),
    Measure(
        name="singletonjob.runs.triggered",
        kind="counter",
        unit="{run}",
        text="Extra runs that an operator asked for; they are among the runs, and were no ticks",
        points=_of_jobs(lambda stats: stats.triggered),
    ),
    Measure(
        name="singletonjob.ticks.dropped",
        kind="counter",
        unit="{tick}",
        text="Ticks that did not run: the previous run was in flight (overlap), or they were seen too late (late)",
        attributes=("job", "cause"),
        points=_of_each(lambda stats: {"overlap": stats.dropped_overlap, "late": stats.dropped_late}),
    ),
    Measure(
        name="singletonjob.misfires",
        kind="counter",
        unit="{slot}",
        text="Cron slots that did not run when due, by cause",
        attributes=("job", "cause"),
        points=_of_beats(lambda beats: beats.misfires.items()),
    ),
    Measure(
        name="singletonjob.run.lateness",
        kind="histogram",
        unit="s",
        text="How long after its time a run started",
        points=_of_jobs(lambda stats: stats.lateness),
    ),
    Measure(
        name="singletonjob.run.duration",
        kind="histogram",
        unit="s",
        text="How long a run took",
        points=_of_jobs(lambda stats: stats.duration),
    ),
    Measure(
        name="singletonjob.stale",
        kind="gauge",
        unit="s",
        text="Time since a run last ended well in this replica; missing before the first",
        points=_of_jobs(lambda stats: stats.stale),
    ),
)
