"""Cases from the field as scenarios: what becomes of runs, ticks and slots when leadership moves. Default settings."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from simulation.scenario import BEAT, EXPIRY, MARGIN, NOTICED, RELEASED, TRAVEL, USABLE, Fleet, Job
from singletonjob import LeadershipLost
from singletonjob.stores.protocol import Acquire, Renew

if TYPE_CHECKING:
    from simulation.scenario import Replica
    from singletonjob import Run
    from singletonjob.stores.protocol import Batch


# -- runs that block, and runs that last -------------------------------------------------------------------------------


def test_c05_a_body_that_blocks_its_loop_for_longer_than_a_lease_keeps_it_and_is_named() -> None:
    """A pure-Python loop in the place of a sleep, and real threads: `tests/integration`, `scripts/soak blocked`."""

    async def blocking(_run: Run, replica: Replica) -> None:
        await replica.block(15)

    with Fleet(Job("report", "interval", 1.0, blocking)) as fleet:
        a, _ = fleet.start_in_turn("a", "b")
        fleet.until(60)
        runs = fleet.runs("report")
        assert len(runs) == 4
        assert {run.process for run in runs} == {"a"}
        assert fleet.overlaps("report") == []
        assert len(fleet.leases("report")) == 1
        warnings = fleet.said("run-long", a)
        assert {(record.levelname, record.job) for record in warnings} == {("WARNING", "report")}
        assert len(warnings) >= 3, "one for each run that lasted"


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_c44_a_run_of_35_s_keeps_its_lease_and_nobody_else_starts(kind: str) -> None:
    async def on_loop(_run: Run, _replica: Replica) -> None:
        await asyncio.sleep(35)

    def in_thread(_run: Run, replica: Replica) -> None:
        replica.sleep(35)

    with Fleet(Job("report", "interval", 1.0, on_loop if kind == "async" else in_thread)) as fleet:
        fleet.start_in_turn("a", "b", "c")
        left: list[float | None] = []
        fleet.each(0.1, lambda: left.append(fleet.ttl("report")))
        fleet.wait(120)
        assert len(fleet.runs("report")) == 4
        assert {run.process for run in fleet.runs("report")} == {"a"}
        assert fleet.overlaps("report") == []
        known = [ttl for ttl in left if ttl is not None]
        assert len(known) == len(left)
        assert min(known) >= 6.5
        assert max(known) <= EXPIRY


def test_c46_at_a_loss_an_async_run_is_cancelled_before_anybody_else_runs() -> None:
    async def tidy(_run: Run, _replica: Replica) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.25)  # what a body may take to tidy up

    with Fleet(Job("report", "interval", "1h", tidy)) as fleet:
        a, b = fleet.start_in_turn("a", "b")
        fleet.until(5)
        sent = a.client.answered[-1]
        a.cut()
        fleet.wait(30)
        (run,) = fleet.runs("report", a)
        assert sent + USABLE <= run.ended < sent + USABLE + 0.5
        (record,) = fleet.said("run-cancelled", a)
        assert (record.job, record.reason) == ("report", "expired")
        (other,) = fleet.runs("report", b)
        assert sent + EXPIRY <= other.started < sent + EXPIRY + NOTICED + TRAVEL
        assert run.ended < other.started


def test_c46_at_a_loss_a_sync_run_that_looks_ends_at_once_and_one_that_does_not_is_reported() -> None:
    refused: list[str] = []

    def polite(run: Run, replica: Replica) -> None:
        while not run.stopping:
            replica.sleep(0.05)
        try:
            run.check()
        except LeadershipLost as error:
            refused.append(str(error))

    def deaf(_run: Run, replica: Replica) -> None:
        replica.sleep(40)

    with Fleet(Job("polite", "interval", "1h", polite), Job("deaf", "interval", "1h", deaf)) as fleet:
        a, b = fleet.start_in_turn("a", "b")
        fleet.until(5)
        sent = a.client.answered[-1]
        a.cut()
        fleet.wait(20)
        a.heal()
        fleet.wait(40)
        (run,) = fleet.runs("polite", a)
        assert sent + USABLE <= run.ended < sent + USABLE + 0.1
        assert len(refused) == 1
        assert run.ended < fleet.first_start("polite", b) < sent + EXPIRY + NOTICED + MARGIN
        (run,) = fleet.runs("deaf", a)
        assert run.ended - run.started >= 40, "nothing can end it"
        assert {record.job for record in fleet.said("run-without-lease", a)} >= {"deaf"}
        asked = [when for when, batch in a.client.sent if "deaf" in asks_for(batch)]
        assert [when for when in asked if sent < when < run.ended] == []
        again = next(when for when in asked if when > run.ended)
        assert again < run.ended + BEAT, "it takes part again when that has ended, and not before"


def asks_for(batch: Batch) -> set[str]:
    """The jobs that a batch asks the lease of."""
    return {request.job for request in batch.requests if isinstance(request, Acquire)}


# -- leaving -----------------------------------------------------------------------------------------------------------


def test_c08_at_a_stop_the_run_in_flight_ends_while_it_is_renewed_for_and_is_followed_at_once() -> None:
    async def five(_run: Run, _replica: Replica) -> None:
        await asyncio.sleep(5)

    with Fleet(Job("copy", "fixed", 0.1, five), shutdown_grace=10.0) as fleet:
        a, b = fleet.start_in_turn("a", "b")
        fleet.until(20)
        fleet.wait_for(lambda: not a.running, within=6)
        fleet.wait_for(lambda: a.running, within=1)
        fleet.wait(1)
        stopped = fleet.now
        a.stop()
        fleet.wait(10)
        last, first = fleet.runs("copy", a)[-1], fleet.runs("copy", b)[0]
        assert last.ended - last.started >= 5
        assert 3.9 < last.ended - stopped < 4.1
        assert last.ended <= first.started < last.ended + RELEASED + 0.1 + TRAVEL
        (lease,) = [lease for lease in fleet.leases("copy") if lease.node == "a"]
        assert lease.released
        assert any(stopped < renewed < last.ended for renewed in lease.renewed)
        assert last.ended <= lease.ends < last.ended + TRAVEL


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_c08_of_a_body_that_will_not_stop_the_lease_is_never_released_and_runs_out_after_its_process(kind: str) -> None:
    """The exit code: `tests/integration/test_replicas.py`."""

    def in_thread(_run: Run, replica: Replica) -> None:
        replica.sleep(1000)

    async def on_loop(_run: Run, replica: Replica) -> None:
        while replica.alive:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                if not replica.alive:
                    raise

    with Fleet(Job("copy", "interval", 1.0, on_loop if kind == "async" else in_thread), shutdown_grace=10.0) as fleet:
        a, b = fleet.start_in_turn("a", "b")
        fleet.until(20)
        stopped = fleet.now
        a.stop()
        gone = fleet.wait_for(lambda: not a.alive, within=10 + MARGIN + 1)
        assert gone - stopped >= 10 + MARGIN
        assert len(fleet.said("run-did-not-stop", a)) == 1
        fleet.wait(EXPIRY + 1)
        (lease,) = [lease for lease in fleet.leases("copy") if lease.node == "a"]
        assert not lease.released
        assert lease.renewed[-1] < gone
        assert lease.ends <= fleet.lease("copy").granted < lease.ends + NOTICED + TRAVEL
        assert lease.ends < fleet.first_start("copy", b)
        assert fleet.said("released") == []


@pytest.mark.parametrize("moment", ["at any moment", "while a renewal is on its way"])
def test_c37_cancelling_the_task_that_serves_releases_the_lease_within_half_a_second(moment: str) -> None:
    """Half of the tries cancel that task, half all tasks of the loop, as the end of `asyncio.run` does.

    Ctrl-C and a lifespan that is cancelled: `tests/integration/test_replicas.py`, `test_redis_apps.py`.
    """

    async def serve(replica: Replica) -> None:  # as `SingletonJobs.serve` does
        try:
            await replica.service.until_stop_requested()
        finally:
            await replica.service.stop()

    with Fleet(Job("tick", "fixed", 0.1)) as fleet:
        fleet.start_in_turn("r0", "r1")
        for number in range(50):
            leader = fleet.replicas[fleet.lease("tick").node]
            served = leader.job_loop.create_task(serve(leader))
            fleet.wait(1 + BEAT * fleet.world.random.random())
            if moment != "at any moment":
                fleet.wait_for(lambda leader=leader: renewing(leader), within=BEAT + TRAVEL, step=0.0005)  # type: ignore[misc]  # binds it
            cancelled = fleet.now
            for task in asyncio.all_tasks(leader.job_loop) if number % 2 else [served]:
                leader.job_loop.call_soon(task.cancel)
            fleet.wait_for(served.done, within=1)
            leader.end("ended")
            (lease,) = [lease for lease in fleet.leases("tick") if lease.node == leader.name]
            assert lease.released
            assert lease.ends < cancelled + 0.5
            fleet.start(f"r{number + 2}")
            fleet.wait(0.5)
            assert fleet.lease("tick").granted < cancelled + 0.5 + RELEASED
        assert len(fleet.leases("tick")) == 51


def renewing(replica: Replica) -> bool:
    batch = replica.client.in_flight
    return batch is not None and any(isinstance(request, Renew) for request in batch.requests)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("moment", ["in a run", "between two runs"])
def test_c35_a_job_whose_task_is_killed_gives_its_lease_up_and_runs_again_within_a_second(
    moment: str, replicas: int
) -> None:
    """Whatever a body raises, and loops that are torn down: `tests/fundamentals/test_cancellation.py`."""

    async def half(_run: Run, _replica: Replica) -> None:
        await asyncio.sleep(0.5)

    with Fleet(Job("job", "interval", 0.3, half)) as fleet:
        a, *_ = fleet.start_in_turn(*"ab"[:replicas])
        fleet.until(20)
        fleet.wait_for(lambda: a.running == (moment == "in a run"), within=1)
        fleet.wait(0.1)
        killed, lease = fleet.now, fleet.lease("job")
        a.job_loop.call_soon(a.service._tasks["job"].cancel)
        fleet.wait(30)
        assert lease.released
        assert killed < lease.ends < killed + TRAVEL, "with no loop it is not renewed at all"
        assert killed < fleet.runs("job", since=killed)[0].started < killed + 1
        assert fleet.runs("job", since=killed)[0].token > lease.token
        assert len(fleet.leases("job")) == 2, "and it goes on"
        assert [record.job for record in fleet.said("runner-died", a)] == ["job"]


# -- starved -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 20, 21, 23])
def test_c100_three_starved_replicas_hop_and_never_overlap_but_for_the_run_that_stood_still(seed: int) -> None:
    """Each gets a twentieth of a processor, in slices of 50 ms, and now and then nothing for seconds. Ten minutes.

    That no run starts in a term that is over, and that only a run in which its process stood still overlaps the next
    one, is what the checker asserts when the scenario ends. Real processes under load: `scripts/soak chaos`.
    """
    with Fleet(Job("tick", "fixed", 0.2), seed=seed) as fleet:
        replicas = fleet.start_in_turn("a", "b", "c")
        draw = fleet.world.random.random

        def starve(replica: Replica) -> None:
            seconds = 4 + 9 * draw() if draw() < 0.03 else 0.5 + draw()
            replica.pause(seconds)
            fleet.at(fleet.now + seconds + 0.05, lambda: starve(replica))

        for replica in replicas:
            starve(replica)
        fleet.until(600)
        assert len(fleet.runs("tick")) >= 200
        assert len({run.process for run in fleet.runs("tick")}) >= 2
        terms = sum(replica.service.runners["tick"].counts.terms for replica in replicas)
        assert terms >= 4
        assert len(fleet.said("elected")) == terms, "each change of leader is counted, and logged"
        ended = [record.reason for record in fleet.said("lost")]
        assert terms - 1 <= len(ended) <= terms
        for one, _ in fleet.overlaps("tick"):
            stood_still = [pause for pause in fleet.history.frozen if pause.process == one.process]
            assert any(one.started <= pause.begin and pause.end <= one.ended for pause in stood_still)
