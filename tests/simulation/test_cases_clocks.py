"""Cases from the field as scenarios: clocks that are set, and clocks that stand still. Default settings.

Each line of the table in docs/clocks.md has its tests here.
"""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import pytest

from simulation.scenario import BEAT, CALL_TIMEOUT, EXPIRY, MARGIN, NOTICED, TRAVEL, Fleet, Job, micros

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulation.scenario import Replica
    from singletonjob import Run

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def minute(number: int) -> int:
    """So many minutes past noon, as a slot."""
    return micros(NOON + timedelta(minutes=number))


async def instant(_run: Run, _replica: Replica) -> None:
    """A body that takes no time."""


# -- a clock that is set back ------------------------------------------------------------------------------------------


def test_c50_a_clock_set_back_by_two_minutes_repeats_no_slot_and_makes_no_gap_in_an_interval() -> None:
    """The cron job goes on when the clock has come to the next minute again: with 12:06, by the new clock.

    A grid goes on as well: the ticks of the time that comes again run by their new instants.
    """
    jobs = [Job("minute", "cron", "* * * * *"), Job("pull", "interval", 10.0), Job("grid", "fixed", 1.0)]
    with Fleet(*jobs, begin=NOON) as fleet:
        (a,) = fleet.start_in_turn("a")
        fleet.until(5 * 60 + 30)
        a.step_clock(-120)
        fleet.until(11 * 60 + 30)
        assert [run.scheduled for run in fleet.runs("minute")] == [minute(number) for number in range(1, 10)]
        sixth = fleet.runs("minute")[5].started
        assert 8 * 60 <= sixth < 8 * 60 + TRAVEL
        assert max(later.started - earlier.started for earlier, later in pairwise(fleet.runs("grid"))) < 2 + TRAVEL
        gaps = [later.started - earlier.ended for earlier, later in pairwise(fleet.runs("pull"))]
        assert len(gaps) >= 60
        assert min(gaps) >= 10
        assert max(gaps) < 10 + TRAVEL


def test_c50_nor_does_a_hand_over_between_a_clock_set_back_and_a_right_one_repeat_a_slot() -> None:
    with Fleet(Job("minute", "cron", "* * * * *"), begin=NOON) as fleet:
        a, b = fleet.start_in_turn("a", "b")
        fleet.until(5 * 60 + 30)
        a.step_clock(-120)
        fleet.wait(10)
        a.stop()
        fleet.until(8 * 60 + 30)
        c = fleet.start("c", ahead=-120)
        fleet.wait(1)
        b.stop()
        fleet.until(13 * 60)
        assert [run.scheduled for run in fleet.runs("minute")] == [minute(number) for number in range(1, 11)]
        assert [run.process for run in fleet.runs("minute")] == 5 * ["a"] + 3 * ["b"] + 2 * ["c"]
        assert 6 * 60 <= fleet.runs("minute", b)[0].started < 6 * 60 + TRAVEL
        assert 11 * 60 <= fleet.runs("minute", c)[0].started < 11 * 60 + TRAVEL


def test_a_clock_set_back_by_less_than_a_period_makes_the_grid_wait_and_repeats_no_tick_and_no_slot() -> None:
    jobs = [Job("grid", "fixed", 1.0, instant), Job("slots", "cron", "* * * * * *", instant)]
    with Fleet(*jobs, begin=NOON) as fleet:
        (a,) = fleet.start_in_turn("a")
        fleet.until(20.3)
        a.step_clock(-0.8)
        fleet.until(40)
        for job in ("grid", "slots"):
            planned = [run.scheduled for run in fleet.runs(job)]
            assert planned == sorted(set(planned))
            gaps = [later.started - earlier.started for earlier, later in pairwise(fleet.runs(job))]
            assert max(gaps) == pytest.approx(1.8, abs=TRAVEL)


