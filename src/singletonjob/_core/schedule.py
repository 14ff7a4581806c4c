"""The schedules decide when a job runs: interval, fixed rate, cron. They are pure and read no clock.

A `Schedule` belongs to a job and never changes. For each term the leader creates one `Ticker` from the store's memory
of the job, and calls three methods:

    wake(now)        when something is due next
    take(now)        what to run now, and what was missed since the last call
    ended(due, now)  the run has ended; what became due meanwhile is dropped and never queues

Each grid point of a leader ends in exactly one count: run, late, or dropped by the previous run. Each cron slot runs or
is reported as missed. If the wall clock is set back, nothing runs twice, unless the step is so large that waiting would
be worse. A step forward costs at most one run, and constant work.

This file has more than 300 lines because the three shapes follow one protocol and are best read side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from math import inf, isfinite
from typing import TYPE_CHECKING, Final, Protocol

from .errors import ScheduleError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .cron import Cron
    from .protocol import JobState
    from .values import MisfireCause, MisfirePolicy, Now

__all__ = [
    "MISSED_LIMIT",
    "CronSchedule",
    "Due",
    "FixedRateSchedule",
    "IntervalSchedule",
    "Missed",
    "Schedule",
    "Take",
    "Ticker",
]

MISSED_LIMIT: Final = 1_000
"""The limit for counting missed slots, so that a clock set to the year 2200 costs milliseconds and no memory."""

# If the previous leader started a tick further ahead than this, its clock was wrong. Waiting for the tick would keep
# the job idle. Starting earlier may repeat a tick, which is allowed for fixed rates (S6 is about cron).
_TICK_AHEAD = 10_000_000
# The same for slots. The store refuses and ignores slots beyond the same limit.
_SLOT_AHEAD = 600_000_000
_LATE_LIMIT = 60.0  # in seconds

# Neither frozen nor named tuples, because some are created with each tick and those take twice as long to create.


@dataclass(slots=True)
class Due:
    """A run that is due since `scheduled`. `tick` is its grid number; `slot` must be claimed before the run starts.

    A slot that is not claimed by the instant `latest` does not run. None: there is no such instant.
    """

    scheduled: int
    tick: int | None = None
    slot: int | None = None
    latest: int | None = None


@dataclass(slots=True)
class Missed:
    """Slots that do not run, all for one cause. `first` and `last` are exact.

    `count` is exact unless the counts of one `Take` reach `MISSED_LIMIT` together; then each of them means "at least".
    """

    count: int
    first: int
    last: int
    cause: MisfireCause


@dataclass(slots=True)
class Take:
    """The run that is due now, the number of dropped grid points, and the missed slots."""

    due: Due | None = None
    late: int = 0
    missed: tuple[Missed, ...] = ()


NOTHING: Final = Take()


class Ticker(Protocol):
    """The schedule during one term of a job. The runner calls it between runs only."""

    @property
    def settled(self) -> int | None:
        """`take` has returned each slot up to this instant, to run or as missed. None: nothing is claimed."""
        ...

    @property
    def on_wall(self) -> bool:
        """True if `wake` is on the wall clock. A caller that sleeps on it must wake up when that clock is set."""
        ...

    def wake(self, now: Now) -> float | None:
        """Return when something is due next, as of the last `take` or `ended`. A moment in the past means now.

        In microseconds of the wall clock, or in seconds of the boot clock. None: never.
        """
        ...

    def take(self, now: Now) -> Take:
        """Return what is due. Nothing is, if this is called early, for example after the wall clock was set back."""
        ...

    def ended(self, due: Due, now: Now) -> Take:
        """Return the grid points, in `late`, that the run of `due` dropped because it lasted until now."""
        ...


class Schedule(Protocol):
    """When a job runs. There is one per job, and it is immutable."""

    @property
    def mark(self) -> str:
        """Identifies the schedule of claimed slots in the store; empty if nothing is claimed."""
        ...

    def ticker(self, now: Now, state: JobState) -> Ticker:
        """Return the ticker of a new term; `state` is the store's memory of earlier terms."""
        ...


