"""Cases from the field as scenarios: leaders that are paused or killed, and leases that are lost. Default settings."""

from __future__ import annotations

import asyncio
import re

import pytest

from simulation.scenario import BEAT, EXPIRY, NOTICED, RELEASED, TRAVEL, USABLE, Fleet, Job
from simulation.sim_store import Network
from singletonjob.stores.protocol import Renew

EVERY = 0.1
TICK = Job("tick", "fixed", EVERY)


# -- a leader that is paused or killed ---------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", [0.02, 0.7, 1.35, 2.1, 2.8, "in a run"])
def test_c04_a_leader_that_was_paused_beyond_its_lease_starts_no_run_after_it_woke(phase: float | str) -> None:
    """The signals: `tests/integration/test_replicas.py` and `test_redis_replicas.py`."""
    with Fleet(TICK) as fleet:
        a, b = fleet.start_in_turn("a", "b")
        fleet.until(20)
        if isinstance(phase, float):
            fleet.wait(phase)
        else:
            fleet.wait_for(lambda: a.running, within=EVERY + TRAVEL)
        stopped = fleet.now
        a.pause(15)
        fleet.wait(14.9)
        taken = fleet.lease("tick")
        assert taken.node == "b"
        assert BEAT + 4 - TRAVEL <= fleet.first_start("tick", b) - stopped < EXPIRY + NOTICED + EVERY

        woken = stopped + 15
        for _ in range(300):
            fleet.wait(0.1)
            ttl = fleet.ttl("tick")
            assert fleet.holder("tick") == "b"
            assert ttl is not None
            assert EXPIRY - BEAT - TRAVEL <= ttl <= EXPIRY
        assert fleet.lease("tick") is taken
        assert fleet.runs("tick", a, since=stopped + 0.001) == []
        assert a.client.asked(Renew, since=woken) == []
        assert fleet.said("released") == []
        assert len(fleet.overlaps("tick")) <= 1
        assert len([run for run in fleet.runs("tick", a) if run.ended > stopped]) == (phase == "in a run")


def ticks_in(since: float, until: float) -> int:
    """How many grid points lie in this time; the grid's points are multiples of `EVERY`."""
    return int(until / EVERY + 1e-6) - int(since / EVERY + 1e-6)


@pytest.mark.parametrize("how", ["frozen", "frozen in a run", "blocked, renewals lost", "blocked, lease stolen"])
def test_a_leader_that_learns_late_of_its_end_counts_the_ticks_of_its_own_term_alone(how: str) -> None:
    """It accounts for each tick up to its deadline; those after that are its successor's."""
    with Fleet(TICK) as fleet:
        a, b = fleet.start_in_turn("a", "b")
        fleet.until(20.55)
        if how == "frozen in a run":
            fleet.wait_for(lambda: a.running, within=EVERY + TRAVEL)
        counts = a.service.runners["tick"].counts
        before = counts.dropped_late + counts.dropped_overlap
        stopped = fleet.now
        ends = a.client.answered[-1] + USABLE
        if how.startswith("frozen"):
            a.pause(15)
        else:
            a.freeze("blocked", 15, whole=False)
        if how == "blocked, renewals lost":
            a.cut()
        elif how == "blocked, lease stolen":
            fleet.steal("tick", EXPIRY)
            ends = fleet.wait_for(lambda: fleet.said("lost", a), within=BEAT + TRAVEL)
        fleet.until(stopped + 20)
        assert fleet.runs("tick", b), "its successor ran meanwhile"
        dropped = counts.dropped_late + counts.dropped_overlap - before
        assert dropped == ticks_in(stopped, ends)
        logged = [re.findall(r"\d+", record.getMessage())[0] for record in fleet.said("ticks-dropped", a)]
        assert logged
        assert max(map(int, logged)) <= dropped


def test_c34_after_50_kills_at_any_moment_the_next_one_runs_when_the_lease_has_ended_and_no_key_is_without_an_end() -> (
    None
):
    with Fleet(TICK) as fleet:
        fleet.start_in_turn("a", "b", "c")

        def look() -> None:
            assert fleet.ttl("tick") is None or 0 < (fleet.ttl("tick") or 0) <= EXPIRY

        fleet.each(0.1, look)
        gaps = []
        for number in range(50):
            fleet.wait(4 + 3 * fleet.world.random.random())
            killed = fleet.now
            fleet.replicas[fleet.lease("tick").node].kill()
            fleet.start(f"r{number}")
            fleet.wait(10.5)
            gaps.append(fleet.runs("tick", since=killed)[0].started - killed)
        assert min(gaps) >= BEAT + 4 - TRAVEL
        assert max(gaps) < EXPIRY + NOTICED + EVERY
        assert min(gaps) < BEAT + 5 < EXPIRY - 1 < max(gaps), "some soon after a renewal, some just before one"


@pytest.mark.parametrize("phase", [0.0, 3.1, 7.7])
def test_c36_the_lease_of_the_one_who_holds_it_counts_and_not_that_of_who_waits(phase: float) -> None:
    with Fleet(TICK) as fleet:
        a = fleet.start("a", lock_expiry=30.0, margin=3.0, heartbeat_interval=9.0)
        fleet.wait(1)
        b = fleet.start("b")
        fleet.wait(100 + phase)
        assert len(fleet.leases("tick")) == 1
        assert fleet.runs("tick", b) == []
        killed = fleet.now
        a.kill()
        fleet.wait(40)
        assert 21 - TRAVEL <= fleet.first_start("tick", b) - killed < 30 + NOTICED + EVERY


