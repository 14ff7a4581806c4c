"""The promises, checked on whole fleets in virtual time: unmodified replicas, and everything that can go wrong around
them. Longer: `sh scripts/soak simulation --seeds 20000`.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from simulation.fleet import Settings, Simulation
from simulation.sim_checker import Violation, check
from simulation.sim_faults import PROFILES
from simulation.sim_history import Fault, History, Life, Sample, SimRun
from simulation.sim_replica import JobPlan
from simulation.sim_time import SimClock, SimLoop, World
from singletonjob._system.timers import Timers

SEEDS = 12
"""In a block."""

BLOCKS = 3
"""Of each profile. The first has always the same seeds, the others each day those of the day."""

SRC = Path(__file__).parents[2] / "src"


def seeds_of(block: int) -> range:
    day = int(time.time() / 86400)
    first = 0 if block == 0 else 1000 + (day * (BLOCKS - 1) + block - 1) * SEEDS
    return range(first, first + SEEDS)


@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.parametrize("profile", PROFILES)
def test_every_promise_is_kept_whatever_goes_wrong(profile: str, block: int) -> None:
    simulations = [Simulation(seed, faults=profile) for seed in seeds_of(block)]
    histories = [simulation.run() for simulation in simulations]
    assert all(one.replicas >= 3 and one.jobs >= 2 and one.length >= 20 for one in simulations)
    assert {
        "faults": sum(len(history.faults) for history in histories) >= 5 * SEEDS,
        "terms": sum(len(history.leases) for history in histories) >= 3 * SEEDS,
        "runs": sum(len(history.runs) for history in histories) >= 20 * SEEDS,
    } == {"faults": True, "terms": True, "runs": True}


def test_a_thousand_seeds_and_more_are_tried() -> None:
    assert len(PROFILES) * BLOCKS * SEEDS >= 1000


def test_the_same_seed_gives_the_same_history_byte_for_byte() -> None:
    here = Simulation(7, faults="noisy").run().text
    code = "from simulation.fleet import Simulation; print(end=Simulation(7, faults='noisy').run().text)"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(SRC), str(Path(__file__).parents[1])]),
        "PYTHONHASHSEED": "1",
    }
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    assert hashlib.sha256(done.stdout.encode()).digest() == hashlib.sha256(here.encode()).digest()
    assert Simulation(8, faults="noisy").run().text != here


def test_more_replicas_and_jobs_take_part_as_well() -> None:
    history = Simulation(3, replicas=5, jobs=4).run()
    assert len({run.machine for run in history.runs}) >= 2
    assert len({run.job for run in history.runs}) == 4


def test_a_violation_tells_seed_profile_rule_and_the_last_seconds() -> None:
    simulation = Simulation(0, faults="handover")
    simulation.history.errors.append("r0.1: told by a test")
    with pytest.raises(Violation, match=r"seed 0, profile 'handover', rule errors: r0\.1: told") as caught:
        simulation.run()
    assert caught.value.rule == "errors"
    assert "store: renewed" in str(caught.value)


def test_a_timer_that_is_overdue_and_set_again_and_again_does_not_hold_up_a_fence_behind_it() -> None:
    # The profile "frozen" found it: after a suspend, a job with a tick long past kept its neighbour's fence waiting.
    world = World(Random(1))
    clock = SimClock(world, 1.0, 0)
    loop = SimLoop(world, clock, pytest.fail)
    timers = Timers(loop, clock, longest_boot_sleep=0.05)
    fired: list[float] = []

    def overdue() -> None:
        timers.at_boot(clock.boot() - 1.0, overdue)

    overdue()
    timers.at_boot(clock.boot(), lambda: fired.append(world.now))
    world.run(0.1)
    loop.kill()
    assert fired == [pytest.approx(0.0, abs=0.01)]


# -- the checker sees what it is for -----------------------------------------------------------------------------------

SETTINGS = Settings(
    lock_expiry=10,
    margin=1,
    heartbeat_interval=3,
    max_backoff=10,
    stall_limit=60,
    grace=20,
    timeout=None,
    skew=0.5,
    calm=False,
    duplicated=False,
)


def a_run(process: str, token: int, started: float, ended: float, **more: Any) -> SimRun:
    return SimRun(process, 0, "job", token, token, None, "long", started, 0, ended, **more)


def history_of(*runs: SimRun) -> History:
    """A history in which each run's lease lasts until half a second after the run, and nothing else happened."""
    history = History(runs=list(runs), healed_at=1000, ended_at=1000)
    history.alive = [Life(process, 0, 1000, False) for process in sorted({run.process for run in runs})]
    for run in runs:
        history.leased("granted", run.started, "job", run.process, run.token, run.ended + 0.5)
    return history


