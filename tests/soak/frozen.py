"""The leader is stopped with SIGSTOP for 15 s and continued (C04): it starts no run after waking.

At most the run that it was frozen in overlaps the new leader's.
"""

from __future__ import annotations

import signal
import tempfile
import time
from pathlib import Path

from replicas import Fleet, boot
from singletonjob.cli.demo_report import overlaps
from soak._evidence import arguments, conclude, say
from waiting import wait_for

FROZEN_FOR = 15.0
TIMES = 3


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    gaps: list[float] = []
    late_starts = 0
    overlapped: list[int] = []
    kept = True
    for turn in range(TIMES):
        with tempfile.TemporaryDirectory() as directory, Fleet(Path(directory)) as fleet:
            fleet.start()
            leader = fleet.leader()
            fleet.start_followers(2)
            time.sleep(2 + turn)
            stopped = fleet.freeze(leader)
            time.sleep(FROZEN_FOR - (boot() - stopped))
            taken = fleet.lease()
            woken = leader.signal(signal.SIGCONT)
            wait_for(lambda one=leader: one.log("lost"), what="its word that it lost the lease")  # type: ignore[misc]  # binds it
            time.sleep(4)
            others = [run.start for run in fleet.runs() if run.worker != leader.name]
            gaps.append(min(others) - stopped)
            late_starts += len([run for run in leader.runs() if run.start >= woken])
            overlapped.append(len({id(pair.first) for pair in overlaps(fleet.runs())}))
            now = fleet.lease()
            kept &= now.token == taken.token and now.holder == taken.holder != leader.name
            say(f"{turn + 1}: led elsewhere after {gaps[-1]:.2f} s, {late_starts} runs after waking")
    conclude(
        "frozen",
        [
            (
                f"three processes, one SQLite file, 100 ms job; the leader gets SIGSTOP, and SIGCONT after"
                f" {FROZEN_FOR:g} s; {TIMES} times"
            ),
            "from SIGSTOP to the next run elsewhere: "
            + ", ".join(f"{gap:.2f} s" for gap in gaps)
            + " (the case: between 7 s and 10 s + one period)",
            f"runs that the frozen process started after waking: {late_starts}",
            f"runs that overlapped, those that were frozen while they ran: {overlapped}",
            f"the new leader's term went on untouched: {'yes' if kept else 'no'}",
        ],
        good=late_starts == 0 and max(overlapped) <= 1 and kept and all(6.9 <= gap <= 10.5 for gap in gaps),
        record=options.record,
    )


if __name__ == "__main__":
    main()
