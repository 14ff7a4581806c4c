"""The lease of one term, which the two threads share, and the fence that ends the term at its deadline.

There is one object per term. It is never reused, so a handle that outlives its term shows a term that is over.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Literal, TypeAlias

from .._jobs.thread_calls import ThreadCalls

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._core.elector import Leadership
    from .._core.values import Outcome, Reason
    from .._system.clock import Clock
    from .._system.timers import Timers

__all__ = ["HEARTBEAT_WRITES", "Fence", "Lease"]

State: TypeAlias = Literal["valid", "draining", "over"]

HEARTBEAT_WRITES = frozenset({"leadership", "telling", "told", "warned_at"})
"""The attributes of a `Lease` that the heartbeat's thread writes. Both threads call `drain` and `end`. The job loop
writes all other attributes."""


class Lease:
    """One term. All moments are on the boot clock."""

    def __init__(self, clock: Clock, *, project: str, job: str, node: str, leadership: Leadership) -> None:
        self.clock = clock
        self.project = project
        self.job = job
        self.node = node
        self.token = leadership.token
        self.leadership = leadership  # replaced as a whole with each renewal
        self.reason: Reason | None = None  # why no run starts any more
        self.over_at = inf  # the term certainly ended before this moment
        self._draining = self._over = False  # set and never reset, so that no order of two threads revives a term
        self.limit = inf  # until then the run in flight counts as alive (S7)
        self.run_started: float | None = None
        self.warned_at: float | None = None  # when the log last warned about the run
        self.tick: int | None = None  # last grid point started
        self.done: int | None = None  # last slot whose run has ended
        self.settled: int | None = None  # all slots up to here were run or reported
        self.ended_at: float | None = None  # end of the last run
        self.outcome: Outcome | Literal[""] = ""  # of the last run
        self.runs: int = 0  # how many ended in this term
        self.failures: int = 0  # of these
        self.good_at: float | None = None  # end of the last run that ended well
        self.finished: str = ""  # id and outcome of an operator's last extra run
        self.telling: tuple[object, ...] = ()  # the values of these that the request on its way reports
        self.told: tuple[object, ...] = ()  # the values that the store has confirmed
        self.threads: ThreadCalls = ThreadCalls()

    @property
    def state(self) -> State:
        """`valid`: runs may start. `draining`: none starts, and the lease is kept. `over`: the term has ended."""
        return "over" if self._over else "draining" if self._draining else "valid"

    def drain(self, reason: Reason) -> None:
        """Start no more runs; the first reason holds."""
        if not self._draining:
            self.reason, self._draining = reason, True

    def end(self, reason: Reason) -> None:
        """End the term. Whatever arrives later, a renewal included, does not revive it."""
        if not self._over:
            self.reason, self.over_at = reason, self.clock.boot()
            self._draining = self._over = True

    def valid(self) -> bool:
        """Return True if this very moment lies inside the term."""
        return not self._over and self.clock.boot() < self.leadership.deadline

    def may_start(self, *, claimed: bool = False) -> bool:
        """Return True if a run may start now; a `claimed` slot or trigger also while the term drains."""
        return (claimed or not self._draining) and self.valid()

    @property
    def remaining(self) -> float:
        return 0.0 if self._over else self.leadership.remaining(self.clock.boot())

    def ran(self, outcome: Outcome, ended_at: float) -> None:
        """Record the end of a run."""
        self.outcome, self.ended_at, self.runs = outcome, ended_at, self.runs + 1
        if outcome == "ok":
            self.good_at = ended_at
        self.failures += outcome in {"failed", "timeout"}

    @property
    def in_thread(self) -> bool:
        """True while user code of this term runs in a thread: a sync body, a sync hook, or a call of `to_thread`."""
        return bool(self.threads)


class Fence:
    """Calls `over` on the job loop when the lease's deadline passes, whatever the heartbeat does.

    There is one timer per lease, on the boot clock. When it fires it reads the deadline again, and arms itself again if
    the deadline moved, so that a renewal needs no message.
    """

    __slots__ = ("_lease", "_over", "_timer")

    def __init__(self, timers: Timers, lease: Lease, over: Callable[[], None]) -> None:
        self._lease = lease
        self._over = over
        self._timer = timers.at_boot(lease.leadership.deadline, self._fire)

    def _fire(self) -> None:
        deadline = self._lease.leadership.deadline
        if self._lease.clock.boot() >= deadline:
            self._over()
        else:
            self._timer.set(deadline)

    def close(self) -> None:
        self._timer.cancel()
