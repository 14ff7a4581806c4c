"""Rules of the schedules that hold for any lateness, any length of run and any hand-over."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from singletonjob._core.cron import Cron
from singletonjob._core.schedule import CronSchedule, FixedRateSchedule, IntervalSchedule, Ticker
from singletonjob._core.values import MisfirePolicy, Now
from singletonjob.stores.protocol import JobState

SECOND = 1_000_000
START = 1_796_000_000 * SECOND + 123_456

microseconds = st.integers(0, 5 * SECOND)


@settings(max_examples=150, deadline=None)
@given(
    period=st.sampled_from([0.001, 0.1, 0.333333, 1.0, 7.0]),
    offset=st.sampled_from([0.0, 0.0005, 12.5]),
    steps=st.lists(st.tuples(st.one_of(st.just(0), microseconds), st.one_of(st.just(0), microseconds)), max_size=40),
)
def test_each_grid_point_of_a_term_is_run_or_late_or_dropped_by_a_run(
    period: float, offset: float, steps: list[tuple[int, int]]
) -> None:
    schedule = FixedRateSchedule(period, offset)
    ticker = schedule.ticker(Now(START, 0.0), JobState(wall=START))
    moment, late, overlap = START, 0, 0
    ticks: list[int] = []
    for delay, length in steps:
        wake = ticker.wake(Now(moment, 0.0))
        assert isinstance(wake, int)
        assert moment < wake <= moment + schedule.period
        moment = wake + delay
        took = ticker.take(Now(moment, 0.0))
        assert took.due is not None
        assert took.due.tick is not None
        assert moment - schedule.period < took.due.scheduled <= moment
        assert took.due.scheduled == schedule.point(took.due.tick)
        late += took.late
        ticks.append(took.due.tick)
        assert ticker.take(Now(moment, 0.0)).due is None
        moment += length
        overlap += ticker.ended(took.due, Now(moment, 0.0)).late
    assert all(earlier < later for earlier, later in pairwise(ticks))
    assert len(ticks) + late + overlap == schedule.tick(moment) - schedule.tick(START)


@settings(max_examples=150, deadline=None)
@given(
    moves=st.lists(st.tuples(st.integers(50_000, 3 * SECOND), st.integers(-999_999, 3 * SECOND)), max_size=40),
    looks=st.lists(st.booleans(), min_size=40, max_size=40),
)
def test_small_steps_of_the_wall_clock_repeat_no_tick(moves: list[tuple[int, int]], looks: list[bool]) -> None:
    """A step back of less than a period, then time passes until a tick has run, and again."""
    ticker = FixedRateSchedule(1.0).ticker(Now(START, 0.0), JobState(wall=START))
    wall, ticks = START, list[int]()
    for (forward, step), look in zip(moves, looks, strict=False):
        wall += step
        if look:
            ticker.wake(Now(wall, 0.0))
        while (due := ticker.take(Now(wall, 0.0)).due) is None:
            wall += forward
        assert due.tick is not None
        assert due.scheduled <= wall
        ticks.append(due.tick)
        ticker.ended(due, Now(wall, 0.0))
    assert all(earlier < later for earlier, later in pairwise(ticks))


@settings(max_examples=100, deadline=None)
@given(
    skews=st.lists(st.integers(-2 * SECOND, 2 * SECOND), min_size=1, max_size=8),
    lengths=st.lists(st.integers(1, 5 * SECOND), min_size=8, max_size=8),
)
def test_the_grid_is_kept_over_hand_overs_and_no_tick_runs_twice(skews: list[int], lengths: list[int]) -> None:
    """Replicas' wall clocks differ by up to 4 s; the release carries the last tick started."""
    schedule = FixedRateSchedule(0.5)
    true, slot = START, None
    seen: list[int] = []
    for skew, length in zip(skews, lengths, strict=False):
        ticker = schedule.ticker(Now(true + skew, 0.0), JobState(wall=true, slot=slot))
        end = true + length
        while True:
            wake = ticker.wake(Now(true + skew, 0.0))
            assert isinstance(wake, int)
            if wake - skew > end:
                break
            true = wake - skew
            due = ticker.take(Now(wake, 0.0)).due
            assert due is not None
            slot = due.scheduled
            seen.append(slot)
            ticker.ended(due, Now(wake, 0.0))
        true = end
    assert all(earlier < later for earlier, later in pairwise(seen))
    assert all(schedule.after(slot - 1) == slot for slot in seen)


@settings(max_examples=100, deadline=None)
@given(
    every=st.floats(0.01, 3600),
    terms=st.lists(st.tuples(st.floats(0, 600), st.floats(0, 30), st.floats(0, 600)), min_size=1, max_size=10),
)
def test_the_gap_of_an_interval_job_is_kept_over_hand_overs(
    every: float, terms: list[tuple[float, float, float]]
) -> None:
    """Each term: idle before it, then it lasts; its replica's boot clock has a zero of its own."""
    schedule = IntervalSchedule(lambda: every)
    moment, end = 0.0, None
    for number, (idle, length, lasts) in enumerate(terms):
        moment += idle
        zero = 1000.0 * number
        ticker = schedule.ticker(
            Now(START, moment + zero), JobState(wall=START, ended_ago=None if end is None else moment - end)
        )
        over = moment + lasts
        for _ in range(20):
            wake = ticker.wake(Now(START, moment + zero))
            assert wake is not None
            if wake - zero > over:
                break
            moment = max(moment, wake - zero)
            due = ticker.take(Now(START, max(wake, moment + zero))).due
            assert due is not None
            assert end is None or moment >= end + every - 1e-6
            moment += length
            end = moment
            ticker.ended(due, Now(START, moment + zero))
        moment = max(moment, over)


