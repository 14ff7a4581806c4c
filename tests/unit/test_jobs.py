from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import subprocess
import sys
import time
import types
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Optional, cast

import pytest

import singletonjob  # noqa: TC001 - an annotation is looked up in it
from singletonjob._core.errors import ConfigError, DuplicateJobError, ScheduleError
from singletonjob._core.schedule import CronSchedule, FixedRateSchedule, IntervalSchedule
from singletonjob._core.values import Now
from singletonjob._jobs.definition import CronJob, FixedRateJob, IntervalJob, Job, JobDefinition
from singletonjob._jobs.handles import Run
from singletonjob._jobs.handles import Run as Handle
from singletonjob._jobs.registry import Registry
from singletonjob.stores.protocol import JobState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from singletonjob._core.values import Reason
    from singletonjob._jobs.handles import Term

RUN = cast("Run", object())


class Jobs(Registry):
    """A registry that lets a test see what it holds."""

    def of(self, body: Any, /, **keywords: Any) -> JobDefinition:
        self.interval(1, **{"name": "job", **keywords})(body)
        return self._jobs[keywords.get("name", "job")]

    def only(self) -> JobDefinition:
        (job,) = self._jobs.values()
        return job

    def freeze(self) -> None:
        self._frozen = True


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


# -- names and places ----------------------------------------------------------------------------------------------


def test_decorators_return_the_function_unchanged_and_name_the_job_after_it(jobs: Jobs) -> None:
    def price_tick() -> None: ...

    assert jobs.fixed_rate("500ms")(price_tick) is price_tick
    job = jobs.only()
    assert (job.name, job.shape) == ("price-tick", "fixed_rate")


@pytest.mark.parametrize(
    ("written", "name"),
    [
        *[
            ("price_tick", "price-tick"),
            ("PriceTick", "price-tick"),
            ("FX2Rates", "fx2-rates"),
            ("HTTPPoll", "http-poll"),
        ],
        *[("_hidden", "hidden"), ("priceTick", "price-tick"), ("x", "x"), ("a__b", "a--b")],
    ],
)
def test_a_function_and_a_class_of_one_name_give_one_job_name(jobs: Jobs, written: str, name: str) -> None:
    def body() -> None: ...

    body.__qualname__ = f"outer.<locals>.{written}"
    jobs.interval(1)(body)
    assert jobs.only().name == name
    other = Jobs()
    cls = types.new_class(
        written, (IntervalJob,), {"every": 1}, lambda namespace: namespace.update(execute=lambda self: None)
    )
    other.add(cls())
    assert other.only().name == name


def test_partials_methods_and_callable_objects_are_named_after_what_was_written(jobs: Jobs) -> None:
    class Feed:
        def poll_once(self) -> None: ...

        def __call__(self) -> None: ...

    def tick(size: int) -> None: ...

    jobs.interval(1)(functools.partial(functools.partial(tick), 3))
    jobs.interval(1)(Feed().poll_once)
    jobs.interval(1)(Feed())
    assert set(jobs._jobs) == {"tick", "poll-once", "feed"}


@pytest.mark.parametrize("name", ["a:b", "a b", "", "-a", "a" * 101, "é", 3, "a\n"])
def test_c22_a_job_name_that_could_blur_two_keys_is_refused(jobs: Jobs, name: Any) -> None:
    with pytest.raises(ConfigError, match=r"^name of \S*test_jobs\.\S*tick: .* cannot be a name; write 1 to 100 of"):

        @jobs.interval(1, name=name)
        def tick() -> None: ...


def test_a_lambda_needs_a_name(jobs: Jobs) -> None:
    with pytest.raises(ConfigError, match=r"write name='my-job' to choose another\): '<lambda>' cannot be a name"):
        jobs.interval(1)(lambda: None)
    jobs.interval(1, name="mine")(lambda: None)
    assert jobs.only().name == "mine"


def test_c24_two_jobs_of_one_name_are_an_error_naming_both_places(jobs: Jobs) -> None:
    @jobs.interval(1)
    def tick() -> None: ...

    first = jobs.only()

    with pytest.raises(DuplicateJobError) as caught:

        @jobs.cron("* * * * *", name="tick")
        def tock() -> None: ...

    text = str(caught.value)
    assert text.startswith(f"[Job: tick] two jobs have this name: {first.place} and ")
    line = tick.__code__.co_firstlineno
    assert first.place.endswith(f".tick ({__file__}:{line})")
    assert f".tock ({__file__}:{line + 7});" in text
    assert jobs.only() is first


