"""`run_once`: one run of one job, without a store and without waiting for its time."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import contextmanager
from functools import partial
from inspect import isawaitable
from math import inf
from typing import TYPE_CHECKING, Any

from .._core.errors import SingletonJobError
from .._core.schedule import Due, Take
from .._core.values import RunFinished, SteppedDown
from .._jobs.body import identity, is_async
from .._jobs.definition import Job, define, define_class_form
from .._jobs.duration import duration
from .._jobs.options import JOB_READERS, read, resolve
from .._system.clock import SystemClock
from .lone_service import LoneService, LoneStore, with_remaining
from .moments import micros
from .virtual_loop import LoopClock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from typing import Self, Unpack

    from .._core.protocol import JobState
    from .._core.values import Event, Now, Outcome
    from .._jobs.definition import JobDefinition
    from .._jobs.duration import Duration
    from .._jobs.handles import Run
    from .._jobs.options import JobOptionValues
    from .._jobs.registry import RunByKeyword
    from .moments import Moment

__all__ = ["OneRun", "run_once"]


class OneRun:
    """What became of one run. Inside a running loop it must be awaited first, and is what the `await` gives."""

    def __init__(self) -> None:
        self._running: Coroutine[Any, Any, None] | None = None
        self._finished: RunFinished | None = None
        self._value: Any = None

    def __await__(self) -> Generator[Any, None, Self]:
        if self._running is not None:
            running, self._running = self._running, None
            yield from running.__await__()
        return self

    @property
    def outcome(self) -> Outcome:
        """How it ended: `ok`, `failed`, `cancelled` or `timeout`."""
        return self._end().outcome

    @property
    def duration(self) -> float:
        """How long it took, in seconds."""
        return self._end().duration

    @property
    def error(self) -> BaseException | None:
        """What the body raised, if it failed."""
        return self._end().error

    @property
    def value(self) -> Any:
        """What the body returned."""
        self._end()
        return self._value

    def _end(self) -> RunFinished:
        if self._finished is None:
            raise SingletonJobError("run_once: inside a running loop, write `await run_once(...)`")
        return self._finished

    def __repr__(self) -> str:
        if self._finished is None:
            return "<OneRun, not awaited yet>"
        return f"<OneRun {self.outcome} after {self.duration:.3g} s: {self.error or self._value!r}>"


def run_once(
    job: Job | Callable[[], object] | Callable[[Run], object] | RunByKeyword,
    *,
    token: int | None = None,
    scheduled_at: Moment | None = None,
    previous_end: Moment | None = None,
    tick: int | None = None,
    remaining: Duration | None = None,
    lose_after: Duration | None = None,
    stop_after: Duration | None = None,
    reraise: bool = True,
    project: str = "test",
    **options: Unpack[JobOptionValues],
) -> OneRun:
    """Run the body of a job once, as its leader would: with a valid lease, at once, in real time.

    `job` is a function, decorated or not, or an instance of a class form. Outside a running loop the call returns when
    the run has ended; inside one, `await` it. Sync bodies run in a thread. The hooks of a class form run around it:
    `on_elected` before, `on_stepped_down` after it. Its class keywords hold, and `options` over them.

    What the body or a hook raises is raised here; with `reraise=False` the result tells it instead.

    The `Run` shows `token`, `scheduled_at` (default: now; for the body this is the present), `previous_end`, `tick` and
    `remaining` (seconds of lease at any moment, as if renewed all the time; default: what a renewal gives). Counted
    from the body's start, the lease is lost after `lose_after`, and the replica is told to leave after `stop_after`: 0
    is at its first `await`.

    Raises `ConfigError` for what is no job, and for a bad value.
    """
    definition = _define(job)
    values = {**definition.overrides, **read(options, JOB_READERS)}
    settings = resolve(values, prefix=f"[Job: {definition.name}] ")
    plan = _Plan(
        dataclasses.replace(definition, overrides={**values, "enabled": True}, is_enabled=None),
        due=None if scheduled_at is None else micros(scheduled_at, "scheduled_at"),
        previous=None if previous_end is None else micros(previous_end, "previous_end"),
        tick=tick,
        project=project,
        token=token,
        usable=settings.lock_expiry - settings.margin if remaining is None else duration(remaining, "remaining"),
        lose_after=None if lose_after is None else duration(lose_after, "lose_after"),
        stop_after=None if stop_after is None else duration(stop_after, "stop_after"),
    )
    one = OneRun()

    async def running() -> None:
        one._finished = await plan.run()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # nobody else's to set
        one._value = plan.value  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # as above
        if reraise and one.error is not None:
            raise one.error

    if asyncio._get_running_loop() is None:  # noqa: SLF001 - get_running_loop raises where there is none
        asyncio.run(running())
    else:
        one._running = running()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # as above
    return one


def _define(job: object) -> JobDefinition:
    if isinstance(job, Job):
        return define_class_form(job)
    keywords: dict[str, object] = {"every": 1}
    if callable(job) and identity(job)[1].endswith(">"):  # a lambda, after which no job is named
        keywords["name"] = "job"
    return define("interval", job, keywords)


class _Plan:
    """One run, and its schedule: due at once, and never again."""

    mark = ""
    on_wall = False
    settled = None

    def __init__(
        self,
        job: JobDefinition,
        *,
        due: int | None,
        previous: int | None,
        tick: int | None,
        project: str,
        token: int | None,
        usable: float,
        lose_after: float | None,
        stop_after: float | None,
    ) -> None:
        hooks: dict[str, Any] = {
            name: None if (hook := getattr(job, name)) is None else self._of_hook(hook)
            for name in ("on_elected", "on_stepped_down")
        }
        schedule: Any = self
        body = self._call_async if job.is_async else self._call_sync
        self.value: object = None
        self._body = with_remaining(job.body, usable, previous)
        self._job = dataclasses.replace(job, body=body, schedule=schedule, **hooks)
        self._due = due
        self._tick = tick
        self._project = project
        self._token = token
        self._lose_after = lose_after
        self._stop_after = stop_after
        self._given = False
        self._hook_error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop
        self._service: LoneService
        self._over: asyncio.Future[RunFinished | None]

    async def run(self) -> RunFinished:
        self._loop = loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        present = SystemClock().wall() if self._due is None else self._due
        clock = LoopClock(loop, present - round(loop.time() * 1e6))
        store = LoneStore(clock, self._token)
        self._service = LoneService(self._project, [self._job], store=store, clock=clock, record=self._record)
        try:
            self._service.start()
            finished = await self._over
            await self._service.stop()
        except asyncio.CancelledError:
            await self._service.stop_at_once()
            raise
        if self._hook_error is not None and (finished is None or finished.error is None):
            return self._failed(self._hook_error)
        return finished or RunFinished(job=self._job.name, token=0, outcome="cancelled", duration=0.0)

    def _failed(self, error: BaseException) -> RunFinished:
        return RunFinished(job=self._job.name, token=0, outcome="failed", duration=0.0, error=error)

    def _record(self, event: Event) -> None:
        if isinstance(event, (RunFinished, SteppedDown)) and not self._over.done():
            self._over.set_result(event if isinstance(event, RunFinished) else None)

    # -- the body and its hooks -------------------------------------------------------------------------------------

    async def _call_async(self, run: Run) -> None:
        self._begins()
        answer = self._body(run)
        self.value = await answer if isawaitable(answer) else answer

    def _call_sync(self, run: Run) -> object:
        self._loop.call_soon_threadsafe(self._begins)
        self.value = self._body(run)
        return self._keep() if isawaitable(self.value) else None

    async def _keep(self) -> None:
        answer: Any = self.value
        self.value = await answer

    def _begins(self) -> None:
        if self._lose_after is not None:
            self._loop.call_later(self._lose_after, self._service.lose, self._job.name)
        if self._stop_after is not None:
            self._loop.call_later(self._stop_after, self._service.request_stop)

    def _of_hook(self, hook: Callable[[Any], object]) -> Callable[[Any], object]:
        """The hook, async or sync as it is, so that it runs in the same thread; what it raises is kept."""
        return partial(self._await_hook if is_async(hook) else self._call_hook, hook)

    async def _await_hook(self, hook: Callable[[Any], Any], handle: Any) -> None:
        with self._keeping_error():
            await hook(handle)

    def _call_hook(self, hook: Callable[[Any], object], handle: Any) -> object:
        with self._keeping_error():
            answer = hook(handle)
        return self._await_hook(lambda _: answer, handle) if isawaitable(answer) else None

    @contextmanager
    def _keeping_error(self) -> Generator[None]:
        try:
            yield
        except BaseException as error:
            self._hook_error = error
            raise

    # -- the schedule -----------------------------------------------------------------------------------------------

    def ticker(self, now: Now, state: JobState) -> Self:  # noqa: ARG002 - of all terms the first
        return self

    def wake(self, now: Now) -> float:
        return inf if self._given else now.boot

    def take(self, now: Now) -> Take:
        if self._given:
            return Take()
        self._given = True
        return Take(Due(now.wall if self._due is None else self._due, self._tick))

    def ended(self, due: Due, now: Now) -> Take:  # noqa: ARG002 - nothing else was due
        return Take()
