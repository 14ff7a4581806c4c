"""Policy P walked over real time with `zoneinfo` alone: what each cron expression must do around clock changes.

Nothing of the library is used, and no expression is parsed: an `Expression` is drawn as text and meaning at once.
"""

from __future__ import annotations

import random
from calendar import monthrange
from datetime import UTC, date, datetime, timedelta
from functools import cache, cached_property
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["ZONES", "Expression", "Field", "Stretch", "Window", "drawn", "transitions"]

ZONES = (
    "America/New_York",
    "Europe/Berlin",
    "Australia/Lord_Howe",  # shifts by half an hour
    "America/Santiago",  # at midnight
    "Asia/Beirut",  # at midnight
    "Africa/Casablanca",  # back and forth within a month
    "Antarctica/Troll",  # shifts by two hours
    "Europe/Dublin",  # its summer time is the standard one
    "Asia/Pyongyang",  # changed its standard time by half an hour, 2015 and 2018
    "America/Sao_Paulo",  # at midnight, until 2019
    "Africa/Cairo",  # at midnight, since 2023
    "Asia/Gaza",  # on other dates each year
    "America/Caracas",  # changed its standard time by half an hour, 2016
    "Asia/Tehran",  # at midnight, until 2022
    "Europe/London",
    "Pacific/Apia",  # left out a day in 2011
)

MINUTE, HOUR = 60, 3600
NAMES = {
    "month": ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
    "weekday": ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"),
}


def offset(zone: ZoneInfo, second: int) -> timedelta:
    found = datetime.fromtimestamp(second, zone).utcoffset()
    assert found is not None
    return found


@cache
def transitions(zone: str, first: int = 2010, last: int = 2026) -> tuple[int, ...]:
    """The seconds since the epoch, from the year `first` to the year `last`, at which the zone's offset changes."""
    info, found = ZoneInfo(zone), list[int]()
    low = round(datetime(first, 1, 1, tzinfo=UTC).timestamp())
    end = round(datetime(last + 1, 1, 1, tzinfo=UTC).timestamp())
    while low < end:
        high = low + 86_400 * 3
        if offset(info, low) != offset(info, high):
            start = low
            while high - start > 1:
                middle = (start + high) // 2
                start, high = (middle, high) if offset(info, middle) == offset(info, low) else (start, middle)
            found.append(high)
        low = high
    return tuple(found)


class Stretch(NamedTuple):
    """One minute or one second of real time: its wall time, and the wall times that a gap just before it swallowed."""

    at: int
    day: date
    hour: int
    minute: int
    second: int
    again: bool
    swallowed: tuple[datetime, ...] = ()


