"""Several real processes on a real server: who leads, how leadership goes on, and that bodies never overlap.

What needs no process to die is in `test_redis_apps`. Over 300 lines: one test per case, on the same few apps.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from integration.test_redis_store import PASSWORD, RIGHTS
from integration.test_replicas import BLOCKING, EAGER, THREE_JOBS
from redis_replicas import RedisFleet, lock
from replicas import TICK, boot, hand_over
from servers import OLDEST, Server
from singletonjob.cli.demo_report import overlaps
from waiting import until, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from proxy import Proxy

LONGER: dict[str, object] = {
    "lock_expiry": "2s",
    "heartbeat_interval": "600ms",
    "max_backoff_delay": "1s",
    "amnesia_guard": False,
}
"""A fifth of the default durations, for a lease that must not get lost on a busy machine."""

FAST: dict[str, object] = {
    "lock_expiry": "1s",
    "heartbeat_interval": "300ms",
    "max_backoff_delay": "500ms",
    "amnesia_guard": False,
}
"""A tenth. The guard would hold all back for two seconds of each server's life."""

HEARTBEAT, MARGIN, CALL_TIMEOUT = 0.3, 0.1, 0.2
"""Of FAST, in seconds."""

TWICE = (
    TICK
    + """
@app.interval("1s", name="tick")
async def other() -> None: ...
"""
)

TALKATIVE = "import logging\nlogging.getLogger().setLevel(logging.DEBUG)\n" + TICK


@pytest.fixture
def fleet(tmp_path: Path, server: Server) -> Iterator[RedisFleet]:
    """At a tenth of the default durations."""
    with RedisFleet(tmp_path, server, **FAST) as made:
        made.client.flushall()
        yield made


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """One that a test may kill; not started yet."""
    server = Server(OLDEST, tmp_path)
    yield server
    server.kill()


def test_of_three_processes_one_leads_each_job_and_its_key_names_it(tmp_path: Path, server: Server) -> None:
    jobs = ("tick", "sync", "close")
    with RedisFleet(tmp_path, server, amnesia_guard=False) as fleet:  # else at the default settings
        fleet.client.flushall()
        replicas = [fleet.start(THREE_JOBS) for _ in range(3)]
        wait_for(lambda: len(fleet.runs("close")) >= 2, what="the second run of the slowest job")
        wait_for(lambda: all(len(replica.log("started")) == 3 for replica in replicas), what="the start of all")
        for job in jobs:
            (line,) = [line for one in replicas for line in one.log("elected") if line["job"] == job]
            assert f"became LEADER for pricing:{job}:lock" in line["message"]
            assert fleet.client.get(f"pricing:{job}:lock") == line["node"]
            assert fleet.client.hget(f"{{pricing:{job}:lock}}:state", "token") == str(line["token"])
            assert {run.worker for run in fleet.runs(job)} == {line["node"].rpartition("-")[0]}
            assert overlaps(fleet.runs(job)) == []


def test_after_sigterm_the_next_process_leads_soon_after_the_release(tmp_path: Path, server: Server) -> None:
    with RedisFleet(tmp_path, server, amnesia_guard=False) as fleet:
        fleet.client.flushall()
        fleet.start()
        fleet.leader()
        fleet.start_followers(2)
        for _ in range(2):
            done = hand_over(fleet, signal.SIGTERM)
            # The promise is 50 ms; scripts/soak redis_handover holds it to that. The lease had 7 s to go at least.
            assert done.since_release < 5 * 0.05
            assert fleet.replicas[done.old].end() == 0
            assert fleet.replicas[done.old].log("released")
        wait_for(lambda: fleet.replicas[done.new].runs(), what="a run of the last one")
        assert overlaps(fleet.runs()) == []


def test_c34_after_sigkill_at_any_moment_the_next_process_leads_when_the_lease_has_ended(fleet: RedisFleet) -> None:
    fleet.start()
    fleet.leader()
    fleet.start_followers(3)
    for _ in range(3):
        time.sleep(random.uniform(0, 0.6))
        assert 0 < fleet.client.pttl(lock()) <= 1000
        done = hand_over(fleet, signal.SIGKILL)  # looks at the expiry each ms
        assert -0.01 < done.since_expiry < 5 * 0.1
        assert done.since_signal < 1.01 + 5 * 0.1
    wait_for(lambda: fleet.replicas[done.new].runs(), what="a run of the last one")
    assert overlaps(fleet.runs()) == []


