"""A term's lease as the two threads share it, and the handles on it that bodies and hooks get.

The heartbeat writes `deadline`, `sent`, `telling` and `told` of a `Lease`; the job loop writes all the rest. Both write
`over_at`. One object per term, never reused, so a handle that outlives its term can only say that the term is over.
"""

from __future__ import annotations

import threading
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Literal, ParamSpec, TypeVar

from ._errors import LeadershipLost
from .instants import instant
from .thread_calls import ThreadCalls, run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from ._clock import Clock
    from ._model import Outcome
    from ._timer import Timers

__all__ = ["Fence", "Lease", "Run", "StopSignal", "Term"]

P = ParamSpec("P")
T = TypeVar("T")


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


class StopSignal:
    """Tells one run to end; the event is there for sync bodies, which wait in a thread."""

    __slots__ = ("event", "given")

    def __init__(self, event: threading.Event | None) -> None:
        self.event: threading.Event | None = event
        self.given: bool = False

    def give(self) -> None:
        self.given = True
        if self.event is not None:
            self.event.set()


class Term:
    """One uninterrupted reign of this replica over a job, as `on_elected` gets it."""

    __slots__ = ("_lease",)

    def __init__(self, lease: Lease) -> None:
        self._lease = lease

    @property
    def job(self) -> str:
        """The job's name."""
        return self._lease.job

    @property
    def token(self) -> int:
        """The fencing token: grows from term to term, so that a resource can refuse an older one."""
        return self._lease.token

    @property
    def node_id(self) -> str:
        """This replica's id, the value of the lease's key."""
        return self._lease.node

    @property
    def remaining(self) -> float:
        """Seconds of usable lease left, renewals to come not counted; 0 when the term is over."""
        return self._lease.remaining


class Run(Term):
    """One execution of a job's body, as the body gets it. Safe to use from any thread."""

    __slots__ = ("_previous", "_scheduled", "_signal", "_started", "_tick")

    def __init__(
        self, lease: Lease, signal: StopSignal, scheduled: int, started: int, tick: int | None, previous: int | None
    ) -> None:
        self._lease = lease
        self._signal = signal
        self._scheduled = scheduled
        self._started = started
        self._tick = tick
        self._previous = previous

    @property
    def project(self) -> str:
        """The project's name."""
        return self._lease.project

    @property
    def scheduled_at(self) -> datetime:
        """The instant that this run was due, aware, in UTC."""
        return instant(self._scheduled)

    @property
    def started_at(self) -> datetime:
        """The instant that it started, aware, in UTC, by this machine's wall clock."""
        return instant(self._started)

    @property
    def tick(self) -> int | None:
        """The number of the grid point since the epoch (fixed rate); None for the other shapes."""
        return self._tick

    @property
    def previous_end(self) -> datetime | None:
        """When the last run of this job ended, on whichever replica: how stale its work is. None: not known."""
        return None if self._previous is None else instant(self._previous)

    @property
    def stopping(self) -> bool:
        """True as soon as there is any reason to end: shutdown, pause, disable, step-down, timeout or loss."""
        return self._signal.given or self._lease.stopping or not self._lease.valid()

    def wait(self, seconds: float) -> bool:
        """Sleep in a sync body: for `seconds`, or until it should stop; returns `stopping`.

        Async bodies use `asyncio.sleep`, which is cancelled when the time comes.
        """
        clock = self._lease.clock
        until = clock.boot() + seconds
        event = self._signal.event or threading.Event()
        while not self.stopping:
            left = until - clock.boot()
            if left <= 0:
                return False
            # The deadline moves while we wait, and nobody may be left to signal that it passed.
            event.wait(min(left, max(self._lease.remaining, 0.001), 1.0))
        return True

    async def to_thread(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `function(*args, **kwargs)` returns in a thread, for blocking work of an async body.

        Like `asyncio.to_thread`, but a cancellation waits until the function has ended, so that the lease is not given
        to anybody while the function still works. The function is to look at `run.stopping`, or to use `run.wait` and
        `run.check`. After a cancellation the call raises what the function raised, otherwise `CancelledError`.
        """
        if self._signal.event is None:
            self._signal.event = threading.Event()  # for `wait` in the thread
            if self._signal.given:
                self._signal.event.set()
        return await run_in_thread(self._lease.threads, partial(function, *args, **kwargs))

    def check(self) -> None:
        """Return if the term still is valid at this moment.

        Raises `LeadershipLost` when it is not: the work would no longer be exclusive.
        """
        if not self._lease.valid():
            raise LeadershipLost(f"{self.job}: the term with token {self.token} is over; end this run")


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
