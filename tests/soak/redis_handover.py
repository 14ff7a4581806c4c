"""Three `singletonjob run` processes on a real server: 20 times SIGTERM, 20 times SIGKILL to the leader.

The promise (L1, L2): the next leader holds the lease within 50 ms of the release, within 100 ms of the end of a dead
leader's lease. Before that, what followers cost: about one call each per `lock_expiry`.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from redis_replicas import RedisFleet, old_enough
from replicas import boot
from servers import Server
from soak._evidence import arguments, conclude, say, spread
from soak._hand_overs import TIMES, hand_overs

AFTER_RELEASE, AFTER_EXPIRY = 0.05, 0.1
LOCK_EXPIRY = 10.0
ALONE, TOGETHER = 30.0, 60.0
KIND = "valkey-9"


def rate(fleet: RedisFleet, seconds: float) -> float:
    """Script calls per second."""
    began, before = boot(), fleet.calls()
    time.sleep(seconds)
    return (fleet.calls() - before) / (boot() - began)


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
        # A signal at any moment between two beats.
        seen = hand_overs(fleet, within=3, after_kill=lambda done: done.since_expiry)
    in_time, released, killed = seen.in_time(AFTER_RELEASE, AFTER_EXPIRY), spread(seen.released), spread(seen.killed)
    conclude(
        "redis_handover",
        [
            (
                f"three `singletonjob run` processes, one server ({KIND}, loopback), one 100 ms job; the signal comes"
                f" at a random moment, and a new process replaces the one that left"
            ),
            f"SIGTERM, from the release to the next holder: {released}; {in_time[0]} of {TIMES} within 50 ms",
            (
                f"SIGKILL, from the end of the dead leader's lease to the next holder: {killed}; {in_time[1]} of"
                f" {TIMES} within 100 ms"
            ),
            *seen.lines(),
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
        good=in_time == [TIMES, TIMES]
        and not seen.overlaps
        and seen.codes == {0}
        and elected == [1, 0, 0]
        and each < 1.3,
        record=options.record,
    )


if __name__ == "__main__":
    main()
