"""`virtual_time`: whole apps driven through hours in milliseconds, to see which job runs when."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import threading
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from .._core.errors import ConfigError, SingletonJobError
from .._core.values import RunFinished, RunStarted, instant
from .._jobs.duration import duration
from .._jobs.options import resolve
from .lone_service import LoneService, LoneStore, with_remaining
from .moments import micros
from .virtual_loop import LONGEST, LoopClock, VirtualLoop
from .virtual_threads import TurnWorker, VirtualEvent, this_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from datetime import datetime
    from typing import Self

    from .._app import SingletonJobs
    from .._core.values import Event, Outcome
    from .._jobs.definition import JobDefinition
    from .._jobs.duration import Duration
    from .._jobs.handles import Run
    from .._jobs.options import JobOptions
    from .moments import Moment

__all__ = ["VirtualRun", "virtual_time"]

T = TypeVar("T")


class VirtualRun(NamedTuple):
    """One run. Instants are microseconds since the epoch; the properties give them as aware datetimes in UTC.

    `due` is the instant that it was due, `started` when it began, `ended` when it was over; None, as `outcome`, while
    it is in flight. `tick` is the number of its grid point (fixed rate), `error` what the body raised.
    """

    job: str
    due: int
    started: int
    tick: int | None
    ended: int | None = None
    outcome: Outcome | None = None
    error: BaseException | None = None

    @property
    def scheduled_at(self) -> datetime:
        """The instant that it was due."""
        return instant(self.due)

    @property
    def started_at(self) -> datetime:
        """When it began."""
        return instant(self.started)

    @property
    def ended_at(self) -> datetime | None:
        """When it was over; None while it is in flight."""
        return None if self.ended is None else instant(self.ended)

    @property
    def lateness(self) -> float:
        """How long after its time it started, in seconds."""
        return (self.started - self.due) / 1e6


class virtual_time:  # noqa: N801 - reads as what it is used as: `with virtual_time("2026-03-01T00:00Z") as world`
    """A world whose time is virtual and begins at `start`, with `apps` in it, each the only replica of its project.

        with virtual_time("2026-03-01T00:00Z", app) as world:
            world.run_for("1d")
        assert [run.scheduled_at.hour for run in world.runs_of("report")] == [3]

    `start` is an aware datetime, or text as `datetime.fromisoformat` reads it, with an offset from UTC. Schedules,
    overlaps, misfires, timeouts and live switches are the library's own. Sleeps of async bodies (`asyncio.sleep`) and
    `run.wait` of sync ones take virtual time; `time.sleep` takes real time, and no virtual. Each app runs on a store in
    memory, with leases that outlast the world: it leads all its jobs from the start, and its own store is never opened.
    While the block lasts, `app.is_leader`, `app.health()`, `app.stats()` and subscribers work.

    Inside a running loop, an async test's say, it works as well; the world has a loop of its own, and the other stands
    still meanwhile. Raises `ConfigError` for a `start` that is no instant, and as an app's start does.
    """

    def __init__(self, start: Moment, /, *apps: SingletonJobs) -> None:
        self.runs: list[VirtualRun] = []
        """All runs so far, in the order in which they started."""
        self.events: list[Event] = []
        """All events so far but the starts and ends of runs: `TicksDropped` and `Misfired`, above all."""
        self._zero = micros(start, "start")
        self._loop = VirtualLoop()
        self._clock = LoopClock(self._loop, self._zero)
        self._apps: list[tuple[SingletonJobs, Callable[[], LoneService]]] = []
        self._services: list[LoneService] = []
        self._in_flight: dict[tuple[int, str], int] = {}
        self._failed: BaseException | None = None
        self._loop.set_exception_handler(self._take_failure)
        self._closed = False
        try:
            for app in apps:
                self.add(app)
        except BaseException:
            self.close()
            raise

    # -- what happens in it -----------------------------------------------------------------------------------------

    def add(self, app: SingletonJobs) -> None:
        """Start `app` now: it leads all its jobs as soon as time goes on. Its options are those of a start here.

        Project and store need not be set. Raises `ConfigError` for other options that do not go together, and
        `SingletonJobError` for an app that runs already.
        """
        if self._closed:
            raise SingletonJobError("virtual_time: this world has ended; make a new one")
        if app._service is not None:  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # stands in for its own
            raise SingletonJobError("the app runs already; one app object runs once at a time")
        found = app.resolved()
        values = {name: setting.value for name, setting in found.app.items()}
        resolve(values)
        jobs = [_with_virtual_waits(job, found.of_job(job.name)) for job in found.jobs]
        number, store = len(self._apps), LoneStore(self._clock)
        make = partial(
            LoneService,
            str(values.get("project") or "test"),
            jobs,
            store=store,
            clock=self._clock,
            record=partial(self._record, number),
            worker=partial(TurnWorker, loop=self._loop),
            callbacks=app._callbacks,  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # as above
            values=values,
            notes=found.notes,
        )
        self._apps.append((app, make))
        self._start(app, make)

    def _start(self, app: SingletonJobs, make: Callable[[], LoneService]) -> None:
        service = make()
        self._services.append(service)
        app._service, app._frozen = service, True  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # as above
        self._loop.call_soon(service.start)

    def run_for(self, time: Duration) -> None:
        """Let so much time pass: `"365d"`, a timedelta, seconds. What is due at its very end still runs."""
        self._drive(self._loop.time() + duration(time, "run_for"))

    def run_until(self, moment: Moment) -> None:
        """Let time pass up to that instant, written as `start` is. What is due at that very instant still runs."""
        then = (micros(moment, "run_until") - self._zero) / 1e6
        if then < self._loop.time():
            raise ConfigError(f"run_until: {moment} has passed; it is {self.now.isoformat()}")
        self._drive(then)

    def run(self, scenario: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns, run in this world: time passes while it sleeps, and jobs run meanwhile."""
        task = self._loop.create_task(scenario)
        task.add_done_callback(lambda _task: self._loop.stop())
        try:
            while not task.done():
                self._drive(inf)
        except BaseException:
            task.cancel()
            raise
        return task.result()

    def without_leader(self, time: Duration) -> None:
        """Let so much time pass in which nobody leads, as between the stop of all replicas and their next start.

        Runs in flight have their grace first. What becomes of the slots missed is decided when it is over, by the
        `misfire` of their job.
        """
        end = self._loop.time() + duration(time, "without_leader")
        self.run(self._stop())
        self._drive(max(end, self._loop.time()))
        for app, make in self._apps:
            self._start(app, make)

    # -- what is seen of it -----------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The world's time, aware, in UTC."""
        return instant(self._clock.wall())

    def runs_of(self, job: str) -> list[VirtualRun]:
        """The runs of one job so far. Raises `ConfigError` where no app here has it."""
        known = sorted({name for app, _ in self._apps for name in app.health().jobs})
        if job not in known:
            raise ConfigError(f"{job!r} is no job of an app in this world; its jobs are: {', '.join(known) or 'none'}")
        return [run for run in self.runs if run.job == job]

    # -- its end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop all apps, whose runs in flight have their grace, in virtual time. Called at the end of the block."""
        if self._closed:
            return
        self._closed = True
        try:
            self.run(self._end())
        finally:
            for app, _ in self._apps:
                app._service = None  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # it stood in for its own
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    async def _stop(self) -> None:
        await asyncio.gather(*(service.stop() for service in self._services))
        self._services.clear()

    async def _end(self) -> None:
        await self._stop()
        await self._loop.shutdown_asyncgens()

    # -- how it goes on ---------------------------------------------------------------------------------------------

    def _drive(self, until: float) -> None:
        if asyncio._get_running_loop() is self._loop:  # noqa: SLF001 - get_running_loop raises where there is none
            raise SingletonJobError("virtual_time: time passes here by itself; write `await asyncio.sleep(seconds)`")
        if LONGEST < until < inf:
            years = int(LONGEST / 86400 / 365)
            raise ConfigError(f"virtual_time: a world lasts {years} years at most; begin a new one")
        if asyncio._get_running_loop() is None:  # noqa: SLF001 - as above
            self._loop.run_to(until)
        else:
            self._drive_elsewhere(until)
        for service in self._services:
            service.count_drops()
        if self._failed is not None:
            error, self._failed = self._failed, None
            raise error

    def _drive_elsewhere(self, until: float) -> None:
        """In another thread: a loop cannot run on one where another does."""
        context = contextvars.copy_context()
        failed: list[BaseException] = []

        def drive() -> None:
            try:
                context.run(self._loop.run_to, until)
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=drive, name="virtual-time", daemon=True)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]

    def _take_failure(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A task that nobody awaits raised, say: what asyncio only logs fails the test."""
        loop.default_exception_handler(context)
        self._failed = self._failed or context.get("exception") or RuntimeError(context["message"])

    def _record(self, app: int, event: Event) -> None:
        if isinstance(event, RunStarted):
            self._in_flight[app, event.job] = len(self.runs)
            self.runs.append(VirtualRun(event.job, event.scheduled, self._clock.wall(), event.tick))
        elif isinstance(event, RunFinished):
            index = self._in_flight.pop((app, event.job))
            job, due, started, tick, *_ = self.runs[index]
            ended = self._clock.wall()
            self.runs[index] = VirtualRun(job, due, started, tick, ended, event.outcome, event.error)
        else:
            self.events.append(event)


def _with_virtual_waits(job: JobDefinition, options: JobOptions) -> JobDefinition:
    """The job with a body that sees the lease which `options` give, and whose `run.wait` takes virtual time."""
    body = with_remaining(job.body, options.lock_expiry - options.margin)

    def in_turn(run: Run) -> object:
        signal: Any = run._signal  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # no other way to its event
        event = VirtualEvent(this_worker())
        if signal.given:
            threading.Event.set(event)
        signal.event = event
        return body(run)

    return dataclasses.replace(job, body=body if job.is_async else in_turn)
