"""Cron in time zones against an oracle that walks real minutes with `zoneinfo` alone, near transitions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from singletonjob._cron import Cron
from singletonjob._errors import ScheduleError

ZONES = [
    "America/New_York",
    "Europe/Berlin",
    "Europe/London",
    "Australia/Lord_Howe",  # shifts by half an hour
    "America/Santiago",  # at midnight
    "Asia/Beirut",  # at midnight
    "Africa/Casablanca",  # back and forth within a month
    "Pacific/Apia",  # left out a day in 2011
    "Asia/Pyongyang",  # changed its standard time by half an hour, 2015 and 2018
    "America/Sao_Paulo",
]
FIRST, LAST = datetime(2010, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
MINUTE = 60


@cache
def transitions(zone: str) -> list[int]:
    """The whole minutes, in seconds since the epoch, at which the zone's offset changes."""
    info, found = ZoneInfo(zone), []
    low, end = round(FIRST.timestamp()), round(LAST.timestamp())
    while low < end:
        high = low + 86_400 * 3
        if offset(info, low) != offset(info, high):
            start = low
            while high - start > 1:
                middle = (start + high) // 2
                start, high = (middle, high) if offset(info, middle) == offset(info, low) else (start, middle)
            found.append(high)
            low = high
        else:
            low = high
    return found


def offset(zone: ZoneInfo, second: int) -> timedelta | None:
    return datetime.fromtimestamp(second, zone).utcoffset()


class Expression:
    """An expression made of a text and a set of values per field, so that the oracle needs no parser."""

    def __init__(self, fields: tuple[tuple[str, frozenset[int]], ...]) -> None:
        self.text = " ".join(text for text, _ in fields)
        self.minutes, self.hours, self.days, self.months, self.weekdays = (values for _, values in fields)
        self.both_days = fields[2][0].startswith("*") or fields[4][0].startswith("*")
        self.interval_like = any(sign in text for text, _ in fields[:2] for sign in "*-/")

    def __repr__(self) -> str:
        return self.text

    def matches(self, wall: datetime) -> bool:
        if wall.minute not in self.minutes or wall.hour not in self.hours or wall.month not in self.months:
            return False
        day, weekday = wall.day in self.days, wall.isoweekday() % 7 in self.weekdays
        return (day and weekday) if self.both_days else (day or weekday)

    def fires(self, zone: ZoneInfo, second: int) -> bool:
        """Whether policy P has a slot at this minute of real time."""
        wall = datetime.fromtimestamp(second, zone)
        if self.matches(wall):
            return self.interval_like or wall.fold == 0
        if self.interval_like:
            return False
        before, after = offset(zone, second - 1), offset(zone, second)
        assert before is not None
        assert after is not None
        if after <= before:
            return False
        swallowed = (wall - (after - before)).replace(tzinfo=None)
        return any(
            self.matches(swallowed + timedelta(minutes=minute))
            for minute in range((after - before) // timedelta(minutes=1))
        )


Field = tuple[str, frozenset[int]]


def listed(numbers: set[int]) -> Field:
    return ",".join(map(str, sorted(numbers))), frozenset(numbers)


def spread(low: int, high: int, step: int) -> Field:
    low, high = min(low, high), max(low, high)
    return f"{low}-{high}/{step}", frozenset(range(low, high + 1, step))


def some(low: int, high: int) -> st.SearchStrategy[Field]:
    number = st.integers(low, high)
    return st.one_of(
        st.sets(number, min_size=1, max_size=4).map(listed), st.builds(spread, number, number, st.integers(1, 3))
    )


def field(low: int, high: int) -> st.SearchStrategy[Field]:
    stars = st.integers(1, (high - low + 1) // 2).map(
        lambda step: (f"*/{step}" if step > 1 else "*", frozenset(range(low, high + 1, step)))
    )
    return st.one_of(some(low, high), stars)


def always(low: int, high: int) -> st.SearchStrategy[Field]:
    return st.just(("*", frozenset(range(low, high + 1))))


expressions = st.builds(
    Expression,
    st.tuples(
        field(0, 59),
        st.one_of(field(0, 23), some(0, 3)),  # most transitions fall into the first hours of a day
        st.one_of(always(1, 31), field(1, 31)),
        always(1, 12),
        st.one_of(always(0, 6), field(0, 6)),
    ),
)


def walked(expression: Expression, zone: ZoneInfo, start: int, minutes: int) -> list[int]:
    first = start - start % MINUTE + MINUTE
    return [second for second in range(first, first + minutes * MINUTE, MINUTE) if expression.fires(zone, second)]


near_transitions = given(
    expression=expressions,
    zone=st.sampled_from(ZONES),
    pick=st.integers(0, 10_000),
    distance=st.integers(-26 * 3600, 3 * 3600),
)


def compare(expression: Expression, zone: str, pick: int, distance: int) -> None:
    changes, minutes = transitions(zone), 30 * 60
    start = changes[pick % len(changes)] + distance
    wanted = walked(expression, ZoneInfo(zone), start, minutes)
    cron, found, instant = Cron(expression.text, zone), list[int](), start * 1_000_000
    end = (start - start % MINUTE + minutes * MINUTE) * 1_000_000
    while (later := cron.after(instant)) is not None and later <= end:
        found.append(later // 1_000_000)
        instant = later
    assert found == wanted


@settings(max_examples=120, deadline=None)
@near_transitions
def test_the_next_slots_are_those_that_a_walk_over_real_time_finds(
    expression: Expression, zone: str, pick: int, distance: int
) -> None:
    compare(expression, zone, pick, distance)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@settings(max_examples=20_000, deadline=None)
@near_transitions
def test_the_next_slots_are_those_that_a_walk_over_real_time_finds_in_twenty_thousand_tries(
    expression: Expression, zone: str, pick: int, distance: int
) -> None:
    compare(expression, zone, pick, distance)


@settings(max_examples=300, deadline=None)
@given(
    expression=expressions,
    zone=st.sampled_from(ZONES),
    pick=st.integers(0, 10_000),
    distance=st.integers(-2 * 3600 * 10**6, 2 * 3600 * 10**6),
)
def test_c57_the_next_slot_is_strictly_later(expression: Expression, zone: str, pick: int, distance: int) -> None:
    changes = transitions(zone)
    instant = changes[pick % len(changes)] * 1_000_000 + distance
    later = Cron(expression.text, zone).after(instant)
    assert later is not None
    assert later > instant


@settings(max_examples=200, deadline=None)
@given(
    expression=expressions,
    zone=st.sampled_from(ZONES),
    pick=st.integers(0, 10_000),
    early=st.integers(0, 4 * 3600),
    span=st.integers(0, 40 * 86_400),
)
def test_the_newest_slot_of_a_range_is_the_one_before_the_next(
    expression: Expression, zone: str, pick: int, early: int, span: int
) -> None:
    changes = transitions(zone)
    low = (changes[pick % len(changes)] - early) * 1_000_000
    high, cron = low + span * 1_000_000, Cron(expression.text, zone)
    newest = cron.newest(low, high)
    later = cron.after(low)
    assert later is not None
    if newest is None:
        assert later > high
    else:
        assert low < newest <= high
        following = cron.after(newest)
        assert following is not None
        assert following > high
        assert cron.after(newest - 1) == newest


@settings(max_examples=300, deadline=None)
@given(text=st.text("0123456789*/-,#LWH?@ MONSUdaily", max_size=20))
def test_any_text_is_either_refused_as_a_schedule_error_or_has_a_next_slot(text: str) -> None:
    try:
        cron = Cron(text)
    except ScheduleError:
        return
    assert cron.after(0) is not None
