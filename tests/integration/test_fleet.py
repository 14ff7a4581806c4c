"""The fleet of the benchmarks in short; `scripts/soak fleet` is the full form, and holds it to the promises."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.fleet import Fleet
from benchmarks.fleet_model import Shape, load
from servers import OLDEST, Server

FAST = {"lock_expiry": "2s", "heartbeat_interval": "500ms", "max_backoff_delay": "500ms", "amnesia_guard": False}
REPLICAS, JOBS = 12, 4


def test_nobody_of_a_fleet_steps_down_unasked_and_what_it_costs_is_what_the_model_says() -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        Server(OLDEST, Path(directory)) as server,
        Fleet(server, replicas=REPLICAS, jobs=JOBS, processes=3, options=FAST) as fleet,
    ):
        time.sleep(2)
        found = fleet.measure(4)
        assert found.stepped_down == found.terms == 0
        assert found.connections == 2 * REPLICAS
        model = load(Shape(replicas=REPLICAS, jobs=JOBS, leaders=found.leaders, heartbeat=0.5, expiry=2.0))
        assert 0.5 < model.calls * found.seconds / found.calls < 2
        stopped = fleet.stop_a_leader()
        assert len(stopped) == JOBS
        assert 0 < max(stopped) < 1
        killed = fleet.kill_a_process()
        assert len(killed) >= JOBS / 3  # the process with most of them: the jobs need not have gone to one
        assert -0.01 < max(killed) < 1
