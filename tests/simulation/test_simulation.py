"""The promises, checked on whole fleets in virtual time: unmodified replicas, and everything that can go wrong around
them. Longer: `sh scripts/soak simulation --seeds 20000`.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from singletonjob.testing import PROFILES, Simulation, Violation
from singletonjob.testing.sim_checker import check
from singletonjob.testing.sim_history import Fault, History, Life, SimRun
from singletonjob.testing.sim_replica import JobPlan
from singletonjob.testing.simulation import Settings

SEEDS = 25

SRC = Path(__file__).parents[2] / "src"


@pytest.mark.parametrize("profile", PROFILES)
def test_every_promise_is_kept_whatever_goes_wrong(profile: str) -> None:
    histories = [Simulation(seed, faults=profile).run() for seed in range(SEEDS)]
    assert sum(len(history.runs) for history in histories) >= 20 * SEEDS
    assert sum(len(history.leases) for history in histories) >= 2 * SEEDS
    assert sum(len(history.faults) for history in histories) >= 3 * SEEDS


def test_the_same_seed_gives_the_same_history_byte_for_byte() -> None:
    here = Simulation(7, faults="noisy").run().text
    code = "from singletonjob.testing import Simulation; print(end=Simulation(7, faults='noisy').run().text)"
    environment = {**os.environ, "PYTHONPATH": str(SRC), "PYTHONHASHSEED": "1"}
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
    calm=True,
    duplicated=False,
)


def a_run(process: str, token: int, started: float, ended: float) -> SimRun:
    return SimRun(process, 0, "job", token, token, None, "long", started, 0, ended)


def history_of(*runs: SimRun) -> History:
    """A history in which each run's lease lasts until half a second after the run, and nothing else happened."""
    history = History(runs=list(runs), healed_at=1000, ended_at=1000)
    history.alive = [Life(process, 0, 1000, False) for process in sorted({run.process for run in runs})]
    for run in runs:
        history.leased("granted", run.started, "job", run.process, run.token, run.ended + 0.5)
    return history


def broken(history: History) -> str | None:
    found = check(history, SETTINGS, {"job": JobPlan("job", "interval", 2000.0, "skip", {})})
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
