"""The pure schedules, moment by moment: what is due, what is dropped, what is reported."""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from singletonjob._core.cron import Cron
from singletonjob._core.errors import ScheduleError
from singletonjob._core.schedule import (
    MISSED_LIMIT,
    CronSchedule,
    Due,
    FixedRateSchedule,
    IntervalSchedule,
    Missed,
    Schedule,
    Take,
)
from singletonjob._core.values import MisfirePolicy, Now
from singletonjob.stores.protocol import JobState

if TYPE_CHECKING:
    from collections.abc import Callable

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
NOON = round(datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp()) * SECOND
NEW = JobState(wall=NOON)
"""The state of a job that the store has never seen."""


def at(wall: int, boot: float = 0.0) -> Now:
    return Now(wall, boot)


def state(
    *,
    wall: int = NOON,
    slot: int | None = None,
    done: int | None = None,
    mark: str = "",
    ended_ago: float | None = None,
    off: int | None = None,
) -> JobState:
    return JobState(wall=wall, slot=slot, done=done, mark=mark, ended_ago=ended_ago, off=off)


@dataclass
class Drive:
    """Runs a schedule on clocks of its own: `wall` and `boot` seconds pass together unless a test moves the wall."""

    schedule: Schedule
    state: JobState = NEW
    wall: int = NOON
    boot: float = 1000.0
    starts: list[Due] = field(default_factory=list)
    begun: list[float] = field(default_factory=list)
    late: int = 0
    overlap: int = 0
    missed: list[Missed] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ticker = self.schedule.ticker(self.now, self.state)

    @property
    def now(self) -> Now:
        return Now(self.wall, self.boot)

    def sleep(self, seconds: float) -> None:
        self.wall += round(seconds * 1e6)
        self.boot += seconds

    def until(self, wake: float | None) -> float:
        """In seconds."""
        if wake is None:
            return math.inf
        return max(0.0, (wake - self.wall) / 1e6 if self.ticker.on_wall else wake - self.boot)

    def take(self) -> Take:
        took = self.ticker.take(self.now)
        self.late += took.late
        self.missed.extend(took.missed)
        if took.due:
            self.starts.append(took.due)
            self.begun.append(self.boot)
        return took

    def end(self, due: Due) -> None:
        took = self.ticker.ended(due, self.now)
        self.overlap += took.late
        self.missed.extend(took.missed)

    def run(self, seconds: float, job: float = 0.0, delay: Callable[[], float] = lambda: 0.0) -> None:
        """Lead for `seconds`; each run lasts `job`, each wake comes `delay()` late."""
        end = self.boot + seconds
        while self.boot + (wait := self.until(self.ticker.wake(self.now))) < end:
            self.sleep(wait + delay())
            due = self.take().due
            if due:
                self.sleep(job)
                self.end(due)
        self.sleep(max(0.0, end - self.boot))


def test_cases_45_numbers_hold_for_run_wait_run_as_well() -> None:
    drive = Drive(IntervalSchedule(lambda: 2.0))
    drive.run(60, job=3)
    assert [moment - 1000 for moment in drive.begun] == list(range(0, 60, 5))


# -- interval ---------------------------------------------------------------------------------------------------------


def test_an_interval_sleeps_on_the_boot_clock_and_what_has_a_grid_on_the_wall_clock() -> None:
    every: tuple[Schedule, ...] = IntervalSchedule(lambda: 1.0), FixedRateSchedule(1.0), CronSchedule(HOURLY)
    assert [schedule.ticker(at(NOON), NEW).on_wall for schedule in every] == [False, True, True]


def test_an_interval_job_runs_at_once_when_nobody_ever_ran_it() -> None:
    ticker = IntervalSchedule(lambda: 3600.0).ticker(at(NOON, 5.0), NEW)
    assert ticker.wake(at(NOON, 5.0)) == 5.0
    assert ticker.take(at(NOON, 5.0)) == Take(Due(NOON))


def test_an_interval_is_kept_from_the_last_known_end_anywhere() -> None:
    ticker = IntervalSchedule(lambda: 10.0).ticker(at(NOON, 100.0), state(ended_ago=4.0))
    assert ticker.wake(at(NOON, 100.0)) == 106.0
    assert ticker.take(at(NOON, 105.9)) == Take()
    assert ticker.take(at(NOON + 7 * SECOND, 107.0)) == Take(Due(NOON + 6 * SECOND))


