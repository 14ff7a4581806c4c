"""Hand-over storms on one server: a replica that leads 1,000 jobs stops or is killed; 100 hand-overs in good order; 50
kills with 3 and with 50 followers.

The promises: all 1,000 jobs are taken over within 500 ms of the release, or of the end of the leases, in batches and
not by a call per job and follower. Graceful hand-over: median at most 5 ms, p99 at most 50 ms. Hard kill with
`lock_expiry=1s, heartbeat_interval=0.3s`: the next leader within the remaining time and 100 ms, each time.
"""

from __future__ import annotations

import random
import signal
import tempfile
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

from redis_replicas import RedisFleet, lock, old_enough, state
from replicas import boot
from servers import Server
from singletonjob._system.clock import SystemClock
from soak._evidence import arguments, conclude, say, spread
from waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replicas import Replica

KIND = "valkey-9"
JOBS = 1000
STORM = 0.5
"""Seconds for all of them."""

GRACEFUL, MEDIAN, P99 = 100, 0.005, 0.05
KILLS, AFTER_EXPIRY = 50, 0.1

FAST: dict[str, object] = {"lock_expiry": "1s", "heartbeat_interval": "300ms", "max_backoff_delay": "500ms"}

MANY = f"""
app = SingletonJobs("pricing", **options)

async def body() -> None: ...

for number in range({JOBS}):
    app.interval("1h", name=f"j{{number}}")(body)
"""

HOST = """
from contextlib import AsyncExitStack

count = options.pop("count")

async def main() -> None:
    async with AsyncExitStack() as stack:
        for number in range(count):
            app = SingletonJobs("pricing", node_id=f"{name}.{number}", **options)

            @app.interval("100ms")
            async def tick() -> None: ...

            await stack.enter_async_context(app)
        await asyncio.Event().wait()

asyncio.run(main())
"""
"""Several replicas in one process; all of them are killed with it."""


@contextmanager
def fleet_on(kind: str, **options: object) -> Iterator[RedisFleet]:
    with (
        tempfile.TemporaryDirectory() as directory,
        Server(kind, Path(directory)) as server,
        RedisFleet(Path(directory), server, **options) as fleet,
    ):
        if options.get("amnesia_guard", True):
            old_enough(server, float(str(options.get("lock_expiry", "10s")).removesuffix("s")) + 1)
        yield fleet


def hear(fleet: RedisFleet, replicas: int) -> None:
    """Wait until so many replicas hear notices, the leader among them."""
    wait_for(lambda: len(fleet.client.client_list(_type="pubsub")) == replicas, 60, "all of them")
    time.sleep(0.2)


# -- a leader of 1,000 jobs -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """`since_signal`, `since_free`: seconds until the last job was taken over, from the signal and from when the first
    lease was free. `gaps`: per job, from the end of its lease. `calls`: of the script, by all, until then."""

    since_signal: float
    since_free: float
    gaps: list[float]
    calls: int
    by_follower: list[int]


def names() -> list[str]:
    return [f"j{number}" for number in range(JOBS)]


def leaders(fleet: RedisFleet) -> list[str]:
    """Who leads each of the jobs; '' for nobody."""
    return [(value or "").rpartition("-")[0] for value in fleet.client.mget([lock(job) for job in names()])]


def leads_all(fleet: RedisFleet, *replicas: Replica) -> bool:
    return set(leaders(fleet)) <= {replica.name for replica in replicas}


def storm(fleet: RedisFleet, leader: Replica, followers: list[Replica], number: int) -> Storm:
    """Send the signal to the leader of all jobs, and wait until the followers lead them all."""
    calls = fleet.calls()
    freed: dict[str, float] = {}
    with closing(fleet.client.pubsub(ignore_subscribe_messages=True)) as heard:
        heard.subscribe("pricing:notice")
        heard.get_message(timeout=1)  # the confirmation
        signalled = leader.signal(number)
        if number == signal.SIGKILL:
            leader.end()
            freed = ends_of_leases(fleet)
        while len(freed) < JOBS:
            message = heard.get_message(timeout=5)
            assert message is not None, f"{len(freed)} releases were published"
            freed |= dict.fromkeys(str(message["data"]).split("\n"), boot())
    wait_for(lambda: leads_all(fleet, *followers), 60, "the take-over of all jobs")
    taken = beginnings(fleet)
    last = max(taken.values())
    return Storm(
        since_signal=last - signalled,
        since_free=last - min(freed.values()),
        gaps=[taken[job] - freed[job] for job in names()],
        calls=fleet.calls() - calls,
        by_follower=[leaders(fleet).count(follower.name) for follower in followers],
    )


def ends_of_leases(fleet: RedisFleet) -> dict[str, float]:
    with fleet.client.pipeline(transaction=False) as together:
        for job in names():
            together.pttl(lock(job))
        now = boot()
        found: list[Any] = together.execute()
    return {job: now + left / 1000 for job, left in zip(names(), found, strict=True)}


def beginnings(fleet: RedisFleet) -> dict[str, float]:
    """When the terms of now began, on the boot clock."""
    with fleet.client.pipeline(transaction=False) as together:
        for job in names():
            together.hget(state(job), "since")
        found: list[Any] = together.execute()
    now = SystemClock().now()  # the server is on this machine, so its wall clock is ours
    return {job: now.boot - (now.wall - int(since)) / 1e6 for job, since in zip(names(), found, strict=True)}


def storms(fleet: RedisFleet) -> Iterator[tuple[int, Storm]]:
    """One by SIGTERM, one by SIGKILL: a leader of all jobs and two followers, each time."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        leader = fleet.start(MANY)
        wait_for(lambda one=leader: leads_all(fleet, one), 60, "a leader of all jobs")  # type: ignore[misc]  # binds it
        followers = [fleet.start(MANY) for _ in range(2)]
        hear(fleet, 3)
        time.sleep(0.5)  # they were told who leads
        yield number, storm(fleet, leader, followers, number)
        for replica in (leader, *followers):
            replica.process.kill()
            replica.process.wait()
        fleet.client.flushall()


