"""The heartbeat: one thread with a separate event loop, which drives the elector and calls the store.

It does not run on the job loop, so that a body that blocks the job loop does not lose the lease by that alone. Only
this thread calls the elector. Each decision is written into the `Lease` at once, where the job loop reads it, and is
sent to the job loop as a message, which may arrive later.

This file has more than 300 lines because the thread, its loop and the effects share the same few variables.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from .._core.elector import Began, Draining, Effect, Ended, Extended, LogEvent
from .._core.errors import StoreError
from .._core.protocol import NO_PROGRESS, Batch, Progress, Reply
from .._reporting.heartbeat_counters import Beats
from .._reporting.log_writer import in_background, shown
from .._reporting.slow_runs import SlowRuns
from ..stores.calls import close, exchange, outcome
from ..stores.name_look_ups import PatientLoop
from .lease import Lease

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._core.elector import Claim, Elector
    from .._jobs.options import JobOptions
    from .._reporting.log_lines import Journal
    from .._system.clock import Clock
    from ..stores import LeaseStore

__all__ = ["Heartbeat", "SignsOfLife"]

PAUSE = 0.1
"""Seconds to wait after an unexpected exception; doubled after each further one, up to one heartbeat."""


class SignsOfLife:
    """When job loop and heartbeat last showed that they are alive, on the boot clock; each reads the other's (S7)."""

    __slots__ = ("alive_at", "beat_at", "loop_thread")

    def __init__(self, now: float) -> None:
        self.alive_at: float = now  # written by the job loop
        self.beat_at: float = now  # written by the heartbeat
        self.loop_thread: int = 0