def test_a_leap_second_repeats_the_ticks_of_one_second_and_nothing_else() -> None:
    """A host that inserts it sets its clock back by a second; here all hosts do, at the same moment."""
    jobs = [Job("grid", "fixed", 0.25, instant), Job("slots", "cron", "* * * * * *", instant)]
    with Fleet(*jobs, Job("pull", "interval", 1.0), begin=NOON) as fleet:
        a, b = fleet.start_in_turn("a", "b")
        fleet.until(20.1)
        for replica in (a, b):
            replica.step_clock(-1)
        fleet.store.step(-1, promised=False)
        fleet.until(60)
        assert len(fleet.leases("grid")) == len(fleet.leases("slots")) == len(fleet.leases("pull")) == 1
        ticks = [run.tick for run in fleet.runs("grid")]
        assert len(ticks) - len(set(ticks)) <= 4
        slots = [run.scheduled for run in fleet.runs("slots")]
        assert len(set(slots)) == len(slots)


# -- a clock that is set forward ---------------------------------------------------------------------------------------


def test_a_clock_set_forward_runs_the_newest_tick_and_counts_those_jumped_over_as_late() -> None:
    jobs = [
        Job("grid", "fixed", 1.0, instant),
        Job("pull", "interval", 10.0),
        Job("skipping", "cron", "*/20 * * * * *", instant),
        Job("fire-once", "cron", "*/20 * * * * *", instant, misfire="fire_once"),
    ]
    with Fleet(*jobs, begin=NOON) as fleet:
        (a,) = fleet.start_in_turn("a")
        fleet.until(30.5)
        stepped, late = fleet.now, a.service.runners["grid"].counts.dropped_late
        a.step_clock(125)
        fleet.until(60)
        first, second, *_ = fleet.runs("grid", since=stepped)
        assert first.started < stepped + 0.5 + TRAVEL
        assert first.scheduled == micros(NOON + timedelta(seconds=156))  # nothing wakes it before its next tick
        assert second.scheduled == first.scheduled + 1_000_000, "the new time holds from there on"
        assert a.service.runners["grid"].counts.dropped_late - late == 125
        gaps = [later.started - earlier.ended for earlier, later in pairwise(fleet.runs("pull"))]
        assert 10 <= min(gaps) <= max(gaps) < 10 + TRAVEL
        # 15.5 s late is more than half the gap to the next slot.
        assert fleet.runs("skipping", since=stepped)[0].scheduled == micros(NOON + timedelta(seconds=160))
        assert fleet.runs("fire-once", since=stepped)[0].scheduled == micros(NOON + timedelta(seconds=140))


# -- clocks of replicas that are apart ---------------------------------------------------------------------------------


def test_a_hand_over_between_clocks_that_are_apart_shifts_the_grid_and_repeats_no_tick_and_no_slot() -> None:
    jobs = [Job("grid", "fixed", 1.0, instant), Job("slots", "cron", "* * * * * *", instant)]
    with Fleet(*jobs, Job("pull", "interval", 1.0), begin=NOON) as fleet:
        a = fleet.start("a", ahead=3.0)
        fleet.wait(0.5)
        fleet.start("b")
        fleet.until(20.4)
        a.stop()
        fleet.until(40)
        for job in ("grid", "slots"):
            last, first = fleet.runs(job)[-20].started, fleet.runs(job)[0].started
            assert first < last
            planned = [run.scheduled for run in fleet.runs(job)]
            assert planned == sorted(set(planned))
            gaps = [later.started - earlier.started for earlier, later in pairwise(fleet.runs(job))]
            assert max(gaps) == pytest.approx(4.0, abs=2 * TRAVEL), "the difference, and a period"
        pulls = [later.started - earlier.ended for earlier, later in pairwise(fleet.runs("pull"))]
        assert 1.0 <= min(pulls) <= max(pulls) < 1.0 + 0.05 + TRAVEL


# -- a clock that is set years ahead -----------------------------------------------------------------------------------


