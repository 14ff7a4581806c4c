"""Cron in time zones against an oracle that walks real time with `zoneinfo` alone, near transitions.

At length: `sh scripts/soak cron`.
"""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cron_walk import ZONES, Expression, Field, Window, drawn, transitions
from singletonjob._core.cron import Cron
from singletonjob._core.errors import ScheduleError
from soak.cron import around, compare

EXPRESSIONS = 30
"""Each day others, beside as many that never change."""

PLACES = 2
"""Transitions of each zone, each day others."""

TODAY = int(time.time() / 86_400)
SEEDS = [*range(EXPRESSIONS), *range(1000 + TODAY * EXPRESSIONS, 1000 + (TODAY + 1) * EXPRESSIONS)]


@pytest.mark.parametrize("zone", ZONES)
def test_the_next_slots_are_those_that_a_walk_over_real_time_finds(zone: str) -> None:
    changes = transitions(zone)
    places = random.Random(f"{zone} {TODAY}").sample(changes, min(PLACES, len(changes)))
    told = [around(zone, transition, SEEDS) for transition in places]
    assert [difference for one in told for difference in one.differences] == []
    # Around whichever transition, of those that never change nine have slots at least.
    assert all(one.counts["busy"] >= EXPRESSIONS / 4 for one in told)


@pytest.mark.parametrize(
    ("minutes", "hours", "month", "difference"),
    [
        ("30", "1", 11, "2026-11-01T01:30:00-05:00 is in Cron only"),
        ("30", "2", 3, "2026-03-08T03:00:00-04:00 is in the walk only"),
        ("0,30", "1-1", 11, "2026-11-01T01:00:00-05:00 is in the walk only"),
        ("0,30", "2-2", 3, "2026-03-08T03:00:00-04:00 is in Cron only"),
    ],
)
def test_the_walk_notices_an_expression_that_is_taken_for_the_other_kind(
    minutes: str, hours: str, month: int, difference: str
) -> None:
    dates = [Field("*", frozenset(range(low, high))) for low, high in ((1, 32), (1, 13), (0, 7))]
    hour, every = Field(hours, frozenset({int(hours[0])})), frozenset(map(int, minutes.split(",")))
    expression = Expression([Field(minutes, every), hour, *dates])
    cron = Cron(expression.text, "America/New_York")
    (change,) = (second for second in transitions(cron.tz, 2026, 2026) if cron.local(second * 1_000_000).month == month)
    window = Window(cron.tz, change)
    assert compare(expression, window, cron)[1] == ""
    cron.fixed = not cron.fixed
    assert difference in compare(expression, window, cron)[1]


def test_c57_ten_thousand_times_the_next_slot_is_strictly_later() -> None:
    source = random.Random(f"c57 {TODAY}")
    for number in range(200):
        zone, expression = source.choice(ZONES), drawn(f"c57 {TODAY} {number}")
        cron, changes = Cron(expression.text, zone), transitions(zone)
        for _ in range(50):
            instant = source.choice(changes) * 1_000_000 + source.randint(-2 * 3600 * 10**6, 2 * 3600 * 10**6)
            later = cron.after(instant)
            assert later is not None, f"{expression} in {zone} after {instant}"
            assert later > instant, f"{expression} in {zone} after {instant}"


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    zone=st.sampled_from(ZONES),
    pick=st.integers(0, 10_000),
    early=st.integers(0, 4 * 3600),
    span=st.integers(0, 40 * 86_400),
)
def test_the_newest_slot_of_a_range_is_the_one_before_the_next(
    seed: int, zone: str, pick: int, early: int, span: int
) -> None:
    changes = transitions(zone)
    low = (changes[pick % len(changes)] - early) * 1_000_000
    high, cron = low + span * 1_000_000, Cron(drawn(seed).text, zone)
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