def test_a_cell_that_is_run_again_is_told_to_make_the_app_again(jobs: Jobs) -> None:
    source = "@app.interval(1)\ndef tick(): ...\n"
    for cell in ("<ipython-input-1>", "<ipython-input-2>"):
        code, names = compile(source, cell, "exec"), {"__name__": "__main__", "app": jobs}
        if cell == "<ipython-input-1>":
            exec(code, names)  # noqa: S102 - as a notebook does
            continue
        with pytest.raises(DuplicateJobError, match="make a new SingletonJobs in that source, above the job; if these"):
            exec(code, names)  # noqa: S102 - as above
        jobs.freeze()
        with pytest.raises(ConfigError, match=r"has started; .*in a notebook: app\.stop\(\), then run the cell"):
            exec(code, names)  # noqa: S102 - as above


def test_c24_a_module_imported_under_two_names_shows_as_two_places(jobs: Jobs) -> None:
    source = "@app.interval(1)\ndef tick(): ...\n"
    exec(compile(source, "tasks.py", "exec"), {"__name__": "__main__", "app": jobs})  # noqa: S102 - a module twice
    with pytest.raises(
        DuplicateJobError, match=r"__main__\.tick \(tasks\.py:1\) and shop\.tasks\.tick \(tasks\.py:1\)"
    ):
        exec(compile(source, "tasks.py", "exec"), {"__name__": "shop.tasks", "app": jobs})  # noqa: S102 - as above


def test_p05_two_classes_of_one_name_are_an_error_naming_both(jobs: Jobs) -> None:
    class A(IntervalJob, every=1, name="same"):
        def execute(self, run: Run) -> None: ...

    class B(A): ...

    jobs.add(A())
    with pytest.raises(DuplicateJobError, match=r"\[Job: same\] .*\.A \(.* and .*\.B \("):
        jobs.add(B())
    other = Jobs()
    other.add(A())


def test_c25_jobs_belong_to_the_app_they_were_added_to(jobs: Jobs) -> None:
    @jobs.interval(1)
    def tick() -> None: ...

    assert Jobs()._jobs == {}


def test_after_the_start_nothing_is_registered(jobs: Jobs) -> None:
    jobs.freeze()
    with pytest.raises(ConfigError, match=r"^\[Job: tick\] .*the app has started; register all jobs before"):

        @jobs.interval(1)
        def tick() -> None: ...

    assert jobs._jobs == {}


# -- schedules -----------------------------------------------------------------------------------------------------

NOW = Now(1_000_000_000, 100.0)


def interval_of(job: JobDefinition) -> float:
    assert isinstance(job.schedule, IntervalSchedule)
    return job.schedule.every()


@pytest.mark.parametrize(
    ("every", "seconds"), [(0.1, 0.1), (timedelta(milliseconds=20), 0.02), (1.5, 1.5), ("250ms", 0.25), ("PT1S", 1.0)]
)
def test_c49_intervals_are_kept_to_the_millisecond(every: Any, seconds: float) -> None:
    jobs = Jobs()
    jobs.interval(every, name="a")(lambda: None)
    jobs.fixed_rate(every=every, name="b")(lambda: None)
    assert interval_of(jobs._jobs["a"]) == seconds
    schedule = jobs._jobs["b"].schedule
    assert isinstance(schedule, FixedRateSchedule)
    assert schedule.period == round(seconds * 1_000_000)


@pytest.mark.parametrize("every", [0, -1, float("nan"), float("inf"), True, None, "", "0s", "soon", timedelta(0)])
@pytest.mark.parametrize("shape", ["interval", "fixed_rate"])
def test_c49_p39_an_interval_that_is_no_time_is_refused_naming_job_and_option(
    jobs: Jobs, shape: str, every: Any
) -> None:
    def tick() -> None: ...

    with pytest.raises(ScheduleError, match=r"^\[Job: tick\] every: "):
        getattr(jobs, shape)(every)(tick)

    assert jobs._jobs == {}


def test_a_grid_is_never_finer_than_a_millisecond(jobs: Jobs) -> None:
    jobs.fixed_rate(0.001, name="a")(lambda: None)
    with pytest.raises(ScheduleError, match=r"^\[Job: b\] every: 0.0009 s is below the finest grid; write at least"):
        jobs.fixed_rate(0.0009, name="b")(lambda: None)