def broken(history: History, settings: Settings = SETTINGS) -> str | None:
    found = check(history, settings, {"job": JobPlan("job", "interval", 2000.0, "skip", {})})
    return None if found is None else found.rule


def test_runs_of_two_terms_one_after_the_other_are_fine() -> None:
    assert broken(history_of(a_run("a", 1, 1.0, 2.0), a_run("b", 2, 3.0, 4.0))) is None


def test_two_replicas_inside_their_runs_at_once_break_s1() -> None:
    assert broken(history_of(a_run("a", 1, 1.0, 3.0), a_run("b", 2, 2.9, 4.0))) == "S1"


def test_a_run_of_a_paused_process_may_outlive_its_lease_until_it_must_have_noticed() -> None:
    def paused(ended: float) -> History:
        history = history_of(a_run("a", 1, 1.0, ended))
        history.leases["job", 1].ends = 11.0
        history.frozen = [Fault("paused", "a", 2.0, 30.0)]
        return history

    assert broken(paused(30.7)) is None
    assert broken(paused(31.5)) == "S3"


def test_a_lease_given_back_while_its_run_is_in_flight_breaks_s4() -> None:
    history = history_of(a_run("a", 1, 1.0, 3.0))
    history.released(2.0, "job", "a", 1)
    assert broken(history) == "S4"


def test_a_run_with_an_older_token_than_one_seen_before_breaks_s5() -> None:
    assert broken(history_of(a_run("b", 2, 1.0, 2.0), a_run("a", 1, 5.0, 6.0))) == "S5"


def test_a_run_that_starts_past_its_deadline_breaks_s2() -> None:
    history = history_of(a_run("a", 1, 9.5, 9.6))
    history.leases["job", 1].granted = 0.0
    assert broken(history) == "S2"


def test_a_deadline_counts_from_the_request_not_from_the_stores_answer() -> None:
    history = history_of(a_run("a", 1, 8.5, 8.6))
    history.leases["job", 1].granted = 0.0
    assert broken(history) is None
    history.leases["job", 1].heard = [(0.1, -1.0)]
    history.fault("block", "a", 0.0, 5.0)  # so that nothing had to run earlier
    assert broken(history) == "S2"


def test_a_sync_run_that_starts_on_an_overdue_lease_breaks_s2() -> None:
    def started(at: float, **more: Any) -> str | None:
        history = history_of(a_run("a", 1, at, at + 0.1, **more))
        history.leases["job", 1].granted = 0.0
        return broken(history)

    assert started(5.0, sync=True) is None
    assert started(6.0, sync=True) == "S2"
    assert started(6.0) is None


def test_a_sync_run_that_never_asks_may_outlive_a_lease_that_was_lost_but_not_one_given_back() -> None:
    run = a_run("a", 1, 1.0, 20.0, sync=True, looks=False)
    history = history_of(run)
    history.leases["job", 1].ends = 11.0
    assert broken(history) is None
    history.runs.append(a_run("b", 2, 12.0, 13.0))
    history.leased("granted", 11.5, "job", "b", 2, 21.5)
    history.alive.append(Life("b", 0, 1000, False))
    assert broken(history) is None
    run.looks = True
    assert broken(history) == "S3"
    run.looks = False
    history.leases["job", 1].released = True
    assert broken(history) == "S4"


def test_a_run_that_begins_late_and_is_not_told_that_its_term_is_over_breaks_s2() -> None:
    history = history_of(a_run("a", 1, 1.0, 31.2, woke=31.0))
    history.leases["job", 1].ends = 11.0
    history.frozen = [Fault("paused", "a", 1.0, 31.0)]
    assert broken(history) == "S2"
    history.runs[0].told = True
    assert broken(history) is None


def test_a_run_that_goes_on_past_its_timeout_breaks_s7() -> None:
    history = history_of(a_run("a", 1, 1.0, 5.0))
    history.runs[0].kind = "endless"
    assert broken(history, SETTINGS._replace(timeout=4.0)) is None
    assert broken(history, SETTINGS._replace(timeout=3.0)) == "S7"


def test_a_lease_that_is_lost_although_nothing_was_wrong_breaks_l3() -> None:
    history = history_of(a_run("a", 1, 1.0, 2.0))
    assert broken(history, SETTINGS._replace(calm=True)) == "L3"
    history.fault("pause", "a", 1.5, 2.2)
    assert broken(history, SETTINGS._replace(calm=True)) is None


# -- is_leader ---------------------------------------------------------------------------------------------------------


