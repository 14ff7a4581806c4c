"""What a job is: the class forms that users derive from, and the definition that the runtime works with."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from .._core.errors import ConfigError, ScheduleError
from .body import bind_run, identity, is_async
from .options import JOB_READERS, JobOptionValues, read, read_name, takes
from .timing import EXAMPLES, TIMING_READERS, WHEN, make_schedule

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import tzinfo
    from typing import Unpack

    from .._core.schedule import Schedule
    from .._core.values import MisfirePolicy, Reason
    from .duration import Duration
    from .handles import Run, Term
    from .timing import Shape

__all__ = ["CronJob", "FixedRateJob", "IntervalJob", "Job", "JobDefinition", "define", "define_class_form"]

Every: TypeAlias = "Duration | Callable[[], Duration]"
"""The interval of an interval job; a function without parameters is asked again after each run."""


class JobKeywords(JobOptionValues, total=False):
    """What every job may be given: its name, and options of its own."""

    name: str
    """Its name in keys, log and metrics; default: `price-tick` for `price_tick` and for `PriceTick`."""


class FixedRateKeywords(JobKeywords, total=False):
    """What a fixed-rate job may be given besides."""

    offset: Duration
    """By how much its grid is later than the one that begins at the epoch; default 0."""


class CronKeywords(JobKeywords, total=False):
    """What a cron job may be given besides."""

    tz: str | tzinfo
    """The time zone of its expression, an IANA name or a `ZoneInfo`; default UTC."""

    misfire: MisfirePolicy
    """What becomes of slots that were missed; default `skip`."""

    catch_up_limit: int
    """How many of them `catch_up` runs at most; default 10."""

    late_limit: Duration | None
    """How late a slot may still run; None: however late. Default with `skip` the smaller of 60 s and half the gap to
    the next slot, with the others no limit.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDefinition:
    """One registered job, checked.

    `body` takes the `Run` whatever the user's function takes. `is_async` says that its call belongs on the loop;
    else it belongs in a thread, and the result is awaited if it can be. `overrides` are the job's own options and
    `timing` what its schedule was made of, both as `options.read` returns them. The hooks are None where the user
    wrote none; what they return may be awaitable. `place` says where it was written, for messages.
    """

    name: str
    place: str
    shape: Shape
    schedule: Schedule
    body: Callable[[Run], object]
    is_async: bool
    overrides: Mapping[str, object]
    timing: Mapping[str, object]
    is_enabled: Callable[[], bool | Awaitable[bool]] | None = None
    on_elected: Callable[[Term], object] | None = None
    on_stepped_down: Callable[[Reason], object] | None = None


# -- class forms ---------------------------------------------------------------------------------------------------


class Job(ABC):
    """The base of the three class forms: derive from `IntervalJob`, `FixedRateJob` or `CronJob`.

    Options are class keywords; subclasses inherit and override them. An instance is registered with `app.add`.
    """

    __slots__ = ()
    __job_shape__: ClassVar[Shape]
    __job_keywords__: ClassVar[Mapping[str, object]] = {}  # dunders: no clash with what users name theirs

    @abstractmethod
    def execute(self, run: Run, /) -> object:
        """One run; sync or async. The parameter may be left out.

        What it returns is not looked at; what it raises is logged, and the run counts as failed.
        """

    def is_enabled(self) -> bool | Awaitable[bool]:
        """The live switch, asked once per heartbeat; sync or async. Raising keeps the last answer.

        It runs on the job loop, also for a sync body, whose thread may be busy for long. So it must not block; if it
        has to, make it async and `await asyncio.to_thread(...)` in it.
        """
        return True

    def on_elected(self, term: Term, /) -> Awaitable[None] | None:  # noqa: B027 - a hook, not a duty
        """Called inside the term before its first run; sync or async. Raising gives the term up, with a back-off.

        It runs inside the fence, and under `timeout` as a run does: in the thread of the body if both are sync, so that
        it may block and may open what is bound to that thread; otherwise on the job loop.
        """

    def on_stepped_down(self, reason: Reason, /) -> Awaitable[None] | None:  # noqa: B027 - a hook, not a duty
        """Called when the term's last run has ended; sync or async. What it raises is logged.

        It runs where `on_elected` does. The lease is given back only after it. It has `shutdown_grace` to end, at a
        stop what the last run has left of that, and half a `margin`; then it is cancelled, and one that cannot be
        cancelled, for example in a thread, leaves the lease to expire.

        `reason` is one of `lost`, `expired`, `stuck`, `shutdown`, `disabled`, `paused` and `resigned`. After the first
        three another replica may lead already.
        """

    @classmethod
    def _adopt(cls, given: Mapping[str, object]) -> None:
        """Merge class keywords with the inherited ones, and check them while the class statement is on the stack."""
        merged: dict[str, object] = {}
        for base in reversed(cls.__mro__):
            # The class itself is among them: `dataclass(slots=True)` makes it a second time, without keywords.
            merged.update(vars(base).get("__job_keywords__", {}))
        merged.update(
            (name, value) for name, value in given.items() if (name, value) != (WHEN[cls.__job_shape__], None)
        )
        prefix = f"[Job: {merged.get('name', _default_name(cls.__name__))}] "
        timing, _ = _read_keywords(cls.__job_shape__, merged, prefix)
        if WHEN[cls.__job_shape__] in timing:
            make_schedule(cls.__job_shape__, timing, prefix=prefix)
        cls.__job_keywords__ = merged