# -- losing it, and having had it --------------------------------------------------------------------------------------


def test_c18_after_five_losses_there_is_one_schedule_and_not_six() -> None:
    with Fleet(Job("tick", "fixed", 1.0)) as fleet:
        (a,) = fleet.start_in_turn("a")
        for _ in range(5):
            fleet.wait(2)
            fleet.steal("tick", 4)
            fleet.wait_for(lambda: not a.leads("tick"), within=BEAT + TRAVEL)
            fleet.wait_for(lambda: a.leads("tick"), within=4 + NOTICED)
        assert len(fleet.leases("tick")) == 6
        since = fleet.now
        fleet.wait(20)
        ticks = [run.tick for run in fleet.runs("tick", since=since)]
        assert 19 <= len(ticks) <= 21
        assert len(set(ticks)) == len(ticks)
        tasks = [task for task in asyncio.all_tasks(a.job_loop) if task.get_name() == "singletonjob tick"]
        assert len(tasks) == 1


@pytest.mark.parametrize("how", ["the fence passed", "the loss was told"])
def test_c19_a_tick_that_comes_50_ms_after_the_loss_does_not_run(how: str) -> None:
    """A swap of the key that nobody tells is seen with the next renewal, as the promises say: C03."""
    with Fleet(Job("tick", "fixed", 2.0)) as fleet:
        (a,) = fleet.start_in_turn("a")
        fleet.until(21.3)
        if how == "the fence passed":
            loss = a.client.answered[-1] + USABLE
            fleet.steal("tick", 60)
            a.cut()
        else:
            loss = fleet.now + 3
            fleet.at(loss - 0.02, lambda: fleet.steal("tick", 60))
            fleet.at(loss - 0.01, lambda: a.client.hear(frozenset({"tick"})))  # it looks at the key at once
        # Its wall clock is set so that a point of the grid comes 50 ms after the loss.
        at_loss = (a.clock.wall() / 1e6 + loss - fleet.now) % 2.0
        a.step_clock((1.95 - at_loss) % 2.0)
        fleet.until(loss + 0.02)
        assert not a.leads("tick")
        before = fleet.runs("tick")[-1]
        assert loss - 2 < before.started < loss - 1.9, "the tick before it ran"
        fleet.wait(10)
        assert fleet.runs("tick")[-1] is before


def test_c19_a_loss_that_is_told_while_a_renewal_is_on_its_way_is_seen_right_after_it() -> None:
    """Found on the way: that renewal's answer covered up the notice, and the loss was seen a heartbeat later."""
    with Fleet(TICK) as fleet:
        (a,) = fleet.start_in_turn("a")
        a.client.network = Network(slow_reply=1.0, slow=0.4)
        for _ in range(5):
            fleet.wait(5)
            renewed = len(fleet.lease("tick").renewed)
            fleet.wait_for(lambda before=renewed: len(fleet.lease("tick").renewed) > before, within=BEAT)  # type: ignore[misc]  # binds it
            fleet.steal("tick", 4)
            a.client.hear(frozenset({"tick"}))
            stolen = fleet.now
            fleet.wait_for(lambda: not a.leads("tick"), within=2 * 0.4 + TRAVEL)
            assert fleet.runs("tick")[-1].started < stolen + 2 * 0.4 + TRAVEL
            fleet.wait(5)


def test_c38_a_replica_that_lost_its_lease_leaves_its_successors_alone_when_it_stops_however_often() -> None:
    with Fleet(TICK) as fleet:
        a, _ = fleet.start_in_turn("a", "b")
        fleet.until(20)
        a.cut()
        fleet.wait_for(lambda: fleet.holder("tick") == "b", within=EXPIRY + NOTICED)
        a.heal()
        fleet.wait(5)

        async def stop_and_stop() -> None:
            await asyncio.gather(*(a.service.stop() for _ in range(3)))
            await a.service.stop()

        stopping = a.job_loop.create_task(stop_and_stop())
        fleet.wait_for(stopping.done, within=1)
        assert stopping.exception() is None
        a.end("ended")
        fleet.wait(20)
        assert fleet.holder("tick") == "b"
        assert len(fleet.leases("tick")) == 2
        assert fleet.said("released") == []


def test_c38_a_stop_that_reaches_a_paused_leader_releases_nothing_of_its_successors() -> None:
    with Fleet(TICK) as fleet:
        a, _ = fleet.start_in_turn("a", "b")
        fleet.until(20)
        a.pause(15)
        fleet.wait(5)
        a.stop()
        fleet.wait(20)
        assert not a.alive
        assert fleet.holder("tick") == "b"
        assert len(fleet.leases("tick")) == 2
        assert fleet.said("released") == []


def test_c38_stopping_three_times_at_once_releases_once() -> None:
    with Fleet(TICK) as fleet:
        a, b = fleet.start_in_turn("a", "b")
        fleet.until(20)

        async def stop_at_once() -> None:
            await asyncio.gather(*(a.service.stop() for _ in range(3)))

        stopping = a.job_loop.create_task(stop_at_once())
        fleet.wait_for(stopping.done, within=1)
        assert stopping.exception() is None
        a.end("ended")
        fleet.wait(20)
        assert len(fleet.said("released")) == 1
        assert fleet.first_start("tick", b) < 20 + RELEASED + EVERY + TRAVEL
        assert fleet.holder("tick") == "b"