@pytest.mark.parametrize("years", [10, 175])
@pytest.mark.parametrize("misfire", ["skip", "fire_once", "catch_up"])
def test_c51_a_clock_set_years_ahead_costs_one_run_at_most_and_constant_work(
    years: int, misfire: Literal["skip", "fire_once", "catch_up"]
) -> None:
    """The grid goes on by the new clock. Slots do not: the store knows the time, and refuses a claim years ahead."""
    jobs = [Job("grid", "fixed", 1.0, instant), Job("slots", "cron", "* * * * * *", instant, misfire=misfire)]
    with Fleet(*jobs) as fleet:
        (a,) = fleet.start_in_turn("a")
        fleet.until(20.5)
        stepped = fleet.now
        tracemalloc.start()
        try:
            a.step_clock(years * 365.25 * 86400)
            begun = time.process_time()
            fleet.wait(2)
            spent = time.process_time() - begun
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert spent < 10 * 0.1, "0.1 s is the promise, measured here with all allocations traced"
        assert peak < 1_000_000
        fleet.wait(8)
        grid = fleet.runs("grid", since=stepped)
        assert 10 <= len(grid) <= 11
        assert len(fleet.runs("slots", since=stepped)) <= 1

        a.step_clock(-years * 365.25 * 86400)
        back = fleet.now
        fleet.wait(60)
        for job in ("grid", "slots"):
            assert fleet.runs(job, since=back)[0].started < back + 2
            assert 58 <= len(fleet.runs(job, since=back)) <= 61
            planned = [run.scheduled for run in fleet.runs(job)]
            assert len(set(planned)) == len(planned)
        assert all(record.reason in {"clock", "late"} for record in fleet.said("misfired"))


# -- machines that sleep -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["suspended", "paused"])
def test_c52_after_four_hours_of_sleep_each_job_runs_once_and_then_on_time(how: str) -> None:
    """Whether the loop's clock went on (a paused process) or stood still with the machine."""
    jobs = [
        Job("minute", "cron", "* * * * *", misfire="fire_once"),
        Job("skipping", "cron", "* * * * *"),
        Job("daily", "cron", "10 16 * * *"),
        Job("grid", "fixed", 1.0),
        Job("pull", "interval", 10.0),
    ]
    with Fleet(*jobs, begin=NOON) as fleet:
        (a,) = fleet.start_in_turn("a")
        fleet.until(30)
        hours = 4 * 3600
        (a.suspend if how == "suspended" else a.pause)(hours)
        fleet.wait(hours)
        woke = fleet.now
        fleet.wait(15 * 60)
        late, *on_time = fleet.runs("minute", since=woke)
        assert late.scheduled == minute(240)
        assert woke < late.started < woke + BEAT + 1, "as soon as it leads again"
        assert [run.scheduled for run in on_time] == [minute(241 + number) for number in range(15)]
        for number, run in enumerate(on_time):
            due = (241 + number) * 60
            assert due <= run.started < due + TRAVEL
        # The newest slot that it slept through is more than half a gap late when it leads again.
        assert [run.scheduled for run in fleet.runs("skipping", since=woke)] == [run.scheduled for run in on_time]
        (daily,) = fleet.runs("daily")
        assert 250 * 60 <= daily.started < 250 * 60 + 1
        ticks = [run.tick for run in fleet.runs("grid", since=woke)]
        assert len(set(ticks)) == len(ticks)
        assert len([run for run in fleet.runs("grid", since=woke) if run.started < woke + 60]) <= 60
        pulls = [run.started for run in fleet.runs("pull", since=woke)]
        assert pulls[0] < woke + BEAT + 1
        assert all(later - earlier >= 10 for earlier, later in pairwise(pulls))


@pytest.mark.parametrize("replicas", [1, 2])
def test_c53_after_an_hour_of_suspend_no_run_starts_before_a_fresh_acquisition(replicas: int) -> None:
    """Its loops' clocks show two seconds in that time. A run in flight is cancelled within half the margin."""

    async def long(_run: Run, _replica: Replica) -> None:
        await asyncio.sleep(300)

    jobs = [Job("tick", "fixed", 0.1), Job("eager", "interval", 0.02, instant), Job("long", "interval", "1h", long)]
    with Fleet(*jobs, shutdown_grace=1.0) as fleet:
        (a,) = fleet.start_in_turn("a")
        fleet.until(20)
        a.suspend(3598)
        fleet.wait(3580)
        others = [fleet.start(name) for name in "bc"[: replicas - 1]]
        fleet.wait(18)
        woke = fleet.now
        fleet.wait(30)
        (interrupted,) = [run for run in fleet.runs("long", a) if run.started < 20]
        assert woke <= interrupted.ended < woke + MARGIN / 2 + TRAVEL
        for job in ("tick", "eager"):
            own = fleet.runs(job, a, since=20.001)
            assert [run for run in own if fleet.history.leases[job, run.token].granted < woke] == []
            assert all(run.started >= woke for run in own)
            assert bool(own) == (not others), "alone it leads again, else it follows"
            assert len(fleet.leases(job)) == 2


