"""Three `singletonjob run` processes on a real server: 20 times SIGTERM, 20 times SIGKILL to the leader.

The promise (L1, L2): the next leader holds the lease within 50 ms of the release, within 100 ms of the end of a dead
leader's lease. Before that, what followers cost: about one call each per `lock_expiry`.
"""

from __future__ import annotations

import random
import signal
import tempfile
import time
from pathlib import Path

from redis_replicas import RedisFleet, old_enough
from replicas import HandOver, boot, hand_over, wait_for
from servers import Server
from singletonjob.cli.demo_report import overlaps
from soak._evidence import arguments, conclude, say, spread

TIMES = 20
AFTER_RELEASE, AFTER_EXPIRY = 0.05, 0.1
LOCK_EXPIRY = 10.0
ALONE, TOGETHER = 30.0, 60.0
KIND = "valkey-9"


def rate(fleet: RedisFleet, seconds: float) -> float:
    """Script calls per second."""
    began, before = boot(), fleet.calls()
    time.sleep(seconds)
    return (fleet.calls() - before) / (boot() - began)


def one(fleet: RedisFleet, number: int) -> tuple[HandOver, float]:
    """A hand-over, and the seconds from the signal to the first run of the next leader."""
    time.sleep(random.uniform(0, 3))  # any moment between two beats
    done = hand_over(fleet, number)
    new = fleet.replicas[done.new]
    wait_for(lambda: new.runs(), what="a run of the next leader")
    fleet.replicas[done.old].end()
    fleet.start_followers(1)
    return done, new.runs()[0].start - done.signalled


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        Server(KIND, Path(directory)) as server,
        RedisFleet(Path(directory), server) as fleet,
    ):
        old_enough(server, LOCK_EXPIRY + 1)
        fleet.start()
        leader = fleet.leader()
        say(f"one process, {ALONE:g} s ...")
        alone = rate(fleet, ALONE)
        followers = fleet.start_followers(2)
        say(f"three processes, {TOGETHER:g} s ...")
        each = (rate(fleet, TOGETHER) - alone) / len(followers) * LOCK_EXPIRY
        elected = [len(replica.log("elected")) for replica in (leader, *followers)]
        results: dict[int, list[tuple[HandOver, float]]] = {signal.SIGTERM: [], signal.SIGKILL: []}
        for turn in range(2 * TIMES):
            number = (signal.SIGTERM, signal.SIGKILL)[turn % 2]
            done, to_run = one(fleet, number)
            results[number].append((done, to_run))
            took = done.since_release if number == signal.SIGTERM else done.since_expiry
            say(f"{turn + 1:2}  {number.name}  {done.old} -> {done.new}  {took * 1000:.1f} ms")
        codes = {fleet.replicas[done.old].end() for done, _ in results[signal.SIGTERM]}
        pairs = overlaps(fleet.runs())
        count = len(fleet.runs())
    graceful = [done.since_release for done, _ in results[signal.SIGTERM]]
    crash = [done.since_expiry for done, _ in results[signal.SIGKILL]]
    in_time = [sum(time <= AFTER_RELEASE for time in graceful), sum(time <= AFTER_EXPIRY for time in crash)]
    conclude(
        "redis_handover",
        [
            (
                f"three `singletonjob run` processes, one server ({KIND}, loopback), one 100 ms job; the signal comes"
                f" at a random moment, and a new process replaces the one that left"
            ),
            f"SIGTERM, from the release to the next holder: {spread(graceful)}; {in_time[0]} of {TIMES} within 50 ms",
            (
                f"SIGKILL, from the end of the dead leader's lease to the next holder: {spread(crash)}; {in_time[1]} of"
                f" {TIMES} within 100 ms"
            ),
            (
                f"from SIGTERM to the next run elsewhere: {spread([run for _, run in results[signal.SIGTERM]])};"
                f" from SIGKILL: {spread([run for _, run in results[signal.SIGKILL]])}"
            ),
            f"{count} runs, {len(pairs)} overlaps; exit codes after SIGTERM: {sorted(codes)}",
            f"before the first signal, lines `became LEADER` of the three processes: {elected}",
            (
                f"script calls (`INFO commandstats`): the leader alone {alone:.2f} per s in {ALONE:g} s; each follower"
                f" {each:.2f} per `lock_expiry` in {TOGETHER:g} s"
            ),
            (
                "measured: each ms one transaction reads the lock key, its PTTL, and `since` of the state; the next"
                " holder's moment is that `since`, the server's time at the grant; the release came after the last look"
                " that still found the old holder, and the old lease's end is what that look's PTTL says"
            ),
        ],
        good=in_time == [TIMES, TIMES] and not pairs and codes == {0} and elected == [1, 0, 0] and each < 1.3,
        record=options.record,
    )


if __name__ == "__main__":
    main()
