"""One start of an app: its node id, its heartbeat, one runner per job, and the orderly stop.

This file has more than 300 lines because start and stop must be read together.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import random
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from .._core.elector import Began, ClaimAnswered, Draining, Elector, Ended, LogEvent, Triggered
from .._core.values import StoreDown, StoreUp
from .._jobs.options import node_id
from .._jobs.user_code import handles_interrupts, inside
from .._reporting.event_queue import EventQueue
from .._reporting.log_lines import Journal
from .._system.clock import SystemClock
from .._system.timers import Timers
from .._system.worker_threads import DaemonWorker
from ..stores import described, from_url
from .heartbeat import Heartbeat, SignsOfLife
from .live_switch import follow_switch
from .runner import Runner

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._core.elector import Effect
    from .._core.values import Event
    from .._jobs.definition import JobDefinition
    from .._jobs.options import AppOptions
    from .._reporting.health import HealthState
    from .._reporting.heartbeat_counters import Beats
    from .._system.clock import Clock
    from .lease import Lease

__all__ = ["Service"]

STAMP_EVERY = 1.0
"""Seconds between two signs of life of the job loop."""

RESTART_AFTER = 0.1
"""Seconds until a job whose task was cancelled from outside gets a new task."""


class Service:
    """Competes for the given jobs from `start` to `stop`. Belongs to one job loop and to one process."""

    def __init__(
        self,
        options: AppOptions,
        jobs: list[JobDefinition],
        *,
        callbacks: list[Callable[[Event], None]],
        clock: Clock | None = None,
        start_heartbeat: Callable[[Heartbeat], object],
        node: str | None = None,
        draw: Callable[[], float] = random.random,
        worker: Callable[[str], DaemonWorker] | None = None,
    ) -> None:
        self._start_heartbeat = start_heartbeat
        self.worker: Callable[[str], DaemonWorker] = worker or DaemonWorker
        self._clock = clock or SystemClock()
        self.node: str = node or node_id(options.node_id)
        self._project = options.project
        self._stall_limit = options.stall_limit
        self._notes, self._store = options.notes, options.store
        self.callbacks = callbacks  # the listeners; without any, no event is made
        self._pid = os.getpid()
        self._journal = Journal(options.project, self.node, self._clock.boot)
        self.tell: Callable[[Event], None] = EventQueue(callbacks, self._journal).put
        self._all = {job.name: (job, options.of_job(job.name, job.overrides)) for job in jobs}
        self._switches = {
            name: job.is_enabled or settings.enabled
            for name, (job, settings) in self._all.items()
            if settings.enabled is not False
        }
        self._settings = {name: self._all[name][1] for name in self._switches}
        self._signs = SignsOfLife(self._clock.boot())
        self._elector = Elector(
            project=options.project,
            node=self.node,
            jobs=self._settings,
            enabled=[name for name, switch in self._switches.items() if switch is True],
            random=draw,
            amnesia_guard=options.amnesia_guard,
        )
        self._switched_off: set[str] = set()
        self._heartbeat = Heartbeat(
            elector=self._elector,
            store=from_url(options.store) if isinstance(options.store, str) else options.store,
            options=self._settings,
            stall_limit=options.stall_limit,
            clock=self._clock,
            signs=self._signs,
            journal=self._journal,
            random=draw,
            post=self.post,
            deliver=self._deliver,
            ended=self.heartbeat_ended,
            loop_closed=lambda: self.closed,
        )
        self.beats: Beats = self._heartbeat.beats
        self.leases: dict[str, Lease] = self._heartbeat.leases
        self.runners: dict[str, Runner] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._switch_tasks: list[asyncio.Task[None]] = []
        self._stop_task: asyncio.Task[None] | None = None
        self._stop_requested = asyncio.Event()
        self.stopped: threading.Event = threading.Event()  # for other threads
        self.loop_thread: int = 0
        self._heartbeat_ended = asyncio.Event()
        self._silence_said = False

    # -- up --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start on the running loop. Waits for nothing, not even for the store."""
        self._loop = asyncio.get_running_loop()
        self.loop_thread = self._signs.loop_thread = threading.get_ident()
        store, warnings = described(self._store)
        self._journal.announce(self._notes, self._all.values(), self._clock.wall(), store=store, warnings=warnings)
        if not self._settings:
            self._heartbeat_ended.set()
        margin = min((settings.margin for settings in self._settings.values()), default=1.0)
        self._timers = Timers(self._loop, self._clock, longest_boot_sleep=margin / 2)
        for name, settings in self._settings.items():
            self.runners[name] = Runner(
                self._all[name][0],
                settings,
                clock=self._clock,
                timers=self._timers,
                orders=self._heartbeat,
                journal=self._journal,
                callbacks=self.callbacks,
                tell=self.tell,
                worker=self.worker,
            )
        if self._settings:
            try:
                self._stamp()
                self._start_heartbeat(self._heartbeat)
            except BaseException:  # the thread cannot be started; nothing else has begun yet
                self._timers.close()
                raise
        contextvars.copy_context().run(self._start_tasks)

    def _start_tasks(self) -> None:
        inside.set(self)
        for name, settings in self._settings.items():
            self._start_runner(name)
            switch = self._switches[name]
            if callable(switch):
                turn = partial(self._switch, name)
                following = follow_switch(name, switch, settings.heartbeat_interval, turn, self._journal)
                self._switch_tasks.append(asyncio.create_task(following))
        if self._stop_requested.is_set():  # by another thread, before there was a loop
            self._begin_stop()

    def _start_runner(self, name: str) -> None:
        task = self.runners[name].start()
        task.add_done_callback(partial(self._runner_ended, name))
        self._tasks[name] = task

    def _runner_ended(self, name: str, task: asyncio.Task[None]) -> None:
        """Start a new task for the job if its runner was cancelled from outside, and not because the app stops."""
        if self._stop_task is not None or self._loop is None:
            return
        error = None if task.cancelled() else task.exception()
        self._journal.failed(
            "runner-died", f"its task was ended from outside ({error!r}); starting it again", error, name
        )
        # Not at once, because a loop that is being torn down would leave the new task behind.
        asyncio.get_running_loop().call_later(RESTART_AFTER, self._restart_runner, name)

    def _restart_runner(self, name: str) -> None:
        if self._stop_task is None:
            self._start_runner(name)

    def _stamp(self) -> None:
        self._heartbeat.alive()
        now = self._signs.alive_at
        # First, because otherwise an exception below would end the signs of life.
        self._stamp_timer = self._timers.at_boot(now + STAMP_EVERY, self._stamp)
        silent = now - self._signs.beat_at
        if silent <= self._longest_silence():
            self._silence_said = False
        elif not self._silence_said:
            self._silence_said = True
            self._journal.failed("heartbeat-silent", f"the heartbeat has not beaten for {silent:.1f} s")
        for runner in self.runners.values():
            runner.refresh()

    def _longest_silence(self) -> float:
        return min(settings.lock_expiry for settings in self._settings.values())

    def _switch(self, name: str, on: bool) -> None:
        (self._switched_off.discard if on else self._switched_off.add)(name)
        self._heartbeat.post(lambda now: self._elector.set_enabled(now, name, on))

    # -- down ------------------------------------------------------------------------------------------------------

    @property
    def longest_drain(self) -> float:
        """Seconds after which a stop has ended or abandoned each body, and one second more."""
        return 1.0 + max((s.shutdown_grace + s.margin for s in self._settings.values()), default=0.0)

    @property
    def longest_stop(self) -> float:
        """Seconds that a stop takes at most, if the store does not answer."""
        return self.longest_drain + 2 * self._call_timeout()

    @property
    def abandoned(self) -> list[str]:
        """The jobs whose run did not end in time; their leases are left to expire."""
        return self._elector.abandoned

    @property
    def finished(self) -> bool:
        """True if a stop has released what it could, so that it does not wait for the store any more."""
        return self._elector.finished

    def request_stop(self) -> None:
        """Begin to stop. Safe from any thread and from a signal handler, even if a body blocks the job loop."""
        self._heartbeat.post(self._stop_elector)
        if self._loop is None:
            self._stop_requested.set()  # before the start, so no other thread waits for it yet
        else:
            self.post(self._begin_stop)

    def _stop_elector(self, now: float) -> None:
        running = [lease.job for lease in list(self.leases.values()) if lease.run_started is not None]
        if running:
            self._journal.stopping({job: self._settings[job] for job in running}, signals=handles_interrupts())
        self._elector.stop(now)

    def log_exit(self) -> None:
        """Log that the process ends now, and what happens to its leases. Safe from any thread."""
        if led := {job: options for job, options in self._settings.items() if self.is_leader(job)}:
            self._journal.exits(led)

    def main_thread_ended(self) -> None:
        """Begin to stop because the process is about to exit."""
        self.request_stop()
        self._journal.say(logging.INFO, "main-thread-ended", "the main thread has ended; all jobs stop in this process")

    async def until_stop_requested(self) -> None:
        """Return when `request_stop` has been called."""
        await self._stop_requested.wait()

    async def stop(self) -> None:
        """Drain, release, and close everything, within `longest_stop`. May be called more than once."""
        await asyncio.shield(self._begin_stop())

    def _begin_stop(self) -> asyncio.Task[None]:
        if self._stop_task is None:
            self._stop_requested.set()
            self._stop_task = asyncio.create_task(self._stop())
        return self._stop_task

    async def _stop(self) -> None:
        for runner in self.runners.values():
            runner.drain("shutdown")
        self._heartbeat.post(self._stop_elector)
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._heartbeat_ended.wait(), self.longest_stop)
        except asyncio.CancelledError:
            # The loop is being torn down. End the bodies, so that the heartbeat's thread can release.
            await self._end_tasks()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._heartbeat_ended.wait(), 2 * self._call_timeout())
            raise
        finally:
            await self._end_tasks()
            if self._settings:
                self._stamp_timer.cancel()
                await self._heartbeat.join(self._call_timeout())
            self._timers.close()
            self.stopped.set()

    async def _end_tasks(self) -> None:
        tasks = [*self._tasks.values(), *self._switch_tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=0.5)

    def _call_timeout(self) -> float:
        return max((settings.call_timeout for settings in self._settings.values()), default=0.0)

    def abandon(self) -> None:
        """Do nothing any more, in a forked child. Change memory only, because the parent shares everything else."""
        for lease in list(self.leases.values()):
            lease.end("lost")
        if self._loop is not None:
            self._timers.abandon()
        self._loop = None
        self._heartbeat.abandon()
        self._heartbeat_ended.set()  # the thread is the parent's, so nothing may wait for it here

    # -- calls of the heartbeat ------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._loop is not None and self._loop.is_closed()

    def post(self, call: Callable[[], object]) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed, so nothing runs there any more
                self._loop.call_soon_threadsafe(call)

    def _deliver(self, effect: Effect, lease: Lease | None) -> None:
        """Post an effect of the elector to the job loop, from the heartbeat's thread. `lease` comes with `Began`."""
        self.post(partial(self._act_on, effect, lease))

    def _act_on(self, effect: Effect, lease: Lease | None) -> None:
        match effect:
            case Began() if lease is not None:
                self.runners[effect.job].begin(lease, effect.state)
            case Draining():
                self.runners[effect.job].drain(effect.reason, effect.token)
            case Ended():
                self.runners[effect.job].end(effect.reason, effect.token)
            case ClaimAnswered():
                self.runners[effect.job].answer(effect.claim, effect.verdict)
            case Triggered():
                self.runners[effect.job].trigger(effect.id, effect.token)
            case LogEvent(event="store-down"):
                self.tell(StoreDown(error=effect.text))
            case LogEvent(event="store-up"):
                self.tell(StoreUp(outage=effect.number))
            case _:
                pass  # log lines are written by the heartbeat

    def heartbeat_ended(self, error: BaseException | None) -> None:
        if error is not None:
            self._journal.failed("heartbeat-died", f"the heartbeat died: {error!r}", error)
        self._heartbeat_ended.set()

    # -- queries ---------------------------------------------------------------------------------------------------

    def is_leader(self, name: str) -> bool:
        """Return True if this process holds a valid term of the job at this moment; False in a forked child."""
        lease = self.leases.get(name)
        return lease is not None and lease.valid() and self._pid == os.getpid()

    @property
    def ready(self) -> bool:
        """True if the store has answered once, or no job needs it; False in a forked child."""
        return (self._heartbeat.store_seen or not self._settings) and self._pid == os.getpid()

    def state(self, name: str) -> HealthState:
        """Return the state of the job for `Health`. Safe from any thread, even if the job loop is blocked."""
        if name not in self._settings or self._pid != os.getpid() or self.stopped.is_set():
            return "disabled"
        now, lease, standing = self._clock.boot(), self.leases.get(name), self._elector.standings[name]
        silent, beatless = now - self._signs.alive_at, now - self._signs.beat_at > self._longest_silence()
        # A run past its limit is stuck even if its term ended for another reason.
        overrun = lease is not None and now >= lease.limit and (lease.run_started is not None or lease.in_thread)
        if silent >= self._stall_limit or beatless or overrun or standing.stuck:
            return "stuck"
        if silent >= self._stall_limit / 2:
            return "starved"
        if name in self._switched_off:
            return "disabled"
        leading = self.is_leader(name)
        if not leading and (standing.failing or not self._heartbeat.store_up):
            return "store_down"
        if standing.paused:
            return "paused"
        return "leading" if leading else "following"
