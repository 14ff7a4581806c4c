"""The original SingletonJob's two scripts, run by a second client, against ours: 60 s of hand-overs on a real server.

The second client does what the original does: a heartbeat that takes or extends the lock, its lease counted from a
moment before the call, the release script at a stop. Each side leaves in turn, in order or by a crash.
"""

from __future__ import annotations

import signal
import tempfile
import threading
import time
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from contract.test_redis_store import ORIGINAL_ACQUIRE, ORIGINAL_RELEASE
from redis_replicas import RedisFleet, lock, old_enough
from replicas import boot
from servers import Server
from singletonjob.cli.demo_report import BodyRun, overlaps
from soak._evidence import arguments, conclude, say, spread
from waiting import wait_for

if TYPE_CHECKING:
    from typing import Self

SECONDS = 60.0
LOCK_EXPIRY, HEARTBEAT = 2.0, 0.6
KIND = "valkey-9"
NODE = "dotnet-0a1b2c3d"

OURS = """
app = SingletonJobs("pricing", enabled=lambda: not Path("off").exists(), **options)

@app.interval("5ms")
async def tick() -> None:
    with stamped():
        await asyncio.sleep(0.02)
"""


class Original:
    """A replica of the original, in a thread: while it is leader by its own reckoning, it runs its body."""

    def __init__(self, server: Server) -> None:
        self.runs: list[BodyRun] = []
        self.terms = 0  # that have ended
        self.leave: str | None = "release"  # how to stop competing; None: compete
        self._ended = False
        self._client = server.client()
        self._thread = threading.Thread(target=self._main)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._thread.join()
        self._client.close()

    def _main(self) -> None:
        acquire = self._client.register_script(ORIGINAL_ACQUIRE)
        release = self._client.register_script(ORIGINAL_RELEASE)
        while not self._ended:
            if self.leave is not None:
                time.sleep(0.01)
                continue
            sent = boot()
            leads = acquire(keys=[lock()], args=[NODE, round(LOCK_EXPIRY * 1000)]) == 1
            if not leads:
                time.sleep(HEARTBEAT)
                continue
            while self.leave is None and not self._ended and boot() - sent < LOCK_EXPIRY:
                self._body()
                if boot() - sent >= HEARTBEAT:
                    asked = boot()
                    if acquire(keys=[lock()], args=[NODE, round(LOCK_EXPIRY * 1000)]) != 1:
                        break
                    sent = asked
            self.terms += 1
            if self.leave == "release":
                release(keys=[lock()], args=[NODE])

    def _body(self) -> None:
        run = BodyRun(job="tick", worker="original", start=boot())
        self.runs.append(run)
        time.sleep(0.02)
        run.end = boot()


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    to_original: dict[str, list[float]] = {"release": [], "crash": []}
    to_ours: dict[str, list[float]] = {"release": [], "crash": []}
    with (
        tempfile.TemporaryDirectory() as directory,
        Server(KIND, Path(directory)) as server,
        RedisFleet(
            Path(directory), server, lock_expiry=LOCK_EXPIRY, heartbeat_interval=HEARTBEAT, max_backoff_delay=1
        ) as fleet,
        Original(server) as original,
    ):
        off = Path(directory) / "off"
        old_enough(server, LOCK_EXPIRY + 1)
        mine = [fleet.start(OURS), fleet.start(OURS)]
        wait_for(lambda: fleet.starts(after=0), what="a run of ours")
        began = boot()
        ways = cycle(["release", "crash"])
        while boot() - began < SECONDS:
            way = next(ways)
            terms = original.terms
            original.leave = None  # it asks each heartbeat, and is refused: ours leads
            time.sleep(0.8)
            left = boot()
            off.touch()
            if way == "crash":
                for replica in mine:
                    replica.signal(signal.SIGKILL)
                mine = [fleet.start(OURS), fleet.start(OURS)]
            else:
                wait_for(lambda: fleet.lease().holder not in fleet.replicas, what="the release of ours")
            count = len(original.runs)
            wait_for(lambda: len(original.runs) > count, what="a run of the original")  # noqa: B023 - called at once
            to_original[way].append(original.runs[count].start - left)
            off.unlink()
            for replica in mine:
                wait_for(lambda one=replica: one.log("started"), what="its start")  # type: ignore[misc]  # binds it
            time.sleep(0.8)
            left = boot()
            original.leave = way
            wait_for(lambda: original.terms > terms, what="the end of the original's term")  # noqa: B023 - called at once
            wait_for(lambda: fleet.starts(after=left), what="a run of ours")  # noqa: B023 - called at once
            to_ours[way].append(fleet.starts(after=left)[0] - left)
            say(f"{boot() - began:4.0f} s  {way}")
        theirs = original.runs
        with suppress(FileNotFoundError):
            off.unlink()
        ours = fleet.runs()
        pairs = overlaps(sorted([*ours, *theirs], key=lambda run: run.start))
    conclude(
        "redis_original",
        [
            (
                f"two processes of ours and a client that runs the original's scripts, {KIND}; `lock_expiry` 2 s,"
                f" heartbeat 600 ms, bodies of 20 ms one after the other, {SECONDS:g} s"
            ),
            f"{len(ours)} runs of ours, {len(theirs)} of the original, {len(pairs)} overlaps",
            f"ours left by the live switch; the original ran after: {spread(to_original['release'])}",
            f"ours left by SIGKILL; the original ran after: {spread(to_original['crash'])}",
            f"the original left by its release script; ours ran after: {spread(to_ours['release'])}",
            f"the original left by a crash; ours ran after: {spread(to_ours['crash'])}",
        ],
        good=not pairs and all(len(times) >= 4 for side in (to_original, to_ours) for times in side.values()),
        record=options.record,
    )


if __name__ == "__main__":
    main()
