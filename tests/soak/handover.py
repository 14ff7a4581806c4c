"""Three `singletonjob run` processes on one SQLite file: 20 times SIGTERM, 20 times SIGKILL to the leader.

The promise (L1, L2): the next leader holds the lease within 100 ms of the release, within 250 ms of the kill.
"""

from __future__ import annotations

import random
import signal
import tempfile
import time
from pathlib import Path

from replicas import Fleet, HandOver, hand_over, wait_for
from singletonjob.cli.demo_report import overlaps
from soak._evidence import arguments, conclude, say, spread

TIMES = 20
AFTER_RELEASE, AFTER_KILL = 0.1, 0.25


def one(fleet: Fleet, number: int) -> tuple[HandOver, float]:
    """A hand-over, and the seconds from the signal to the first run of the next leader."""
    time.sleep(random.uniform(0, 0.5))
    done = hand_over(fleet, number)
    new = fleet.replicas[done.new]
    wait_for(lambda: new.runs(), what="a run of the next leader")
    old = fleet.replicas[done.old]
    old.end()
    fleet.start_followers(1)
    return done, new.runs()[0].start - done.signalled


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    with tempfile.TemporaryDirectory() as directory, Fleet(Path(directory)) as fleet:
        fleet.start()
        fleet.leader()
        fleet.start_followers(2)
        results: dict[int, list[tuple[HandOver, float]]] = {signal.SIGTERM: [], signal.SIGKILL: []}
        for turn in range(2 * TIMES):
            number = (signal.SIGTERM, signal.SIGKILL)[turn % 2]
            done, to_run = one(fleet, number)
            results[number].append((done, to_run))
            took = done.since_release if number == signal.SIGTERM else done.since_signal
            say(f"{turn + 1:2}  {number.name}  {done.old} -> {done.new}  {took * 1000:.1f} ms")
        codes = {fleet.replicas[done.old].end() for done, _ in results[signal.SIGTERM]}
        pairs = overlaps(fleet.runs())
        count = len(fleet.runs())
    graceful = [done.since_release for done, _ in results[signal.SIGTERM]]
    crash = [done.since_signal for done, _ in results[signal.SIGKILL]]
    in_time = [sum(time <= AFTER_RELEASE for time in graceful), sum(time <= AFTER_KILL for time in crash)]
    conclude(
        "handover",
        [
            (
                "three `singletonjob run` processes, one SQLite file, one 100 ms job; the signal comes at a random"
                " moment, and a new process replaces the one that left"
            ),
            f"SIGTERM, from the release to the next holder: {spread(graceful)}; {in_time[0]} of {TIMES} within 100 ms",
            f"SIGKILL, from the signal to the next holder: {spread(crash)}; {in_time[1]} of {TIMES} within 250 ms",
            (
                f"from SIGTERM to the next run elsewhere: {spread([run for _, run in results[signal.SIGTERM]])};"
                f" from SIGKILL: {spread([run for _, run in results[signal.SIGKILL]])}"
            ),
            f"{count} runs, {len(pairs)} overlaps; exit codes after SIGTERM: {sorted(codes)}",
            (
                "measured: the next holder's moment is the row's `since`, written by its transaction; the release came"
                " after the last look (each ms, read-only connection) that still found the old holder; runs are stamped"
                " by their bodies on the boot clock"
            ),
        ],
        good=in_time == [TIMES, TIMES] and not pairs and codes == {0},
        record=options.record,
    )


if __name__ == "__main__":
    main()