def test_an_hourly_job_handed_over_ten_times_within_a_minute_runs_once() -> None:
    schedule = IntervalSchedule(lambda: 3600.0)
    runs, end = 0, None
    for term in range(10):
        now = Now(START + term * 6 * SECOND, 50.0 + term * 6)
        ticker = schedule.ticker(now, JobState(wall=now.wall, ended_ago=None if end is None else now.boot - end))
        due = ticker.take(now).due
        if due is not None:
            runs, end = runs + 1, now.boot + 1
            ticker.ended(due, Now(now.wall + SECOND, end))
    assert runs == 1


class ModelStore:
    """The store's part in slots, as DESIGN 8.5 has it: claims only grow, none more than ten minutes ahead."""

    def __init__(self) -> None:
        self.slot: int | None = None
        self.done: int | None = None

    def claim(self, slot: int, wall: int) -> bool:
        ahead = wall + 600 * SECOND
        if slot > ahead or (self.slot is not None and slot <= self.slot <= ahead):
            return False
        self.slot = slot
        return True


@settings(max_examples=120, deadline=None)
@given(
    misfire=st.sampled_from(["skip", "fire_once", "catch_up"]),
    expression=st.sampled_from(["* * * * *", "*/10 * * * * *", "0 * * * *", "*/7 * * * *"]),
    terms=st.lists(
        st.tuples(
            st.integers(-300, 300),  # the replica's wall clock is off by so many seconds
            st.integers(0, 400),  # nobody leads for so long before the term
            st.lists(st.tuples(st.integers(0, 200), st.integers(0, 150), st.booleans()), max_size=6),
        ),
        min_size=1,
        max_size=6,
    ),
)
def test_a_slot_runs_at_most_once_over_all_terms_and_claims_only_grow(
    misfire: MisfirePolicy, expression: str, terms: list[tuple[int, int, list[tuple[int, int, bool]]]]
) -> None:
    schedule, store = CronSchedule(Cron(expression), misfire), ModelStore()
    true, ran = START, list[int]()
    for skew, idle, steps in terms:
        true += idle * SECOND
        state = JobState(wall=true, slot=store.slot, done=store.done, mark=schedule.mark if store.slot else "")
        ticker: Ticker = schedule.ticker(Now(true + skew * SECOND, 0.0), state)
        for wait, length, crash in steps:
            true += wait * SECOND
            wall = true + skew * SECOND
            due = ticker.take(Now(wall, 0.0)).due
            if due is None:
                continue
            assert due.slot is not None
            assert due.slot == due.scheduled <= wall
            assert schedule.cron.after(due.slot - 1) == due.slot
            assert store.claim(due.slot, true), "a ticker with a fresh state never asks for a slot below the claim"
            ran.append(due.slot)
            if crash:
                break
            true += length * SECOND
            store.done = due.slot
            ticker.ended(due, Now(true + skew * SECOND, 0.0))
    assert all(earlier < later for earlier, later in pairwise(ran))


@settings(max_examples=120, deadline=None)
@given(
    misfire=st.sampled_from(["skip", "fire_once", "catch_up"]),
    limit=st.integers(1, 4),
    steps=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400)), min_size=1, max_size=12),
    owed=st.integers(0, 1200),
)
def test_each_slot_is_run_or_reported_exactly_once(
    misfire: MisfirePolicy, limit: int, steps: list[tuple[int, int]], owed: int
) -> None:
    cron = Cron("*/2 * * * *")
    schedule = CronSchedule(cron, misfire, catch_up_limit=limit)
    last = cron.after(START - owed * SECOND - 120 * SECOND)
    assert last is not None
    ticker = schedule.ticker(Now(START, 0.0), JobState(wall=START, slot=last, done=last, mark=cron.mark))
    moment, accounted = START, list[int]()
    for wait, length in [*steps, *[(0, 0)] * (limit + 1)]:  # at the end, the backlog of catch_up is worked off
        moment += wait * SECOND
        took = ticker.take(Now(moment, 0.0))
        for missed in took.missed:
            span = list(range(missed.first, missed.last + 1, 120 * SECOND))
            assert len(span) == missed.count
            accounted += span
        if took.due is not None:
            accounted.append(took.due.scheduled)
            moment += length * SECOND
            ticker.ended(took.due, Now(moment, 0.0))
    took = ticker.take(Now(moment, 0.0))
    for missed in took.missed:
        accounted += range(missed.first, missed.last + 1, 120 * SECOND)
    if took.due is not None:
        accounted.append(took.due.scheduled)
    assert sorted(accounted) == list(range(last + 120 * SECOND, moment + 1, 120 * SECOND))