class Heartbeat:
    """Drives `elector` against `store`.

    `main` is the complete heartbeat as a coroutine, and `start` runs it in a thread. `random` returns numbers from 0 up
    to 1.
    """

    def __init__(
        self,
        *,
        elector: Elector,
        store: LeaseStore,
        options: dict[str, JobOptions],
        stall_limit: float,
        clock: Clock,
        signs: SignsOfLife,
        journal: Journal,
        post: Callable[[Callable[[], object]], None],
        deliver: Callable[[Effect, Lease | None], None],
        ended: Callable[[BaseException | None], None],
        loop_closed: Callable[[], bool],
        random: Callable[[], float],
    ) -> None:
        self._elector = elector
        self._store = store
        self._options = options
        self._stall_limit = stall_limit
        self._clock = clock
        self._signs = signs
        self._post_to_loop = post
        self._deliver = deliver
        self._ended = ended
        self._loop_closed = loop_closed
        self._journal = journal
        self._random = random
        # If every job is disabled, `main` does not run.
        self._interval = min((options.heartbeat_interval for options in options.values()), default=inf)
        self.leases: dict[str, Lease] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._thread_ended = asyncio.Event()  # awaited on the job loop: the thread has ended
        self._wake: asyncio.Event
        self._call: asyncio.Task[None] | None = None
        self._subscribed = False
        self._to_log: list[Effect] = []
        self._effects: deque[Effect] = deque()  # to carry out
        self._slow_runs = SlowRuns(self.leases, options, stall_limit=stall_limit, journal=journal)
        self.store_up: bool = False
        self.store_seen: bool = False
        self.beats: Beats = Beats(self, elector, journal, options)

    # -- the thread ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Run `main` in a daemon thread. When this returns the loop exists; nothing waits for the store.

        Raises `RuntimeError` if the thread cannot be started, and then leaves nothing behind.
        """
        loop = self._loop = PatientLoop()
        loop.set_exception_handler(self._loop_failed)
        self._wake = asyncio.Event()
        thread = threading.Thread(target=self._run, name="singletonjob-heartbeat", daemon=True)
        try:
            thread.start()
        except BaseException:
            self._loop = None
            loop.close()
            raise
        self._thread = thread

    def start_here(self) -> asyncio.Task[None]:
        """Run `main` as a task of the running loop instead, for virtual time."""
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        return self._loop.create_task(self.main())

    def _run(self) -> None:
        loop, error = self._loop, None
        assert loop is not None  # noqa: S101 - set by start
        with in_background(), asyncio.Runner(loop_factory=lambda: loop) as runner:
            try:
                runner.run(self.main())
            except BaseException as raised:
                error = raised
            # Before the loop is closed, because closing waits for a call that ignores its cancellation, for which the
            # job loop must not wait.
            self._post_to_loop(partial(self._ended, error))
        self._post_to_loop(self._thread_ended.set)

    def _loop_failed(self, _loop: object, context: dict[str, object]) -> None:
        """Log what asyncio would log, because the handlers of asyncio's logger must not block this thread either."""
        error = context.get("exception")
        self._journal.heartbeat_failed(f"{context['message']}:", error if isinstance(error, BaseException) else None)

    def post(self, order: Callable[[float], None]) -> None:
        """Run `order(now)` on the heartbeat's loop. Safe from any thread and from a signal handler."""
        loop = self._loop
        if loop is None:
            return

        def carry_out() -> None:
            order(self._clock.boot())
            self._wake.set()

        try:
            loop.call_soon_threadsafe(carry_out)
        except RuntimeError:
            return  # the heartbeat has ended, so its terms are released or end at their deadlines

    # -- `Orders` of the runners; safe from any thread --------------------------------------------------------------

    def claim(self, claim: Claim) -> None:
        self.post(lambda now: self._elector.claim(now, claim))

    def withdraw(self, job: str) -> None:
        self.post(lambda _now: self._elector.withdraw(job))

    def report(self, job: str) -> None:
        self.post(lambda now: self._elector.report(now, job))

    def resign(self, job: str, token: int) -> None:
        self.post(lambda _now: self._elector.resign(job, token))

    def drained(self, job: str, token: int, *, died: bool) -> None:
        self.post(lambda now: self._elector.drained(now, job, token, died=died))

    def alive(self) -> None:
        """Record that the job loop is alive. After `stuck` a job is not acquired before that."""
        self._signs.alive_at = self._clock.boot()

    def abandon(self) -> None:
        """Take no more orders. Called in a forked child, because the thread is the parent's."""
        self._loop = None

    async def join(self, seconds: float) -> None:
        """Wait for the thread to end, at most for `seconds`. `Thread.join` would block the loop."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._thread_ended.wait(), 0 if self._thread is None else seconds)

    # -- the loop --------------------------------------------------------------------------------------------------

    async def main(self) -> None:
        """Beat until the elector is stopped and has released what it could."""
        listening = asyncio.create_task(self._listen())
        first_call = self._clock.boot() + min(options.call_timeout for options in self._options.values())
        pause = PAUSE
        while not self._elector.finished:
            try:
                await self._beat(first_call)
                pause = PAUSE
            except Exception as error:
                # A term ends without a heartbeat, too: its fence ends it on the job loop.
                self._journal.heartbeat_failed("the heartbeat raised", error)
                if self._call is None or self._call.done():
                    with suppress(Exception):  # for a call that was never made, and that the elector waits for
                        self._elector.receive(self._clock.boot(), None, shown(error))
                await asyncio.sleep(min(pause, self._interval))
                pause *= 2
        self._carry_out()
        self._log_effects()
        listening.cancel()
        await asyncio.wait({listening}, timeout=0.1)
        if not self._elector.abandoned:
            # If a body did not stop, keep the SQLite holder lock, so that no other process takes the lease before this
            # process exits.
            closing = asyncio.create_task(close(self._store))
            await asyncio.wait({closing}, timeout=1.0)

    async def _beat(self, first_call: float) -> None:
        """Do what is due, then sleep until something else is. Without notices no call is sent before `first_call`."""
        elector, clock = self._elector, self._clock
        self._wake.clear()
        now = clock.boot()
        self._check_job_loop(now)
        wake_at = now + self._interval
        if self._subscribed or now >= first_call:
            step = elector.poll(now, self)
            wake_at = min(wake_at, step.wake_at)
            try:
                self._carry_out()
            finally:  # in any case, because the elector waits for the answer
                if step.batch is not None:
                    call = asyncio.create_task(exchange(self._store, step.batch))
                    self._call = asyncio.create_task(self._take_answer(call, step.batch, now))
            if step.batch is not None:
                await asyncio.sleep(0)  # the request is sent before anything is logged
        else:
            wake_at = min(wake_at, first_call)
        self._signs.beat_at = now  # only now, because a beat that failed does not count
        self._log_effects()
        if not (self._wake.is_set() or elector.finished):
            await self._sleep(min(wake_at, self._slow_runs.next_check(now)) - clock.boot())

    async def _sleep(self, seconds: float) -> None:
        assert self._loop is not None  # noqa: S101 - main is running on it
        timer = self._loop.call_later(max(seconds, 0.0), self._wake.set)
        await self._wake.wait()
        timer.cancel()

    async def _take_answer(self, call: asyncio.Future[Reply], batch: Batch, sent: float) -> None:
        """Await one call, and give its outcome to the elector in any case."""
        reply, error = await outcome(call, batch.bound)
        now = self._clock.boot()
        try:
            self._elector.receive(now, reply, error)
            self._carry_out()
            self.beats.answered(batch, reply, now - sent)
            if reply is not None:
                if not batch.requests:  # a new connection, whose store may have older data
                    for lease in self.leases.values():
                        lease.told = ()
                if batch.requests or not self.store_seen:  # a store may tell its time and refuse everything else
                    self.store_up = self.store_seen = True
                self._journal.beat(len(batch.requests), now - sent)
        except Exception as failure:
            self._journal.heartbeat_failed("an answer of the store raised", failure)
            await asyncio.sleep(min(PAUSE, self._interval))
        self._wake.set()

    async def _listen(self) -> None:
        """Receive notices; if they cannot be received, try again every heartbeat."""
        task = asyncio.current_task()
        while True:
            try:
                async for jobs in self._store.notices(self._elector.project):
                    now = self._clock.boot()
                    if jobs:
                        self._elector.notice(now, jobs)
                    else:
                        self._elector.subscribed(now)
                    self._subscribed = True
                    self._wake.set()
            except BaseException as error:
                # The store may be the user's code, so `SystemExit` or a cancellation may come from it.
                if isinstance(error, GeneratorExit) or (task is not None and task.cancelling()):
                    raise
                if not isinstance(error, StoreError):  # a beat that meets such an error reports it
                    self._to_log.append(LogEvent("notices-failed", text=shown(error)))
            self._elector.notices_lost(self._clock.boot())
            self._subscribed = True
            self._wake.set()
            await asyncio.sleep(self._interval * (0.8 + 0.4 * self._random()))

    # -- the elector's effects --------------------------------------------------------------------------------------

    def _carry_out(self) -> None:
        """Write each effect into its lease and post it to the job loop. Log it after the next request is sent."""
        effects = self._effects
        effects += self._elector.take_effects()
        while effects:  # if one raises, the next call carries out the rest
            effect = effects.popleft()
            if isinstance(effect, Extended):
                lease = self.leases[effect.job]
                lease.leadership = effect.term
                lease.told = lease.telling
                continue
            self._to_log.append(effect)
            self.beats.carried_out(effect)
            if isinstance(effect, Began):
                lease = self.leases[effect.job] = Lease(
                    self._clock,
                    project=self._elector.project,
                    job=effect.job,
                    node=self._elector.node,
                    leadership=effect.term,
                )
                self._deliver(effect, lease)
                continue
            if isinstance(effect, Draining):
                self.leases[effect.job].drain(effect.reason)
            elif isinstance(effect, Ended):
                self.leases[effect.job].end(effect.reason)
            elif isinstance(effect, LogEvent) and effect.event == "job-error" and effect.job in self.leases:
                self.leases[effect.job].told = ()  # its state may be older, or empty, when it is served again
            elif isinstance(effect, LogEvent) and effect.event == "store-down":
                self.store_up = False
            self._deliver(effect, None)

    def _log_effects(self) -> None:
        effects, self._to_log = self._to_log, []
        for effect in effects:
            if isinstance(effect, Began):
                self._journal.elected(effect.job, effect.term.token)
            elif isinstance(effect, Ended):
                lease = self.leases[effect.job]  # of a newer term if one began with the same reply
                silent = self._clock.boot() - lease.leadership.sent if lease.token == effect.token else None
                self._journal.stepped_down(effect.job, effect.token, effect.reason, silent)
            elif isinstance(effect, LogEvent):
                self._journal.note(effect.event, effect.job, effect.text, effect.number, effect.token)

    # -- `Liveness` of the elector ----------------------------------------------------------------------------------

    def alive_until(self, job: str) -> float:
        return min(self._signs.alive_at + self._stall_limit, self.leases[job].limit)

    def progress(self, job: str, now: float) -> Progress:
        lease = self.leases.get(job)
        if lease is None:
            return NO_PROGRESS
        lease.telling = telling = lease.tick, lease.done, lease.ended_at, lease.settled, lease.runs, lease.finished
        if telling == lease.told:
            return NO_PROGRESS  # the store has it already
        ended, good = (None if at is None else max(0.0, now - at) for at in (lease.ended_at, lease.good_at))
        runs = lease.outcome, lease.runs, lease.failures, good
        return Progress(lease.tick, lease.done, ended, lease.settled, *runs, lease.finished)

    # -- watching the job loop --------------------------------------------------------------------------------------

    def _check_job_loop(self, now: float) -> None:
        if self._loop_closed():
            # No async body runs on a closed loop. A sync body may still run in its thread.
            self._elector.stop(now)
            for job, lease in self.leases.items():
                if not lease.in_thread:
                    self._elector.drained(now, job, lease.token)
            return
        self._slow_runs.check(now, alive_at=self._signs.alive_at, loop_thread=self._signs.loop_thread)