def test_c03_a_key_that_somebody_else_took_is_lost_within_a_heartbeat_and_never_touched(fleet: RedisFleet) -> None:
    leader = fleet.start()
    wait_for(lambda: leader.runs(), what="a run")
    fleet.client.set(lock(), "somebody-else", px=2500)
    taken = boot()
    wait_for(lambda: leader.log("lost"), what="its word that it lost the lease")
    lost = boot()
    assert lost - taken < 5 * HEARTBEAT
    left = 2500
    while True:
        before = left
        holder, left = fleet.client.pipeline().get(lock()).pttl(lock()).execute()  # at once: the next holder may come
        if holder != "somebody-else":
            break
        assert left <= before
        time.sleep(0.02)
    assert boot() > taken + 2.4
    assert holder is None or holder.startswith(leader.name)
    wait_for(lambda: fleet.starts(after=taken + 2.5), what="a run when the other's time is over")
    assert [start for start in fleet.starts(after=lost) if start < taken + 2.4] == []


def test_c04_a_leader_that_was_frozen_beyond_its_lease_starts_no_run_after_waking(fleet: RedisFleet) -> None:
    jobs = ("tick", "eager")
    frozen = fleet.start(EAGER)
    wait_for(lambda: all(frozen.runs(job) for job in jobs), what="runs of both jobs")
    (other,) = fleet.start_followers(1, EAGER)
    frozen.signal(signal.SIGSTOP)
    expires = {job: fleet.lease(job).expires or 0.0 for job in jobs}
    wait_for(lambda: all(other.runs(job) for job in jobs), what="runs of the other one")
    for job in jobs:
        assert expires[job] - 0.01 <= other.runs(job)[0].start < expires[job] + 5 * 0.1 + 0.1
    taken = fleet.lease()
    woken = frozen.signal(signal.SIGCONT)
    wait_for(lambda: len(frozen.log("lost")) >= 2, what="its word that it lost both leases")
    time.sleep(2 * HEARTBEAT)
    for job in jobs:
        assert [run for run in frozen.runs(job) if run.start >= woken] == []
        assert len({id(pair.first) for pair in overlaps(fleet.runs(job))}) <= 1
    now = fleet.lease()
    assert (now.token, now.holder) == (taken.token, other.name)


def test_c05_a_body_that_blocks_the_loop_for_most_of_its_lease_keeps_it(tmp_path: Path, server: Server) -> None:
    with RedisFleet(tmp_path, server, **LONGER) as fleet:
        fleet.client.flushall()
        leader = fleet.start(BLOCKING)
        wait_for(lambda: leader.runs(), what="a run")
        token = fleet.lease().token
        fleet.start(BLOCKING)
        wait_for(lambda: len(fleet.runs()) > 2, what="a third run")
        assert fleet.lease().token == token
        assert {run.worker for run in fleet.runs()} == {leader.name}
        assert overlaps(fleet.runs()) == []
        assert {(line["level"], line["job"]) for line in leader.log("run-long")} == {("WARNING", "tick")}


async def test_c06_before_a_silent_server_a_leader_stops_in_time_and_follows_when_it_speaks_again(
    fleet: RedisFleet, server: Server, proxy: Proxy
) -> None:
    a = fleet.start(store=f"redis://127.0.0.1:{proxy.port}/0")
    await until(lambda: a.runs())
    b = fleet.start()
    await until(lambda: b.log("started"))
    await asyncio.sleep(0.5)
    proxy.hold()  # it accepts, and never answers
    await asyncio.sleep(0.02)
    expires = fleet.lease().expires
    assert expires is not None
    await until(lambda: b.runs())
    # The key's end is a little after the last good renewal was sent, plus `lock_expiry`.
    assert max(run.start for run in a.runs()) <= expires - MARGIN
    assert expires - 0.01 <= fleet.lease().since < expires + 5 * 0.1
    proxy.let_through()
    count = len(a.runs())
    await asyncio.sleep(1.0)
    assert a.process.poll() is None
    assert len(a.runs()) == count
    assert b.process.poll() is None
    assert fleet.lease().holder == b.name
    assert overlaps(fleet.runs()) == []
    b.signal(signal.SIGTERM)  # the one that was cut off takes part again
    await until(lambda: len(a.runs()) > count)


