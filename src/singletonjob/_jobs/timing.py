"""When a job runs, as it is written down: the values of each shape, read one by one and made into a schedule."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from .._core.errors import ConfigError, ScheduleError
from .._core.schedule import CronSchedule, FixedRateSchedule, IntervalSchedule
from .body import is_async
from .duration import duration, positive
from .options import takes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .._core.schedule import Schedule
    from .options import Reader

__all__ = ["EXAMPLES", "TIMING_READERS", "WHEN", "Shape", "fixed_period", "make_schedule", "schedule_warnings"]

Shape: TypeAlias = Literal["interval", "fixed_rate", "cron"]

WHEN: Mapping[Shape, str] = {"interval": "every", "fixed_rate": "every", "cron": "expression"}
"""The one value that each job needs, and that is written in code only."""

EXAMPLES: Mapping[Shape, str] = {"interval": "'1m'", "fixed_rate": "'500ms'", "cron": "'0 3 * * *'"}


DAY = 86_400_000_000
"""Microseconds."""


def make_schedule(shape: Shape, timing: Mapping[str, Any], *, prefix: str) -> Schedule:
    """The schedule of a job, from values that the readers below returned.

    Raises `ScheduleError`, its text beginning with `prefix`, for what cannot be used.
    """
    if shape == "interval":
        return IntervalSchedule(timing["every"])
    if shape == "fixed_rate":
        return FixedRateSchedule(timing["every"], timing.get("offset", 0.0))
    from .cron_forms import make_cron

    with suppress(ImportError):
        # For freezers: they see import statements alone, and zoneinfo reads the package by its name.
        import tzdata.zoneinfo  # noqa: F401  # pyright: ignore[reportMissingTypeStubs, reportUnusedImport]

    more = {name: timing[name] for name in ("misfire", "catch_up_limit", "late_limit") if name in timing}
    try:
        return CronSchedule(make_cron(timing["expression"], timing.get("tz", "UTC")), **more)
    except ScheduleError as error:
        raise ScheduleError(f"{prefix}{error}") from error


def schedule_warnings(schedule: Schedule) -> tuple[str, ...]:
    """Warnings about a schedule that is valid, but may not do what its author means."""
    if isinstance(schedule, CronSchedule):
        return schedule.cron.warnings
    if isinstance(schedule, FixedRateSchedule) and schedule.period >= DAY:
        text = f"a tick that comes while nobody leads is lost, and the next one comes {schedule.period / DAY:g} d later"
        cure = (
            "write @app.cron(..., misfire='fire_once'), which makes up for it, or @app.interval(...), which counts from"
        )
        return (f"{text}; {cure} the last run, also from one before a restart",)
    return ()


def fixed_period(timing: Mapping[str, Any]) -> float | None:
    """The time from run to run in seconds; None where that is no fixed number: cron, or an interval that is asked."""
    every: object = timing.get("every")
    if isinstance(every, partial):  # of a number; what asks the user's function is a closure
        seconds: float = timing["every"]()
        return seconds
    return every if isinstance(every, float) else None


def _read_interval(value: object, what: str) -> Callable[[], float]:
    if not callable(value):
        return partial(float, positive(value, what, ScheduleError))
    if not takes(value, 0) or is_async(value):
        raise ScheduleError(f"{what}: {value!r} cannot be asked; write a sync function without parameters")
    return lambda: positive(value(), what, ScheduleError)


def _read_period(value: object, what: str) -> float:
    seconds = positive(value, what, ScheduleError)
    if seconds < 0.001:
        raise ScheduleError(f"{what}: {seconds:g} s is below the finest grid; write at least '1ms'")
    return seconds


def _read_expression(value: object, what: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ScheduleError(f"{what}: {value!r} is no cron expression; write {EXAMPLES['cron']}, say")
    return value


def _unread(value: object, _what: str) -> object:
    return value  # the schedule's own constructor says what is wrong with it


def _read_limit(value: object, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{what}: {value!r} is no number of slots; write an integer from 1 up")
    return value


def _read_late_limit(value: object, what: str) -> float:
    return inf if value is None else positive(value, what)


TIMING_READERS: Mapping[Shape, Mapping[str, Reader]] = {
    "interval": {"every": _read_interval},
    "fixed_rate": {"every": _read_period, "offset": duration},
    "cron": {
        "expression": _read_expression,
        "tz": _unread,
        "misfire": _unread,
        "catch_up_limit": _read_limit,
        "late_limit": _read_late_limit,
    },
}
