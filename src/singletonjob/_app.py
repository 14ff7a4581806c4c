"""`SingletonJobs`: where jobs are registered, and the ways to start and stop them.

A little over 300 lines, because the ways to start and stop must be read side by side.
"""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from ._core.errors import ConfigError, SingletonJobError
from ._jobs.options import APP_READERS, read
from ._jobs.registry import Registry
from ._jobs.sources import resolve_sources
from ._jobs.user_code import inside
from ._process.event_loops import refuse_running_loop, require_asyncio
from ._process.job_thread import start_job_thread
from ._process.preforking import call_off, joins_after_fork
from ._process.processes import enter_process
from ._process.signals import exit_now, stop_signals
from ._process.systemd import notifying
from ._reporting.health import Health
from ._runtime.heartbeat import Heartbeat
from ._runtime.service import Service

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Mapping
    from types import TracebackType
    from typing import Self, Unpack

    from ._core.values import Event
    from ._jobs.options import AppOptionValues
    from ._jobs.sources import Resolved
    from ._reporting.heartbeat_counters import BeatStats
    from ._reporting.job_counters import JobStats
    from ._system.clock import Clock
    from .control import Control
    from .stores import LeaseStore

__all__ = ["SingletonJobs"]


class SingletonJobs(Registry):
    """Periodic jobs of one project, each of which runs on exactly one replica.

    `project` and `store` are required, here, as SINGLETONJOB_PROJECT and SINGLETONJOB_STORE, or in the file that
    SINGLETONJOB_CONFIG names (`singletonjob.toml`): replicas that share them take turns. `store` is a URL or a
    `LeaseStore`. The other options hold for all jobs that do not set them themselves; see `AppOptionValues`. `clock`
    is for tests. Raises `ConfigError` for a bad value.

    The decorators `interval`, `fixed_rate` and `cron` return the function unchanged. A body may be sync or async; the
    `Run` goes to a parameter that is annotated `Run` or named `run`, and any other needs a default. The job is named
    after the function (`price_tick`: `price-tick`) unless `name` is given; further keywords are options of its own.
    They raise `ConfigError`, naming job and option, for a bad value, an unknown option, a body with wrong parameters
    and after the start; `ScheduleError` for a schedule that cannot be used; `DuplicateJobError` for a name that is
    taken.

    One app object runs once at a time; a start while it runs raises `SingletonJobError`.
    """

    def __init__(
        self,
        project: str | None = None,
        store: str | LeaseStore | None = None,
        *,
        clock: Clock | None = None,
        **options: Unpack[AppOptionValues],
    ) -> None:
        super().__init__()
        given = {"project": project, "store": store}
        self._code: dict[str, Any] = read(
            {**{name: value for name, value in given.items() if value is not None}, **options}, APP_READERS
        )
        self._clock = clock
        self._callbacks: list[Callable[[Event], None]] = []
        self._service: Service | None = None
        self._thread: threading.Thread | None = None

    def configure(self, *, project: str | None = None, store: str | LeaseStore | None = None) -> None:
        """Set project or store over what was given in code. Raises `ConfigError` for a bad value or after the start."""
        if self._service is not None:
            raise ConfigError("configure: the app has started; call it before")
        given = {"project": project, "store": store}
        self._code |= read({name: value for name, value in given.items() if value is not None}, APP_READERS)

    def resolved(self) -> Resolved:
        """What holds if the app starts now, and where each value was written: in code, environment, file or nowhere.

        Raises `ConfigError` for a bad value in the environment or in the file, and for a decorator without parentheses.
        """
        self.refuse_bare_decorators()
        return resolve_sources(self._code, self._jobs.values(), os.environ)

    # -- ways to run -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run the jobs until SIGTERM, SIGINT or `stop`, drain, release, and return. A second signal exits at once.

        Under systemd (NOTIFY_SOCKET) it reports READY=1, STOPPING=1 and WATCHDOG=1; so does `serve`. Raises
        `ConfigError` for options that do not go together, and `SingletonJobError` where an event loop runs already.
        Where a run did not end within its grace, its lease is left to expire and the process exits with code 1.
        """
        refuse_running_loop()
        asyncio.run(self._run())

    async def _run(self) -> None:
        service = await self._serve(signals=True)
        if service.abandoned:
            exit_now(1)  # neither the interpreter nor asyncio must wait for a body that would not stop

    async def serve(self, *, signals: bool = True) -> None:
        """Run the jobs inside a running asyncio program, as `run` does, and return when a signal or `stop` has stopped
        them.

        With `signals=False` no signal does. To cancel the calling task stops them as well. In each case they have
        drained and released their leases before this ends. Raises `ConfigError` for options that do not go together.
        """
        await self._serve(signals=signals)

    async def _serve(self, *, signals: bool) -> Service:
        require_asyncio()
        service = self._make()
        with stop_signals(service, wanted=signals), notifying(self.health, wanted=signals) as tell_systemd:
            self._begin(service)
            # Not only when the store has answered: systemd ends a start that takes long, and would restart for ever.
            tell_systemd("READY=1")
            try:
                await service.until_stop_requested()
            finally:
                tell_systemd("STOPPING=1")
                await self._leave(service)
        return service

    async def astart(self) -> None:
        """Run the jobs inside a running asyncio program, and leave its signals alone. Returns at once; `astop` ends it.

        For programs with one hook at their start and one at their end; others have `async with app`, which does the
        same around a block. Raises `ConfigError` for options that do not go together.
        """
        require_asyncio()
        self._begin(self._make())

    async def astop(self) -> None:
        """Drain and release; return when that is done. Takes no longer than grace, margin and the store's answer.

        Does nothing if the app does not run. In a body, hook or switch of the app it requests the stop and returns.
        """
        service = self._service
        if service is None or inside.get() is service:
            self.stop()
        elif service.loop_thread != threading.get_ident():
            await asyncio.to_thread(self.stop)
        else:
            await self._leave(service)

    async def __aenter__(self) -> Self:
        """Start as `astart` does. The end of the block stops as `astop` does."""
        await self.astart()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.astop()

    @asynccontextmanager
    async def lifespan(self, _app: object = None) -> AsyncGenerator[None]:
        """The lifespan of an ASGI app: `FastAPI(lifespan=jobs.lifespan)`; Starlette and Litestar likewise.

        The same as `async with app`, in the form that these ask for.
        """
        async with self:
            yield

    def start(self) -> None:
        """Run the jobs on a loop in a thread of its own, for sync programs. Returns at once; `stop` ends it, or the end
        of the main thread.

        In the master of gunicorn or uWSGI it starts nothing there; each worker takes part after its fork. Raises
        `ConfigError` for options that do not go together, `RuntimeError` if no thread can be started.
        """
        if joins_after_fork(self):
            return
        service = self._make()
        try:
            self._thread = start_job_thread(service, self._begin, self._leave)
        except BaseException:
            self._service = None
            raise

    def stop(self) -> None:
        """Stop the app, however it runs; safe from any thread and from a signal handler.

        After `start` this waits until the jobs have drained, their leases are released and the thread has ended, no
        longer than grace, margin and the store's answer take. In code of the app itself (a body, a hook, a switch, a
        callback), and in all other ways to run, it requests the stop and returns: `run` and `serve` then end by
        themselves, and the end of an `async with` block waits for the rest.
        """
        call_off(self)
        service, thread = self._service, self._thread
        if service is not None:
            service.request_stop()
        within = thread is threading.current_thread() or (service is not None and inside.get() is service)
        if thread is not None and not within:
            thread.join(1.0 + (0.0 if service is None else service.longest_stop))
            self._thread = None

    @contextmanager
    def in_thread(self) -> Generator[Self]:
        """`start` and `stop` around a block, for sync programs. Raises what `start` raises."""
        self.start()
        try:
            yield self
        finally:
            self.stop()

    def _make(self, start_heartbeat: Callable[[Heartbeat], object] = Heartbeat.start) -> Service:
        if self._service is not None and not self._service.stopped.is_set():
            raise SingletonJobError(
                "the app runs already; one app object runs once at a time: write app.stop() before you start it again"
            )
        found = self.resolved()
        service = Service(
            found.options(),
            list(found.jobs),
            callbacks=self._callbacks,
            clock=self._clock,
            start_heartbeat=start_heartbeat,
        )
        enter_process(service, self._forget)
        self._service = service
        self._frozen = True
        return service

    def _begin(self, service: Service) -> None:
        try:
            service.start()
        except BaseException:
            service.stopped.set()
            self._service = None
            raise

    def _forget(self) -> None:
        self._service = self._thread = None

    async def _leave(self, service: Service) -> None:
        try:
            await service.stop()
        finally:
            if self._service is service:
                self._service = None

    # -- what is asked of it ---------------------------------------------------------------------------------------

    def is_leader(self, job: str) -> bool:
        """Whether this process may run the job at this very moment: a time check, not a remembered flag.

        False while the app does not run, and in a forked child. Raises `ConfigError` for an unknown job.
        """
        self._known(job)
        service = self._service
        return service is not None and service.is_leader(job)

    def health(self) -> Health:
        """How each job stands; all `disabled` while the app does not run. Never waits; safe from any thread."""
        service = self._service
        return Health.of(
            # A copy of the names: a probe may ask while the program still adds jobs.
            {name: "disabled" if service is None else service.state(name) for name in tuple(self._jobs)},
            ready=service is not None and service.ready,
        )

    def stats(self) -> Mapping[str, JobStats]:
        """The counts of each job that takes part, by name; empty while the app does not run. Safe from any thread."""
        service = self._service
        if service is None:
            return {}
        return {name: runner.counts.frozen() for name, runner in list(service.runners.items())}

    @property
    def control(self) -> Control:
        """An operator's orders for the jobs of this project: `await app.control.pause("price-*")`; see `Control`.

        Each order opens its own connection. Raises `ConfigError` where the app was given a store object, which only its
        heartbeat may use: make a `Control` with a store of its own then.
        """
        from .control import control_of

        return control_of(self.resolved())

    def beats(self) -> BeatStats | None:
        """What the heartbeat did, and how terms ended; None while the app does not run."""
        return None if (service := self._service) is None else service.beats.frozen()

    def subscribe(self, callback: Callable[[Event], None]) -> Callable[[], None]:
        """Have `callback(event)` called for each event from now on; returns what ends it.

        It runs on the job loop, one event per turn, from a queue of 1000 (the oldest are dropped first): keep it
        short. What it raises is logged.
        """
        self._callbacks.append(callback)

        def unsubscribe() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return unsubscribe

    def _known(self, job: str) -> None:
        if job not in self._jobs:
            raise ConfigError(f"{job!r} is no job of this app; its jobs are: {', '.join(sorted(self._jobs)) or 'none'}")