def sampled(*samples: Sample) -> str | None:
    """A lease of `a` until 11 s and one of `b` from 12 s on, and who said yes when."""
    history = History(healed_at=1000, ended_at=1000)
    history.alive = [Life(process, 0, 1000, False) for process in "ab"]
    history.leased("granted", 1.0, "job", "a", 1, 11.0)
    history.leased("granted", 12.0, "job", "b", 2, 22.0)
    history.samples.extend(samples)
    return broken(history)


def test_a_replica_that_says_yes_within_its_valid_lease_is_fine() -> None:
    assert sampled(Sample(2.0, "a", "job"), Sample(9.9, "a", "job"), Sample(12.0, "b", "job")) is None


def test_a_replica_that_says_yes_after_its_own_deadline_breaks_s1() -> None:
    assert sampled(Sample(10.5, "a", "job")) == "S1"


def test_a_replica_that_says_yes_and_never_had_the_lease_breaks_s1() -> None:
    assert sampled(Sample(2.0, "b", "job")) == "S1"


def test_two_replicas_that_say_yes_at_the_same_moment_break_s1() -> None:
    assert sampled(Sample(13.0, "a", "job"), Sample(13.0, "b", "job")) == "S1"


# -- a store that forgets, and a leader of another kind ----------------------------------------------------------------


def overlapping(ends: float, *, refused_until: float | None = None) -> str | None:
    """The store drops the lease of `a` at 2 s; `b` leads from 3 s on, and `a` runs on until `ends`."""
    history = history_of(a_run("a", 1, 1.0, ends))
    history.leases["job", 1].ends = 11.0
    history.fault("flush", "", 2.0, 2.0)
    history.kept(2.0, {})
    history.leased("granted", 3.0, "job", "b", 2, 13.0)
    history.heard("job", 2, 2.9, 3.1)
    history.runs.append(a_run("b", 2, 3.5, 10.0))
    history.alive.append(Life("b", 0, 1000, False))
    if refused_until is not None:
        history.refused("job", "b", 1.5, "a", refused_until)
    return broken(history, SETTINGS._replace(calm=True))


def test_a_replica_that_could_not_know_of_a_lost_lease_may_overlap_with_its_holder_for_a_heartbeat_and_a_call() -> None:
    assert overlapping(7.5) is None
    assert overlapping(9.5) == "S8"
    assert overlapping(7.5, refused_until=2.5) is None, "the refusal was over when it asked"


def test_a_replica_whose_last_refusal_was_in_force_overlaps_with_nobody_though_the_store_lost_the_lease() -> None:
    assert overlapping(4.0, refused_until=10.0) == "S1"


def test_a_run_beside_a_leader_of_another_implementation_breaks_s1() -> None:
    history = history_of(a_run("a", 1, 1.0, 2.0))
    history.foreign.append(Fault("foreign", "other", 3.0, 9.0, "job"))
    assert broken(history) is None
    history.foreign.append(Fault("foreign", "other", 1.5, 2.5, "job"))
    assert broken(history) == "S1"


# -- L4 ----------------------------------------------------------------------------------------------------------------


def test_a_run_that_ignores_the_gap_after_a_run_of_another_replica_breaks_l4() -> None:
    def started(at: float, *, reported: bool = True) -> str | None:
        history = history_of(a_run("a", 1, 1.0, 3.0))
        if reported:
            history.released(3.1, "job", "a", 1)
        history.runs.append(a_run("b", 2, at, at + 1))
        history.leased("granted", 4.0, "job", "b", 2, at + 5)
        history.leases["job", 2].renewed = [float(second) for second in range(5, int(at) + 1)]
        history.alive.append(Life("b", 0, 1000, False))
        found = check(history, SETTINGS, {"job": JobPlan("job", "interval", 50.0, "skip", {})})
        return None if found is None else found.rule

    assert started(20.0) == "L4"
    assert started(20.0, reported=False) is None, "the next leader could not know of the end"
    assert started(53.0) is None


@pytest.mark.parametrize(("shape", "every"), [("interval", 2000.0), ("fixed", 30.0)])
def test_a_first_run_that_does_not_come_soon_after_its_replica_leads_breaks_l4(shape: str, every: float) -> None:
    def started(at: float) -> str | None:
        history = History(healed_at=1000, ended_at=1000, alive=[Life("a", 0, 1000, False)])
        history.leased("granted", 1.0, "job", "a", 1, 1000.0)
        history.leases["job", 1].heard = [(1.0 + second, 1.0 + second) for second in range(900)]
        history.runs.append(replace(a_run("a", 1, at, at + 1), tick=1 if shape == "fixed" else None))
        found = check(history, SETTINGS, {"job": JobPlan("job", shape, every, "skip", {})})
        return None if found is None else found.rule

    assert started(1.5) is None
    assert started(40.0) == "L4"
