"""Three `singletonjob run` processes on one SQLite file: 20 times SIGTERM, 20 times SIGKILL to the leader.

The promise (L1, L2): the next leader holds the lease within 100 ms of the release, within 250 ms of the kill.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from replicas import Fleet
from soak._evidence import arguments, conclude, spread
from soak._hand_overs import TIMES, hand_overs

AFTER_RELEASE, AFTER_KILL = 0.1, 0.25


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    with tempfile.TemporaryDirectory() as directory, Fleet(Path(directory)) as fleet:
        fleet.start()
        fleet.leader()
        fleet.start_followers(2)
        seen = hand_overs(fleet, within=0.5, after_kill=lambda done: done.since_signal)
    in_time, released, killed = seen.in_time(AFTER_RELEASE, AFTER_KILL), spread(seen.released), spread(seen.killed)
    conclude(
        "handover",
        [
            (
                "three `singletonjob run` processes, one SQLite file, one 100 ms job; the signal comes at a random"
                " moment, and a new process replaces the one that left"
            ),
            f"SIGTERM, from the release to the next holder: {released}; {in_time[0]} of {TIMES} within 100 ms",
            f"SIGKILL, from the signal to the next holder: {killed}; {in_time[1]} of {TIMES} within 250 ms",
            *seen.lines(),
            (
                "measured: the next holder's moment is the row's `since`, written by its transaction; the release came"
                " after the last look (each ms, read-only connection) that still found the old holder; runs are stamped"
                " by their bodies on the boot clock"
            ),
        ],
        good=in_time == [TIMES, TIMES] and seen.good,
        record=options.record,
    )


if __name__ == "__main__":
    main()