def test_an_interval_that_passed_long_ago_is_due_now_and_not_late() -> None:
    ticker = IntervalSchedule(lambda: 10.0).ticker(at(NOON, 100.0), state(ended_ago=4000.0))
    assert ticker.take(at(NOON, 100.0)) == Take(Due(NOON))


def test_the_interval_is_counted_from_the_end_and_read_again_after_each_run() -> None:
    gaps = iter([5.0, 7.0])
    ticker = IntervalSchedule(lambda: next(gaps)).ticker(at(NOON, 0.0), NEW)
    ticker.ended(Due(NOON), at(NOON, 3.0))
    assert ticker.wake(at(NOON, 3.0)) == 8.0
    ticker.ended(Due(NOON), at(NOON, 9.0))
    assert ticker.wake(at(NOON, 9.0)) == 16.0


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, -math.inf])
def test_an_interval_that_turns_unusable_raises_naming_the_value(value: float) -> None:
    schedule = IntervalSchedule(lambda: value)
    ticker = schedule.ticker(at(NOON), NEW)
    with pytest.raises(ScheduleError, match=f"interval: {value!r} is not usable"):
        ticker.ended(Due(NOON), at(NOON))
    with pytest.raises(ScheduleError):
        schedule.ticker(at(NOON), state(ended_ago=1.0))


def test_c50_an_interval_shows_no_gap_when_the_wall_clock_is_set_back() -> None:
    drive = Drive(IntervalSchedule(lambda: 10.0))
    drive.run(35)
    drive.wall -= 120 * SECOND
    drive.run(35)
    assert drive.begun == [1000.0 + 10 * n for n in range(7)]


def test_c54_an_interval_passes_a_clock_change_without_notice() -> None:
    for change in ("2026-03-08T09:59:30", "2026-11-01T08:59:30"):
        start = round(datetime.fromisoformat(change).replace(tzinfo=UTC).timestamp()) * SECOND
        drive = Drive(IntervalSchedule(lambda: 30.0), wall=start)
        drive.run(100)
        assert [due.scheduled for due in drive.starts] == [start + n * 30 * SECOND for n in range(4)]


def test_c29_an_interval_of_400_days_is_a_plain_number() -> None:
    drive = Drive(IntervalSchedule(lambda: 400 * 86400.0))
    drive.run(1)
    assert drive.ticker.wake(drive.now) == 1000.0 + 400 * 86400


# -- fixed rate -------------------------------------------------------------------------------------------------------


def test_the_grid_is_anchored_at_the_epoch_and_moved_by_the_offset() -> None:
    assert FixedRateSchedule(2.0).after(NOON) == NOON + 2 * SECOND
    assert FixedRateSchedule(2.0, offset=0.5).after(NOON) == NOON + SECOND // 2
    assert FixedRateSchedule(2.0, offset=-0.5).after(NOON) == NOON + 3 * SECOND // 2
    assert FixedRateSchedule(7.0).after(-1) == 0


@pytest.mark.parametrize("every", [0.0, -1.0, 1e-7, math.nan, math.inf])
def test_c49_a_period_that_is_no_positive_number_of_microseconds_is_refused(every: float) -> None:
    with pytest.raises(ScheduleError, match="fixed rate"):
        FixedRateSchedule(every)


@pytest.mark.parametrize("offset", [math.nan, math.inf])
def test_an_offset_that_is_no_number_is_refused(offset: float) -> None:
    with pytest.raises(ScheduleError, match="offset"):
        FixedRateSchedule(1.0, offset)


