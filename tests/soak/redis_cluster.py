"""Fail-overs and moved slots of a real Cluster while three `singletonjob run` processes lead on it.

The promises: no two lead at once, but for one heartbeat and one call after a fail-over whose new master never got the
lease; after a fail-over somebody leads within L3's bound, 1.2 heartbeats and one call; a moved slot costs no lease.
"""

from __future__ import annotations

import random
import signal
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from clusters import Cluster
from redis_replicas import lock, old_enough
from replicas import boot
from singletonjob.cli.demo_report import overlaps
from soak._evidence import arguments, conclude, say, spread
from soak._fail_overs import MovingFleet, both_led, longest_gap, renewed
from waiting import wait_for

HEARTBEAT, LOCK_EXPIRY, CALL_TIMEOUT = 3.0, 10.0, 2.0
AGAIN = 1.2 * HEARTBEAT + CALL_TIMEOUT

KIND = "valkey-9"
KEY = lock(project="{pricing}")

KILL, ORDER, FREEZE = "kill -9", "CLUSTER FAILOVER", "SIGSTOP, later SIGCONT"
MOVE = "the slot moves to another node"
ROUNDS = [MOVE, KILL, ORDER, MOVE, FREEZE, ORDER, MOVE, KILL, MOVE, FREEZE]
"""Each move is one to the third master and one back, since only the first master has a replica."""


class Seen(NamedTuple):
    """One fail-over or move. `took`: from its begin to the new owner; `again`: from there to a lease that was granted
    or renewed on it; `both`: for how long two led, by their runs; `gap`: between two runs of anybody; all in seconds.
    `kept`: it is the same term."""

    how: str
    took: float
    again: float
    both: float
    gap: float
    kept: bool


class Drill:
    """The slot of the project is on the first master or its replica, but for the time of a move."""

    def __init__(self, fleet: MovingFleet, cluster: Cluster) -> None:
        self._fleet = fleet
        self._cluster = cluster
        self.seen: list[Seen] = []

    def move(self) -> None:
        home = self._cluster.owner(KEY)
        for to in (self._cluster.nodes[2], home):
            began, before = boot(), self._fleet.lease()
            self._cluster.begin_move(KEY, to)
            time.sleep(random.uniform(0, 1))
            self._cluster.move_keys(KEY, to)
            time.sleep(random.uniform(0, 1))
            self._cluster.end_move(KEY, to)
            self._fleet.look_at(to)
            self._note(MOVE, began, boot(), before.expires or 0.0, before.token)

    def fail_over(self, how: str) -> None:
        pair = (self._cluster.nodes[0], self._cluster.replicas[0])
        old, new = pair if self._cluster.is_master(pair[0]) else pair[::-1]
        process = old.process
        assert process is not None
        began, token = boot(), self._fleet.lease().token
        if how == ORDER:
            self._cluster.run(new, "CLUSTER", "FAILOVER")
        elif how == FREEZE:
            process.send_signal(signal.SIGSTOP)
        else:
            old.kill()
        while not self._cluster.is_master(new):
            time.sleep(0.005)
        promoted = boot()
        self._fleet.look_at(new)
        self._note(how, began, promoted, self._fleet.lease().expires or 0.0, token)
        if how == FREEZE:
            process.send_signal(signal.SIGCONT)
        elif how == KILL:
            old.start()
        self._cluster.wait_for_replicas()
        old_enough(old, LOCK_EXPIRY + 2)

    def _note(self, how: str, began: float, there: float, expires: float, token: int) -> None:
        again = boot()
        while not renewed(self._fleet, expires, token):
            again = boot()
            assert again < there + 60, "nobody leads on the new owner"
            time.sleep(0.005)
        now = self._fleet.lease().token
        time.sleep(LOCK_EXPIRY + HEARTBEAT)  # whoever still led on the old owner is done with by then
        both, gap = both_led(self._fleet, began), longest_gap(self._fleet, began)
        one = Seen(how, there - began, again - there, both, gap, now == token)
        self.seen.append(one)
        say(
            f"{len(self.seen):2}  {how:30} new owner after {one.took:.2f} s, a lease {one.again:.2f} s later, "
            f"{'the same term' if one.kept else 'a new term'}, both led {one.both:.2f} s, no run for {one.gap:.2f} s"
        )


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    with tempfile.TemporaryDirectory() as directory:
        nodes, replicas = Path(directory, "nodes"), Path(directory, "replicas")
        nodes.mkdir()
        replicas.mkdir()
        with Cluster(nodes, KIND, replicas=1) as cluster:
            if cluster.owner(KEY) is not cluster.nodes[0]:
                cluster.begin_move(KEY, cluster.nodes[0])
                cluster.end_move(KEY, cluster.nodes[0])
            with MovingFleet(replicas, cluster.nodes[0], cluster.url, tagged=True) as fleet:
                for server in (*cluster.nodes, *cluster.replicas):
                    old_enough(server, LOCK_EXPIRY + 2)
                fleet.start()
                fleet.leader()
                fleet.start_followers(2)
                drill = Drill(fleet, cluster)
                for how in ROUNDS:
                    time.sleep(random.uniform(0, HEARTBEAT))  # any moment between two beats
                    if how == MOVE:
                        drill.move()
                    else:
                        drill.fail_over(how)
                leader = fleet.leader()
                wait_for(lambda: leader.runs(), what="runs at the end")
                at_once, count = overlaps(fleet.runs()), len(fleet.runs())
    moves = [one for one in drill.seen if one.how == MOVE]
    others = [one for one in drill.seen if one.how != MOVE]
    conclude(
        "redis_cluster",
        [
            (
                f"three `singletonjob run` processes on a Cluster ({KIND}: three masters, one of them with a replica,"
                " `cluster-node-timeout` 1000), one 100 ms job; at a random moment:"
                f" {', '.join(f'{ROUNDS.count(how)} x {how}' for how in (KILL, ORDER, FREEZE, MOVE))} (there and back)"
            ),
            f"fail-overs: from the cause to a new master: {spread([one.took for one in others])}",
            (
                f"from there to a lease granted or renewed on it: {spread([one.again for one in others])}; promised"
                f" (L3) {AGAIN:g} s; the same term {sum(one.kept for one in others)} times"
            ),
            (
                f"moved slots: {spread([one.took for one in moves])} on the way; from there to a renewal:"
                f" {spread([one.again for one in moves])}; the same term {sum(one.kept for one in moves)} times"
            ),
            f"two led at once: {spread([one.both for one in drill.seen])}",
            f"longest time without a run, in each: {spread([one.gap for one in drill.seen])}",
            f"{count} runs, {len(at_once)} pairs of them at once",
        ],
        good=not at_once
        and all(one.both == 0 for one in drill.seen)
        and all(one.again <= AGAIN for one in others)
        and all(one.kept for one in moves),
        record=options.record,
    )


if __name__ == "__main__":
    main()
