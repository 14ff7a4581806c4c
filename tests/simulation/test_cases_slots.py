"""Cases from the field as scenarios: cron slots and ticks at a hand-over. Default settings."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from simulation.scenario import NOTICED, RELEASED, TRAVEL, Fleet, Job, micros
from simulation.sim_store import Network
from simulation.sim_time import EPOCH
from singletonjob import RunStarted
from singletonjob._system.timerfd import LoopAlarm

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulation.scenario import Replica
    from singletonjob import Run
    from singletonjob._core.values import Event


def slot(hour: int, minute: int) -> int:
    """A time of the day on which the cron scenarios begin."""
    return micros(datetime(2026, 3, 2, hour, minute, tzinfo=UTC))


@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
def test_c09_a_daily_slot_that_comes_2_6_s_after_the_leader_went_runs_once(how: str) -> None:
    """After a kill nobody leads when it comes: it runs late, as long as it is not later than its `late_limit`."""
    jobs = [Job("daily", "cron", "0 10 * * *"), Job("strict", "cron", "0 10 * * *", more={"late_limit": "3s"})]
    with Fleet(*jobs, begin=datetime(2026, 3, 2, 9, 58, tzinfo=UTC)) as fleet:
        a, b = fleet.start_in_turn("a", "b")
        due = 120.0
        fleet.until(due - 2.6)
        if how == "SIGTERM":
            a.stop()
        else:
            a.kill()
        fleet.wait(600)
        (run,) = fleet.runs("daily")
        assert (run.process, run.scheduled) == ("b", slot(10, 0))
        if how == "SIGTERM":
            assert due <= run.started < due + TRAVEL
            assert len(fleet.runs("strict")) == 1
            assert fleet.said("misfired") == []
        else:
            assert due + 4.4 - TRAVEL <= run.started < due + 7.4 + NOTICED + TRAVEL
            assert fleet.runs("strict") == []
            (missed,) = fleet.said("misfired", b)
            assert (missed.job, missed.reason) == ("strict", "no_leader")


def test_c10_a_slot_is_not_run_again_by_a_next_leader_whose_clock_is_slow() -> None:
    async def brief(_run: Run, _replica: Replica) -> None:
        await asyncio.sleep(0.005)

    jobs = [Job("cron", "cron", "* * * * *", brief), Job("fixed", "fixed", "1m", brief)]
    with Fleet(*jobs, begin=datetime(2026, 3, 2, 11, 58, tzinfo=UTC)) as fleet:
        a = fleet.start("a")
        fleet.wait(1)
        b = fleet.start("b", ahead=-0.7)
        noon = 120.0
        fleet.until(noon + 0.2)
        a.stop()
        fleet.wait_for(lambda: b.leads("cron") and b.leads("fixed"), within=RELEASED)
        assert b.clock.wall() < slot(12, 0)
        fleet.until(noon + 130)
        for job in ("cron", "fixed"):
            assert [(run.process, run.scheduled) for run in fleet.runs(job)] == [
                ("a", slot(11, 59)),
                ("a", slot(12, 0)),
                ("b", slot(12, 1)),
                ("b", slot(12, 2)),
            ]
            third = fleet.runs(job)[2].started
            assert noon + 60.7 <= third < noon + 60.7 + TRAVEL, "on its own clock"


def test_a_slot_that_comes_while_a_renewal_is_on_its_way_is_claimed_right_after_it() -> None:
    """Found on the way: it waited for the next beat, and was too late by then."""
    with Fleet(Job("job", "cron", "*/12 * * * * *", more={"late_limit": "2s"})) as fleet:
        (a,) = fleet.start_in_turn("a")
        a.client.network = Network(slow_reply=1.0, slow=0.6)
        fleet.until(725)
        late = [run.started - (run.scheduled - EPOCH) / 1e6 for run in fleet.runs("job")]
        assert len(late) == 60
        assert max(late) < 2 * 0.6 + TRAVEL
        assert fleet.said("misfired") == []


# -- a loop that is late, and one that waits for long ------------------------------------------------------------------


def test_c28_a_slot_over_which_the_loop_was_blocked_for_3_s_runs_once_and_says_how_late_it_is() -> None:
    async def blocking(_run: Run, replica: Replica) -> None:
        await replica.block(3.0)

    started: list[float] = []

    def hear(event: Event) -> None:
        if isinstance(event, RunStarted) and event.job == "minute":
            started.append(event.lateness)

    # The other job blocks the loop from the moment at which the slot comes: it is served first.
    jobs = [Job("blocks", "cron", "0 1 12 * * *", blocking), Job("minute", "cron", "* * * * *")]
    with Fleet(*jobs, begin=datetime(2026, 3, 2, 12, tzinfo=UTC)) as fleet:
        (a,) = fleet.start_in_turn("a")
        a.service.callbacks.append(hear)
        fleet.until(130)
        first, second = fleet.runs("minute")
        assert (first.scheduled, second.scheduled) == (slot(12, 1), slot(12, 2))
        assert 63 <= first.started < 63 + TRAVEL
        assert 120 <= second.started < 120 + TRAVEL
        assert [round(lateness, 1) for lateness in started] == [3.0, 0.0]
        assert fleet.said("misfired") == []


def test_c28_with_fire_once_five_missed_slots_give_one_run() -> None:
    """A machine that was off at the time of a weekly slot catches up on it, too, if that is asked for."""
    jobs = [
        Job("minute", "cron", "* * * * *", misfire="fire_once"),
        Job("weekly", "cron", "2 12 * * 1", misfire="fire_once"),
    ]
    with Fleet(*jobs, begin=datetime(2026, 3, 2, 12, tzinfo=UTC)) as fleet:
        (a,) = fleet.start_in_turn("a")
        fleet.until(90)
        a.stop()
        fleet.until(390)
        b = fleet.start("b")
        fleet.until(430)
        assert [(run.process, run.scheduled) for run in fleet.runs("minute")] == [
            ("a", slot(12, 1)),
            ("b", slot(12, 6)),
            ("b", slot(12, 7)),
        ]
        assert [(run.process, run.scheduled) for run in fleet.runs("weekly")] == [("b", slot(12, 2))]
        assert 390 < fleet.runs("weekly")[0].started < 391
        (missed,) = fleet.said("misfired", b)
        assert "missed 4 slots" in missed.getMessage()


def test_c29_a_job_that_waits_for_months_wakes_less_than_once_in_20_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted are the wakes of the jobs' tasks and those of the clock that they wait for."""
    jobs = [Job("yearly", "cron", "0 0 1 1 *"), Job("long", "interval", "400d")]
    with Fleet(*jobs, begin=datetime(2026, 1, 2, tzinfo=UTC)) as fleet:
        (a,) = fleet.start_in_turn("a")
        (started,) = [record for record in fleet.said("started") if record.job == "yearly"]
        assert "next at 2027-01-01T00:00:00+00:00" in started.getMessage()
        fleet.until(20)
        wakes = dict.fromkeys(("yearly", "long", "clock"), 0)

        def counted(name: str, call: Callable[..., object]) -> Callable[..., None]:
            def count(*args: Any, **keywords: Any) -> None:
                wakes[name] += 1
                call(*args, **keywords)

            return count

        for name in ("yearly", "long"):
            wake = a.service.runners[name]._wake
            monkeypatch.setattr(wake, "clear", counted(name, wake.clear))
        clock = a.service._timers._wall.alarm
        assert isinstance(clock, LoopAlarm)
        clock._ring = counted("clock", clock._ring)
        fleet.until(20 + 3600)
        assert wakes["yearly"] == wakes["long"] == 0
        assert 0 < wakes["clock"] <= 3600 / 20
        assert fleet.runs("yearly") == []
        assert len(fleet.runs("long")) == 1