def test_the_first_tick_of_a_term_is_the_first_grid_point_after_its_begin() -> None:
    ticker = FixedRateSchedule(2.0).ticker(at(NOON), NEW)
    assert ticker.wake(at(NOON)) == NOON + 2 * SECOND
    assert ticker.take(at(NOON + 1)) == Take()
    assert ticker.take(at(NOON + 2 * SECOND + 300)) == Take(
        Due(NOON + 2 * SECOND, tick=(NOON + 2 * SECOND) // (2 * SECOND))
    )


def test_c10_a_tick_of_the_previous_leader_is_not_repeated_by_a_slower_clock() -> None:
    slow = NOON - 700_000
    ticker = FixedRateSchedule(1.0).ticker(at(slow), state(slot=NOON))
    assert ticker.wake(at(slow)) == NOON + SECOND
    assert ticker.take(at(NOON)) == Take()


def test_a_tick_reported_from_the_far_future_is_ignored() -> None:
    ticker = FixedRateSchedule(1.0).ticker(at(NOON), state(slot=NOON + 10 * SECOND))
    assert ticker.wake(at(NOON)) == NOON + 11 * SECOND
    ticker = FixedRateSchedule(1.0).ticker(at(NOON), state(slot=NOON + 10 * SECOND + 1))
    assert ticker.wake(at(NOON)) == NOON + SECOND


def test_c15_a_wake_three_milliseconds_early_runs_nothing_and_asks_for_the_same_moment() -> None:
    ticker = FixedRateSchedule(1.0).ticker(at(NOON), NEW)
    ticks: list[int] = []
    moment = NOON
    while len(ticks) < 10_000:
        wake = ticker.wake(at(moment))
        assert isinstance(wake, int)
        assert ticker.take(at(wake - 3_000)) == Take()
        assert ticker.wake(at(wake - 3_000)) == wake
        due = ticker.take(at(wake)).due
        assert due is not None
        assert due.tick is not None
        assert due.scheduled <= wake
        ticks.append(due.tick)
        ticker.ended(due, at(wake + 200))
        moment = wake + 200
    assert ticks == list(range(ticks[0], ticks[0] + 10_000))


def test_c32_a_tick_late_by_less_than_a_period_still_runs() -> None:
    rng = random.Random(32)
    drive = Drive(FixedRateSchedule(1.0))
    drive.run(600.5, delay=lambda: rng.uniform(0, 0.9))
    assert [due.scheduled for due in drive.starts] == [NOON + n * SECOND for n in range(1, 601)]
    assert drive.late == drive.overlap == 0


def test_ticks_seen_late_are_counted_and_never_run_in_a_burst() -> None:
    drive = Drive(FixedRateSchedule(1.0))
    drive.sleep(5.5)
    drive.take()
    drive.take()
    assert ([due.scheduled for due in drive.starts], drive.late) == ([NOON + 5 * SECOND], 4)


def test_c45_ticks_that_arrive_while_a_run_is_in_flight_are_dropped() -> None:
    drive = Drive(FixedRateSchedule(2.0), wall=NOON - 1)
    drive.run(60, job=3)
    assert [due.scheduled for due in drive.starts] == [NOON + n * SECOND for n in range(0, 60, 4)]
    assert (len(drive.starts), drive.overlap, drive.late) == (15, 15, 0)


def test_a_tick_at_the_very_end_of_a_run_is_dropped() -> None:
    drive = Drive(FixedRateSchedule(2.0), wall=NOON - 1)
    drive.run(10, job=2)
    assert [due.scheduled for due in drive.starts] == [NOON + n * SECOND for n in (0, 4, 8)]


def test_c47_planned_starts_stay_on_the_grid_whatever_a_run_takes() -> None:
    drive = Drive(FixedRateSchedule(10.0), wall=NOON - 1)
    drive.run(1000, job=4)
    assert [due.scheduled for due in drive.starts] == [NOON + n * 10 * SECOND for n in range(100)]
    interval = Drive(IntervalSchedule(lambda: 10.0))
    interval.run(40, job=4)
    assert interval.begun == [1000.0, 1014.0, 1028.0]


def test_c48_an_error_of_the_wake_does_not_add_up() -> None:
    drive = Drive(FixedRateSchedule(0.1), wall=NOON - 1)
    drive.run(600.05, job=0.005, delay=lambda: 0.01)
    assert len(drive.starts) == 6001
    assert drive.begun[-1] - 1000 == pytest.approx(600.0, abs=0.05)


@pytest.mark.parametrize(("every", "count"), [(0.1, 300), (0.02, 1500), (1.5, 20), (1 / 3, 90)])
def test_c49_fractions_of_a_second_are_honoured(every: float, count: int) -> None:
    drive = Drive(FixedRateSchedule(every))
    drive.run(30)
    assert len(drive.starts) == pytest.approx(count, abs=1)


@pytest.mark.parametrize("back", [0.001, 0.3, 0.999])
def test_a_small_step_back_of_the_wall_clock_repeats_no_tick(back: float) -> None:
    drive = Drive(FixedRateSchedule(1.0))
    drive.run(10.5)
    drive.wall -= round(back * 1e6)
    drive.run(10)
    ticks = [due.tick for due in drive.starts]
    assert len(set(ticks)) == len(ticks)
    assert [due.scheduled for due in drive.starts][:12] == [NOON + n * SECOND for n in range(1, 13)]


@pytest.mark.parametrize("back", [120, 3600, 86400 * 3650])
def test_c50_a_large_step_back_leaves_no_idle_gap(back: int) -> None:
    drive = Drive(FixedRateSchedule(1.0))
    drive.run(10.5)
    drive.wall -= back * SECOND
    assert drive.take().due is None  # who sleeps on the wall clock is woken when it is set
    drive.run(10)
    assert len(drive.starts) == 20
    assert drive.late == drive.overlap == 0


def test_a_large_step_back_during_a_run_leaves_no_idle_gap() -> None:
    drive = Drive(FixedRateSchedule(1.0))
    drive.sleep(1)
    due = drive.take().due
    assert due is not None
    drive.sleep(0.2)
    drive.wall -= 3600 * SECOND
    drive.end(due)
    assert drive.ticker.wake(drive.now) == NOON - 3599 * SECOND + SECOND


@pytest.mark.parametrize("years", [10, 175])
def test_c51_a_clock_set_years_ahead_costs_one_run_and_no_time(years: int) -> None:
    ahead = years * 365 * 86400 * SECOND
    for schedule in (FixedRateSchedule(1.0), CronSchedule(Cron("* * * * * *"), "fire_once")):
        drive = Drive(schedule)
        drive.run(3.5)
        drive.wall += ahead
        began = time.process_time()
        for _ in range(3):
            drive.take()
        assert time.process_time() - began < 0.3  # three times the promise
        assert [due.scheduled for due in drive.starts[3:]] == [NOON + 3 * SECOND + ahead]
        drive.run(2)
        assert len(drive.starts) == 6


def test_c51_grid_points_that_the_clock_jumped_over_are_counted_exactly() -> None:
    drive = Drive(FixedRateSchedule(1.0))
    drive.wall += 10 * 365 * 86400 * SECOND
    assert drive.take().late == 10 * 365 * 86400 - 1


# -- cron -------------------------------------------------------------------------------------------------------------

EACH_MINUTE = Cron("* * * * *")
HOURLY = Cron("0 * * * *")
MARK = HOURLY.mark


def hourly(slot: int) -> Due:
    return Due(slot, slot=slot, latest=slot + 60 * SECOND)


def minutely(slot: int) -> Due:
    return Due(slot, slot=slot, latest=slot + 30 * SECOND)


def test_a_slot_runs_when_its_time_comes_and_names_itself_for_the_claim() -> None:
    ticker = CronSchedule(HOURLY).ticker(at(NOON - MINUTE), NEW)
    assert ticker.wake(at(NOON - MINUTE)) == NOON
    assert ticker.take(at(NOON + 200)) == Take(hourly(NOON))
    assert ticker.take(at(NOON + 300)) == Take()


def test_c15_a_daily_slot_runs_once_although_each_wake_is_early() -> None:
    cron = Cron("17 12 * * *")
    ticker = CronSchedule(cron).ticker(at(NOON), NEW)
    for day in range(30):
        slot = NOON + 17 * MINUTE + day * 24 * HOUR
        assert ticker.take(at(slot - 3_000)) == Take()
        assert ticker.wake(at(slot - 3_000)) == slot
        assert ticker.take(at(slot)).due == hourly(slot)
        assert ticker.take(at(slot + 1_000)) == Take()
        ticker.ended(Due(slot, slot=slot), at(slot + 5_000))


@pytest.mark.parametrize(
    ("schedule", "latest"),
    [
        (CronSchedule(EACH_MINUTE), NOON + 30 * SECOND),
        (CronSchedule(EACH_MINUTE, late_limit=300), NOON + 300 * SECOND),
        (CronSchedule(EACH_MINUTE, late_limit=math.inf), None),
        (CronSchedule(EACH_MINUTE, "fire_once"), None),
        (CronSchedule(EACH_MINUTE, "catch_up"), None),
        (CronSchedule(EACH_MINUTE, "fire_once", late_limit=1), NOON + SECOND),
        (CronSchedule(EACH_MINUTE, "catch_up", late_limit=1), NOON + SECOND),
    ],
)
def test_a_due_slot_says_until_when_it_may_start(schedule: CronSchedule, latest: int | None) -> None:
    due = schedule.ticker(at(NOON - 1), NEW).take(at(NOON)).due
    assert due == Due(NOON, slot=NOON, latest=latest)


def test_only_a_cron_schedule_has_a_mark() -> None:
    assert CronSchedule(HOURLY).mark == HOURLY.mark
    assert FixedRateSchedule(1.0).mark == IntervalSchedule(lambda: 1.0).mark == ""


def test_a_job_never_seen_before_owes_nothing_for_the_past() -> None:
    ticker = CronSchedule(EACH_MINUTE, "catch_up").ticker(at(NOON + 1), NEW)
    assert ticker.take(at(NOON + 1)) == Take()


def test_c10_a_slot_claimed_by_the_previous_leader_is_not_repeated_by_a_slower_clock() -> None:
    slow = at(NOON - 400_000)
    ticker = CronSchedule(EACH_MINUTE).ticker(slow, state(slot=NOON, done=NOON))
    assert ticker.wake(slow) == NOON + MINUTE


def test_c09_a_slot_that_came_while_nobody_led_still_runs_if_it_is_little_late() -> None:
    ticker = CronSchedule(HOURLY).ticker(at(NOON + 700_000), state(slot=NOON - HOUR, done=NOON - HOUR, mark=MARK))
    assert ticker.take(at(NOON + 700_000)) == Take(hourly(NOON))


@pytest.mark.parametrize(
    ("cron", "limit", "late", "runs"),
    [
        (HOURLY, None, 60 * SECOND, True),
        (HOURLY, None, 60 * SECOND + 1, False),
        (EACH_MINUTE, None, 30 * SECOND, True),
        (EACH_MINUTE, None, 30 * SECOND + 1, False),
        (HOURLY, 300.0, 300 * SECOND, True),
        (HOURLY, 300.0, 300 * SECOND + 1, False),
        (HOURLY, math.inf, 59 * MINUTE, True),
    ],
)
def test_skip_runs_the_newest_slot_up_to_its_late_limit(cron: Cron, limit: float | None, late: int, runs: bool) -> None:
    drive = Drive(CronSchedule(cron, late_limit=limit), wall=NOON - 1)
    drive.wall = NOON + late
    drive.take()
    assert [due.slot for due in drive.starts] == ([NOON] if runs else [])
    assert drive.missed == ([] if runs else [Missed(1, NOON, NOON, "late")])


@pytest.mark.parametrize(
    ("misfire", "limit", "runs", "missed"),
    [
        ("skip", 1799.0, [], 3),
        ("fire_once", 1799.0, [], 3),
        ("catch_up", 1799.0, [], 3),
        ("skip", math.inf, [2], 2),
        ("fire_once", 1800.0, [2], 2),
        ("catch_up", 5400.0, [1, 2], 1),
        ("catch_up", math.inf, [0, 1, 2], 0),
    ],
)
def test_no_slot_runs_later_than_the_late_limit_whatever_the_policy(
    misfire: MisfirePolicy, limit: float, runs: list[int], missed: int
) -> None:
    drive = Drive(CronSchedule(HOURLY, misfire, late_limit=limit), wall=NOON - 1)
    drive.wall = NOON + 5 * HOUR // 2
    while due := drive.take().due:
        drive.end(due)
    assert [(due.scheduled - NOON) // HOUR for due in drive.starts] == runs
    assert sum(one.count for one in drive.missed) == missed


def test_c28_a_loop_blocked_for_three_seconds_over_a_slot_runs_it_once() -> None:
    drive = Drive(CronSchedule(HOURLY), wall=NOON - SECOND)
    drive.sleep(4)
    drive.run(60)
    assert drive.starts == [hourly(NOON)]
    assert drive.missed == []


@pytest.mark.parametrize("misfire", ["skip", "fire_once", "catch_up"])
def test_s6_what_was_due_before_the_store_started_is_reported_and_never_run_late(misfire: MisfirePolicy) -> None:
    # The store came back with the state of 11:55; what was claimed since then may have run.
    up_from = NOON - 90 * SECOND
    known = state(slot=NOON - 5 * MINUTE, done=NOON - 5 * MINUTE)._replace(up_from=up_from)
    drive = Drive(CronSchedule(EACH_MINUTE, misfire), known, wall=NOON + 30 * SECOND)
    take = drive.ticker.take(drive.now)
    assert Missed(3, NOON - 4 * MINUTE, NOON - 2 * MINUTE, "no_leader") in take.missed
    assert take.due is not None
    assert take.due.slot == {"skip": NOON, "fire_once": NOON, "catch_up": NOON - MINUTE}[misfire]


@pytest.mark.parametrize(("misfire", "runs"), [("skip", []), ("fire_once", [4]), ("catch_up", [0, 1, 2, 3, 4])])
def test_c28_five_slots_that_nobody_led_through(misfire: MisfirePolicy, runs: list[int]) -> None:
    last = NOON - HOUR
    now = NOON + 4 * HOUR + 5 * MINUTE
    drive = Drive(CronSchedule(HOURLY, misfire), state(wall=now, slot=last, done=last, mark=MARK), wall=now)
    drive.run(60, job=1)
    assert [due.slot for due in drive.starts] == [NOON + n * HOUR for n in runs]
    reported = {"skip": 5, "fire_once": 4, "catch_up": 0}[misfire]
    assert [(missed.count, missed.cause) for missed in drive.missed] == ([(reported, "no_leader")] if reported else [])


def test_catch_up_runs_the_newest_of_its_limit_and_reports_the_rest() -> None:
    last = NOON - HOUR
    now = NOON + 4 * HOUR + 5 * MINUTE
    schedule = CronSchedule(HOURLY, "catch_up", catch_up_limit=2)
    drive = Drive(schedule, state(wall=now, slot=last, done=last, mark=MARK), wall=now)
    drive.run(60)
    assert [due.slot for due in drive.starts] == [NOON + 3 * HOUR, NOON + 4 * HOUR]
    assert drive.missed == [Missed(3, NOON, NOON + 2 * HOUR, "no_leader")]


def test_a_slot_that_the_job_s_own_run_made_late_is_dropped_by_skip() -> None:
    drive = Drive(CronSchedule(EACH_MINUTE), wall=NOON - 1)
    drive.run(300, job=70)
    assert [due.slot for due in drive.starts] == [NOON + n * MINUTE for n in (0, 2, 4)]
    assert drive.missed == [Missed(1, NOON + n * MINUTE, NOON + n * MINUTE, "overlap") for n in (1, 3)]


def test_a_slot_at_the_very_end_of_a_run_is_dropped_by_skip() -> None:
    drive = Drive(CronSchedule(EACH_MINUTE), wall=NOON)
    drive.sleep(60)
    due = drive.take().due
    assert due is not None
    drive.sleep(60)
    drive.end(due)
    assert drive.take() == Take(missed=(Missed(1, NOON + 2 * MINUTE, NOON + 2 * MINUTE, "overlap"),))


@pytest.mark.parametrize(("misfire", "starts"), [("fire_once", [0, 3, 5]), ("catch_up", [0, 1, 2])])
def test_a_slot_that_the_job_s_own_run_made_late_runs_after_it_unless_skipped(
    misfire: MisfirePolicy, starts: list[int]
) -> None:
    drive = Drive(CronSchedule(EACH_MINUTE, misfire), wall=NOON - 1)
    for _ in range(3):
        drive.sleep(drive.until(drive.ticker.wake(drive.now)))
        due = drive.take().due
        assert due is not None
        drive.sleep(190 if due.slot == NOON else 140)
        drive.end(due)
    assert [due.slot for due in drive.starts] == [NOON + n * MINUTE for n in starts]
    assert {missed.cause for missed in drive.missed} <= {"overlap"}


def test_a_slot_during_the_last_run_of_the_previous_leader_is_dropped_by_skip() -> None:
    now = NOON + 63 * SECOND
    ticker = CronSchedule(EACH_MINUTE).ticker(at(now), state(wall=now, slot=NOON, done=NOON, ended_ago=1.0))
    assert ticker.take(at(now)) == Take(missed=(Missed(1, NOON + MINUTE, NOON + MINUTE, "overlap"),))


def test_a_slot_after_the_last_run_of_the_previous_leader_is_nobody_s_fault_but_the_hand_over_s() -> None:
    now = NOON + 63 * SECOND
    ticker = CronSchedule(EACH_MINUTE).ticker(at(now), state(wall=now, slot=NOON, done=NOON, ended_ago=5.0))
    assert ticker.take(at(now)).due == minutely(NOON + MINUTE)


def test_a_triggered_run_drops_the_slots_that_it_covers_like_any_other() -> None:
    drive = Drive(CronSchedule(HOURLY), wall=NOON - MINUTE)
    drive.sleep(90)
    drive.end(Due(NOON - MINUTE))
    drive.take()
    assert (drive.starts, drive.missed) == ([], [Missed(1, NOON, NOON, "overlap")])


def test_a_triggered_run_does_not_drop_a_slot_from_before_the_term() -> None:
    drive = Drive(CronSchedule(HOURLY), state(slot=NOON - HOUR, done=NOON - HOUR), wall=NOON + SECOND)
    drive.sleep(5)
    drive.end(Due(NOON + SECOND))
    assert drive.take() == Take(hourly(NOON))


@pytest.mark.parametrize("done", [None, NOON - 2 * HOUR])
def test_a_claimed_run_whose_end_was_never_seen_is_reported_interrupted_once(done: int | None) -> None:
    begin = at(NOON - MINUTE)
    ticker = CronSchedule(HOURLY).ticker(begin, state(slot=NOON - HOUR, done=done, mark=MARK))
    assert ticker.wake(begin) == begin.wall  # at once, so that the report does not wait for a slot
    assert ticker.take(begin) == Take(missed=(Missed(1, NOON - HOUR, NOON - HOUR, "interrupted"),))
    assert ticker.wake(begin) == NOON
    assert ticker.take(at(NOON)) == Take(hourly(NOON))


def test_slots_while_the_job_was_off_are_not_missed() -> None:
    now = NOON + 10 * MINUTE
    for schedule in (CronSchedule(EACH_MINUTE), CronSchedule(EACH_MINUTE, "catch_up")):
        ticker = schedule.ticker(at(now), state(wall=now, slot=NOON, done=NOON, off=now - 1))
        due = ticker.take(at(now)).due
        assert due is not None
        assert due.slot == now
        assert ticker.take(at(now)) == Take()


def test_a_changed_expression_owes_nothing_for_the_past() -> None:
    begin = at(NOON + 1)
    misfires: tuple[MisfirePolicy, ...] = ("skip", "fire_once", "catch_up")
    for misfire in misfires:
        schedule = CronSchedule(HOURLY, misfire)
        ticker = schedule.ticker(begin, state(slot=NOON - 5 * HOUR, mark="0ther"))
        assert ticker.take(begin) == Take()
        assert ticker.wake(begin) == NOON + HOUR


def test_a_changed_expression_claims_no_slot_at_or_below_the_newest_claim() -> None:
    ticker = CronSchedule(EACH_MINUTE).ticker(at(NOON - SECOND), state(slot=NOON, mark="0ther"))
    assert ticker.wake(at(NOON - SECOND)) == NOON + MINUTE


@pytest.mark.parametrize("name", ["slot", "off"])
def test_a_stored_instant_from_a_wrong_clock_is_ignored_and_reported(name: str) -> None:
    ahead = NOON + 600 * SECOND + 1
    stored = state(slot=ahead) if name == "slot" else state(off=ahead)
    ticker = CronSchedule(HOURLY).ticker(at(NOON), stored)
    assert ticker.take(at(NOON)) == Take(missed=(Missed(1, ahead, ahead, "clock"),))
    assert ticker.wake(at(NOON)) == NOON + HOUR
    believed = CronSchedule(EACH_MINUTE).ticker(at(NOON), state(off=NOON + 600 * SECOND))
    assert believed.wake(at(NOON)) == NOON + 660 * SECOND


def test_a_replica_whose_clock_is_ten_minutes_behind_still_waits_for_a_claim_ten_minutes_ahead() -> None:
    begin = at(NOON - 599 * SECOND)
    ticker = CronSchedule(EACH_MINUTE).ticker(begin, state(wall=NOON, slot=NOON + 9 * MINUTE, done=NOON + 9 * MINUTE))
    assert ticker.wake(begin) == NOON + 10 * MINUTE
    assert ticker.take(at(begin.wall + MINUTE)) == Take()


def test_c50_a_slot_that_ran_is_not_repeated_when_the_clock_is_set_back() -> None:
    drive = Drive(CronSchedule(EACH_MINUTE), wall=NOON + 4 * MINUTE + 30 * SECOND)
    drive.run(60)
    drive.wall -= 120 * SECOND
    drive.run(180)
    assert [due.slot for due in drive.starts] == [NOON + 5 * MINUTE, NOON + 6 * MINUTE]
    assert drive.missed == []


def test_c50_a_slot_that_ran_within_ten_minutes_is_not_repeated_after_a_larger_step_either() -> None:
    drive = Drive(CronSchedule(HOURLY), wall=NOON - 1)
    drive.run(600)
    drive.take()  # the clock is seen at 12:10
    drive.wall -= 15 * MINUTE
    drive.run(1800)
    assert (drive.starts, drive.missed) == ([hourly(NOON)], [])


def test_a_step_back_is_measured_from_the_latest_time_that_the_term_has_seen() -> None:
    drive = Drive(CronSchedule(EACH_MINUTE))
    drive.run(3600)
    drive.wall -= 30 * MINUTE
    drive.take()
    assert [missed.cause for missed in drive.missed] == ["clock"]
    assert drive.until(drive.ticker.wake(drive.now)) <= 60


def test_a_clock_set_back_for_longer_does_not_idle_the_job() -> None:
    drive = Drive(CronSchedule(HOURLY), wall=NOON - 1)
    drive.run(60)
    drive.wall -= 10 * 365 * 24 * HOUR
    assert drive.ticker.wake(drive.now) == drive.wall
    assert drive.take() == Take(missed=(Missed(1, NOON, NOON, "clock"),))
    assert drive.until(drive.ticker.wake(drive.now)) <= 3600


@pytest.mark.parametrize(("misfire", "extra"), [("skip", 1), ("fire_once", 1), ("catch_up", 10)])
def test_c52_a_machine_that_slept_for_hours_runs_no_burst(misfire: MisfirePolicy, extra: int) -> None:
    drive = Drive(CronSchedule(EACH_MINUTE, misfire), wall=NOON + 10 * SECOND)
    drive.sleep(4 * 3600)
    drive.run(175)
    on_time = [NOON + 4 * HOUR + n * MINUTE for n in (1, 2, 3)]
    assert [due.slot for due in drive.starts[extra:]] == on_time
    assert sum(missed.count for missed in drive.missed) == 240 - extra
    assert {missed.cause for missed in drive.missed} == {"late"}


def test_missed_slots_are_grouped_by_their_cause_in_order() -> None:
    begin = NOON + 3 * MINUTE  # the slot at the very begin counts as before it
    drive = Drive(CronSchedule(EACH_MINUTE), state(slot=NOON, done=NOON), wall=begin)
    drive.sleep(4 * 60 + 41)
    drive.take()
    assert drive.missed == [
        Missed(3, NOON + MINUTE, NOON + 3 * MINUTE, "no_leader"),
        Missed(4, NOON + 4 * MINUTE, NOON + 7 * MINUTE, "late"),
    ]


@pytest.mark.parametrize("misfire", ["skip", "fire_once", "catch_up"])
def test_c51_the_count_of_missed_slots_stops_at_a_limit_and_first_and_last_stay_exact(misfire: MisfirePolicy) -> None:
    now = NOON + 365 * 24 * HOUR + 31 * SECOND
    schedule = CronSchedule(EACH_MINUTE, misfire)
    began = time.process_time()
    drive = Drive(schedule, state(wall=now, slot=NOON, done=NOON), wall=now)
    drive.take()
    assert time.process_time() - began < 0.3
    newest = NOON + 365 * 24 * HOUR
    not_run = {"skip": 0, "fire_once": 1, "catch_up": 10}[misfire]
    (missed,) = drive.missed
    assert (missed.first, missed.last) == (NOON + MINUTE, newest - not_run * MINUTE)
    assert MISSED_LIMIT <= missed.count <= MISSED_LIMIT + 11
    expected = {"skip": [], "fire_once": [newest], "catch_up": [newest - 9 * MINUTE]}[misfire]
    assert [due.slot for due in drive.starts] == expected


def test_a_schedule_past_the_end_of_the_calendar_never_wakes() -> None:
    far = (9900 - 1970) * 31_556_952 * SECOND
    assert CronSchedule(HOURLY).ticker(at(far), JobState(wall=far)).wake(at(far)) is None


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"misfire": "sometimes"}, "misfire"),
        ({"catch_up_limit": 0}, "catch_up_limit"),
        ({"catch_up_limit": MISSED_LIMIT + 1}, "catch_up_limit"),
        ({"late_limit": 0.0}, "late_limit"),
        ({"late_limit": math.nan}, "late_limit"),
    ],
)
def test_a_misfire_option_out_of_range_is_refused_by_name(options: dict[str, object], name: str) -> None:
    with pytest.raises(ScheduleError, match=name):
        CronSchedule(HOURLY, **options)  # type: ignore[arg-type]  # wrong on purpose
