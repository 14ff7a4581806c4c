"""What the tapes say, of all replicas together: who leads, how old the prices are, what ran when.

Pure: reads no clock and no pipe. Moments are those of the tapes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

__all__ = ["JOBS", "BodyRun", "Entry", "Gap", "Ledger", "Snapshot"]

JOBS = ("snapshot", "features", "stale-alarm")


class Entry(NamedTuple):
    """A line of a tape; `trading_desk.tape` tells what there is."""

    at: float
    what: str
    job: str
    value: Any


class Snapshot(NamedTuple):
    """A snapshot that went into the sink."""

    at: float
    replica: str


class Gap(NamedTuple):
    """The time between a snapshot and the next one."""

    since: float
    until: float

    @property
    def seconds(self) -> float:
        """How long it was: how old the prices became."""
        return self.until - self.since


@dataclass(slots=True)
class BodyRun:
    """One execution of a body. `end` is None while it goes on."""

    job: str
    replica: str
    token: int
    start: float
    end: float | None = None


class Ledger:
    """Takes in entries in the order in which they were read; those of two replicas may be out of order."""

    def __init__(self) -> None:
        self.leaders: dict[str, str] = {}
        self.elections: list[tuple[Entry, str]] = []
        self.runs: list[BodyRun] = []
        self.snapshots: list[Snapshot] = []
        self.prices: dict[str, float] = {}
        self.features: dict[str, float] = {}
        self.counts: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.alarms: list[Entry] = []
        self.alarm_is_on = False
        self._open: dict[tuple[str, str], BodyRun] = {}

    def add(self, replica: str, entry: Entry) -> None:
        """Take in what a replica noted."""
        self.counts[entry.what] += 1
        match entry.what:
            case "start":
                run = BodyRun(entry.job, replica, entry.value, entry.at)
                self.runs.append(run)
                self._open[entry.job, replica] = run
            case "end":
                self._open.pop((entry.job, replica)).end = entry.at
            case "snapshot":
                self.snapshots.append(Snapshot(entry.at, replica))
                self.prices = entry.value
            case "features":
                self.features = entry.value
            case "alarm" | "fresh":
                self.alarm_is_on = entry.what == "alarm"
                if self.alarm_is_on:
                    self.alarms.append(entry)
            case "elected":
                self.leaders[entry.job] = replica
                self.elections.append((entry, replica))
            case "stepped-down":
                if self.leaders.get(entry.job) == replica:
                    del self.leaders[entry.job]
            case "dropped":
                count, cause = entry.value
                self.dropped[cause] += count
            case _:
                pass

    def gone(self, replica: str, at: float) -> None:
        """The replica's process is gone: what it left open ended `at`."""
        for key in [key for key in self._open if key[1] == replica]:
            run = self._open.pop(key)
            run.end = max(run.start, at)
        self.leaders = {job: leader for job, leader in self.leaders.items() if leader != replica}

    def token(self, job: str, replica: str) -> int | None:
        """The token of the replica's newest run of the job. None: it ran none."""
        runs = (run for run in reversed(self.runs) if (run.job, run.replica) == (job, replica))
        return next((run.token for run in runs), None)

    def overlapping(self) -> int:
        """How many runs began while another run of their job was in flight."""
        found = 0
        for job in JOBS:
            busy_until = 0.0
            for run in sorted((run for run in self.runs if run.job == job), key=lambda run: run.start):
                found += run.start < busy_until
                busy_until = max(busy_until, float("inf") if run.end is None else run.end)
        return found

    def staleness(self, now: float) -> float | None:
        """Seconds since the newest snapshot. None: there is none yet."""
        return now - max(snapshot.at for snapshot in self.snapshots[-20:]) if self.snapshots else None

    def gaps(self, *, until: float) -> list[Gap]:
        """The times between each two snapshots, and from the last one to `until`."""
        moments = sorted(snapshot.at for snapshot in self.snapshots)
        return [Gap(*pair) for pair in pairwise([*moments, max(until, moments[-1])])] if moments else []
