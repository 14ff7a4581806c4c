"""Where an app's jobs are written down: the three decorators and `add`."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from .._core.errors import ConfigError, DuplicateJobError
from .body import identity, is_async
from .definition import caller, define, define_class_form
from .options import takes
from .other_tools import advice_on_option
from .timing import EXAMPLES, WHEN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Unpack

    from .definition import CronKeywords, Every, FixedRateKeywords, Job, JobDefinition, JobKeywords
    from .duration import Duration
    from .handles import Run
    from .timing import Shape

    class RunByKeyword(Protocol):
        """A body that takes the `Run` by keyword only."""

        def __call__(self, *, run: Run) -> object: ...


__all__ = ["Registry"]

Body = TypeVar("Body", bound="Callable[[], object] | Callable[[Run], object] | RunByKeyword")


F = TypeVar("F", bound="Callable[..., object]")


def _translating(shape: Shape) -> Callable[[F], F]:
    """Make a method translate a keyword of another tool (`seconds=5`) before Python reports a missing argument."""

    def translating(method: F) -> F:
        @wraps(method)
        def call(self: Registry, *arguments: Any, **keywords: Any) -> object:
            if (
                not arguments
                and WHEN[shape] not in keywords
                and any(advice_on_option(*one) for one in keywords.items())
            ):
                # This raises, with the name of the job.
                return self._decorator(shape, keywords)  # pyright: ignore[reportPrivateUsage]  # of the same class
            return method(self, *arguments, **keywords)

        same: Any = call
        return same  # type: ignore[no-any-return]  # the type checkers see the method itself

    return translating


class Registry:
    """The jobs of one app, by name. Nothing is shared between apps, and registering starts nothing.

    Each decorator returns the function unchanged. A body may be sync or async; the `Run` goes to a parameter that is
    annotated `Run` or named `run`, and any other needs a default. The job is named after the function (`price_tick`:
    `price-tick`) unless `name` is given. Further keywords are the job's own options; see `JobKeywords`.

    All raise `ConfigError`, naming job and option, for a bad value, an unknown option or a body with wrong
    parameters, `ScheduleError` for a schedule that cannot be used, `DuplicateJobError` for a name that is taken.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, JobDefinition] = {}
        self._frozen = False
        self._bare: dict[object, str] = {}  # decorators that look like ones without parentheses
        self._wraps: list[Callable[[JobDefinition], JobDefinition]] = []

    @_translating("interval")
    def interval(self, every: Every, **keywords: Unpack[JobKeywords]) -> Callable[[Body], Body]:
        """Run the function, wait `every`, run it again.

        `every` is seconds, a timedelta, text such as `250ms` or `1m30s`, or a function without parameters that
        returns one of those and is asked again after each run. Raises as all of them do; see `SingletonJobs`.
        """
        return self._decorator("interval", {"every": every, **keywords})

    @_translating("fixed_rate")
    def fixed_rate(self, every: Duration, **keywords: Unpack[FixedRateKeywords]) -> Callable[[Body], Body]:
        """Run the function on a wall-clock grid that all replicas share: at each multiple of `every`.

        `every` is seconds, a timedelta or text such as `500ms`, from one millisecond up; `offset` shifts the grid. A
        tick that arrives while the previous run is in flight is dropped, never queued. Raises as all of them do; see
        `SingletonJobs`.
        """
        return self._decorator("fixed_rate", {"every": every, **keywords})

    @_translating("cron")
    def cron(self, expression: str, **keywords: Unpack[CronKeywords]) -> Callable[[Body], Body]:
        """Run the function at the slots of a cron expression: five fields, or six with seconds first.

        `tz` is an IANA zone, default UTC. `misfire`, `catch_up_limit` and `late_limit` say what becomes of slots
        that were missed; see `CronKeywords`. Raises as all of them do; see `SingletonJobs`.
        """
        return self._decorator("cron", {"expression": expression, **keywords})

    def add(self, job: Job) -> None:
        """Register an instance of a class derived from `IntervalJob`, `FixedRateJob` or `CronJob`.

        Raises `ConfigError` for anything else, for a hook with wrong parameters and after the start,
        `DuplicateJobError` for a name that is taken.
        """
        self._register(define_class_form(job))

    def wrap_jobs(self, wrap: Callable[[JobDefinition], JobDefinition]) -> None:
        """Have `wrap` change each job, those registered already and those to come; it keeps their names.

        For instrumentation: a body may be put into another of the same kind, sync or async. Raises `ConfigError` after
        the start.
        """
        if self._frozen:
            raise ConfigError("wrap_jobs: the app has started; call it before")
        self._wraps.append(wrap)
        for name, job in self._jobs.items():
            self._jobs[name] = wrap(job)

    def refuse_bare_decorators(self) -> None:
        """Raise `ConfigError` for `@app.interval` without parentheses above a function that takes nothing.

        Where it is written, it cannot be told from an interval that is a function.
        """
        for text in self._bare.values():
            raise ConfigError(text)

    def _decorator(self, shape: Shape, keywords: Mapping[str, object]) -> Callable[[Body], Body]:
        when, this = keywords.get(WHEN[shape]), object()
        if callable(when) and len(keywords) == 1:
            if shape != "interval" or is_async(when) or not takes(when, 0):
                raise ConfigError(_bare(shape, when))
            self._bare[this] = _bare(shape, when)

        def decorate(body: Body) -> Body:
            self._bare.pop(this, None)
            self._register(define(shape, body, keywords))
            return body

        return decorate

    def _register(self, job: JobDefinition) -> None:
        if self._frozen:
            raise ConfigError(
                f"[Job: {job.name}] {job.place}: the app has started; register all jobs before it starts (in a"
                " notebook: app.stop(), then run the cell that makes the app again, and those with its jobs)"
            )
        other = self._jobs.setdefault(job.name, job)
        if other is not job:
            # The same function twice: its source was executed again, and name= would be no help.
            again = other.place.partition(" (")[0] == job.place.partition(" (")[0]
            way_out = (
                "if this is one job whose source ran twice (a notebook's cell, a reloaded module), make a new"
                " SingletonJobs in that source, above the job; if these are two jobs, write name= on one of them"
            )
            raise DuplicateJobError(
                f"[Job: {job.name}] two jobs have this name: {other.place} and {job.place};"
                f" {way_out if again else 'write name= on one of them'}"
            )
        for wrap in self._wraps:
            self._jobs[job.name] = wrap(self._jobs[job.name])


def _bare(shape: Shape, function: object) -> str:
    """The error's text for a decorator above a `function` without parentheses."""
    module, qualname = identity(function)
    form = f"@app.{shape}({EXAMPLES[shape]})"
    return f"{module}.{qualname} ({caller()}) is no job yet: write {form}, with parentheses, above the function"
