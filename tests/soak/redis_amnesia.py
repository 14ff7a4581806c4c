"""A server that forgets under a live leader: restarted empty, restarted with an old snapshot, and FLUSHALL.

The promise (S8): no two leaders when it was restarted, as long as acquisitions wait for its up-time; after FLUSHALL,
which nobody can see, an overlap of at most one heartbeat and one call. `lock_expiry` is 3 s: 4 minutes in all.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from contract.test_redis_store import ORIGINAL_ACQUIRE
from redis_replicas import RedisFleet, lock, old_enough
from replicas import boot
from servers import OLDEST, Server
from singletonjob.cli.demo_report import overlaps
from soak._evidence import arguments, conclude, say, spread
from waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RESTARTS, FLUSHES = 10, 5
LOCK_EXPIRY, HEARTBEAT = 3.0, 0.9
CALL_TIMEOUT = (LOCK_EXPIRY - LOCK_EXPIRY / 10 - HEARTBEAT) / 3
KIND = OLDEST

APP = """
app = SingletonJobs("pricing", enabled=lambda: not Path(f"off-{name}").exists(), **options)

@app.interval("5ms")
async def tick() -> None:
    with stamped():
        await asyncio.sleep(0.02)
"""


@contextmanager
def three(kind: str) -> Iterator[tuple[RedisFleet, Server, Path]]:
    """Three replicas that take part, on a server that is old enough to be asked."""
    with (
        tempfile.TemporaryDirectory() as directory,
        Server(kind, Path(directory)) as server,
        RedisFleet(
            Path(directory), server, lock_expiry=LOCK_EXPIRY, heartbeat_interval=HEARTBEAT, max_backoff_delay=1
        ) as fleet,
    ):
        old_enough(server, LOCK_EXPIRY + 1)
        fleet.start(APP)
        fleet.leader()
        fleet.start_followers(2, APP)
        yield fleet, server, Path(directory)


def empty(fleet: RedisFleet, server: Server, directory: Path) -> None:
    server.kill()
    server.start()


def with_an_old_snapshot(fleet: RedisFleet, server: Server, directory: Path) -> None:
    """Its state from before the last change of leader: the key names one that stepped down since, and competes."""
    wait_for(lambda: fleet.client.pttl(lock()) > 1000 * (LOCK_EXPIRY - 0.2), what="a renewal")
    old = fleet.leader().name
    fleet.client.save()
    snapshot = directory / "old.rdb"
    shutil.copy(directory / "dump.rdb", snapshot)
    off = directory / f"off-{old}"
    off.touch()
    wait_for(lambda: fleet.lease().holder not in {None, old}, what="another leader")
    off.unlink()
    began = boot()
    wait_for(lambda: fleet.starts(after=began), what="its runs")
    server.kill()
    shutil.copy(snapshot, directory / "dump.rdb")
    server.start()
    wait_for(lambda: fleet.lease().holder == old, 0.5, what="the snapshot's lease")


def restarted(
    what: str, forget: Callable[[RedisFleet, Server, Path], None]
) -> tuple[int, list[float], list[float], set[int]]:
    """Overlaps; how long each old leader ran on and how long nobody ran, from the restart; leaders elected per turn."""
    ran_on: list[float] = []
    gaps: list[float] = []
    elected: set[int] = set()
    with three(KIND) as (fleet, server, directory):
        for turn in range(RESTARTS):
            before = sum(len(replica.log("elected")) for replica in fleet.replicas.values())
            forget(fleet, server, directory)
            at = boot()
            wait_for(lambda: fleet.starts(after=at + 1.2 * HEARTBEAT + CALL_TIMEOUT), what="a run")  # noqa: B023 - called at once
            time.sleep(HEARTBEAT)
            runs = [run for run in fleet.runs() if run.start >= at - 1]
            first, after = max(itertools.pairwise(runs), key=lambda pair: pair[1].start - pair[0].start)
            ran_on.append(max(0.0, first.start - at))
            gaps.append(after.start - at)
            extra = 1 if forget is with_an_old_snapshot else 0  # the change of leader that the snapshot missed
            count = sum(len(replica.log("elected")) for replica in fleet.replicas.values())
            elected.add(count - before - extra)
            say(
                f"{what} {turn + 1:2}: {first.worker} ran on for {ran_on[-1]:.2f} s,"
                f" {after.worker} after {gaps[-1]:.2f} s"
            )
        pairs = overlaps(fleet.runs())
    return len(pairs), ran_on, gaps, elected


def flushed() -> list[float]:
    """For how long the leader ran on after FLUSHALL, while another client had taken the lock at the same moment."""
    ran_on: list[float] = []
    with three(KIND) as (fleet, _, _):
        acquire = fleet.client.register_script(ORIGINAL_ACQUIRE)
        for turn in range(FLUSHES):
            old = fleet.leader()
            lost = len(old.log("lost"))
            wait_for(lambda: fleet.client.pttl(lock()) > 1000 * (LOCK_EXPIRY - 0.1), what="a renewal")
            time.sleep(turn * HEARTBEAT / FLUSHES)
            fleet.client.flushall()
            at = boot()
            assert acquire(keys=[lock()], args=["stranger", 2000]) == 1
            wait_for(lambda: len(old.log("lost")) > lost, what="its word that it lost")  # noqa: B023 - called at once
            time.sleep(0.2)
            ran_on.append(max(run.end or run.start for run in old.runs()) - at)
            say(f"FLUSHALL {turn + 1}: two leaders for {ran_on[-1] * 1000:.0f} ms")
            wait_for(lambda: fleet.starts(after=at + 2), what="a run when the other's lease is over")  # noqa: B023 - called at once
    return ran_on


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    lines: list[str] = []
    good = True
    for what, forget in (("restarted empty", empty), ("restarted with an old snapshot", with_an_old_snapshot)):
        say(f"{what}, {RESTARTS} times ...")
        pairs, ran_on, gaps, elected = restarted(what, forget)
        lines.append(
            f"{what}, {RESTARTS} times: {pairs} overlaps; the old leader ran on after the restart: {spread(ran_on)};"
            f" the next leader's first run came: {spread(gaps)}; terms begun per restart: {sorted(elected)}"
        )
        good &= pairs == 0 and elected == {1}
    ran_on = flushed()
    bound = HEARTBEAT + CALL_TIMEOUT
    lines.append(
        f"FLUSHALL, and another client takes the lock at the same moment, {FLUSHES} times: two leaders:"
        f" {spread(ran_on)} (promised: at most one heartbeat + one call, {bound * 1000:.0f} ms)"
    )
    conclude(
        "redis_amnesia",
        [
            (
                f"three processes, {KIND}, SIGKILL to the server; scaled: `lock_expiry` {LOCK_EXPIRY:g} s, heartbeat"
                f" {HEARTBEAT * 1000:.0f} ms; bodies of 20 ms one after the other"
            ),
            *lines,
        ],
        good=good and max(ran_on) <= bound,
        record=options.record,
    )


if __name__ == "__main__":
    main()
