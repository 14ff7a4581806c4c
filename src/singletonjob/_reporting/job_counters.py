"""What became of a job's runs: plain counters of constant size, and the frozen form of them that users get."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._core.values import instant
from .histogram import Histogram

if TYPE_CHECKING:
    from datetime import datetime

    from .._core.values import Now, Outcome
    from .._system.clock import Clock

__all__ = ["Counts", "JobStats"]

AT_ONCE = 16
"""So many runs are sorted into the histograms together: at each tick, that would cost several times as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStats:
    """What became of one job in this process since its app started.

    `runs` = `ok` + `failed` + `cancelled` + `timeout`. Ticks that did not run are in `dropped_overlap` (the previous
    run was in flight) and `dropped_late`: every tick of a leader is in one of these or in `runs`. Slots that did not
    run when due are in `misfired`. `terms` counts elections won, `triggered` the runs that an operator asked for: they
    are in `runs` and were no ticks.

    `lateness` tells how long after its time each run started, `duration` how long it took, both in seconds. `last_ok`
    is when a run last ended well here, aware, in UTC; `stale` is how many seconds ago that was. None: not yet.
    """

    runs: int
    ok: int
    failed: int
    cancelled: int
    timeout: int
    dropped_overlap: int
    dropped_late: int
    misfired: int
    terms: int
    triggered: int
    lateness: Histogram
    duration: Histogram
    last_ok: datetime | None
    stale: float | None


class Counts:
    """What became of a job's runs in this process, since its app started."""

    __slots__ = (
        *("_clock", "_duration", "_lateness", "_new", "_ok", "_outcomes", "_sorting"),
        *("dropped_late", "dropped_overlap", "misfired", "terms", "triggered"),
    )

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._outcomes: dict[Outcome, int] = {"ok": 0, "failed": 0, "cancelled": 0, "timeout": 0}
        self._lateness = Histogram()
        self._duration = Histogram()
        self._ok: Now | None = None
        self._new: list[tuple[Outcome, float, float]] = []  # not sorted into the histograms yet
        self._sorting = threading.Lock()
        self.dropped_overlap = self.dropped_late = self.misfired = self.terms = self.triggered = 0

    @property
    def runs(self) -> int:
        """Runs that have ended, in whichever way."""
        return sum(self._outcomes.values()) + len(self._new)

    def ran(self, outcome: Outcome, lateness: float, seconds: float, ended: Now) -> None:
        """A run that started so late and took so long has ended."""
        self._new.append((outcome, lateness, seconds))
        if outcome == "ok":
            self._ok = ended
        if len(self._new) >= AT_ONCE:
            with self._sorting:
                self._sort()

    def _sort(self) -> None:
        """To be called with the lock: stats are asked for from any thread, while the job loop goes on to append."""
        while self._new:
            outcome, lateness, seconds = self._new.pop()
            self._outcomes[outcome] += 1
            self._lateness.add(lateness)
            self._duration.add(seconds)

    def frozen(self) -> JobStats:
        """As users get them. Safe from any thread."""
        with self._sorting:
            self._sort()
            return JobStats(
                runs=sum(self._outcomes.values()),
                ok=self._outcomes["ok"],
                failed=self._outcomes["failed"],
                cancelled=self._outcomes["cancelled"],
                timeout=self._outcomes["timeout"],
                dropped_overlap=self.dropped_overlap,
                dropped_late=self.dropped_late,
                misfired=self.misfired,
                terms=self.terms,
                triggered=self.triggered,
                lateness=self._lateness.copy(),
                duration=self._duration.copy(),
                last_ok=None if self._ok is None else instant(self._ok.wall),
                stale=None if self._ok is None else self._clock.boot() - self._ok.boot,
            )
