"""Twelve fail-overs of a real Sentinel service while three `singletonjob run` processes lead on it.

The promises: two lead at once for one heartbeat and one call at most, also where the promoted server never got the
lease; and after the fail-over somebody leads within L3's bound, 1.2 heartbeats and one call.
"""

from __future__ import annotations

import random
import signal
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from redis_replicas import old_enough
from replicas import boot
from sentinels import SentinelService
from singletonjob.cli.demo_report import overlaps
from soak._evidence import arguments, conclude, say, spread
from soak._fail_overs import MovingFleet, both_led, longest_gap, renewed
from waiting import wait_for

HEARTBEAT, LOCK_EXPIRY, CALL_TIMEOUT = 3.0, 10.0, 2.0
OVERLAP = HEARTBEAT + CALL_TIMEOUT
AGAIN = 1.2 * HEARTBEAT + CALL_TIMEOUT

KIND = "valkey-9"

KILL, LOSE, ORDER, FREEZE = "kill -9", "kill -9, lease not replicated", "SENTINEL FAILOVER", "SIGSTOP, later SIGCONT"
ROUNDS = [KILL, ORDER, LOSE, ORDER, KILL, FREEZE, LOSE, ORDER, KILL, ORDER, KILL, FREEZE]


class Seen(NamedTuple):
    """One fail-over. `took`: from the cause to a new primary that a sentinel names; `again`: from there to a lease
    that was granted or renewed on it; `both`: for how long two led, by their runs; `gap`: between two runs of anybody;
    all in seconds."""

    how: str
    took: float
    again: float
    both: float
    gap: float


def one(fleet: MovingFleet, service: SentinelService, how: str) -> Seen:
    """One fail-over, and all in order again at its end."""
    for server in service.servers:
        old_enough(server, LOCK_EXPIRY + 2)
    time.sleep(random.uniform(0, HEARTBEAT))  # any moment between two beats
    old = service.primary()
    process = old.process
    assert process is not None
    began = boot()
    if how == ORDER:
        new, promoted = service.fail_over()
    else:
        if how == FREEZE:
            process.send_signal(signal.SIGSTOP)
        else:
            old.kill()
        new, promoted = service.promoted(old)
    fleet.look_at(new)
    if how == LOSE:
        fleet.client.flushall()
    first = fleet.lease()
    again = boot()
    while not renewed(fleet, first.expires or 0.0, first.token):
        again = boot()
        assert again < promoted + 60, "nobody leads on the new primary"
        time.sleep(0.005)
    if how == FREEZE:
        process.send_signal(signal.SIGCONT)
    time.sleep(LOCK_EXPIRY + HEARTBEAT)  # whoever still led on the old primary is done with by then
    fleet.look_at(service.primary())
    both, gap = both_led(fleet, began), longest_gap(fleet, began)
    if how in {KILL, LOSE}:
        service.bring_back(old)
    service.wait_for_replicas()
    service.wait_until_ready()
    return Seen(how, promoted - began, again - promoted, both, gap)


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    seen: list[Seen] = []
    with (
        tempfile.TemporaryDirectory() as directory,
        SentinelService(KIND, Path(directory)) as service,
        MovingFleet(Path(directory), service.primary(), service.url) as fleet,
    ):
        for server in service.servers:
            old_enough(server, LOCK_EXPIRY + 1)
        fleet.start()
        fleet.leader()
        fleet.start_followers(2)
        for how in ROUNDS:
            done = one(fleet, service, how)
            seen.append(done)
            say(
                f"{len(seen):2}  {done.how:30} new primary after {done.took:.2f} s, a lease {done.again:.2f} s later,"
                f" both led {done.both:.2f} s, no run for {done.gap:.2f} s"
            )
        leader = fleet.leader()
        wait_for(lambda: leader.runs(), what="runs at the end")
        lines = {name: len(replica.log()) for name, replica in fleet.replicas.items()}
        at_once = overlaps(fleet.runs())
        count = len(fleet.runs())
    lost = [done for done in seen if done.how == LOSE]
    kept = [done for done in seen if done.how != LOSE]
    good = all(done.both <= OVERLAP and done.again <= AGAIN for done in seen)
    conclude(
        "redis_sentinel",
        [
            (
                f"three `singletonjob run` processes on a Sentinel service ({KIND}: a primary, two replicas, three"
                " sentinels, `down-after-milliseconds` 1000), one 100 ms job; fail-overs at a random moment:"
                f" {', '.join(f'{ROUNDS.count(how)} x {how}' for how in (KILL, LOSE, ORDER, FREEZE))}"
            ),
            f"from the cause to a new primary: {spread([done.took for done in seen])}",
            (
                f"from there to a lease granted or renewed on it: {spread([done.again for done in seen])}; promised"
                f" (L3) {AGAIN:g} s"
            ),
            (
                f"two led at once: {spread([done.both for done in lost])} where the promoted server was made to forget"
                f" the lease (promised {OVERLAP:g} s), {spread([done.both for done in kept])} else"
            ),
            f"longest time without a run, in each: {spread([done.gap for done in seen])}",
            f"{count} runs, {len(at_once)} pairs of them at once; log lines by process: {list(lines.values())}",
        ],
        good=good,
        record=options.record,
    )


if __name__ == "__main__":
    main()
