"""One start of an app: its node id, its heartbeat, one runner per job, and the way down again.

A little over 300 lines: the way up and the way down are to be read against each other.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import threading
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ._clock import SystemClock
from ._election import Elector
from ._heartbeat import Heartbeat, Pulse
from ._lease import instant
from ._runner import Runner
from ._schedule import CronSchedule
from ._timer import Timers
from .jobs.options import node_id
from .journal import Journal
from .stores import from_url
from .threads import DaemonWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._clock import Clock
    from ._model import Event
    from .jobs.definition import JobDefinition
    from .jobs.options import AppOptions

__all__ = ["Service"]

STAMP_EVERY = 1.0
"""Seconds between two signs of life of the job loop."""

RESTART_AFTER = 0.1
"""Seconds until a job whose task was ended from outside gets a new one."""

EVENTS_KEPT = 1000
"""Events that wait for a slow subscriber; the oldest go first."""


class Service:
    """Takes part for the given jobs, from `start` to `stop`. Belongs to one job loop and to one process."""

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
        self.worker = worker or DaemonWorker
        self._clock = clock or SystemClock()
        self.node = node or node_id(options.node_id)
        self._project = options.project
        self._stall_limit = options.stall_limit
        self._notes = options.notes
        self.callbacks = callbacks  # who listens to events; empty, none need be made
        self._events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self._pid = os.getpid()
        self._journal = Journal(options.project, self.node, self._clock.boot)
        self._all = {job.name: (job, options.of_job(job.name, job.overrides)) for job in jobs}
        self._switches = {
            name: job.is_enabled or settings.enabled
            for name, (job, settings) in self._all.items()
            if settings.enabled is not False
        }
        self._settings = {name: self._all[name][1] for name in self._switches}
        self._pulse = Pulse(self._clock.boot())
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
            pulse=self._pulse,
            service=self,
            journal=self._journal,
            random=draw,
        )
        self.runners: dict[str, Runner] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timers: Timers
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._switch_tasks: list[asyncio.Task[None]] = []
        self._stop_task: asyncio.Task[None] | None = None
        self._stop_requested = asyncio.Event()
        self._heartbeat_ended = asyncio.Event()
        self._silence_said = False

    # -- up --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to take part, on the running loop. Waits for nothing, least of all for the store."""
        self._loop = asyncio.get_running_loop()
        self._pulse.loop_thread = threading.get_ident()
        self._announce()
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
                elector=self._elector,
                heartbeat=self._heartbeat,
                journal=self._journal,
                service=self,
            )
            self._start_runner(name)
            switch = self._switches[name]
            if callable(switch):
                self._switch_tasks.append(asyncio.create_task(self._follow_switch(name, switch)))
        if self._settings:
            self._stamp()
            self._start_heartbeat(self._heartbeat)

    def _announce(self) -> None:
        journal = self._journal
        for note in self._notes:
            level = logging.WARNING if note.event == "unknown-job" else logging.INFO
            journal.say(level, note.event, note.text, job=note.job)
        for name, (job, settings) in self._all.items():
            if settings.enabled is False:
                journal.disabled(name)
                continue
            more = ""
            if isinstance(job.schedule, CronSchedule):
                cron = job.schedule.cron
                following = cron.after(self._clock.wall())
                if following is not None:
                    order = " (seconds first)" if len(cron.expression.split()) == 6 else ""
                    when = f"{cron.local(following).isoformat()} ({cron.tz}), {instant(following).isoformat()} in UTC"
                    more = f"; cron {cron.expression!r}{order}, next at {when}"
                for warning in cron.warnings:
                    journal.warn("schedule-warning", warning, name)
            journal.started(name, more)
            if settings.warning is not None:
                journal.warn("options-warning", settings.warning, name)

    def _start_runner(self, name: str) -> None:
        task = self.runners[name].start()
        task.add_done_callback(partial(self._runner_ended, name))
        self._tasks[name] = task

    def _runner_ended(self, name: str, task: asyncio.Task[None]) -> None:
        """A runner ends when the app stops; at any other time somebody killed it, and the job needs a new one."""
        if self._stop_task is not None:
            return
        error = None if task.cancelled() else task.exception()
        self._journal.failed(
            "runner-died", f"its task was ended from outside ({error!r}); starting it again", error, name
        )
        # Not at once: where the loop is being torn down, a new task would be left behind in it.
        asyncio.get_running_loop().call_later(RESTART_AFTER, self._restart_runner, name)

    def _restart_runner(self, name: str) -> None:
        if self._stop_task is None:
            self._start_runner(name)

    def alive(self) -> None:
        """The job loop turns. Said with the end of a term too: after `stuck` a job is not asked for before that."""
        self._pulse.alive_at = self._clock.boot()

    def _stamp(self) -> None:
        self.alive()
        now = self._pulse.alive_at
        silent = now - self._pulse.beat_at
        if silent <= self._longest_silence():
            self._silence_said = False
        elif not self._silence_said:
            self._silence_said = True
            self._journal.failed("heartbeat-silent", f"the heartbeat has not beaten for {silent:.1f} s")
        for runner in self.runners.values():
            runner.look()
        self._stamp_timer = asyncio.get_running_loop().call_later(STAMP_EVERY, self._stamp)

    def _longest_silence(self) -> float:
        return min(settings.lock_expiry for settings in self._settings.values())

    async def _follow_switch(self, name: str, ask: Callable[[], object]) -> None:
        """Ask the live switch once per heartbeat; until its first answer the job does not compete."""
        import inspect

        last: bool | None = None
        while True:
            try:
                answer = ask()
                on = bool(await answer if inspect.isawaitable(answer) else answer)
            except (Exception, asyncio.CancelledError) as error:
                task = asyncio.current_task()
                if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                    raise  # ours; any other came out of the switch
                on = last if last is not None else True
                self._journal.switch_failed(name, error, kept=on)
            if on != last:
                (self._switched_off.discard if on else self._switched_off.add)(name)
                self._heartbeat.post(lambda now, on=on: self._elector.set_enabled(now, name, on))  # type: ignore[misc]  # binds `on`
                if last is not None or not on:
                    self._journal.switched(name, on=on)
                last = on
            await asyncio.sleep(self._settings[name].heartbeat_interval)

    # -- down ------------------------------------------------------------------------------------------------------

    @property
    def longest_drain(self) -> float:
        """When a stop has ended or left behind each body, in seconds after its begin, and one to get away."""
        return 1.0 + max((s.shutdown_grace + s.margin for s in self._settings.values()), default=0.0)

    @property
    def longest_stop(self) -> float:
        """What a stop may take at most, in seconds, the store not answering."""
        return self.longest_drain + 2 * self._call_timeout()

    @property
    def abandoned(self) -> list[str]:
        """Jobs whose run did not end in time; their leases are left to expire."""
        return self._elector.abandoned

    def request_stop(self) -> None:
        """Begin to stop. Safe from any thread and from a signal handler, and while a body blocks the job loop."""
        self._heartbeat.post(self._elector.stop)
        if self._loop is None:
            self._stop_requested.set()  # before the start: nobody waits for it on another thread yet
        else:
            self.post(self._stop_requested.set)

    async def until_stop_requested(self) -> None:
        """Return when `request_stop` was called."""
        await self._stop_requested.wait()

    async def stop(self) -> None:
        """Drain, release, and let go of everything. Bounded by `longest_stop`; may be called more than once."""
        if self._stop_task is None:
            self._stop_requested.set()
            self._stop_task = asyncio.create_task(self._stop())
        await asyncio.shield(self._stop_task)

    async def _stop(self) -> None:
        for runner in self.runners.values():
            runner.drain("shutdown")
        self._heartbeat.post(self._elector.stop)
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._heartbeat_ended.wait(), self.longest_stop)
        except asyncio.CancelledError:
            # Our loop is being torn down. End the bodies; the release needs only their word, and the other thread.
            await self._end_tasks()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._heartbeat_ended.wait(), 2 * self._call_timeout())
            raise
        finally:
            await self._end_tasks()
            if self._settings:
                self._stamp_timer.cancel()
                self._heartbeat.join(self._call_timeout())
            self._timers.close()

    async def _end_tasks(self) -> None:
        tasks = [*self._tasks.values(), *self._switch_tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=0.5)

    def _call_timeout(self) -> float:
        return max((settings.call_timeout for settings in self._settings.values()), default=0.0)

    # -- what the heartbeat tells -----------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        return self._loop is not None and self._loop.is_closed()

    def post(self, call: Callable[[], None]) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nothing runs there that this could concern
                self._loop.call_soon_threadsafe(call)

    def heartbeat_ended(self, error: BaseException | None) -> None:
        if error is not None:
            self._journal.failed("heartbeat-died", f"the heartbeat died: {error!r}", error)
        self._heartbeat_ended.set()

    # -- events ----------------------------------------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        if not self.callbacks:
            return
        if not self._events:
            asyncio.get_running_loop().call_soon(self._dispatch)
        self._events.append(event)

    def _dispatch(self) -> None:
        """Hand on one event per turn of the loop, so that ticks come in between."""
        event = self._events.popleft()
        if self._events:
            asyncio.get_running_loop().call_soon(self._dispatch)
        for callback in tuple(self.callbacks):
            try:
                callback(event)
            except Exception as error:
                self._journal.say(logging.ERROR, "subscriber-failed", f"a subscriber raised {error!r}", error=error)

    # -- what is asked of it ---------------------------------------------------------------------------------------

    def is_leader(self, name: str) -> bool:
        """Whether this process holds a valid term of the job at this moment; false in a forked child."""
        lease = self._heartbeat.leases.get(name)
        return lease is not None and lease.valid() and self._pid == os.getpid()

    @property
    def ready(self) -> bool:
        """Whether the store has answered once, or no job asks it for anything."""
        return self._heartbeat.store_seen or not self._settings

    def state(self, name: str) -> str:
        """How the job stands here, in one word of `Health`."""
        if name not in self._settings or name in self._switched_off:
            return "disabled"
        now = self._clock.boot()
        silent = now - self._pulse.alive_at >= self._stall_limit or now - self._pulse.beat_at > self._longest_silence()
        if silent or self._elector.is_stuck(name):
            return "stuck"
        if self.is_leader(name):
            return "leading"
        return "following" if self._heartbeat.store_up else "store_down"
