"""The handles that hooks and bodies get: a `Term`, and a `Run` of that term."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar

from .._core.errors import LeadershipLost
from .._core.values import instant
from .thread_calls import ThreadCalls, run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from .._system.clock import Clock

__all__ = ["Held", "Run", "StopSignal", "Term"]

P = ParamSpec("P")
T = TypeVar("T")


class Held(Protocol):
    """The lease of one term, as the handles need it."""

    clock: Clock
    project: str
    job: str
    node: str
    token: int
    threads: ThreadCalls

    @property
    def remaining(self) -> float: ...

    def valid(self) -> bool: ...

    def may_start(self) -> bool: ...


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

    def __init__(self, lease: Held) -> None:
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
        self, lease: Held, signal: StopSignal, scheduled: int, started: int, tick: int | None, previous: int | None
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
        return self._signal.given or not self._lease.may_start()

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