def test_a_sync_run_that_slept_through_its_lease_is_told_so_on_resume() -> None:
    told: list[tuple[float, bool]] = []

    def long(run: Run, replica: Replica) -> None:
        for _ in range(100):
            replica.sleep(0.2)
            if run.stopping:
                told.append((fleet.now, run.remaining > 0))
                run.check()

    with Fleet(Job("long", "interval", "1h", long)) as fleet:
        (a,) = fleet.start_in_turn("a")
        fleet.until(5)
        a.suspend(60)
        fleet.wait(60)
        woke = fleet.now
        fleet.wait(2)
        ((when, remaining),) = told
        assert woke <= when < woke + 0.2 + MARGIN / 2 + TRAVEL
        assert not remaining


# -- the store's clock -------------------------------------------------------------------------------------------------

PHASES = range(10)
"""When the clock steps, in seconds after the twentieth: somewhere in the time between two looks of the follower."""


@pytest.mark.parametrize("how", ["step", "fail-over"])
def test_no_two_lead_when_the_stores_clock_steps_forward_while_another_replica_follows(how: str) -> None:
    """The store takes the lease from the leader, and gives it to the follower, whose term begins when that is over."""
    granted = 0
    for phase in (number / 4 for number in range(4 * len(PHASES))):
        with Fleet(Job("tick", "fixed", 0.25), Job("slots", "cron", "*/20 * * * * *", instant)) as fleet:
            fleet.start_in_turn("a", "b")
            fleet.until(20 + phase)
            fleet.store.keep_state()
            if how == "step":
                fleet.store.step(9.5, promised=False)
            else:
                fleet.store._old = fleet.store._old[-1:]  # of this very moment, so that only the clock differs
                fleet.store.fail_over(9.5)
            fleet.wait(30)
            assert fleet.overlaps("tick") == []
            slots = [run.scheduled for run in fleet.runs("slots")]
            assert len(set(slots)) == len(slots)
            assert fleet.runs("tick")[-1].started > fleet.now - 1, "somebody leads again"
            assert max(later.started - earlier.ended for earlier, later in pairwise(fleet.runs("tick"))) < (
                1.01 * EXPIRY + BEAT + CALL_TIMEOUT
            )
            granted += len({lease.node for lease in fleet.leases("tick")}) == 2
    assert granted, "in no phase did the follower get the lease"


@pytest.mark.parametrize("back", [60, 600])
def test_a_follower_does_not_sleep_out_a_step_back_of_the_stores_clock(back: int) -> None:
    """It is told of a lease that lasts for longer by the step. After the next renewal that is not so any more."""
    for phase in PHASES:
        with Fleet(Job("pull", "interval", 1.0, instant)) as fleet:
            a, b = fleet.start_in_turn("a", "b")
            leads = partial(b.leads, "pull")
            fleet.until(20 + phase)
            fleet.store.step(-back, promised=False)
            fleet.wait(25)
            assert len(fleet.leases("pull")) == 1, "the leader does not notice"
            a.kill()
            ended = fleet.lease("pull").ends
            fleet.wait_for(leads, within=ended - fleet.now + 1.01 * EXPIRY + NOTICED, step=0.05)
            fleet.wait(3)


