"""The end of the main thread: every app of the process stops, while all that its bodies need is still there."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from redis_replicas import lock
from replicas import Fleet, boot
from servers import OLDEST, Server
from singletonjob import Elected, SingletonJobs
from waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from replicas import Replica

pytestmark = pytest.mark.skipif(
    (3, 12) <= sys.version_info < (3, 12, 3),
    reason="these start no thread once the main thread has ended (CPython issue 113964)",
)

WORK = """
import logging, sys

logging.basicConfig(level="WARNING")
started = threading.Event()
app = SingletonJobs("pricing", **options)

@app.interval("1h")
async def tick(run: Run) -> None:
    started.set()
    while not run.stopping:
        await asyncio.sleep(0.002)
    for _ in range(3):
        await asyncio.to_thread(time.sleep, 0.001)
    with stamped():
        pass

def until_the_test_allows_it():
    while not Path("go").exists():
        time.sleep(0.005)
"""
"""An app with one run, which lasts until it is told to stop, and then needs threads."""

ENTRIES = {
    "start": "app.start()",
    "run": "threading.Thread(target=app.run, daemon=True).start()",
    "serve": "threading.Thread(target=lambda: asyncio.run(app.serve()), daemon=True).start()",
    "async with": """
async def program():
    async with app:
        await asyncio.Event().wait()

threading.Thread(target=lambda: asyncio.run(program()), daemon=True).start()
""",
}

RUNNING = """
assert started.wait(20)
"""

A_POOL_AT_WORK = """
from concurrent.futures import ThreadPoolExecutor  # not before the app has started
ThreadPoolExecutor().submit(until_the_test_allows_it)
"""


def finished(replica: Replica) -> None:
    wait_for(lambda: replica.stamps("end"), 10, "the end of its last run", alive=None)


@pytest.mark.parametrize("entry", list(ENTRIES))
def test_an_app_stops_when_the_main_thread_ends_although_a_pool_still_works(entry: str, tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        replica = fleet.start(WORK + ENTRIES[entry] + RUNNING + A_POOL_AT_WORK, script=True)
        finished(replica)
        wait_for(lambda: fleet.lease().holder is None, what="its release")
        assert replica.process.poll() is None, "the pool is at work"
        (tmp_path / "go").touch()
        assert replica.end() == 0
        assert replica.complaints() == []


@pytest.mark.parametrize(
    ("ending", "code", "says"),
    [("", 0, ""), ("sys.exit(3)", 3, ""), ("raise ValueError('over')", 1, "ValueError: over")],
    ids=["normally", "by sys.exit", "by an exception"],
)
def test_an_app_whose_main_thread_ends_in_any_way_releases_its_lease_before_the_process_exits(
    ending: str, code: int, says: str, tmp_path: Path
) -> None:
    with Fleet(tmp_path) as fleet:
        replica = fleet.start(WORK + ENTRIES["run"] + RUNNING + ending, script=True)
        assert replica.end() == code
        assert replica.stamps("end"), "the last run ended as it wished"
        assert fleet.lease().holder is None
        assert replica.complaints()[-1:] == [says] * bool(says)


def test_the_next_leader_on_redis_comes_at_once_when_the_main_thread_of_the_last_one_ends(tmp_path: Path) -> None:
    waits = """
while not Path("end").exists():
    time.sleep(0.002)
"""
    with Server(OLDEST, tmp_path) as server, Fleet(tmp_path, amnesia_guard=False) as fleet:
        script = WORK + ENTRIES["start"] + RUNNING + waits + A_POOL_AT_WORK
        replica = fleet.start(script, script=True, store=server.url)
        with server.client() as look:
            wait_for(lambda: look.get(lock()), what="its lease", alive=replica.process)
        elected: list[float] = []
        follower = SingletonJobs("pricing", store=server.url, amnesia_guard=False)
        follower.subscribe(lambda event: elected.append(boot()) if isinstance(event, Elected) else None)
        follower.interval("1h", name="tick")(lambda: None)
        with follower.in_thread():
            wait_for(lambda: follower.health().jobs["tick"] == "following", what="the follower")
            ended = boot()
            (tmp_path / "end").touch()
            wait_for(lambda: elected, 15, "the next leader")
            assert elected[0] - ended < 2, "the lease lives for 10 s"
        assert replica.process.poll() is None, "the pool is at work"
        (tmp_path / "go").touch()
        assert replica.end() == 0
        assert replica.complaints() == []


def test_a_body_that_blocks_the_job_loop_holds_up_the_exit_no_longer_than_a_stop_may_take(tmp_path: Path) -> None:
    blocks = """
blocked = threading.Event()

@app.interval("1h")
async def blocking() -> None:
    blocked.set()
    time.sleep(600)

app.start()
assert blocked.wait(20)
stamps.write("ended", "main", 0)
"""
    options = {"lock_expiry": 1.0, "heartbeat_interval": 0.3, "shutdown_grace": 0.0}
    with Fleet(tmp_path, **options) as fleet:
        replica = fleet.start(WORK + blocks, script=True)
        assert replica.end() == 0
        (ended,) = replica.stamps("ended", "main")
        assert boot() - ended.at < 5, "a stop may take 1.5 s"


def test_an_app_whose_main_thread_ends_right_after_its_start_says_so_and_leaves_quietly(tmp_path: Path) -> None:
    ends = """
logging.getLogger("singletonjob").setLevel("INFO")
app.start()
threading.Thread(target=until_the_test_allows_it).start()
"""
    with Server(OLDEST, tmp_path) as server, Fleet(tmp_path) as fleet, server.client() as look:
        replica = fleet.start(WORK + ends, script=True, store=server.url)
        wait_for(lambda: any("the main thread has ended" in line for line in replica.complaints()), what="its word")
        (tmp_path / "go").touch()
        assert replica.end() == 0
        assert [line for line in replica.complaints() if not line.startswith("INFO:")] == []
        assert look.get(lock()) is None


def test_an_app_is_not_started_once_the_main_thread_has_ended(tmp_path: Path) -> None:
    late = """
with app.in_thread():
    pass

def start_late():
    threading.main_thread().join()
    try:
        app.start()
    except Exception as error:
        print(f"{type(error).__name__}: {error}")

threading.Thread(target=start_late).start()
"""
    with Fleet(tmp_path) as fleet:
        replica = fleet.start(WORK + late, script=True)
        assert replica.end() == 0
        assert replica.complaints() == [
            "SingletonJobError: the main thread has ended, and the app would stop at once; start it while that runs"
        ]
