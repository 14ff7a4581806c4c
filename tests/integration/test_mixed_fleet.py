"""What `docs/mixed-fleets.md` promises of a fleet whose other replicas are the original SingletonJob's, by its scripts.

That both never lead at once is shown in `test_redis_store.py` (whole apps), among the contract tests (scripts), and,
with crashes for a minute, in `soak/redis_original.py`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from contract.test_redis_store import ORIGINAL_ACQUIRE, ORIGINAL_RELEASE
from singletonjob import Run, SingletonJobs
from singletonjob.control import Control
from waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import redis

    from servers import Server

HEARTBEAT = 0.3
LOCK, STATE = "pricing:tick:lock", "{pricing:tick:lock}:state"
NET = "dotnet-0a1b2c3d"

FAST: dict[str, Any] = {"lock_expiry": "1s", "heartbeat_interval": HEARTBEAT, "amnesia_guard": False}


class Original:
    """A replica of the original that does one thing at a time."""

    def __init__(self, client: redis.Redis) -> None:
        self._acquire = client.register_script(ORIGINAL_ACQUIRE)
        self._release = client.register_script(ORIGINAL_RELEASE)

    def leads(self, seconds: float = 30) -> bool:
        """Ask once: whether it leads now, for so long."""
        return bool(self._acquire(keys=[LOCK], args=[NET, round(seconds * 1000)]) == 1)

    def leave(self) -> None:
        assert self._release(keys=[LOCK], args=[NET]) == 1


@pytest.fixture
def original(client: redis.Redis) -> Original:
    return Original(client)


@asynccontextmanager
async def running(app: SingletonJobs) -> AsyncIterator[None]:
    """The app, which has asked once and been refused by the time that the block begins."""
    async with app:
        await asyncio.sleep(1.5 * HEARTBEAT)
        yield


def ticking(server: Server, **options: Any) -> SingletonJobs:
    app = SingletonJobs("pricing", store=server.url, **(FAST | options))

    @app.fixed_rate("20ms")
    async def tick() -> None: ...

    return app


async def test_a_release_of_the_original_is_followed_within_a_heartbeat_and_its_crash_when_its_lease_ends(
    server: Server, original: Original
) -> None:
    assert original.leads()
    app = ticking(server)
    async with running(app):
        assert not app.is_leader("tick")
        original.leave()
        await until(lambda: app.is_leader("tick"), HEARTBEAT + 0.5)  # no notice tells of it

    assert original.leads(1)
    crashed = time.monotonic()
    async with app:
        await until(lambda: app.is_leader("tick"))
        assert 0.9 < time.monotonic() - crashed < 1.01 + 0.5


async def test_a_release_that_the_other_side_publishes_is_followed_at_once(
    server: Server, client: redis.Redis, original: Original
) -> None:
    assert original.leads()
    app = ticking(server, lock_expiry="60s", heartbeat_interval="20s", max_backoff_delay="20s")
    async with running(app):
        original.leave()
        client.publish("pricing:notice", "tick")
        await until(lambda: app.is_leader("tick"), 2)


async def test_a_fleet_waits_for_the_original_without_a_warning_and_warns_only_of_a_lock_without_an_expiry(
    server: Server, client: redis.Redis, original: Original, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="singletonjob")
    assert original.leads()
    async with running(ticking(server)):
        await until(lambda: len(caplog.records) > 1)
        assert [record.__dict__["event"] for record in caplog.records] == ["started", "following"]
        client.persist(LOCK)
        await until(lambda: len(caplog.records) > 2)
        assert caplog.records[2].levelname == "WARNING"
        assert caplog.records[2].__dict__["event"] == "no-expiry"
        assert NET in caplog.records[2].getMessage()


async def test_a_lock_that_the_original_took_meanwhile_is_lost_with_a_warning_and_not_released(
    server: Server, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    def lost() -> list[logging.LogRecord]:
        return [record for record in caplog.records if record.__dict__.get("event") == "lost"]

    app = ticking(server)
    async with app:
        await until(lambda: app.is_leader("tick"))
        client.set(LOCK, NET, px=30_000)  # as it could on a server that restarted empty: the original has no guard
        await until(lost)
        assert not app.is_leader("tick")
        assert (lost()[0].levelname, lost()[0].__dict__["reason"]) == ("WARNING", "lost")
    assert client.get(LOCK) == NET


async def test_tokens_grow_over_a_term_of_the_original_which_has_none(
    server: Server, client: redis.Redis, original: Original
) -> None:
    tokens: list[int] = []
    for _ in range(2):
        app = ticking(server)
        async with app:
            await until(lambda app=app: app.is_leader("tick"))  # type: ignore[misc]  # binds it
            tokens.append(int(str(client.hget(STATE, "token"))))
        assert original.leads()
        assert int(str(client.hget(STATE, "token"))) == tokens[-1]
        original.leave()
    assert tokens[0] < tokens[1]


async def test_an_operator_can_pause_ours_and_gets_told_that_the_original_reads_no_orders(
    server: Server, original: Original
) -> None:
    app = ticking(server)
    control = Control("pricing", server.url, heartbeat=lambda _job: HEARTBEAT)
    async with app:
        await until(lambda: app.is_leader("tick"))
        await control.pause("tick")
        await until(lambda: original.leads())  # the way back: ours gives its lease away, and does not ask again
        assert (await control.step_down("tick")).outcome == "foreign"
        await control.resume("tick")
        assert (await control.trigger("tick")).outcome == "foreign"
        (view,) = await control.jobs()
        assert (view.holder, view.token) == (NET, None)
        await control.pause("tick")
        original.leave()
        await asyncio.sleep(3 * HEARTBEAT)
        assert not app.is_leader("tick")
        await control.resume("tick")
        await until(lambda: app.is_leader("tick"))


async def test_an_interval_that_the_original_kept_is_not_known_here(server: Server, original: Original) -> None:
    runs: list[float] = []
    app = SingletonJobs("pricing", store=server.url, **FAST)

    @app.interval("1h")
    async def tick() -> None:
        runs.append(time.monotonic())

    assert original.leads()  # and runs, let us say
    async with running(app):
        assert runs == []
        original.leave()
        await until(lambda: runs)


# -- cron: whose slots are owed ------------------------------------------------------------------------------------


def each_second(server: Server, runs: list[float]) -> SingletonJobs:
    app = SingletonJobs("pricing", store=server.url, **FAST)

    @app.cron("* * * * * *", misfire="catch_up")
    async def tick(run: Run) -> None:
        runs.append(run.scheduled_at.timestamp())

    return app


async def test_slots_of_the_original_are_taken_for_missed_ones_where_ours_led_before(
    server: Server, original: Original
) -> None:
    runs: list[float] = []
    async with each_second(server, runs):
        await until(lambda: runs)
    assert original.leads()
    await asyncio.sleep(2.5)
    runs.clear()
    left = time.time()
    original.leave()
    async with each_second(server, runs):
        await until(lambda: runs)
    assert runs[0] < left  # S6 does not hold: the original may have run it, and no policy can know


async def test_a_job_that_ours_never_led_owes_nothing_for_the_originals_time(
    server: Server, original: Original
) -> None:
    runs: list[float] = []
    assert original.leads()
    async with running(each_second(server, runs)):
        await asyncio.sleep(1.2)
        left = time.time()
        original.leave()
        await until(lambda: runs)
    assert runs[0] > left


async def test_slots_that_the_original_ran_during_a_pause_of_ours_do_not_run_again(
    server: Server, original: Original
) -> None:
    runs: list[float] = []
    control = Control("pricing", server.url)
    async with each_second(server, runs):
        await until(lambda: runs)
        await control.pause("tick")
        await until(lambda: original.leads())
        await asyncio.sleep(2.2)
        runs.clear()
        original.leave()
        back = time.time()
        await control.resume("tick")
        await until(lambda: runs)
    assert runs[0] > back


# -- a lock of another library -------------------------------------------------------------------------------------


async def test_a_redis_py_lock_of_the_same_key_takes_part_like_the_original(
    server: Server, client: redis.Redis
) -> None:
    lease = client.lock(LOCK, timeout=30, thread_local=False)
    assert lease.acquire(blocking=False)
    app = ticking(server)
    async with running(app):
        assert not app.is_leader("tick")
        lease.reacquire()
        assert not app.is_leader("tick")
        lease.release()
        await until(lambda: app.is_leader("tick"), HEARTBEAT + 0.5)
        assert not lease.acquire(blocking=False)
    assert lease.acquire(blocking=False)  # ours has left
