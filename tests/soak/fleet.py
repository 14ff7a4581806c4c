"""100 replicas of 20 jobs on one server for 10 minutes: nobody may step down whom nobody asked to; and what it costs.

Then five leaders stop, and one of the four processes, with a quarter of the replicas, is killed. Then one replica of
1,000 jobs. The promises: hand-over within 50 ms of a release at the median and 500 ms at most, all 100 replicas sharing
two cores; within 100 ms of the end of a dead holder's lease; a beat of 1,000 jobs takes at most 5 ms of the server's
time and 12 ms of the client's CPU; a leader or follower of 1,000 idle jobs uses less than 1 % of a core. The code is
that of `sh scripts/bench fleet`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from redis_replicas import old_enough
from servers import Server
from soak._evidence import arguments, conclude, say, spread

if TYPE_CHECKING:
    from collections.abc import Iterator

KIND = "valkey-9"
STOPS = 5
MEDIAN, LONGEST, AFTER_EXPIRY = 0.05, 0.5, 0.1
IN_THE_SERVER, IN_THE_CLIENT, IDLE = 5.0, 12.0, 1.0


@contextmanager
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as directory, Server(KIND, Path(directory)) as one:
        old_enough(one, 11)
        yield one


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--replicas", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=10)
    options = parser.parse_args()
    sys.path.append(str(Path(__file__).parents[2]))  # scripts/soak lets import from tests/ alone

    from benchmarks.fleet import Fleet
    from benchmarks.fleet_costs import measured_cost
    from benchmarks.fleet_report import WITHIN, said
    from benchmarks.groups.fleet import SETTLE, costs, thousand

    replicas, jobs = options.replicas, options.jobs
    with server() as one, Fleet(one, replicas=replicas, jobs=jobs, spread_out=True) as fleet:
        time.sleep(SETTLE)
        say(f"{replicas} replicas of {jobs} jobs, {options.minutes:g} minutes ...")
        found = costs(fleet.measure(60 * options.minutes), replicas, jobs)
        stopped: list[float] = []
        for _ in range(STOPS):
            stopped += fleet.stop_a_leader()
            time.sleep(1)
        say("one process is killed ...")
        killed = fleet.kill_a_process()
    say("1 replica of 1000 jobs ...")
    with server() as one:
        beat = thousand(one, 60)
        one.client().flushall()
        model = said(replicas, jobs, found["leaders"], measured_cost(one))
    ratios = {key: model[key] / found[key] for key in ("calls", "server_percent", "kb")}
    conclude(
        "fleet",
        [
            (
                f"{replicas} replicas of {jobs} jobs of 1 s in four processes, {KIND}, {options.minutes:g} minutes:"
                f" {found['stepped_down']} terms lost or expired (promised: 0), {found['new_terms']} new ones;"
                f" {found['leaders']} replicas led"
            ),
            (
                f"script calls: {found['calls']:.1f} per s of {found['script_us']:.0f} us each; PINGs:"
                f" {found['pings']:.1f} per s; {found['kb']:.1f} kB/s; {found['connections']} connections;"
                f" {found['memory_mb']:.1f} MB"
            ),
            (
                f"CPU, in % of a core: server {found['server_percent']:.2f}; clients"
                f" {found['client_percent'] * replicas:.1f} in all"
            ),
            (
                f"the model of docs/sizing.md says {model['calls']:.1f} calls per s ({ratios['calls']:.2f} of what was"
                f" measured), {model['server_percent']:.2f} % of a core for the server"
                f" ({ratios['server_percent']:.2f}), {model['kb']:.1f} kB/s ({ratios['kb']:.2f});"
                f" good is up to {WITHIN['calls']:g} times more or less, of CPU {WITHIN['server_percent']:g} times"
            ),
            f"a replica that leads stops, {STOPS} times; from the release to the next lease, by job: {spread(stopped)}",
            (
                f"SIGKILL to a process with {replicas // 4} replicas; from the end of each of their leases to the next:"
                f" {spread(killed)}"
            ),
            (
                f"a beat of 1 replica of 1000 jobs, {beat['calls_per_beat']} script calls in one go, caches warm:"
                f" {beat['warm_script_ms']:.2f} ms in the script (promised: at most {IN_THE_SERVER:g}),"
                f" {beat['warm_client_ms']:.2f} ms of the client's CPU (at most {IN_THE_CLIENT:g}),"
                f" {beat['warm_server_ms']:.2f} ms of the server's CPU in all; at the default heartbeat"
                f" {beat['script_ms']:.2f}, {beat['client_ms']:.2f} and {beat['server_ms']:.2f} ms"
            ),
            (
                f"CPU of a process with 1000 idle jobs: {beat['leader_percent']:.2f} % of a core as the leader,"
                f" {beat['follower_percent']:.2f} % as a follower (at most {IDLE:g})"
            ),
        ],
        good=found["stepped_down"] == found["new_terms"] == 0
        and median(stopped) <= MEDIAN
        and max(stopped) <= LONGEST
        and max(killed) <= AFTER_EXPIRY
        and all(1 / WITHIN[key] <= ratio <= WITHIN[key] for key, ratio in ratios.items())
        and beat["warm_script_ms"] <= IN_THE_SERVER
        and beat["warm_client_ms"] <= IN_THE_CLIENT
        and max(beat["leader_percent"], beat["follower_percent"]) < IDLE,
        record=options.record,
    )


if __name__ == "__main__":
    main()
