"""What became of one job's terms, ticks, slots and runs, told wherever it is told: counts, log lines, events.

Each due tick of a leader ends in exactly one count: run, dropped by the previous run, or dropped late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from .._core.values import Elected, Misfired, Now, RunFinished, RunStarted, SteppedDown, TicksDropped, instant

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._core.elector import Leadership
    from .._core.schedule import Due, Take
    from .._core.values import Event, MisfireCause, Outcome, Reason
    from .._system.clock import Clock
    from .job_counters import Counts
    from .log_lines import Journal

__all__ = ["Ledger"]


class TermTimes(Protocol):
    """A term, as far as its ticks are counted."""

    token: int
    leadership: Leadership
    over_at: float


class Ledger:
    """Of one job in this process; used on the job loop alone. `callbacks` are asked first: with none, no event is made.

    `unsettled`: the end of a run must be told here, because the last tick was not run, or failures are held back.
    """

    __slots__ = ("_callbacks", "_clock", "_counts", "_job", "_journal", "_slotless", "_tell", "unsettled")

    def __init__(
        self,
        job: str,
        counts: Counts,
        clock: Clock,
        journal: Journal,
        *,
        callbacks: list[Callable[[Event], None]],
        tell: Callable[[Event], None],
    ) -> None:
        self._job = job
        self._counts = counts
        self._clock = clock
        self._journal = journal
        self._callbacks = callbacks
        self._tell = tell
        self.unsettled: bool = False
        self._slotless = 0  # the term of which it was said that no slot is to come

    def elected(self, lease: TermTimes) -> None:
        self._counts.terms += 1
        if self._callbacks:
            self._tell(Elected(job=self._job, token=lease.token))

    def stepped_down(self, lease: TermTimes, reason: Reason) -> None:
        self._journal.settle(self._job, at_once=True)
        if self._callbacks:
            self._tell(SteppedDown(job=self._job, token=lease.token, reason=reason))

    def run_started(self, lease: TermTimes, due: Due, lateness: float) -> None:
        self._journal.run_started(self._job, lease.token, lateness)
        if self._callbacks:
            self._tell(
                RunStarted(job=self._job, token=lease.token, scheduled=due.scheduled, tick=due.tick, lateness=lateness)
            )

    def run_ended(
        self, lease: TermTimes, seconds: float, outcome: Outcome, error: BaseException | None, reason: str
    ) -> None:
        """`reason`: what a cancelled run was cancelled for."""
        if self.unsettled:
            self._journal.tick_ran(self._job)
        self._journal.run_ended(self._job, lease.token, outcome, seconds)
        if error is not None:
            self._journal.run_failed(self._job, lease.token, error)
        elif outcome == "timeout":
            self._journal.run_timed_out(self._job, lease.token, seconds)
        elif outcome == "cancelled":
            self._journal.run_cancelled(self._job, lease.token, reason)
        self.unsettled = self._journal.settle(self._job)
        if self._callbacks:
            self._tell(RunFinished(job=self._job, token=lease.token, outcome=outcome, duration=seconds, error=error))

    def within(self, lease: TermTimes, now: Now) -> Now:
        """Return `now`, but no later than the end of the term: the ticks after that are the next leader's to count.

        A leader that was frozen learns of its end when its successor has run many of them.
        """
        end = min(lease.over_at, lease.leadership.deadline)
        return now if now.boot <= end else Now(now.wall - round((now.boot - end) * 1e6), end)

    def no_future_slot(self, lease: TermTimes) -> None:
        """The schedule has ended. A term learns it again after each extra run that an operator asked for."""
        if self._slotless != lease.token:
            self._slotless = lease.token
            text = "the schedule has no future slot; nothing will run"
            self._journal.warn("no-future-slot", text, self._job, lease.token)

    def lost(self, lease: TermTimes, take: Take, cause: Literal["overlap", "late"]) -> None:
        """Ticks that were dropped and slots that were missed."""
        if late := take.late:
            if cause == "overlap":
                self._counts.dropped_overlap += late
            else:
                self._counts.dropped_late += late
            self.unsettled = True
            self._journal.dropped(self._job, lease.token, late, cause)
            if self._callbacks:
                self._tell(TicksDropped(job=self._job, count=late, cause=cause))
        for slots in take.missed:
            self.misfired(lease, slots.count, slots.first, slots.last, slots.cause)

    def misfired(self, lease: TermTimes, count: int, first: int, last: int, cause: MisfireCause, wall: int = 0) -> None:
        """`wall`: the store's clock, where that is what decided; else it was ours."""
        self._counts.misfired += count
        times = (instant(at).isoformat() for at in (first, last, wall or self._clock.wall()))
        self._journal.misfired(self._job, lease.token, count, cause, *times)
        if self._callbacks:
            self._tell(Misfired(job=self._job, count=count, first=first, last=last, cause=cause))
