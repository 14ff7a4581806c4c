"""Bodies that block the job loop: for 15 s, which must cost nothing (C05), and for longer than `stall_limit`."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from replicas import Fleet, boot
from singletonjob.cli.demo_report import overlaps
from soak._evidence import arguments, conclude, say
from waiting import wait_for

SECONDS = 60.0

BLOCKING = """
app = SingletonJobs("pricing", **options)
kinds = itertools.cycle(["sleep", "compute"])

@app.interval("100ms")
async def tick() -> None:
    with stamped():
        if next(kinds) == "sleep":
            time.sleep(15)
        else:
            until = time.monotonic() + 15
            while time.monotonic() < until:
                sum(range(1000))
"""

STALLED = """
app = SingletonJobs("pricing", **options)
stamp_health(app)

@app.interval("100ms")
async def tick() -> None:
    with stamped():
        if name == "r1":
            time.sleep(25)
"""


def blocked() -> tuple[bool, list[str]]:
    with tempfile.TemporaryDirectory() as directory, Fleet(Path(directory)) as fleet:
        leader = fleet.start(BLOCKING)
        wait_for(lambda: leader.runs(), what="a run")
        fleet.start(BLOCKING)
        began = boot()
        tokens = set()
        while boot() < began + SECONDS:
            tokens.add(fleet.lease().token)
            time.sleep(0.05)
        runs = fleet.runs()
        pairs = overlaps(runs)
        warned = leader.log("run-long")
    named = {line["job"] for line in warned if line["level"] == "WARNING"}
    return (
        not pairs and len(tokens) == 1 and {run.worker for run in runs} == {leader.name} and named == {"tick"},
        [
            (
                f"two processes, an async body that blocks its loop for 15 s (`time.sleep`, then a pure Python loop),"
                f" {SECONDS:g} s: {len(runs)} runs, {len(pairs)} overlaps, {len(tokens)} term, {len(warned)} warnings,"
                f" which name {', '.join(sorted(named)) or 'no job'}"
            )
        ],
    )


def stalled() -> tuple[bool, list[str]]:
    with tempfile.TemporaryDirectory() as directory, Fleet(Path(directory), stall_limit="3s") as fleet:
        leader = fleet.start(STALLED)
        wait_for(lambda: leader.runs(), what="the run that blocks")
        other = fleet.start(STALLED)
        wait_for(lambda: other.runs(), what="a run of the other one")
        began = leader.runs()[0].start
        health = {stamp.detail: stamp.at - began for stamp in reversed(leader.stamps("health", "app"))}
        stuck, led = health.get("stuck", 0.0), other.runs()[0].start - began
        wait_for(lambda: leader.stamps("health", "app")[-1].detail == "ok", 30, what="its recovery")
        count, holder = len(leader.runs()), fleet.lease().holder
    return (
        1.5 < stuck < 4 and 3 < led < 3 + 10.1 + 0.5 and count == 1 and holder == other.name,
        [
            (
                f"`stall_limit=3s`, a body that blocks its loop for 25 s: health says stuck after {stuck:.1f} s,"
                f" another process runs the job after {led:.1f} s (at most 3 s + `lock_expiry`); when the loop turns"
                f" again its health is ok, it has run {count} time and follows"
            )
        ],
    )


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    say(f"a body that blocks for 15 s, {SECONDS:g} s ...")
    one, lines = blocked()
    say("a loop that is blocked beyond stall_limit ...")
    two, more = stalled()
    conclude("blocked", [*lines, *more], good=one and two, record=options.record)


if __name__ == "__main__":
    main()