class Window:
    """The time around one transition, looked up once for all expressions: in minutes widely, in seconds closely."""

    def __init__(self, zone: str, transition: int) -> None:
        self.zone = ZoneInfo(zone)
        self.transition = transition

    @cached_property
    def minutes(self) -> list[Stretch]:
        return list(self._walk(26 * HOUR, MINUTE))

    @cached_property
    def seconds(self) -> list[Stretch]:
        return list(self._walk(5 * HOUR // 2, 1))

    def _walk(self, reach: int, step: int) -> Iterator[Stretch]:
        first = self.transition // MINUTE * MINUTE - reach
        before = offset(self.zone, first - step)
        for at in range(first, first + 2 * reach, step):
            wall = datetime.fromtimestamp(at, self.zone)
            after = wall.utcoffset()
            assert after is not None
            swallowed: tuple[datetime, ...] = ()
            if after > before:
                start = wall.replace(tzinfo=None) - (after - before)
                swallowed = tuple(
                    start + timedelta(seconds=late) for late in range(0, (after - before) // timedelta(seconds=1), step)
                )
            yield Stretch(at, wall.date(), wall.hour, wall.minute, wall.second, wall.fold == 1, swallowed)
            before = after


class Field(NamedTuple):
    """What is written, and which values it names; `days` names dates that are no plain values."""

    text: str
    values: frozenset[int]
    days: Callable[[date], bool] | None = None


class Expression:
    """An expression of five fields, or of six with seconds first, and what it means by policy P."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self.text = " ".join(field.text for field in fields)
        self.has_seconds = len(fields) == 6
        self.second, self.minute, self.hour, self.day, self.month, self.weekday = (
            fields if self.has_seconds else [Field("0", frozenset({0})), *fields]
        )
        times = [self.second.text, self.minute.text, self.hour.text]
        self.interval_like = any(sign in text for text in times for sign in "*-/")  # P3
        self.both_days = self.day.text.startswith("*") or self.weekday.text.startswith("*")  # P2
        self._known: dict[date, bool] = {}

    def __repr__(self) -> str:
        return self.text

    def on(self, day: date) -> bool:
        """Whether the date matches."""
        known = self._known.get(day)
        if known is None:
            by_day = day.day in self.day.values or (self.day.days is not None and self.day.days(day))
            by_weekday = day.isoweekday() % 7 in self.weekday.values or (
                self.weekday.days is not None and self.weekday.days(day)
            )
            either = (by_day and by_weekday) if self.both_days else (by_day or by_weekday)
            known = self._known[day] = day.month in self.month.values and either
        return known

    @property
    def comes(self) -> bool:
        """Whether any date matches: of the calendar's 28 years, after which the weekdays come again."""
        return any(self.on(date(2000, 1, 1) + timedelta(days)) for days in range(28 * 365 + 7))

    def walk(self, window: Window) -> tuple[int, int, list[int]]:
        """First and last moment that was looked at, and the slots there. Seconds since the epoch."""
        stretches = window.seconds if self.has_seconds else window.minutes
        seconds, minutes, hours = self.second.values, self.minute.values, self.hour.values
        found: list[int] = []
        for stretch in stretches:
            at, day, hour, minute, second, again, swallowed = stretch
            if minute in minutes and hour in hours and second in seconds and self.on(day):
                if self.interval_like or not again:  # P4: the first pass only
                    found.append(at)
            elif (
                swallowed
                and not self.interval_like
                and any(
                    wall.minute in minutes and wall.hour in hours and wall.second in seconds and self.on(wall.date())
                    for wall in swallowed
                )
            ):
                found.append(at)  # P4: what the gap swallowed, once, when it ends
        return stretches[0].at, stretches[-1].at, found


def drawn(seed: int | str) -> Expression:
    """An expression drawn by a seed: stars, values, lists, ranges, steps, names, special days; a quarter in seconds.

    It has slots. One in two thousand would have none, such as each 31st of November, and is drawn again.
    """
    source = random.Random(f"cron {seed}")
    while not (expression := _expression(source)).comes:
        pass
    return expression


def _expression(source: random.Random) -> Expression:
    # Most transitions fall into the first hours of a day, so most hours do.
    hour = _field(source, 0, 23) if source.random() < 0.4 else _some(source, 0, 23, most=3)
    day, weekday = Field("*", frozenset(range(1, 32))), Field("*", frozenset(range(7)))
    kind = source.random()
    if kind > 0.5:
        weekday = _weekday(source)
    if kind < 0.25 or kind > 0.75:
        day = _day(source)
    month = Field("*", frozenset(range(1, 13))) if source.random() < 0.8 else _month(source)
    fields = [_field(source, 0, 59), hour, day, month, weekday]
    if source.random() < 0.25:
        fields.insert(0, _field(source, 0, 59))
    return Expression(fields)


def _field(source: random.Random, low: int, high: int) -> Field:
    if source.random() < 0.75:
        return _some(source, low, high)
    step = source.choice([1, source.randint(2, (high - low + 1) // 2)])
    return Field("*" if step == 1 else f"*/{step}", frozenset(range(low, high + 1, step)))


def _some(source: random.Random, low: int, high: int, most: int | None = None) -> Field:
    """A list, a range or a step, of values up to `most`; a step goes on to `high`."""
    most, kind = high if most is None else most, source.randrange(5)
    if kind == 0:  # a range
        first, last = sorted((source.randint(low, most), source.randint(low, most)))
        step = source.choice([1, 1, 2, 3])
        return Field(f"{first}-{last}{'' if step == 1 else f'/{step}'}", frozenset(range(first, last + 1, step)))
    if kind == 1:  # from a value on
        first, step = source.randint(low, most), source.randint(1, max(1, high // 2))
        return Field(f"{first}/{step}", frozenset(range(first, high + 1, step)))
    numbers = {source.randint(low, most) for _ in range(source.randint(1, 4))}
    return Field(",".join(map(str, sorted(numbers))), frozenset(numbers))


def _day(source: random.Random) -> Field:
    kind = source.random()
    if kind < 0.1:
        return Field("L", frozenset(), lambda day: day.day == monthrange(day.year, day.month)[1])
    if kind < 0.2:
        return Field("LW", frozenset(), _last_working_day)
    return _field(source, 1, 31)


def _last_working_day(day: date) -> bool:
    last = day.replace(day=monthrange(day.year, day.month)[1])
    while last.isoweekday() > 5:
        last -= timedelta(days=1)
    return day == last


def _month(source: random.Random) -> Field:
    if source.random() < 0.7:
        return _some(source, 1, 12)
    first, last = sorted((source.randint(1, 12), source.randint(1, 12)))
    return Field(f"{NAMES['month'][first - 1]}-{NAMES['month'][last - 1]}", frozenset(range(first, last + 1)))


def _weekday(source: random.Random) -> Field:
    kind, number, nth = source.random(), source.randrange(7), source.randint(1, 4)
    name = NAMES["weekday"][number]
    if kind < 0.1:
        return Field(
            f"{number}L", frozenset(), lambda day: _is(day, number) and (day + timedelta(7)).month != day.month
        )
    if kind < 0.2:
        return Field(f"{name}#{nth}", frozenset(), lambda day: _is(day, number) and (day.day - 1) // 7 == nth - 1)
    if kind < 0.3:
        return Field(name.lower(), frozenset({number}))
    if kind < 0.4:  # 7 is Sunday too, also at the end of a range
        first = source.randint(1, 6)
        return Field(f"{first}-{source.choice(['7', 'SUN'])}", frozenset({*range(first, 7), 0}))
    if kind < 0.5:
        return Field("7", frozenset({0}))
    text, values, _ = _field(source, 0, 7)
    return Field(text, frozenset(value % 7 for value in values))


def _is(day: date, weekday: int) -> bool:
    return day.isoweekday() % 7 == weekday