# -- interval: run, wait, run --------------------------------------------------------------------------------------


class IntervalSchedule:
    """Runs, waits `every()` seconds from the end of the run, and runs again. It uses the boot clock only.

    The first run of a term is due at once, but not earlier than one interval after the last known end of a run on any
    replica. `every` is called after each run; it must return a finite number above zero, otherwise `ScheduleError` is
    raised.
    """

    __slots__ = ("_every",)
    mark = ""

    def __init__(self, every: Callable[[], float]) -> None:
        self._every = every

    def every(self) -> float:
        seconds = self._every()
        if not (isfinite(seconds) and seconds > 0):
            raise ScheduleError(f"interval: {seconds!r} is not usable; give a finite number of seconds above 0")
        return seconds

    def ticker(self, now: Now, state: JobState) -> Ticker:
        if state.ended_ago is None:
            return _IntervalTicker(self, now.boot)
        return _IntervalTicker(self, max(now.boot, now.boot - state.ended_ago + self.every()))


class _IntervalTicker:
    __slots__ = ("_at", "_schedule")
    on_wall = False
    settled = None

    def __init__(self, schedule: IntervalSchedule, at: float) -> None:
        self._schedule = schedule
        self._at = at

    def wake(self, now: Now) -> float:  # noqa: ARG002 - on the boot clock
        return self._at

    def take(self, now: Now) -> Take:
        if now.boot < self._at:
            return NOTHING
        return Take(Due(now.wall - round((now.boot - self._at) * 1e6)))

    def ended(self, due: Due, now: Now) -> Take:  # noqa: ARG002 - the interval counts from the end
        self._at = now.boot + self._schedule.every()
        return NOTHING


# -- fixed rate: ticks on a grid that all replicas share ------------------------------------------------------------


class FixedRateSchedule:
    """Ticks every `every` seconds, on a grid of whole microseconds anchored at the epoch plus `offset` seconds.

    Raises `ScheduleError` for a period that is not finite or shorter than a microsecond, and for an infinite offset.
    """

    __slots__ = ("offset", "period")
    mark = ""

    def __init__(self, every: float, offset: float = 0.0) -> None:
        if not (isfinite(every) and round(every * 1e6) > 0):
            raise ScheduleError(f"fixed rate: {every!r} is not usable; give a finite number of seconds above 0")
        if not isfinite(offset):
            raise ScheduleError(f"fixed rate: offset {offset!r} is not usable; give a finite number of seconds")
        self.period = round(every * 1e6)
        self.offset = round(offset * 1e6)

    def tick(self, instant: int) -> int:
        """Return the number of the newest grid point at or before `instant` (microseconds)."""
        return (instant - self.offset) // self.period

    def point(self, tick: int) -> int:
        """Return the instant of a grid point, in microseconds."""
        return self.offset + tick * self.period

    def after(self, instant: int) -> int:
        """Return the first grid point strictly after `instant`, both in microseconds."""
        return self.point(self.tick(instant) + 1)

    def ticker(self, now: Now, state: JobState) -> Ticker:
        return _FixedRateTicker(self, now, state)


class _FixedRateTicker:
    __slots__ = ("_next", "_offset", "_period", "_reached")
    on_wall = True
    settled = None

    def __init__(self, schedule: FixedRateSchedule, now: Now, state: JobState) -> None:
        self._offset, self._period = schedule.offset, schedule.period
        self._reached = schedule.tick(now.wall)  # the newest grid point that this clock has shown
        started = now.wall if state.slot is None or state.slot > now.wall + _TICK_AHEAD else state.slot
        self._next = schedule.tick(max(now.wall, started)) + 1

    def wake(self, now: Now) -> int:  # noqa: ARG002 - `take` and `ended` have read the clock
        return self._offset + self._next * self._period

    def take(self, now: Now) -> Take:
        tick = self._newest(now)
        late = tick - self._next
        if late < 0:
            return NOTHING
        self._next = tick + 1
        return Take(Due(self._offset + tick * self._period, tick), late)

    def ended(self, due: Due, now: Now) -> Take:  # noqa: ARG002 - all points up to now are decided
        tick = self._newest(now)
        late = tick + 1 - self._next
        if late <= 0:
            return NOTHING
        self._next = tick + 1
        return Take(late=late)

    def _newest(self, now: Now) -> int:
        """Return the newest grid point, and handle a wall clock that was set back by more than a period.

        After a smaller step the grid waits, so that no tick runs twice. After a larger step such a wait would be an
        idle gap as long as the step, so the ticks of the repeated time run, with their new instants.
        """
        tick = (now.wall - self._offset) // self._period
        if tick > self._reached:
            self._reached = tick
        elif tick < self._reached - 1:
            self._next = tick + 1
            self._reached = tick
        return tick


