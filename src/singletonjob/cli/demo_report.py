"""What the stamps say: the ledger of all runs, overlaps, hand-over times, and the closing words of the demo.

Pure: reads no clock and no file, so that the claims the demo makes can be checked with stamps made by hand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Literal, TypeAlias

from .._reporting.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .demo_stamps import Stamp

__all__ = ["JOBS", "BodyRun", "Ledger", "Overlap", "Report", "SignalName", "Stop", "handover", "overlaps"]

JOBS = {"price-tick": "every 100 ms", "book-sync": "1 s after its end", "candle-close": "cron, each second"}
"""The demo's jobs, and when they run."""

LONG_CRASH = 1000.0
"""Milliseconds: who took longer to follow a killed process has waited for the end of its lease."""

SignalName: TypeAlias = Literal["SIGTERM", "SIGKILL"]


@dataclass(slots=True, kw_only=True)
class BodyRun:
    """One execution of a body in one process; moments on the boot clock. `end` is None while it goes on."""

    job: str
    worker: str
    start: float
    end: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Two runs of one job that were open at the same moment."""

    first: BodyRun
    second: BodyRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A signal sent to a worker that ran price-tick, `at` seconds on the boot clock."""

    signal: SignalName
    worker: str
    at: float


class Ledger:
    """All runs of all workers, in the order in which their stamps were read; per job the newest of them, how many,
    how late they started, who leads, and how many ticks were dropped."""

    def __init__(self) -> None:
        self.runs: list[BodyRun] = []
        self.newest: dict[str, BodyRun] = {}
        self.counts: dict[str, int] = dict.fromkeys(JOBS, 0)
        self.lateness: dict[str, Histogram] = {job: Histogram() for job in JOBS}
        self.leaders: dict[str, str] = {}
        self.dropped: dict[str, int] = dict.fromkeys(JOBS, 0)
        self._open: dict[tuple[str, str, str], BodyRun] = {}

    def add(self, worker: str, stamp: Stamp) -> None:
        """Take in a stamp that `worker` wrote."""
        key = (worker, stamp.job, stamp.detail)
        match stamp.kind:
            case "start":
                run = BodyRun(job=stamp.job, worker=worker, start=stamp.at)
                self.runs.append(run)
                self.counts[stamp.job] += 1
                self._open[key] = run
                if stamp.job not in self.newest or self.newest[stamp.job].start < stamp.at:
                    self.newest[stamp.job] = run
            case "end":
                self._open.pop(key).end = stamp.at
            case "elected":
                self.leaders[stamp.job] = worker
            case "stepped-down":
                if self.leaders.get(stamp.job) == worker:
                    del self.leaders[stamp.job]
            case "late":
                self.lateness[stamp.job].add(int(stamp.detail) / 1e6)
            case "dropped":
                self.dropped[stamp.job] += int(stamp.detail)
            case _:
                raise ValueError(f"worker {worker} wrote a stamp of an unknown kind: {stamp.kind}")

    def close(self, worker: str, at: float) -> None:
        """The worker's process is gone: whatever it left open ended `at`."""
        for key in [key for key in self._open if key[0] == worker]:
            run = self._open.pop(key)
            run.end = max(at, run.start)
        for job in [job for job, leader in self.leaders.items() if leader == worker]:
            del self.leaders[job]


def overlaps(runs: Iterable[BodyRun]) -> list[Overlap]:
    """All pairs of runs of one job whose [start, end] have a moment in common, in one process or in two."""
    found: list[Overlap] = []
    in_flight: dict[str, list[BodyRun]] = {}
    for run in sorted(runs, key=attrgetter("start")):
        others = [other for other in in_flight.get(run.job, []) if other.end is None or other.end >= run.start]
        found += [Overlap(first=other, second=run) for other in others]
        in_flight[run.job] = [*others, run]
    return found


def handover(runs: Iterable[BodyRun], stop: Stop) -> float | None:
    """Milliseconds from the signal to the next start of price-tick in another process; None: there was none."""
    starts = [
        run.start for run in runs if run.job == "price-tick" and run.worker != stop.worker and run.start >= stop.at
    ]
    return (min(starts) - stop.at) * 1000 if starts else None


