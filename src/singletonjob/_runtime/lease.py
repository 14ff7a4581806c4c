"""A term's lease as the two threads share it, and the fence that ends the term at its deadline.

The heartbeat writes `deadline`, `sent`, `telling` and `told` of a `Lease`; the job loop writes all the rest. Both write
`over_at`. One object per term, never reused, so a handle that outlives its term can only say that the term is over.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Literal

from .._jobs.thread_calls import ThreadCalls

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._core.values import Outcome
    from .._system.clock import Clock
    from .._system.timers import Timers

__all__ = ["Fence", "Lease"]


class Lease:
    """What is known of one term; see the module's text for who writes what. All moments are on the boot clock."""

    def __init__(
        self, clock: Clock, *, project: str, job: str, node: str, token: int, deadline: float, sent: float
    ) -> None:
        self.clock = clock
        self.project = project
        self.job = job
        self.node = node
        self.token = token
        self.deadline = deadline  # 0 once the term is over
        self.sent = sent  # when the last good renewal, or the acquisition, was sent
        self.stopping = False  # no run starts any more
        self.over = False  # the fence saw the deadline pass, and no renewal that crosses it brings the term back
        self.over_at = inf  # the term certainly ended before this moment
        self.limit = inf  # up to here the run in flight is vouched for
        self.run_started: float | None = None
        self.warned_at: float | None = None  # of a run that takes long
        self.tick: int | None = None  # last grid point started
        self.done: int | None = None  # last slot whose run has ended
        self.settled: int | None = None  # all slots up to here were run or reported
        self.ended_at: float | None = None  # end of the last run
        self.outcome: Outcome | Literal[""] = ""  # of the last run
        self.runs: int = 0  # that ended in this term
        self.failures: int = 0  # of these
        self.good_at: float | None = None  # end of the last run that ended well
        self.finished: str = ""  # id and outcome of an operator's last extra run
        self.telling: tuple[object, ...] = ()  # of these, what the request on its way reports
        self.told: tuple[object, ...] = ()  # what the store has confirmed
        self.threads: ThreadCalls = ThreadCalls()

    def ran(self, outcome: Outcome, ended_at: float) -> None:
        """Take note of the end of a run."""
        self.outcome, self.ended_at, self.runs = outcome, ended_at, self.runs + 1
        if outcome == "ok":
            self.good_at = ended_at
        self.failures += outcome in {"failed", "timeout"}

    def valid(self) -> bool:
        """Whether this very moment lies inside the term."""
        return self.clock.boot() < self.deadline and not self.over

    @property
    def remaining(self) -> float:
        return 0.0 if self.over else max(0.0, self.deadline - self.clock.boot())

    @property
    def in_thread(self) -> bool:
        """True while user code of this term runs in a thread: a sync body, a sync hook, or a call of `to_thread`."""
        return bool(self.threads)


class Fence:
    """Calls `over` on the job loop when the lease's deadline passes, whatever the heartbeat is doing.

    One timer per lease, on the boot clock. It re-reads the deadline when it fires and arms itself again if that moved,
    so a renewal costs nothing here.
    """

    __slots__ = ("_lease", "_over", "_timer")

    def __init__(self, timers: Timers, lease: Lease, over: Callable[[], None]) -> None:
        self._lease = lease
        self._over = over
        self._timer = timers.at_boot(lease.deadline, self._fire)

    def _fire(self) -> None:
        deadline = self._lease.deadline
        if self._lease.clock.boot() >= deadline:
            self._over()
        else:
            self._timer.set(deadline)

    def close(self) -> None:
        self._timer.cancel()