# -- cron: slots that are claimed -----------------------------------------------------------------------------------


class CronSchedule:
    """The slots of `cron`, each of which runs at most once across all replicas (S6). `misfire`: how missed slots run.

    `skip`: the newest due slot still runs, unless the job's own previous run made it late. `fire_once`: one run, for
    the newest missed slot, replaces all of them. `catch_up`: the newest `catch_up_limit` slots run, oldest first. No
    slot runs more than `late_limit` seconds late; `inf` is no limit. None is no limit either, but with `skip` it is the
    smaller of 60 s and half the gap to the next slot. A slot that does not run is reported as missed. Raises
    `ScheduleError` for a value out of range.
    """

    __slots__ = ("catch_up_limit", "cron", "late_limit", "mark", "misfire")

    def __init__(
        self, cron: Cron, misfire: MisfirePolicy = "skip", catch_up_limit: int = 10, late_limit: float | None = None
    ) -> None:
        if misfire not in ("skip", "fire_once", "catch_up"):
            raise ScheduleError(f"misfire: {misfire!r} is not known; write skip, fire_once or catch_up")
        if not 1 <= catch_up_limit <= MISSED_LIMIT:
            raise ScheduleError(f"catch_up_limit: {catch_up_limit!r} is out of range; write 1 to {MISSED_LIMIT}")
        if late_limit is not None and not late_limit > 0:
            raise ScheduleError(f"late_limit: {late_limit!r} is not usable; give a number of seconds above 0")
        self.cron = cron
        self.mark = cron.mark
        self.misfire: MisfirePolicy = misfire
        self.catch_up_limit = catch_up_limit
        self.late_limit = late_limit

    def ticker(self, now: Now, state: JobState) -> Ticker:
        return _CronTicker(self, now, state)

    def slots(self, low: int, high: int) -> list[int]:
        """Return the slots in (low, high], oldest first; of more than `MISSED_LIMIT`, the oldest and the newest."""
        slots: list[int] = []
        while (slot := self.cron.after(slots[-1] if slots else low)) is not None and slot <= high:
            slots.append(slot)
            if len(slots) == MISSED_LIMIT:
                break
        else:
            return slots
        newest: list[int] = []
        while len(newest) <= self.catch_up_limit and (slot := self.cron.newest(slots[-1], high)) is not None:
            newest.append(slot)
            high = slot - 1
        return slots + newest[::-1]

    def choose(self, slots: Sequence[int], now: int, overlapped: bool) -> int | None:
        """Return the index of the slot to run; `slots` is not empty. `overlapped`: a run dropped its newest."""
        if self.misfire == "skip" and overlapped:
            return None
        first = max(0, len(slots) - self.catch_up_limit) if self.misfire == "catch_up" else len(slots) - 1
        for index in range(first, len(slots)):
            latest = self.latest(slots[index])
            if latest is None or now <= latest:
                return index
        return None

    def latest(self, slot: int) -> int | None:
        """Return the last instant at which `slot` may start, in microseconds; None: there is no limit."""
        limit = self.limit(slot)
        return slot + int(limit * 1e6) if isfinite(limit) else None

    def limit(self, slot: int) -> float:
        """Return how late `slot` may start, in seconds."""
        if self.late_limit is not None:
            return self.late_limit
        if self.misfire != "skip":
            return inf
        following = self.cron.after(slot)
        return _LATE_LIMIT if following is None else min(_LATE_LIMIT, (following - slot) / 2e6)


