"""Cases from the field as scenarios: cron slots and ticks at a hand-over. Default settings."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from simulation.scenario import NOTICED, RELEASED, TRAVEL, Fleet, Job, micros
from singletonjob.testing.sim_store import Network
from singletonjob.testing.sim_time import EPOCH

if TYPE_CHECKING:
    from simulation.scenario import Replica
    from singletonjob import Run


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