def test_c07_after_an_outage_runs_resume_in_the_same_processes(tmp_path: Path, own_server: Server) -> None:
    with own_server, RedisFleet(tmp_path, own_server, **FAST) as fleet:
        replicas = [fleet.start(), fleet.start()]
        wait_for(lambda: fleet.runs(), what="a run")
        wait_for(lambda: all(replica.log("started") for replica in replicas), what="the start of both")
        own_server.kill()
        time.sleep(2)
        own_server.start()
        back = boot()
        wait_for(lambda: fleet.starts(after=back), what="a run")
        # 1.2 * max_backoff_delay + call_timeout, and the period of the job.
        assert fleet.starts(after=back)[0] - back < 3 * (1.2 * 0.5 + CALL_TIMEOUT + 0.1)
        assert [replica.process.poll() for replica in replicas] == [None, None]
        for replica in replicas:
            wait_for(lambda one=replica: one.log("store-up"), what="its word that all is well")  # type: ignore[misc]  # binds it
            (line,) = replica.log("heartbeat-error")
            assert line["level"] == "ERROR"
            assert f"127.0.0.1:{own_server.port}" in line["message"]
        assert overlaps(fleet.runs()) == []


def test_c24_two_jobs_of_one_name_are_exit_code_2_and_leave_no_key(fleet: RedisFleet) -> None:
    replica = fleet.start(TWICE)
    assert replica.end() == 2
    (text,) = replica.complaints()
    assert "[Job: tick] two jobs have this name" in text
    assert all(f"{replica.name}.{place} (" in text for place in ("tick", "other"))
    assert fleet.client.dbsize() == 0


def test_c31_replicas_started_before_their_server_say_so_once_and_lead_when_it_comes(
    tmp_path: Path, own_server: Server
) -> None:
    with RedisFleet(tmp_path, own_server, **FAST) as fleet:
        replicas = [fleet.start(), fleet.start()]
        wait_for(lambda: all(replica.log("heartbeat-error") for replica in replicas), what="their complaints")
        time.sleep(1.5)
        with own_server:
            came = boot()
            wait_for(lambda: fleet.runs(), what="a run")
            assert fleet.runs()[0].start - came < 3 * (1.2 * 0.5 + CALL_TIMEOUT + 0.1)
            wait_for(lambda: all(replica.log("store-up") for replica in replicas), what="the other one")
            assert sum(len(replica.log("elected")) for replica in replicas) == 1
            for replica in replicas:
                assert replica.process.poll() is None
                (line,) = replica.log("heartbeat-error")
                assert "Connection refused" in line["message"]


def test_c36_the_expiry_that_the_holder_set_counts_and_not_that_of_who_waits(fleet: RedisFleet) -> None:
    long = fleet.start(lock_expiry="3s", heartbeat_interval="900ms", max_backoff_delay="1s")
    wait_for(lambda: long.runs(), what="a run")
    (short,) = fleet.start_followers(1)
    token = fleet.lease().token
    time.sleep(1.2)
    assert fleet.lease().token == token
    assert short.runs() == []
    done = hand_over(fleet, signal.SIGKILL)
    assert 3 - 0.9 - 0.3 < done.expires - done.signalled <= 3
    assert -0.01 < done.since_expiry < 5 * 0.1


def test_c38_a_replica_that_lost_its_lease_leaves_the_next_ones_alone_when_it_stops(fleet: RedisFleet) -> None:
    leader = fleet.start()
    wait_for(lambda: leader.runs(), what="a run")
    fleet.client.set(lock(), "somebody-else", px=60_000)
    wait_for(lambda: leader.log("lost"), what="its word that it lost the lease")
    leader.signal(signal.SIGTERM)
    assert leader.end() == 0
    assert fleet.client.get(lock()) == "somebody-else"
    assert fleet.client.pttl(lock()) > 30_000


def test_c91_a_wrong_password_is_said_once_and_is_in_no_log_and_the_right_one_leads(
    fleet: RedisFleet, server: Server, tmp_path: Path
) -> None:
    rights = [right.replace("p:*", "pricing:*") for right in RIGHTS]
    acl = ("ACL", "SETUSER", "me@x", "reset", "on", "resetchannels", *rights)
    fleet.client.execute_command(*acl, ">another")
    url = f"redis://{quote('me@x')}:{quote(PASSWORD, safe='')}@127.0.0.1:{server.port}/0"
    replica = fleet.start(TALKATIVE, store=url)
    wait_for(lambda: replica.log("heartbeat-error"), what="its complaint")
    time.sleep(1)
    assert replica.process.poll() is None
    (line,) = replica.log("heartbeat-error")
    assert line["level"] == "ERROR"
    assert "does not take the password of user 'me@x'" in line["message"]
    fleet.client.execute_command(*acl, f">{PASSWORD}")
    wait_for(lambda: replica.runs(), what="a run with the right password")
    replica.signal(signal.SIGTERM)
    assert replica.end() == 0
    text = (tmp_path / f"{replica.name}.log").read_text()
    assert "run started" in text, "the log has all of DEBUG"
    for form in (PASSWORD, quote(PASSWORD, safe=""), "p#w", "w/d"):
        assert form not in text