def test_the_offset_shifts_the_grid(jobs: Jobs) -> None:
    jobs.fixed_rate(10, offset="2s", name="a")(lambda: None)
    schedule = jobs.only().schedule
    assert isinstance(schedule, FixedRateSchedule)
    assert schedule.after(NOW.wall) == 1_002_000_000
    with pytest.raises(ConfigError, match=r"^\[Job: b\] offset: -1 is not a duration"):
        jobs.fixed_rate(10, offset=-1, name="b")(lambda: None)


def test_an_interval_may_be_a_function_that_is_asked_each_time(jobs: Jobs) -> None:
    answers: Iterator[Any] = iter(["250ms", timedelta(seconds=3), 7])
    jobs.interval(lambda: next(answers), name="a")(lambda: None)
    assert [interval_of(jobs.only()) for _ in range(3)] == [0.25, 3.0, 7.0]


@pytest.mark.parametrize("answer", [0, -1, None, True, "soon", float("nan")])
def test_a_function_s_unusable_answer_names_job_and_option(jobs: Jobs, answer: Any) -> None:
    jobs.interval(lambda: answer, name="a")(lambda: None)
    with pytest.raises(ScheduleError, match=r"^\[Job: a\] every: "):
        interval_of(jobs.only())


async def in_a_while() -> int:
    return 1


@pytest.mark.parametrize("every", [in_a_while, lambda job: 1])
def test_an_interval_function_is_sync_and_takes_nothing(jobs: Jobs, every: Any) -> None:
    with pytest.raises(ScheduleError, match=r"^\[Job: a\] every: .* cannot be asked; write a sync function without"):
        jobs.interval(every, name="a")(lambda: None)


def test_a_cron_job_gets_its_zone_and_policy(jobs: Jobs) -> None:
    @jobs.cron("0 3 * * *", tz="Asia/Singapore", misfire="catch_up", catch_up_limit=3, late_limit="2m")
    def daily_report() -> None: ...

    schedule = jobs.only().schedule
    assert isinstance(schedule, CronSchedule)
    assert (schedule.cron.tz, schedule.misfire, schedule.catch_up_limit, schedule.late_limit) == (
        "Asia/Singapore",
        "catch_up",
        3,
        120.0,
    )