def test_when_the_stores_clock_steps_back_nothing_runs_twice_and_a_crashed_leaders_lease_lives_longer() -> None:
    jobs = [Job("grid", "fixed", 1.0, instant), Job("slots", "cron", "* * * * * *", instant)]
    with Fleet(*jobs, Job("pull", "interval", 5.0, instant), begin=NOON) as fleet:
        a, _ = fleet.start_in_turn("a", "b")
        fleet.until(20.5)
        fleet.store.step(-30, promised=False)
        a.kill()
        ends = fleet.now + 30 + EXPIRY
        fleet.until(80)
        for job in ("grid", "slots", "pull"):
            again = [run for run in fleet.runs(job) if run.process == "b"]
            assert ends - BEAT < again[0].started < ends + EXPIRY + 5, "by the step, and a look of the follower"
            planned = [run.scheduled for run in fleet.runs(job)]
            assert len(set(planned)) == len(planned)


def test_an_end_that_was_stored_by_a_clock_ahead_holds_an_interval_up_once_at_most() -> None:
    with Fleet(Job("pull", "interval", 20.0, instant)) as fleet:
        replicas = fleet.start_in_turn("a", "b")
        fleet.store.step(3600, promised=False)
        fleet.until(45)
        fleet.store.step(-3600, promised=False)
        for turn in range(4):  # each term begins with what the store remembers
            fleet.wait(30)
            leader = next(one for one in replicas if one.alive and one.leads("pull"))
            leader.stop()
            replicas.append(fleet.start(f"c{turn}"))
        fleet.wait(30)
        starts = [run.started for run in fleet.runs("pull")]
        assert all(later - earlier >= 20 for earlier, later in pairwise(starts))
        long = [later - earlier for earlier, later in pairwise(starts) if later - earlier > 21]
        assert len(long) <= 1
        assert max(long, default=0) < 2 * 20 + EXPIRY + BEAT


def test_slots_more_than_ten_minutes_ahead_of_the_stores_clock_wait_until_it_is_right() -> None:
    with Fleet(Job("minute", "cron", "* * * * *", instant), begin=NOON) as fleet:
        fleet.start_in_turn("a")
        fleet.until(130)
        fleet.store.step(-15 * 60, promised=False)
        fleet.until(310)
        assert [run.scheduled for run in fleet.runs("minute")] == [minute(1), minute(2)]
        assert {record.reason for record in fleet.said("misfired")} == {"clock"}
        fleet.store.step(15 * 60, promised=False)
        fleet.until(430)
        assert [run.scheduled for run in fleet.runs("minute")][2:] == [minute(5), minute(6), minute(7)]


def test_a_step_of_the_stores_clock_is_said_in_the_log() -> None:
    with Fleet(Job("tick", "fixed", 1.0)) as fleet:
        fleet.start_in_turn("a", "b")
        fleet.until(20)
        fleet.store.step(-60, promised=False)
        fleet.wait(15)
        assert len(fleet.said("store-stepped")) == 2, "by each replica once"


# -- zones -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def _in_los_angeles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_in_los_angeles")
@pytest.mark.parametrize(
    "change", [datetime(2026, 3, 8, 10, tzinfo=UTC), datetime(2026, 11, 1, 9, tzinfo=UTC)], ids=["spring", "autumn"]
)
def test_c54_jobs_each_30_s_pass_a_clock_change_of_their_machines_zone_without_notice(change: datetime) -> None:
    jobs = [
        Job("grid", "fixed", 30.0, instant),
        Job("interval", "interval", 30.0, instant),
        Job("slots", "cron", "*/30 * * * * *", instant, more={"tz": "America/Los_Angeles"}),
    ]
    with Fleet(*jobs, begin=change - timedelta(minutes=3)) as fleet:
        fleet.start_in_turn("a")
        fleet.until(68 * 60 + 1)
        planned = [micros(change) + 30_000_000 * number for number in range(-5, 131)]
        for job in ("grid", "slots"):
            assert [run.scheduled for run in fleet.runs(job)] == planned
            assert all(0 <= run.started % 30 < TRAVEL for run in fleet.runs(job))
        gaps = [later.started - earlier.ended for earlier, later in pairwise(fleet.runs("interval"))]
        assert len(gaps) >= 133
        assert min(gaps) >= 30
        assert max(gaps) < 30 + TRAVEL