class _CronTicker:
    __slots__ = ("_begin", "_decided", "_next", "_overlap", "_reached", "_report", "_schedule")
    on_wall = True

    def __init__(self, schedule: CronSchedule, now: Now, state: JobState) -> None:
        self._schedule = schedule
        self._begin = self._reached = now.wall
        self._report: list[Missed] = []  # for the next `take`
        slot, off = (self._believed(instant, state.wall) for instant in (state.slot, state.off))
        known = [instant for instant in (slot, off) if instant is not None]
        changed = state.mark not in ("", schedule.cron.mark)
        # No slot up to here will run. Never below the newest claim, because the store refuses claims that do not grow.
        self._decided = max([now.wall, *known] if changed else known or [now.wall])
        if state.up_from is not None and self._decided < state.up_from:
            # These slots may have run before the store lost its data, so they must not run again.
            if missed := schedule.slots(self._decided, min(state.up_from, now.wall)):
                self._report.append(Missed(len(missed), missed[0], missed[-1], "no_leader"))
            self._decided = state.up_from
        self._next = schedule.cron.after(self._decided)
        # A run in flight dropped the slots in here; at first the last run of the term before.
        self._overlap = (0, 0)
        if slot is not None and not changed:
            if (state.done is None or state.done < slot) and (off is None or off < slot):
                self._report.append(Missed(1, slot, slot, "interrupted"))
            elif state.ended_ago is not None:
                self._overlap = (slot, now.wall - round(state.ended_ago * 1e6))

    @property
    def settled(self) -> int | None:
        return self._decided

    def wake(self, now: Now) -> int | None:
        self._handle_step(now)
        return now.wall if self._report else self._next

    def take(self, now: Now) -> Take:
        self._handle_step(now)
        due = None
        if self._next is not None and self._next <= now.wall:
            slots = self._schedule.slots(self._decided, now.wall)
            run = self._schedule.choose(slots, now.wall, self._cause(slots[-1]) == "overlap")
            if run is not None:
                due = Due(slots[run], slot=slots[run], latest=self._schedule.latest(slots[run]))
            self._decided = slots[-1] if due is None else due.scheduled
            self._next = self._schedule.cron.after(self._decided)
            for cause, group in groupby(slots[:run], self._cause):
                missed = list(group)
                self._report.append(Missed(len(missed), missed[0], missed[-1], cause))
        missed_now, self._report = tuple(self._report), []
        return Take(due, missed=missed_now)

    def ended(self, due: Due, now: Now) -> Take:  # noqa: ARG002 - a run that claimed no slot drops slots as well
        # The next `take`, which is due at once, decides and reports what this run dropped.
        self._overlap = (max(self._decided, min(self._begin, now.wall)), now.wall)
        return NOTHING

    def _cause(self, slot: int) -> MisfireCause:
        if self._overlap[0] < slot <= self._overlap[1]:
            return "overlap"
        return "no_leader" if slot <= self._begin else "late"

    def _believed(self, instant: int | None, store_wall: int) -> int | None:
        if instant is None or instant <= store_wall + _SLOT_AHEAD:
            return instant
        self._report.append(Missed(1, instant, instant, "clock"))
        return None

    def _handle_step(self, now: Now) -> None:
        """Handle a wall clock that was set back so far that waiting for it would be worse.

        After a smaller step nothing runs until the clock has passed the newest decided slot.
        """
        if now.wall < self._reached - _SLOT_AHEAD and self._decided > now.wall + _SLOT_AHEAD:
            self._report.append(Missed(1, self._decided, self._decided, "clock"))
            self._decided = self._reached = now.wall
            self._next = self._schedule.cron.after(now.wall)
        self._reached = max(self._reached, now.wall)
