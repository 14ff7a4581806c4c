"""The SQLite file under pressure (C113): another program keeps it locked for 15 s, and 20 processes share it."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from replicas import Fleet, boot
from singletonjob.cli.demo_report import overlaps
from soak._evidence import arguments, conclude, say
from waiting import wait_for

LOCKED_FOR = 15.0
MARGIN = 1.0


def locked() -> tuple[bool, list[str]]:
    with tempfile.TemporaryDirectory() as directory, Fleet(Path(directory)) as fleet:
        fleet.start()
        leader = fleet.leader()
        fleet.start_followers(2)
        with fleet.locked():
            began = boot()
            expires = fleet.lease().expires
            assert expires is not None
            time.sleep(LOCKED_FOR - (boot() - began))
            unlocked = boot()
        wait_for(lambda: fleet.starts(after=unlocked), 30, what="a run after the lock")
        time.sleep(2)
        deadline = expires - MARGIN
        runs = fleet.runs()
        last = max(run.start for run in runs if run.start < unlocked)
        first = min(run.start for run in runs if run.start >= unlocked)
        pairs = overlaps(runs)
        errors = len(leader.log("heartbeat-error"))
    return (
        last < deadline and deadline - last < 0.5 and first - unlocked < 14 and not pairs,
        [
            (
                f"three processes, 100 ms job, another program holds a write transaction for {LOCKED_FOR:g} s: the"
                f" leader's last run started {deadline - last:.3f} s before its deadline ({last - began:.1f} s into the"
                f" lock), the next one {first - unlocked:.1f} s after the lock (at most 1.2 * `max_backoff_delay` +"
                f" `call_timeout` = 14 s); {len(pairs)} overlaps, {errors} line(s) of heartbeat errors"
            )
        ],
    )


def crowd(processes: int, seconds: float) -> tuple[bool, list[str]]:
    with tempfile.TemporaryDirectory() as directory, Fleet(Path(directory)) as fleet:
        for _ in range(processes):
            fleet.start()
        wait_for(lambda: fleet.runs(), 60, what="a run")
        began = boot()
        tokens = set()
        while boot() < began + seconds:
            tokens.add(fleet.lease().token)
            time.sleep(0.05)
        runs = [run for run in fleet.runs() if run.start >= began]
        pairs = overlaps(fleet.runs())
        alive = sum(replica.process.poll() is None for replica in fleet.replicas.values())
        complaints = sum(len(replica.complaints()) for replica in fleet.replicas.values())
        drops = sum(len(replica.log("ticks-dropped")) for replica in fleet.replicas.values())
    return (
        not pairs and alive == processes and len(runs) > 5 * seconds,
        [
            (
                f"{processes} processes, 100 ms job, {seconds:g} s: {len(runs)} runs (of {10 * seconds:.0f} ticks),"
                f" {len(pairs)} overlaps, {len(tokens)} term(s), {drops} lines about dropped ticks, {complaints} others"
                f" at WARNING or above"
            )
        ],
    )


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--processes", type=int, default=20, help="how many share the file (20)")
    parser.add_argument("--seconds", type=float, default=300, help="for how long (300)")
    options = parser.parse_args()
    say(f"the file is locked for {LOCKED_FOR:g} s ...")
    one, lines = locked()
    say(f"{options.processes} processes, {options.seconds:g} s ...")
    two, more = crowd(options.processes, options.seconds)
    conclude("sharing", [*lines, *more], good=one and two, record=options.record)


if __name__ == "__main__":
    main()