@dataclass(frozen=True, kw_only=True)
class Report:
    """The demo's result. `handovers` are the times in milliseconds, by signal, in the order of the signals; one that
    did not come is left out."""

    workers: int
    store: str
    runs: Sequence[BodyRun]
    dropped: int
    lateness: Histogram  # of price-tick
    stops: Sequence[Stop]
    troubles: Sequence[str] = ()
    overlaps: Sequence[Overlap] = field(init=False)
    handovers: dict[SignalName, list[float]] = field(init=False)

    def __post_init__(self) -> None:
        handovers: dict[SignalName, list[float]] = {"SIGTERM": [], "SIGKILL": []}
        for stop in self.stops:
            time = handover(self.runs, stop)
            if time is not None:
                handovers[stop.signal].append(round(time, 1))
        object.__setattr__(self, "handovers", handovers)
        object.__setattr__(self, "overlaps", overlaps(self.runs))

    @property
    def good(self) -> bool:
        """No two runs of a job at once, each kind of hand-over was seen, and no worker failed."""
        return not self.overlaps and not self.troubles and all(self.handovers.values())

    def as_json(self) -> dict[str, object]:
        """The object that `--json` prints."""
        return {
            "workers": self.workers,
            "runs": len(self.runs),
            "overlaps": len(self.overlaps),
            "graceful_handover_ms": self.handovers["SIGTERM"],
            "crash_handover_ms": self.handovers["SIGKILL"],
            "dropped": self.dropped,
        }

    def as_text(self) -> str:
        """The closing words, several lines."""
        per_job = ", ".join(f"{sum(run.job == job for run in self.runs)} {job}" for job in JOBS)
        lines = [
            f"{len(self.runs)} runs by {self.workers} workers on {self.store}:",
            per_job,
            "",
            "hand-over of price-tick, from the signal to its next start in another process",
            f"  after SIGTERM          {_times(self.handovers['SIGTERM'])}",
            f"  after SIGKILL          {_times(self.handovers['SIGKILL'])}",
            f"runs that overlapped     {len(self.overlaps)}",
            f"ticks dropped            {self.dropped}   (one that comes during a run is never queued;",
            "                              each twentieth run takes 250 ms to show it)",
            f"price-tick is late by    {_late_by(self.lateness)}   (median and p99; never early)",
            *self.troubles,
            "",
            self._verdict(),
        ]
        return "\n".join(lines)

    def _verdict(self) -> str:
        if self.overlaps:
            first = min(self.overlaps, key=lambda overlap: overlap.second.start)
            where = f"the first: {first.first.job} in worker {first.first.worker} and in worker {first.second.worker}"
            why = "\nEach process has a memory store of its own and led alone." if self.store == "memory" else ""
            return f"NOT GOOD: two runs of one job were open at once, {len(self.overlaps)} times;\n{where}.{why}"
        if self.troubles:
            return "NOT GOOD: see above."
        if not self.good:
            return "NOT SHOWN: a hand-over is missing, the demo ended too early."
        longest = {signal: max(times) for signal, times in self.handovers.items()}
        said = (
            "At every moment at most one process ran each job. The next one was there\n"
            f"within {longest['SIGTERM']:.0f} ms of a SIGTERM and within {longest['SIGKILL']:.0f} ms of a SIGKILL."
        )
        if longest["SIGKILL"] > LONG_CRASH:
            said += (
                "\nThis store cannot see a process die: the next waits for the end of its lease,\n"
                "10 s at most by default (lock_expiry)."
            )
        return said


def _late_by(lateness: Histogram) -> str:
    """The median and the 99th percentile, in milliseconds."""
    if not lateness.count:
        return "none seen"
    return f"{lateness.quantile(0.5) * 1e3:.1f} ms, {lateness.quantile(0.99) * 1e3:.1f} ms"


def _times(milliseconds: Sequence[float]) -> str:
    if not milliseconds:
        return "none seen"
    return "  ".join(f"{time:.0f} ms" for time in milliseconds)
