"""Durations as users write them: one reader for numbers, timedeltas and text."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, TypeAlias

from .._core.errors import ConfigError

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = ["Duration", "duration", "positive", "shown"]

Duration: TypeAlias = "float | str | timedelta"
"""A number is seconds; text is `250ms`, `0.3s`, `10m`, `2h`, `1d`, `1m30s`, `00:00:03`, `PT1M30S`, or seconds."""

_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_DAY = (86400.0, 3600.0, 60.0, 1.0)
_FORMS = (
    (_NUMBER, (1.0,)),
    (rf"(?:{_NUMBER}d)?(?:{_NUMBER}h)?(?:{_NUMBER}m(?!s))?(?:{_NUMBER}s)?(?:{_NUMBER}ms)?", (*_DAY, 1e-3)),
    (r"([0-9]+):([0-5][0-9]):([0-5][0-9](?:\.[0-9]+)?)", _DAY[1:]),
    (rf"P(?:{_NUMBER}D)?(?:T(?=[0-9])(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?", _DAY),
)
_LONGEST = 36_500 * 86_400.0  # microseconds of a century still fit the integers of every store


def duration(value: object, what: str, error: type[ConfigError] = ConfigError) -> float:
    """Seconds, from a number of seconds, a `timedelta` or text (see `Duration`). Zero is a duration.

    Raises `error` naming `what` for a sign, a bool, NaN, infinity, more than a century, and anything else.
    """
    seconds = math.nan
    if isinstance(value, str):
        for form, units in _FORMS:
            match = re.fullmatch(form, value.strip())
            if match is not None and any(match.groups()):
                seconds = round(sum(float(n) * unit for n, unit in zip(match.groups(), units, strict=True) if n), 9)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        # Compared before it is converted: float() of a very long int raises.
        seconds = float(value) if abs(value) <= _LONGEST else math.inf
    else:
        from datetime import timedelta

        if isinstance(value, timedelta):
            seconds = value.total_seconds()
    if not 0 <= seconds <= _LONGEST:
        raise error(
            f"{what}: {shown(value)} is not a duration; write seconds as a number, a timedelta, or text such as"
            " '250ms', '10m', '1m30s', '00:00:03' or 'PT1M30S', without a sign and at most 36500 days"
        )
    return seconds


def positive(value: object, what: str, error: type[ConfigError] = ConfigError) -> float:
    """A duration above zero, in seconds. Raises `error` as `duration` does."""
    seconds = duration(value, what, error)
    if seconds == 0:
        raise error(f"{what}: {shown(value)} must be greater than zero; write '250ms' or '3s', say")
    return seconds


def shown(value: object) -> str:
    """A value as an error's text quotes it, cut to a readable length."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