class IntervalJob(Job):
    """Run, wait `every`, run: `class Poll(IntervalJob, every="1s")`.

    `every` is seconds, a timedelta, text such as `1m30s`, or a function without parameters that returns one of
    those. Raises `ScheduleError` or `ConfigError` at the class statement, naming job and keyword.
    """

    __slots__ = ()
    __job_shape__: ClassVar[Shape] = "interval"

    def __init_subclass__(cls, *, every: Every | None = None, **keywords: Unpack[JobKeywords]) -> None:
        super().__init_subclass__()
        cls._adopt({"every": every, **keywords})


class FixedRateJob(Job):
    """Run on a wall-clock grid; a tick that arrives while a run is in flight is dropped.

    `class Snapshot(FixedRateJob, every="500ms", lock_expiry="20s")`. `every` is seconds, a timedelta or text, from
    one millisecond up. Raises `ScheduleError` or `ConfigError` at the class statement, naming job and keyword.
    """

    __slots__ = ()
    __job_shape__: ClassVar[Shape] = "fixed_rate"

    def __init_subclass__(cls, *, every: Duration | None = None, **keywords: Unpack[FixedRateKeywords]) -> None:
        super().__init_subclass__()
        cls._adopt({"every": every, **keywords})


class CronJob(Job):
    """Run at the slots of a cron expression: `class Report(CronJob, expression="0 3 * * *", tz="Asia/Singapore")`.

    Five fields, or six with seconds first. Raises `ScheduleError` or `ConfigError` at the class statement, naming
    job and keyword.
    """

    __slots__ = ()
    __job_shape__: ClassVar[Shape] = "cron"

    def __init_subclass__(cls, *, expression: str | None = None, **keywords: Unpack[CronKeywords]) -> None:
        super().__init_subclass__()
        cls._adopt({"expression": expression, **keywords})


# -- definitions ---------------------------------------------------------------------------------------------------


def define(
    shape: Shape, body: object, keywords: Mapping[str, object], *, origin: type[Job] | None = None, **hooks: Any
) -> JobDefinition:
    """The job that runs `body`, a function or another callable, or the `execute` of an `origin`.

    Raises `ConfigError` or `ScheduleError` naming job and option.
    """
    module, qualname = (origin.__module__, origin.__qualname__) if origin else identity(body)
    name = keywords.get("name")
    if name is None:
        name = _default_name(qualname)
        read_name(name, f"name: the default for {module}.{qualname} (write name='my-job' to choose another)")
    name = read_name(name, f"name of {module}.{qualname}")
    prefix = f"[Job: {name}] "
    timing, options = _read_keywords(shape, keywords, prefix)
    missing = WHEN[shape]
    if missing not in timing:
        raise ScheduleError(f"{prefix}{missing}: missing; write {missing}={EXAMPLES[shape]}")
    return JobDefinition(
        name=name,
        place=f"{module}.{qualname} ({caller()})",
        shape=shape,
        schedule=make_schedule(shape, timing, prefix=prefix),
        body=bind_run(body, prefix=prefix),
        is_async=is_async(body),
        overrides=options,
        timing=timing,
        **hooks,
    )


def define_class_form(job: object) -> JobDefinition:
    """The job that runs `job.execute`, with its hooks. Raises `ConfigError` or `ScheduleError` as `define` does."""
    if not isinstance(job, (IntervalJob, FixedRateJob, CronJob)):
        what = f"{job.__name__}(...)" if inspect.isclass(job) else "an instance of IntervalJob, FixedRateJob or CronJob"
        raise ConfigError(f"add: {job!r} is no job; write {what}")
    cls = type(job)
    hooks: dict[str, Any] = {}
    for hook, parameters in (("is_enabled", ()), ("on_elected", ("term",)), ("on_stepped_down", ("reason",))):
        if getattr(cls, hook) is not getattr(Job, hook):
            hooks[hook] = getattr(job, hook)
            if not takes(hooks[hook], len(parameters)):
                wanted = ", ".join(("self", *parameters))
                raise ConfigError(f"{cls.__qualname__}.{hook}: wrong parameters; write {hook}({wanted})")
    if "is_enabled" in hooks and callable(cls.__job_keywords__.get("enabled")):
        raise ConfigError(f"{cls.__qualname__}.is_enabled: enabled= names a live switch too; write one of them")
    return define(cls.__job_shape__, job.execute, cls.__job_keywords__, origin=cls, **hooks)


def _read_keywords(
    shape: Shape, keywords: Mapping[str, object], prefix: str
) -> tuple[dict[str, object], dict[str, object]]:
    """What the schedule is made of, and the job's own options; each checked on its own."""
    values = read(keywords, {"name": read_name, **TIMING_READERS[shape], **JOB_READERS}, prefix=prefix)
    timing = {name: value for name, value in values.items() if name in TIMING_READERS[shape]}
    return timing, {name: value for name, value in values.items() if name in JOB_READERS}


def _default_name(qualname: str) -> str:
    """`price-tick` for `price_tick` and `PriceTick`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", qualname.rpartition(".")[2])
    return words.replace("_", "-").strip("-").lower()


def caller() -> str:
    """Return file and line of the first caller outside this package: where the job was registered."""
    package = __name__.partition(".")[0]
    frame = inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == package:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "?"
