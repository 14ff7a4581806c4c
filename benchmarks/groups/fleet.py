"""A fleet of real replicas on one Redis: what it costs, how its jobs change hands, and what the model says of it."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.fleet import Fleet
from benchmarks.fleet_costs import measured_cost
from benchmarks.fleet_report import ACTS, CALLS_OF_1000, CLOSE, ON_ONE, SPREAD, THOUSAND, TIMES, WHO, checks, tables
from benchmarks.groups.plan import Step, in_turn

if TYPE_CHECKING:
    from benchmarks.fleet import Window
    from benchmarks.groups.plan import Settings
    from benchmarks.records import Record
    from servers import Server

__all__ = ["SETTLE", "TITLE", "checks", "costs", "steps", "tables", "thousand"]

TITLE = "A fleet on one Redis"

ROUNDS = 2
"""At most so many: each is a mean over all replicas."""

SETTLE = 60.0
"""Some of `lock_expiry`: all know who leads, and no longer ask for all jobs at once, as they do after a start."""

STOPS = 5

AWAKE = 0.5
"""Seconds between two hand-overs."""


def steps(settings: Settings) -> list[Step]:
    seconds = settings.seconds or 30
    found: list[Step] = []
    for turn, order in in_turn((ON_ONE, SPREAD), min(ROUNDS, settings.rounds)):
        found.append(Step(f"round {turn}, {ACTS}", 25, partial(_single_acts, settings, turn)))
        found += [Step(f"round {turn}, {row}", 95 + seconds, partial(_fleet, settings, turn, row)) for row in order]
        found.append(
            Step(f"round {turn}, {THOUSAND}", 45 + 3 * seconds, partial(_of_thousand, settings, turn, seconds))
        )
    return found


def costs(window: Window, replicas: int, jobs: int) -> Record:
    """What a window showed, per second."""
    each = window.seconds
    return {
        "replicas": replicas,
        "jobs": jobs,
        "leaders": window.leaders,
        "calls": round(window.calls / each, 2),
        "pings": round(window.pings / each, 2),
        "script_us": round(1e6 * window.script_time / max(window.calls, 1), 1),
        "server_percent": round(100 * window.server_cpu / each, 3),
        "client_percent": round(100 * window.client_cpu / each / replicas, 4),
        "kb": round((window.bytes_in + window.bytes_out) / each / 1000, 2),
        "memory_mb": round(window.memory / 2**20, 2),
        "connections": window.connections,
        "new_terms": window.terms,
        "stepped_down": window.stepped_down,
    }


def _single_acts(settings: Settings, turn: int) -> list[Record]:
    cost = measured_cost(settings.server.fresh())
    times = {name: round(1e6 * getattr(cost, name), 2) for name in TIMES}
    return [{"row": ACTS, "contestant": WHO, "round": turn, "fault": "", **times}]


def _fleet(settings: Settings, turn: int, row: str) -> list[Record]:
    replicas, jobs = settings.replicas, settings.jobs
    with Fleet(settings.server.fresh(), replicas=replicas, jobs=jobs, spread_out=row == SPREAD) as fleet:
        time.sleep(SETTLE)
        record = costs(fleet.measure(settings.seconds or 30), replicas, jobs)
        stopped: list[float] = []
        for _ in range(STOPS):
            stopped += fleet.stop_a_leader()
            time.sleep(AWAKE)
        killed = fleet.kill_a_process()
    return [
        {
            "row": row,
            "contestant": WHO,
            "round": turn,
            "fault": "",
            **record,
            "stopped_ms": [round(1000 * gap, 2) for gap in stopped],
            "killed_ms": [round(1000 * gap, 2) for gap in killed],
        }
    ]


def thousand(server: Server, seconds: float) -> Record:
    """What a beat of 1000 jobs costs: at the default heartbeat, with the leader alone; then a follower comes, for
    another window; then with beats close upon each other, so that all caches are warm.
    """
    with Fleet(server, replicas=1, jobs=1000, every=None) as fleet:
        time.sleep(AWAKE)
        alone = fleet.measure(seconds)
        follower = fleet.add()
        time.sleep(AWAKE)
        after = fleet.measure(seconds, of=[follower])
    with Fleet(server, replicas=1, jobs=1000, every=None, options={"heartbeat_interval": CLOSE}) as fleet:
        time.sleep(AWAKE)
        warm = fleet.measure(seconds)
    return {
        "calls_per_beat": CALLS_OF_1000,
        "leader_percent": round(100 * alone.client_cpu / alone.seconds, 3),
        "follower_percent": round(100 * after.client_cpu / after.seconds, 3),
        **_beat_of(alone, ""),
        **_beat_of(warm, "warm_"),
    }


def _beat_of(window: Window, prefix: str) -> Record:
    beats = window.calls / CALLS_OF_1000
    assert beats >= 1, "no beat in the window; take a longer one"
    times = {"script_ms": window.script_time, "server_ms": window.server_cpu, "client_ms": window.heartbeat_cpu}
    return {f"{prefix}{name}": round(1000 * seconds / beats, 3) for name, seconds in times.items()}


def _of_thousand(settings: Settings, turn: int, seconds: float) -> list[Record]:
    found = thousand(settings.server.fresh(), seconds)
    return [{"row": THOUSAND, "contestant": WHO, "round": turn, "fault": "", **found}]
