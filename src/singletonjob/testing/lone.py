"""`Lone`: the only replica there is. It leads each of its jobs at once, for as long as it likes, without a heartbeat.

It stands in for elector, heartbeat and service at once, as far as a `Runner` asks for them. The runner, its schedule
and its timers are the library's own; what the store would remember from term to term is kept by the rules of a store.

Over 300 lines, because it stands in for three parts.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from .._core.elector import REVIVAL
from .._core.protocol import Acquire, Claimed, Granted, NotClaimed, Progress, Release
from .._jobs.user_code import inside
from .._reporting.heartbeat_counters import Beats
from .._reporting.log_lines import Journal
from .._runtime.lease import Lease
from .._runtime.live_switch import follow_switch
from .._runtime.runner import Runner
from .._runtime.service import RESTART_AFTER
from ..stores.rules import Record, apply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .._core.elector import Claim
    from .._core.values import Event, Reason
    from .._jobs.definition import JobDefinition
    from .._jobs.options import JobOptions
    from .._reporting.health import HealthState
    from .._system.clock import Clock
    from .._system.worker_threads import DaemonWorker
    from .virtual_loop import UncutTimers

__all__ = ["NODE", "Lone"]

NODE = "test-00000000"
"""The node id of the only replica."""

FOR_EVER = 1e9
"""What the store is told that a lease lasts, in seconds."""


class _Lease(Lease):
    """A lease that is as good as renewed all the time: `usable` seconds of it are left at any moment, until it ends."""

    def __init__(self, clock: Clock, usable: float, **names: Any) -> None:
        super().__init__(clock, deadline=inf, sent=inf, **names)
        self._usable = usable

    @property
    def remaining(self) -> float:
        return self._usable if self.valid() else 0.0


class _Seat:
    """One job here."""

    def __init__(self, runner: Runner, record: Record, usable: float) -> None:
        self.runner = runner
        self.record = record
        self.usable = usable
        self.on = True
        self.number = 0
        self.lease: _Lease | None = None
        self.reason: Reason | None = None  # why the term in hand ends
        self.resigned = 0


class Lone:
    """Runs `jobs` on the loop of `timers`, from `start` to `stop`; `tell` gets each event.

    `usable` seconds of each lease are left at any moment; default: as many as a renewal gives. `token` stands in for
    the store's.
    """

    ready: bool = True
    store_up: bool = True
    loop_thread: int = 0  # whoever asks is not on it
    node: str = NODE

    def __init__(
        self,
        project: str,
        jobs: Iterable[tuple[JobDefinition, JobOptions]],
        *,
        timers: UncutTimers,
        clock: Clock,
        tell: Callable[[Event], None],
        worker: Callable[[str], DaemonWorker],
        usable: float | None = None,
        token: int | None = None,
    ) -> None:
        self.runners: dict[str, Runner] = {}
        self.project: str = project
        self._token = token
        self._clock = clock
        self._loop = timers.loop
        self._journal = Journal(project, NODE, clock.boot)
        self._seats: dict[str, _Seat] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._quiet = asyncio.Event()  # no term is in hand
        self._away = self._stopping = False
        self.stopped: threading.Event = threading.Event()  # never set: its world ends it
        self.request_stop: Callable[[], object] = partial(self.post, lambda _now: self.drain())
        this: Any = self
        for job, options in jobs:
            if options.enabled is False:
                continue
            runner = Runner(
                job,
                options,
                clock=clock,
                timers=timers,
                orders=self,
                journal=self._journal,
                callbacks=[tell],
                tell=tell,
                worker=worker,
            )
            self.runners[job.name] = runner
            usual = options.lock_expiry - options.margin
            self._seats[job.name] = _Seat(runner, Record(), usual if usable is None else usable)

        self.beats: Beats = Beats(this, this, self._journal, self._seats)

    def start(self) -> None:
        """Lead every job from now on; one with a live switch when that says so."""
        contextvars.copy_context().run(self._start)

    def _start(self) -> None:
        inside.set(self)
        for name, seat in self._seats.items():
            runner = seat.runner
            self._start_runner(runner)
            runner.look()  # at what the log wants to hear
            switch = runner.job.is_enabled or runner.options.enabled
            if callable(switch):
                seat.on = False
                interval = runner.options.heartbeat_interval
                following = follow_switch(name, switch, interval, partial(self._turn, name), self._journal)
                self._tasks.append(self._loop.create_task(following))
            else:
                self._begin(seat)

    def _start_runner(self, runner: Runner) -> None:
        if not self._stopping:
            task = runner.start()
            task.add_done_callback(partial(self._runner_ended, runner))
            self._tasks.append(task)

    def _runner_ended(self, runner: Runner, _task: object) -> None:
        """Somebody killed it, unless we stop; as in life, it starts again."""
        self._loop.call_later(RESTART_AFTER, self._start_runner, runner)

    def drain(self) -> None:
        """Have every job let go, as at the stop of a replica: runs in flight have their grace."""
        self._away = True
        for seat in self._seats.values():
            if seat.lease is not None:
                seat.reason = seat.reason or "shutdown"
                seat.runner.drain("shutdown")

    async def leave(self) -> None:
        """Let go of every job, as at the stop of a replica: runs in flight have their grace. Return when none runs.

        Or when one goes on beyond that: it ignores its cancellation.
        """
        self.drain()
        self._look()
        longest = [1.0 + one.runner.options.shutdown_grace + one.runner.options.margin for one in self._seats.values()]
        with suppress(TimeoutError):
            await asyncio.wait_for(self._quiet.wait(), max(longest, default=1.0))

    def come_back(self) -> None:
        """Lead again, as a replica does that comes after the last one has left."""
        self._away = False
        for seat in self._seats.values():
            self._begin(seat)

    async def stop(self, *, at_once: bool = False) -> None:
        """Leave for good; `at_once`: runs in flight are cancelled."""
        try:
            if at_once:
                self._away = True
            else:
                await self.leave()
        finally:
            self._stopping = True
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=0.5)

    def lose(self, name: str) -> None:
        """Let the job's lease be somebody else's at this moment."""
        seat = self._seats[name]
        if seat.lease is not None:
            seat.lease.stopping, seat.lease.deadline = True, 0.0
            seat.reason = seat.reason or "lost"
            seat.runner.end("lost", seat.lease.token)

    def count_drops(self) -> None:
        """Have the ticks counted that runs in flight have dropped so far."""
        for runner in self.runners.values():
            runner.look()

    # -- what the app asks of its service ---------------------------------------------------------------------------

    @property
    def leases(self) -> dict[str, Lease]:
        """Of the jobs that it leads at this moment."""
        return {name: seat.lease for name, seat in self._seats.items() if seat.lease is not None}

    def is_paused(self, job: str) -> bool:  # noqa: ARG002 - no operator is there
        return False

    def is_leader(self, name: str) -> bool:
        lease = self._seats[name].lease if name in self._seats else None
        return lease is not None and lease.valid()

    def state(self, name: str) -> HealthState:
        if name not in self._seats or not self._seats[name].on:
            return "disabled"
        return "leading" if self.is_leader(name) else "following"

    # -- what a runner requests (`Orders`) ---------------------------------------------------------------------------

    def alive(self) -> None:
        """The job loop turns; nobody here doubts it."""

    def post(self, order: Callable[[float], object]) -> None:
        if asyncio._get_running_loop() is self._loop:  # noqa: SLF001 - the documented way raises where there is none
            order(self._clock.boot())
        else:
            self._loop.call_soon_threadsafe(lambda: order(self._clock.boot()))

    def claim(self, claim: Claim) -> None:
        self.post(lambda _now: self._claim(claim))

    def _claim(self, claim: Claim) -> None:
        seat = self._seats[claim.job]
        verdict = self._apply(seat, claim)
        assert isinstance(verdict, (Claimed, NotClaimed))  # noqa: S101 - the rules' answer to a claim
        seat.runner.answer(claim, verdict)

    def withdraw(self, job: str) -> None:
        """Claims are answered as they are made: there is none to withdraw."""

    def report(self, job: str) -> None:
        """No operator waits for anything."""

    def resign(self, job: str, token: int) -> None:  # noqa: ARG002 - there is one term
        seat = self._seats[job]
        seat.reason = seat.reason or "resigned"

    def drained(self, job: str, token: int, *, died: bool) -> None:
        self.post(lambda _now: self._drained(job, token, died=died))

    def _drained(self, job: str, token: int, *, died: bool) -> None:
        seat = self._seats[job]
        lease, seat.lease = seat.lease, None
        assert lease is not None  # noqa: S101 - said once per term
        assert lease.token == token  # noqa: S101 - likewise
        ended_ago = None if lease.ended_at is None else self._clock.boot() - lease.ended_at
        progress = Progress(tick=lease.tick, done=lease.done, ended_ago=ended_ago, settled=lease.settled)
        self._apply(seat, Release(job, seat.number, progress, off=seat.reason == "disabled"))
        reason, seat.reason = seat.reason, None
        if died:
            self._loop.call_later(REVIVAL, self._begin, seat)
        elif reason == "resigned":
            seat.resigned += 1
            options = seat.runner.options
            pause = min(options.heartbeat_interval * 2**seat.resigned, options.max_backoff_delay)
            self._loop.call_later(pause, self._begin, seat)
        else:
            seat.resigned = 0
            self._loop.call_soon(self._begin, seat)  # not before the runner has told of the end of this term
        self._look()

    # -- terms ------------------------------------------------------------------------------------------------------

    def _begin(self, seat: _Seat) -> None:
        if self._away or not seat.on or seat.lease is not None:
            return
        self._quiet.clear()
        seat.number += 1
        job = seat.runner.job.name
        verdict = self._apply(seat, Acquire(job, seat.number, FOR_EVER, 0))
        assert isinstance(verdict, Granted)  # noqa: S101 - nobody else asks
        names = {"project": self.project, "job": job, "node": NODE, "token": self._token or verdict.token}
        seat.lease = _Lease(self._clock, seat.usable, **names)
        seat.runner.begin(seat.lease, verdict.state)

    def _turn(self, job: str, on: bool) -> None:
        seat = self._seats[job]
        seat.on = on
        if on:
            self._begin(seat)
        elif seat.lease is not None:
            seat.reason = seat.reason or "disabled"
            seat.runner.drain("disabled")

    def _look(self) -> None:
        if not any(seat.lease for seat in self._seats.values()):
            self._quiet.set()

    def _apply(self, seat: _Seat, request: Acquire | Release | Claim) -> object:
        wall, boot = self._clock.now()
        return apply(seat.record, request, node=NODE, clock=int(boot * 1e6), wall=wall)