@pytest.mark.parametrize("zone", ["nonsense", '"Europe/Rome"'])
def test_c106_the_zone_is_utc_whatever_the_machine_says(jobs: Jobs, zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    jobs.cron("0 3 * * *", name="a")(lambda: None)
    schedule = jobs.only().schedule
    assert isinstance(schedule, CronSchedule)
    assert (schedule.cron.tz, schedule.misfire, schedule.catch_up_limit, schedule.late_limit) == (
        "UTC",
        "skip",
        10,
        None,
    )
    assert schedule.cron.after(0) == 3 * 3600 * 1_000_000


@pytest.mark.parametrize("zone", ["Europe/Berln", "EST5", "", 3, None])
def test_c106_an_unknown_zone_fails_at_registration_naming_job_and_value(jobs: Jobs, zone: Any) -> None:
    with pytest.raises(ValueError, match=rf"^\[Job: a\] .*{zone!r}"):
        jobs.cron("* * * * *", tz=zone, name="a")(lambda: None)


@pytest.mark.parametrize("expression", [None, "", " ", 3, "* * * *", "61 * * * *"])
def test_p40_a_cron_expression_that_cannot_be_used_is_refused_naming_the_job(jobs: Jobs, expression: Any) -> None:
    with pytest.raises(ScheduleError, match=r"^\[Job: a\] .*expression"):
        jobs.cron(expression, name="a")(lambda: None)


@pytest.mark.parametrize(
    "keywords",
    [
        *[
            {"misfire": "skp"},
            {"misfire": None},
            {"catch_up_limit": 0},
            {"catch_up_limit": True},
            {"catch_up_limit": "3"},
        ],
        *[{"late_limit": 0}, {"late_limit": "-1s"}],
    ],
)
def test_a_bad_cron_option_is_refused_naming_job_and_option(jobs: Jobs, keywords: Any) -> None:
    (option,) = keywords
    with pytest.raises(ConfigError, match=rf"^\[Job: a\] {option}: "):
        jobs.cron("* * * * *", name="a", **keywords)(lambda: None)


def test_a_job_keeps_only_the_options_it_was_given_in_seconds(jobs: Jobs) -> None:
    job = jobs.of(lambda: None, lock_expiry="20s", timeout=None, shutdown_grace=timedelta(minutes=1))
    assert job.overrides == {"lock_expiry": 20.0, "timeout": None, "shutdown_grace": 60.0}


def test_an_unknown_option_names_the_job_and_the_nearest_option(jobs: Jobs) -> None:
    with pytest.raises(ConfigError, match=r"^\[Job: job\] timout: there is no such option; did you mean timeout\?$"):
        jobs.of(lambda: None, timout=3)
    with pytest.raises(ConfigError, match=r"^\[Job: job\] tz: there is no such option; "):
        jobs.of(lambda: None, tz="UTC")
    with pytest.raises(ConfigError, match=r"^\[Job: job\] lock_expiry: 'x' is not a duration"):
        jobs.of(lambda: None, lock_expiry="x")


# -- the Run -------------------------------------------------------------------------------------------------------


def named(run) -> Any:  # type: ignore[no-untyped-def]  # users write it
    return run


def annotated(handle: Run) -> Run:
    return handle


def imported_as(handle: Handle) -> Run:
    return handle


def dotted(handle: singletonjob.Run) -> Run:
    return handle


def optional(handle: Run | None = None) -> Run | None:
    return handle


def old_optional(handle: Optional[Run] = None) -> Run | None:  # noqa: UP045 - users write it
    return handle


def by_keyword(*, handle: Run) -> Run:
    return handle


def by_position(handle: Run, /) -> Run:
    return handle


def after_a_default(size: int = 3, handle: Run | None = None) -> Run | None:
    assert size == 3
    return handle


def with_varied_rest(handle: Run, *args: object, **kwargs: object) -> Run:
    assert not args
    assert not kwargs
    return handle


def unresolved_rest(handle: Run, other: NoSuchName = None) -> Run:  # type: ignore[name-defined]  # noqa: F821
    return handle


def checkers_only(handle: not_imported.Run) -> Any:  # type: ignore[name-defined]  # noqa: F821
    return handle


def the_annotated_one(run: int = 0, handle: Run | None = None) -> Run | None:
    assert run == 0
    return handle


def bound(size: int, handle: Run) -> Run:
    assert size == 3
    return handle


@functools.wraps(annotated)
def wrapper(*args: Any, **kwargs: Any) -> Any:
    return annotated(*args, **kwargs)


@functools.wraps(annotated)
def renaming_wrapper(other: Any) -> Any:
    return annotated(other)


class Caller:
    def __call__(self, handle: Run) -> Run:
        return handle

    def method(self, handle: Run) -> Run:
        return handle

    @classmethod
    def of_class(cls, handle: Run) -> Run:
        return handle

    @staticmethod
    def static(handle: Run) -> Run:
        return handle


def evaluated(annotation: Any) -> Any:
    """A body whose annotation is an object, as without `from __future__ import annotations`."""

    def body(handle: Any) -> Any:
        return handle

    body.__annotations__ = {"handle": annotation}
    return body


@pytest.mark.parametrize(
    "body",
    [
        *[named, annotated, imported_as, dotted, optional, old_optional, by_keyword, by_position, after_a_default],
        *[with_varied_rest, unresolved_rest, checkers_only, the_annotated_one, wrapper, renaming_wrapper],
        *[functools.partial(bound, 3), functools.partial(bound, size=3), Caller(), Caller().method, Caller.of_class],
        *[Caller.static, vars(Caller)["static"]],
        *[evaluated(a) for a in (Run, Run | None, Annotated[Run, "mine"], "Run", "'Run'")],
        *[evaluated(Optional[a]) for a in (Run, "Run")],  # noqa: UP045 - users write it
        *[evaluated(a) for a in ("None | Run", "Run|None", "typing.Optional[Run]", "singletonjob.Run")],
    ],
)
def test_the_run_goes_to_the_parameter_that_asks_for_it(jobs: Jobs, body: Any) -> None:
    assert jobs.of(body).body(RUN) is RUN


@pytest.mark.parametrize(
    "body",
    [lambda: "plain", lambda size=3: "plain", lambda *args, **kwargs: "plain", functools.partial(lambda x: x, "plain")],
)
def test_a_body_that_does_not_ask_gets_no_run(jobs: Jobs, body: Any) -> None:
    assert jobs.of(body).body(RUN) == "plain"


def test_c104_a_compiled_callable_without_a_signature_is_called_without_the_run(jobs: Jobs) -> None:
    filled: dict[str, int] = {}
    with pytest.raises(ValueError, match="no signature"):
        inspect.signature(filled.update)
    assert jobs.of(filled.update).body(RUN) is None


@pytest.mark.parametrize(
    ("body", "parameter"),
    [
        *[(lambda feed: None, "feed"), (lambda run, feed: None, "feed"), (lambda *, size: None, "size")],
        *[(lambda self, run: None, "self"), (evaluated(list[Run]), "handle"), (evaluated("Runs"), "handle")],
        *[(evaluated("list[Run]"), "handle"), (evaluated(int), "handle"), (evaluated("sys.Run"), "handle")],
    ],
)
def test_any_other_parameter_without_a_default_is_refused_naming_job_and_parameter(
    jobs: Jobs, body: Any, parameter: str
) -> None:
    with pytest.raises(ConfigError, match=rf"^\[Job: job\] parameter '{parameter}' of \S+ is not the Run and has no"):
        jobs.of(body)
    assert jobs._jobs == {}


def test_a_positional_only_run_behind_a_default_is_refused(jobs: Jobs) -> None:
    def body(size: int = 3, run: object = None, /) -> None: ...

    with pytest.raises(ConfigError, match=r"^\[Job: job\] parameter 'run' of \S+ is positional-only; write it first"):
        jobs.of(body)


def a_generator() -> Iterator[int]:
    yield 1


async def an_async_generator() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("body", [a_generator, an_async_generator, functools.partial(a_generator)])
def test_a_generator_is_no_body(jobs: Jobs, body: Any) -> None:
    with pytest.raises(ConfigError, match=r"^\[Job: job\] \S+ is a generator, so a call would run nothing"):
        jobs.of(body)


def test_what_cannot_be_called_and_what_would_only_be_built_are_no_bodies(jobs: Jobs) -> None:
    with pytest.raises(ConfigError, match=r"^\[Job: job\] 3 cannot be called; write a function"):
        jobs.of(3)
    with pytest.raises(ConfigError, match=r"^\[Job: job\] Caller is a class; derive it from IntervalJob"):
        jobs.of(Caller)


@pytest.mark.parametrize(
    ("decorate", "words"),
    [
        (lambda jobs: jobs.interval(seconds=5), "seconds: .*; write @app.interval('5s')"),
        (lambda jobs: jobs.interval(weeks=2, name="tick"), "weeks: .*; write @app.interval('14d')"),
        (lambda jobs: jobs.fixed_rate(milliseconds=500), "milliseconds: .*; write @app.interval('500ms')"),
        (lambda jobs: jobs.cron(hour=3, minute=0), "hour: .*; write @app.cron('0 3 * * *')"),
        (lambda jobs: jobs.interval("5s", max_instances=1), "max_instances: .*; a job has one run at a time"),
        (lambda jobs: jobs.cron("0 3 * * *", coalesce=True), "coalesce: .*; write misfire='fire_once'"),
        (lambda jobs: jobs.cron("0 3 * * *", misfire_grace_time=60), "misfire_grace_time: .*; write late_limit="),
        (lambda jobs: jobs.interval("5s", jitter=3), "jitter: .*; one replica runs the job"),
        (lambda jobs: jobs.cron("0 3 * * *", timezone="UTC"), "timezone: .*; write tz="),
        (lambda jobs: jobs.interval("5s", id="x"), "id: .*; write name="),
        (lambda jobs: jobs.interval("5s", args=[1]), "args: .*functools.partial"),
        (lambda jobs: jobs.interval("5s", max_retries=3), "max_retries: .*; a failed run is not tried again"),
    ],
)
def test_a_keyword_of_another_tool_is_a_type_error_that_names_the_job_and_what_it_is_here(
    jobs: Jobs, decorate: Callable[[Any], Any], words: str
) -> None:
    def tick() -> None: ...

    text = words.replace("(", r"\(").replace(")", r"\)").replace("0 3 * * *", r"0 3 \* \* \*")
    with pytest.raises(TypeError, match=rf"^\[Job: tick\] {text}") as caught:
        decorate(jobs)(tick)
    assert isinstance(caught.value, ConfigError)


class Depends:
    """As the one of FastAPI."""


def test_a_parameter_that_a_web_framework_would_fill_in_is_refused(jobs: Jobs) -> None:
    def by_default(db: Any = Depends()) -> None: ...  # noqa: B008 - what users write

    def by_annotation(db: Any) -> None: ...

    def by_text(db: Any) -> None: ...

    by_annotation.__annotations__["db"] = Annotated[str, Depends()]
    by_text.__annotations__["db"] = "Annotated[Session, Depends(open_session)]"
    for body in (by_default, by_annotation, by_text):
        with pytest.raises(
            ConfigError, match=r"^\[Job: job\] parameter 'db' of \S+ is a Depends, which a web framework"
        ):
            jobs.of(body)


def test_a_parameter_that_a_decorator_fills_in_is_accepted(jobs: Jobs) -> None:
    def inject(function: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(function)
        def filled(*arguments: object) -> object:
            return function(*arguments, db="session")

        return filled

    def body(run: Run, db: Any = Depends()) -> object:  # noqa: B008 - as above
        return run, db

    assert jobs.of(inject(body)).body(RUN) == (RUN, "session")


def test_a_context_manager_is_no_body_but_may_decorate_one(jobs: Jobs) -> None:
    with pytest.raises(ConfigError, match=r"makes a context manager.* write a body that enters it with `with`"):
        jobs.of(contextlib.contextmanager(a_generator))
    with pytest.raises(ConfigError, match=r"makes a context manager.* write a body that enters it with `async with`"):
        jobs.of(contextlib.asynccontextmanager(an_async_generator))
    jobs.of(contextlib.contextmanager(a_generator)()(lambda: None))


def test_a_method_is_refused_in_the_class_body_and_taken_from_an_instance(jobs: Jobs) -> None:
    class Worker:
        def tick(self, run: Run) -> None: ...

        async def poll(self) -> None: ...

        def total(cls) -> None: ...  # noqa: N805 - what a class method is before it is one

        @classmethod
        def sweep(cls) -> None: ...

    for method in (Worker.tick, Worker.poll):
        with pytest.raises(ConfigError, match=rf"app\.interval\('1m'\)\(worker\.{method.__name__}\) for example"):
            jobs.of(method)
    with pytest.raises(ConfigError, match=r"is a method .*\(Worker\.total\) for example"):
        jobs.of(Worker.total)
    with pytest.raises(ConfigError, match="belongs to a class that does not exist yet"):
        jobs.of(vars(Worker)["sweep"])
    for name, bound in (("a", Worker().tick), ("b", Worker().poll), ("c", Worker.sweep)):
        jobs.of(bound, name=name)


# -- decorators that have no function ------------------------------------------------------------------------------


def test_a_decorator_without_parentheses_is_an_error_where_it_is_written(jobs: Jobs) -> None:
    async def poll() -> None: ...

    def tick(run: Run) -> None: ...

    def plain() -> None: ...

    asked: Any = jobs
    for decorator, bodies in (
        (asked.interval, (poll, tick)),
        (asked.fixed_rate, (poll, tick, plain)),
        (asked.cron, (poll, tick, plain)),
    ):
        for body in bodies:
            text = rf"{body.__name__} \(\S+test_jobs\.py:\d+\) is no job yet: write @app\.{decorator.__name__}\("
            with pytest.raises(ConfigError, match=text):
                decorator(body)
    jobs.refuse_bare_decorators()


def test_a_decorator_without_parentheses_that_looks_like_an_interval_function_is_an_error_at_the_start(
    jobs: Jobs,
) -> None:
    def seconds() -> float:
        return 1.0

    each = jobs.interval(seconds)  # without parentheses above a function it looks like this
    with pytest.raises(ConfigError, match=r"seconds \(\S+test_jobs\.py:\d+\) is no job yet: write @app\.interval\("):
        jobs.refuse_bare_decorators()
    jobs.of(lambda: None)  # another one does not help
    with pytest.raises(ConfigError, match="is no job yet"):
        jobs.refuse_bare_decorators()
    each(seconds)
    jobs.cron("0 3 * * *")  # one that was made and not used
    jobs.refuse_bare_decorators()


# -- async or not --------------------------------------------------------------------------------------------------


async def coroutine(run: Run) -> Run:
    return run


async def sized(size: int, run: Run) -> Run:
    return run


class AsyncCaller:
    async def __call__(self, run: Run) -> Run:
        return run

    async def method(self, run: Run) -> Run:
        return run


@functools.wraps(coroutine)
async def decorated(*args: Any) -> Any:
    return await coroutine(*args)


@pytest.mark.parametrize(
    "body",
    [
        *[coroutine, functools.partial(sized, 3), AsyncCaller(), AsyncCaller().method, decorated],
        *[functools.partial(AsyncCaller()), functools.partial(AsyncCaller().method)],
    ],
)
async def test_c104_what_makes_a_coroutine_is_async(jobs: Jobs, body: Any) -> None:
    job = jobs.of(body)
    assert job.is_async
    assert await cast("Awaitable[Run]", job.body(RUN)) is RUN


@functools.wraps(coroutine)
def sync_wrapper(*args: Any) -> Any:
    return coroutine(*args)


@functools.wraps(coroutine)
def blocking_wrapper(*args: Any) -> Any:
    return asyncio.run(coroutine(*args))


@pytest.mark.parametrize("body", [sync_wrapper, blocking_wrapper, lambda run: coroutine(run)])
async def test_c104_a_sync_call_is_made_in_a_thread_and_awaited_if_it_returns_a_coroutine(
    jobs: Jobs, body: Any
) -> None:
    job = jobs.of(body)
    assert not job.is_async
    result = await asyncio.to_thread(job.body, RUN)
    assert (await result if inspect.isawaitable(result) else result) is RUN


@pytest.mark.parametrize("body", [named, Caller(), Caller().method, functools.partial(bound, 3), time.monotonic])
def test_c104_what_returns_at_its_end_is_sync(jobs: Jobs, body: Any) -> None:
    assert not jobs.of(body).is_async


# -- class forms ---------------------------------------------------------------------------------------------------


class Snapshot(FixedRateJob, every="500ms", lock_expiry="20s"):
    def __init__(self, feed: str = "eu") -> None:
        self.feed = feed
        self.seen: list[object] = []

    async def is_enabled(self) -> bool:
        return self.feed == "eu"

    async def on_elected(self, term: Term) -> None:
        self.seen.append(term)

    def on_stepped_down(self, reason: Reason) -> None:
        self.seen.append(reason)

    async def execute(self, run: Run) -> None:
        self.seen.append(run)


async def test_a_class_form_becomes_a_job_with_its_state_options_and_hooks(jobs: Jobs) -> None:
    snapshot = Snapshot()
    jobs.add(snapshot)
    job = jobs.only()
    assert (job.name, job.shape, job.is_async, job.overrides) == ("snapshot", "fixed_rate", True, {"lock_expiry": 20.0})
    assert isinstance(job.schedule, FixedRateSchedule)
    assert job.schedule.period == 500_000
    assert job.is_enabled is not None
    assert job.on_elected is not None
    assert job.on_stepped_down is not None
    assert await cast("Awaitable[bool]", job.is_enabled()) is True
    await cast("Awaitable[None]", job.on_elected(cast("Term", "term")))
    assert job.on_stepped_down("lost") is None
    await cast("Awaitable[None]", job.body(RUN))
    assert snapshot.seen == ["term", "lost", RUN]


def test_hooks_that_were_not_written_are_none(jobs: Jobs) -> None:
    class Plain(IntervalJob, every=1):
        def execute(self) -> str:  # type: ignore[override]  # allowed when it runs: the Run is optional
            return "ran"

    jobs.add(Plain())
    job = jobs.only()
    assert (job.is_enabled, job.on_elected, job.on_stepped_down, job.is_async) == (None, None, None, False)
    assert job.body(RUN) == "ran"


def test_a_class_form_of_each_shape(jobs: Jobs) -> None:
    class Poll(IntervalJob, every=lambda: "2s"):
        def execute(self, run: Run) -> None: ...

    class Report(CronJob, expression="0 3 * * *", tz="Asia/Singapore", misfire="fire_once"):
        def execute(self, run: Run) -> None: ...

    jobs.add(Poll())
    jobs.add(Report())
    assert interval_of(jobs._jobs["poll"]) == 2
    schedule = jobs._jobs["report"].schedule
    assert isinstance(schedule, CronSchedule)
    assert (schedule.cron.tz, schedule.misfire) == ("Asia/Singapore", "fire_once")


@pytest.mark.parametrize(
    ("base", "keywords", "text"),
    [
        (FixedRateJob, {"every": 0}, "every: 0 must be greater"),
        (FixedRateJob, {"every": "1s", "lock_expiry": "x"}, "lock_expiry: 'x' is not a duration"),
        (IntervalJob, {"every": 1, "offset": 1}, "offset: there is no such option"),
        (IntervalJob, {"evry": 1}, r"evry: there is no such option; did you mean every\?"),
        (CronJob, {"expression": "* * *"}, "cron expression"),
        (CronJob, {"expression": "* * * * *", "misfire": "never"}, "misfire: 'never'"),
    ],
)
def test_a_bad_class_keyword_fails_at_the_class_statement(base: Any, keywords: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"^\[Job: price-tick\] {text}"):

        class PriceTick(base, **keywords):  # type: ignore[misc]  # whichever
            def execute(self, run: Run) -> None: ...


def test_class_keywords_are_inherited_and_overridden(jobs: Jobs) -> None:
    class Base(FixedRateJob, lock_expiry="20s", timeout="5s"):
        """An intermediate base without a schedule."""

        def execute(self, run: Run) -> None: ...

    class Fast(Base, every="100ms", timeout=None): ...

    class Slow(Fast, every="10s"): ...

    jobs.add(Fast())
    jobs.add(Slow())
    fast, slow = jobs._jobs["fast"], jobs._jobs["slow"]
    assert fast.overrides == slow.overrides == {"lock_expiry": 20.0, "timeout": None}
    assert isinstance(fast.schedule, FixedRateSchedule)
    assert isinstance(slow.schedule, FixedRateSchedule)
    assert (fast.schedule.period, slow.schedule.period) == (100_000, 10_000_000)
    with pytest.raises(ScheduleError, match=r"^\[Job: base\] every: missing; write every='500ms'"):
        jobs.add(Base())


def test_a_class_that_is_made_a_second_time_keeps_its_keywords(jobs: Jobs) -> None:
    @dataclass(slots=True)
    class Feed(IntervalJob, every="3s", timeout=1):
        url: str

        def execute(self, run: Run) -> None: ...

    jobs.add(Feed("x"))
    assert interval_of(jobs.only()) == 3
    assert jobs.only().overrides == {"timeout": 1.0}


def test_a_class_without_a_body_cannot_be_made() -> None:
    class Empty(IntervalJob, every=1): ...

    with pytest.raises(TypeError, match="execute"):
        Empty()  # type: ignore[abstract]  # the fault


def test_add_takes_instances_of_the_class_forms_only(jobs: Jobs) -> None:
    add = cast("Callable[[object], None]", jobs.add)
    with pytest.raises(ConfigError, match=r"^add: <class '.*Snapshot'> is no job; write Snapshot\(\.\.\.\)$"):
        add(Snapshot)
    with pytest.raises(ConfigError, match=r"is no job; write an instance of IntervalJob, FixedRateJob or CronJob$"):
        add(named)

    class Shapeless(Job):
        def execute(self, run: Run) -> None: ...

    with pytest.raises(ConfigError, match="is no job; write an instance of"):
        jobs.add(Shapeless())


def test_a_hook_with_wrong_parameters_is_refused(jobs: Jobs) -> None:
    class Tick(IntervalJob, every=1):
        def execute(self, run: Run) -> None: ...

        def on_elected(self) -> None:  # type: ignore[override]  # the fault
            ...

    with pytest.raises(ConfigError, match=r"Tick\.on_elected: wrong parameters; write on_elected\(self, term\)$"):
        jobs.add(Tick())


def test_a_class_has_one_live_switch(jobs: Jobs) -> None:
    class Tick(IntervalJob, every=1, enabled=lambda: True):
        def execute(self, run: Run) -> None: ...

        def is_enabled(self) -> bool:
            return True

    with pytest.raises(ConfigError, match=r"Tick\.is_enabled: enabled= names a live switch too; write one of them$"):
        jobs.add(Tick())


def test_registering_loads_no_cron_evaluator_and_no_zones_unless_a_cron_job_asks() -> None:
    program = (
        "import sys\n"
        "from singletonjob._jobs.registry import Registry\n"
        "Registry().interval('1s', name='a')(lambda: None)\n"
        "print(sorted({'cronsim', 'zoneinfo', 'difflib', 'redis', 'msgspec', 'sqlite3'} & set(sys.modules)))\n"
        "Registry().cron('* * * * *', name='a')(lambda: None)\n"
        "print('cronsim' in sys.modules)\n"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert shown.stdout == "[]\nTrue\n"


def test_a_new_term_starts_from_the_schedule_that_was_registered(jobs: Jobs) -> None:
    job = jobs.of(lambda: None)
    assert job.schedule.ticker(NOW, JobState(wall=NOW.wall)).wake(NOW) == NOW.boot