# -- one job, many followers ----------------------------------------------------------------------------------------


def kills(fleet: RedisFleet, hosts: int, each: int, times: int) -> list[float]:
    """Kill the process of the leader so many times; seconds from the end of its lease to the next one's begin.

    There are so many processes with so many replicas each; those beside the leader are killed with it.
    """
    for _ in range(hosts):
        fleet.start(HOST, script=True, count=each)
    found: list[float] = []
    for _ in range(times):
        hear(fleet, hosts * each)
        wait_for(lambda: fleet.lease().holder is not None, what="a leader")
        time.sleep(random.uniform(0, 0.3))  # any moment between two beats
        before = fleet.lease()
        assert before.holder is not None
        host = fleet.replicas[before.holder.partition(".")[0]]
        host.signal(signal.SIGKILL)
        host.end()
        last = fleet.lease()
        assert last.token == before.token, "the lease ended before its holder was killed"
        assert last.expires is not None
        while (row := fleet.lease()).holder is None or row.token == before.token:
            assert boot() < last.expires + 10, "nobody took over"
            time.sleep(0.001)
        found.append(row.since - last.expires)
        fleet.start(HOST, script=True, count=each)
    return found


def stops(fleet: RedisFleet, times: int) -> list[float]:
    """SIGTERM to the leader of three processes so many times; seconds from the release to the next lease.

    Both moments are the server's, as it tells them to a MONITOR: a watcher that asks is late on a busy machine.
    """
    fleet.start()
    fleet.leader()
    fleet.start_followers(2)
    found: list[float] = []
    with fleet.client.monitor() as watch:
        for _ in range(times):
            time.sleep(random.uniform(0, 1))  # any moment between two beats
            leader = fleet.leader()
            leader.signal(signal.SIGTERM)
            found.append(next_hand_over(watch))
            assert leader.end() == 0
            fleet.start_followers(1)
    return found


def next_hand_over(watch: Any) -> float:
    """Wait for it; from the old lease's DEL to the next one's SET, in seconds."""
    released = None
    while True:
        seen = watch.next_command()
        if seen["client_type"] == "lua" and seen["command"].startswith(f"DEL {lock()}"):
            released = seen["time"]
        elif seen["client_type"] == "lua" and seen["command"].startswith(f"SET {lock()}") and released is not None:
            return float(seen["time"] - released)


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    lines: list[str] = []
    good = True
    with fleet_on(KIND) as fleet:
        for number, done in storms(fleet):
            free = "the first release" if number == signal.SIGTERM else "the end of the first lease"
            lines.append(
                f"a replica that leads {JOBS} jobs, {signal.Signals(number).name}, two followers: all taken over"
                f" {done.since_free * 1000:.0f} ms after {free} ({done.since_signal * 1000:.0f} ms after the signal),"
                f" at most {max(done.gaps) * 1000:.0f} ms for a job; {done.calls} script calls by all three;"
                f" the followers lead {done.by_follower}"
            )
            say(lines[-1])
            good &= max(done.gaps) <= STORM and done.calls < JOBS / 5
            good &= number == signal.SIGKILL or done.since_free <= STORM

    say(f"{GRACEFUL} hand-overs in good order ...")
    with fleet_on(KIND) as fleet:
        graceful = stops(fleet, GRACEFUL)
    p99 = quantiles(graceful, n=100, method="inclusive")[98]
    lines.append(
        f"SIGTERM to the leader of three processes, from the release to the next holder, seen in Redis:"
        f" {spread(graceful)}, p99 {p99 * 1000:.1f} ms"
    )
    say(lines[-1])
    good &= median(graceful) <= MEDIAN and p99 <= P99

    for hosts, each in ((4, 1), (6, 10)):
        followers = (hosts - 1) * each
        say(f"{KILLS} kills with {followers} followers ...")
        with fleet_on(KIND, **FAST) as fleet:
            found = kills(fleet, hosts, each, KILLS)
        in_time = sum(seconds <= AFTER_EXPIRY for seconds in found)
        lines.append(
            f"SIGKILL with {followers} followers, `lock_expiry=1s, heartbeat_interval=0.3s`, from the end of the lease:"
            f" {spread(found)}; {in_time} of {KILLS} within 100 ms"
        )
        say(lines[-1])
        good &= in_time == KILLS and min(found) > -0.01
    conclude(
        "redis_storm", [f"one server ({KIND}, loopback); real processes", *lines], good=good, record=options.record
    )


if __name__ == "__main__":
    main()
