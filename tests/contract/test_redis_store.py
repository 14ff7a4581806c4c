"""The rules of a lease on real Redis and Valkey servers: keys, verdicts, and the original's scripts.

What needs time to pass is shown with leases of a fraction of a second, since nobody can move a server's clock.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from fake_node import FakeNode
from servers import ALL_KINDS, Server
from singletonjob import StoreError
from singletonjob.stores import from_url
from singletonjob.stores.protocol import (
    NO_PROGRESS,
    Acquire,
    Barred,
    Batch,
    Claimed,
    ClaimSlot,
    Failed,
    Granted,
    NotClaimed,
    Progress,
    Refused,
    Release,
    Released,
    Renew,
    Renewed,
)
from singletonjob.stores.redis.address import Address
from singletonjob.stores.redis.store import CHUNK, RedisStore
from singletonjob.stores.rules import AHEAD
from singletonjob.testing.contract import LeaseStoreContract
from singletonjob.testing.contract.base import SECOND, Replica, expect
from singletonjob.testing.contract.notices import subscription

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    import redis

    from singletonjob.stores import LeaseStore

LOCK, STATE = "p:j:lock", "{p:j:lock}:state"

# The original SingletonJob's scripts, word for word.
ORIGINAL_ACQUIRE = """
local v = redis.call('GET', KEYS[1])
if not v then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return 1
elseif v == ARGV[1] then redis.call('PEXPIRE', KEYS[1], ARGV[2]) return 1
else return 0 end
"""
ORIGINAL_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end"


@pytest.fixture(scope="module", params=ALL_KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(request.param, tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
async def a(server: Server, client: redis.Redis) -> AsyncIterator[Replica]:
    async for replica in _replica(server, "a"):
        yield replica


@pytest.fixture
async def b(server: Server, client: redis.Redis) -> AsyncIterator[Replica]:
    async for replica in _replica(server, "b"):
        yield replica


async def _replica(server: Server, node: str) -> AsyncIterator[Replica]:
    replica = Replica(from_url(server.url), node)
    await replica.reply()
    yield replica
    await replica.store.close()


def now(client: redis.Redis) -> int:
    seconds, micros = client.time()
    return int(seconds) * SECOND + int(micros)


def state(client: redis.Redis) -> dict[str, str]:
    found: dict[str, str] = client.hgetall(STATE)  # type: ignore[assignment]  # declared as an awaitable too
    return found


def close_to(seconds: float | None, expected: float) -> bool:
    return seconds is not None and expected - 1 < seconds <= expected


class TestRedisStore(LeaseStoreContract):
    @pytest.fixture
    def make_store(self, server: Server, client: redis.Redis) -> Callable[[], LeaseStore]:
        return partial(from_url, server.url)


# -- what is in Redis ----------------------------------------------------------------------------------------------


async def test_a_reading_tells_the_servers_clock_and_since_when_it_is_up(
    a: Replica, client: redis.Redis, server: Server
) -> None:
    before = now(client)
    reply = await a.reply()
    assert before <= reply.clock <= now(client)
    uptime = int(client.info("server")["uptime_in_seconds"])
    assert reply.up_for in {uptime, uptime - 1}


async def test_s8_a_server_whose_clock_was_set_back_after_its_start_may_have_started_just_now() -> None:
    async with FakeNode() as server:
        server.up_for = -3540
        store = from_url(f"redis://127.0.0.1:{server.port}")
        assert (await store.exchange(Batch(project="p", node="a", bound=5.0))).up_for == 0
        await store.close()


async def test_p01_c22_the_lock_is_the_originals_key_with_the_node_as_its_value_and_the_expiry_as_its_end(
    a: Replica, client: redis.Redis
) -> None:
    token = await a.token()
    assert client.get(LOCK) == "a"
    assert 9000 < int(client.pttl(LOCK)) <= 10000
    assert client.smembers("p:jobs") == {"j"}
    assert state(client) == {
        "holder": "a",
        "seq": "1",
        "token": str(token),
        "since": str(token),
        "off": str(token),  # a job never seen before owes nothing
    }
    assert set(client.scan_iter()) == {LOCK, STATE, "p:jobs"}


async def test_what_a_run_leaves_is_written_as_the_design_says(a: Replica, client: redis.Redis) -> None:
    token = await a.token()
    assert await a.claim(token, token + 5) == Claimed()
    await a.renew(token, Progress(done=token + 5, ended_ago=0.25))
    found = state(client)
    assert found["slot"] == f"{token + 5}:{token}:m"
    done, _, ended = found["done"].partition(":")
    assert done == str(token + 5)
    assert now(client) - 5 * SECOND < int(ended) <= now(client) - SECOND // 4
    before = now(client)
    assert await a.release(off=True) == Released(mine=True)
    assert before <= -int(state(client)["off"]) <= now(client)
    assert client.exists(LOCK) == 0


BYTES = {"valkey-9": 430, "redis-6.2": 430, "redis-system": 470}
"""By server: each rounds up to blocks of another size."""


async def test_both_keys_of_a_job_that_was_handed_over_take_few_bytes(server: Server, client: redis.Redis) -> None:
    replica = Replica(from_url(server.url), "n" * 30)
    job = "price-ticks9"
    assert len(f"pricing:{job}:lock") == 25
    await replica.reply()

    async def reign(number: int) -> None:
        request = Acquire(job=job, number=number, lock_expiry=10, above=0)
        token = expect(Granted, (await replica.reply(request, project="pricing")).verdicts[0]).token
        progress = Progress(done=token + 5, ended_ago=0.0, outcome="ok", runs=15_000, failures=120, good_ago=0.0)
        claim = ClaimSlot(job=job, token=token, slot=token + 5, mark="0123abcd")
        await replica.reply(claim, Renew(job=job, token=token, lock_expiry=10, progress=progress), project="pricing")

    await reign(69_999)
    await replica.reply(Release(job, 69_999, NO_PROGRESS), project="pricing")
    await reign(70_000)
    keys = (f"pricing:{job}:lock", f"{{pricing:{job}:lock}}:state")
    sizes: list[Any] = [client.memory_usage(key) for key in keys]
    assert sum(sizes) < BYTES[server.kind]
    await replica.store.close()


async def test_fields_that_this_version_does_not_know_are_kept(a: Replica, client: redis.Redis) -> None:
    client.hset(STATE, mapping={"later": "1", "paused": "by:me"})
    token = await a.token()
    await a.renew(token, Progress(tick=token, ended_ago=0.0))
    await a.release()
    assert state(client).items() >= {"later": "1", "paused": "by:me"}.items()


# -- verdicts ------------------------------------------------------------------------------------------------------


async def test_a_held_lease_is_refused_with_its_holder_and_the_time_it_has_left(a: Replica, b: Replica) -> None:
    await a.token()
    refused = expect(Refused, await b.acquire())
    assert (refused.holder, refused.foreign) == ("a", False)
    assert close_to(refused.expires_in, 10)


async def test_c36_a_lease_ends_when_its_holder_said_and_the_next_term_has_a_higher_token(
    a: Replica, b: Replica
) -> None:
    first = expect(Granted, await a.acquire(lock_expiry=0.2)).token
    assert expect(Refused, await b.acquire(lock_expiry=0.05)).expires_in != 0
    await asyncio.sleep(0.25)
    assert await a.renew(first) == Refused(holder=None, expires_in=None)
    second = await b.token()
    assert second > first
    assert expect(Refused, await a.renew(first)).holder == "b"
    assert await a.release(number=9) == Released(mine=False)


async def test_a_renewal_extends_the_lease_from_the_moment_it_arrives(a: Replica, client: redis.Redis) -> None:
    token = expect(Granted, await a.acquire(lock_expiry=0.5)).token
    assert await a.renew(token) == Renewed()
    assert int(client.pttl(LOCK)) > 9000


async def test_c39_my_own_lease_under_a_higher_number_is_a_new_term_and_under_another_one_it_is_unchanged(
    a: Replica, client: redis.Redis
) -> None:
    first = await a.token(number=3)
    before = state(client)
    assert expect(Refused, await a.acquire(number=3)).holder == "a"
    assert expect(Refused, await a.acquire(number=2)).holder == "a"
    assert state(client) == before
    second = await a.token(number=4)
    assert second > first
    assert expect(Refused, await a.renew(first)).holder == "a"
    assert await a.release(number=3) == Released(mine=False)
    assert await a.renew(second) == Renewed()


async def test_tokens_exceed_what_the_replica_has_seen_and_keep_all_their_digits(
    a: Replica, client: redis.Redis
) -> None:
    await a.token(number=1)
    seen = 2**52 + 1
    assert expect(Granted, await a.acquire(number=2, above=seen)).token == seen + 1
    assert state(client)["token"] == str(seen + 1)
    assert await a.renew(seen + 1) == Renewed()
    assert await a.renew(seen) != Renewed()


@pytest.mark.parametrize("odd", ["n 1", "n;1:2", "n\n1\r\n", "nö-日本", "'\"\\[{", "-1"])
async def test_a_node_may_have_any_name_and_c23_only_the_whole_name_is_the_holder(
    server: Server, a: Replica, client: redis.Redis, odd: str
) -> None:
    mine, other = Replica(from_url(server.url), odd), Replica(from_url(server.url), odd[:-1])
    await mine.reply()
    await other.reply()
    token = await mine.token()
    assert client.get(LOCK) == odd
    assert expect(Refused, await other.acquire(number=9)).holder == odd
    assert expect(Refused, await other.renew(token)).holder == odd
    assert await other.release(number=9) == Released(mine=False)
    assert await mine.renew(token) == Renewed()
    assert await mine.release() == Released(mine=True)
    await mine.store.close()
    await other.store.close()


async def test_a_slot_far_ahead_is_refused_and_a_stored_one_bars_nothing(a: Replica, client: redis.Redis) -> None:
    token = await a.token()
    assert expect(NotClaimed, await a.claim(token, token + AHEAD + 60 * SECOND)).why == "ahead"
    client.hset(STATE, "slot", f"{token + AHEAD + 60 * SECOND}:{token}:m")
    assert await a.claim(token, token + 1) == Claimed()
    assert await a.claim(token, token + 1) == Claimed()
    assert expect(NotClaimed, await a.claim(token, token)).why == "taken"
    assert expect(NotClaimed, await a.claim(token - 1, token + 9)).why == "lost"


async def test_a_slot_is_claimed_by_one_term_and_never_after_a_later_one(
    a: Replica, b: Replica, client: redis.Redis
) -> None:
    first = await a.token()
    assert await a.claim(first, first + 5) == Claimed()
    assert expect(NotClaimed, await a.claim(first, first + 4)).why == "taken"
    await a.release()
    second = await b.token()
    assert expect(NotClaimed, await b.claim(second, first + 5)).why == "taken"
    assert await b.claim(second, first + 6) == Claimed()


async def test_reports_only_grow_and_keep_the_mark(a: Replica, b: Replica, client: redis.Redis) -> None:
    token = await a.token()
    await a.claim(token, token + 1)
    await a.renew(token, Progress(tick=token + 5, done=token + 3, ended_ago=1.0))
    before = state(client)
    await a.renew(token, Progress(tick=token + 4, done=token + 2, ended_ago=9.0))
    await a.renew(token)
    assert state(client) == before
    await a.release(progress=Progress(tick=token + 6, done=token + 4))
    last = expect(Granted, await b.acquire()).state
    assert (last.slot, last.slot_token, last.mark, last.done) == (token + 6, token, "m", token + 4)
    assert last.ended_ago is not None
    assert 1.0 <= last.ended_ago < 2.0


async def test_an_end_that_is_later_than_the_servers_clock_counts_as_now_and_is_replaced(
    a: Replica, b: Replica, client: redis.Redis
) -> None:
    token = await a.token()
    ahead = f":{(await a.reply()).clock + 3600 * SECOND}"
    client.hset(STATE, "done", ahead)
    await a.renew(token, Progress(ended_ago=2.0))
    kept: Any = client.hget(STATE, "done")
    assert int(kept[1:]) < int(ahead[1:]) - 3600 * SECOND
    await a.release()
    client.hset(STATE, "done", ahead)
    assert (await b.granted()).state.ended_ago == 0
    done, since = (str(client.hget(STATE, field)) for field in ("done", "since"))
    assert done == f":{since}"


async def test_an_order_to_step_down_that_outlasts_any_lease_came_from_a_wrong_clock_and_bars_nobody(
    a: Replica, client: redis.Redis
) -> None:
    now = (await a.reply()).clock
    client.hset(STATE, "resign", f"{now + 9 * SECOND};a")
    assert isinstance(await a.acquire(), Barred)
    client.hset(STATE, "resign", f"{now + 3600 * SECOND};a")
    assert isinstance(await a.acquire(), Granted)


async def test_what_one_leader_settled_the_next_does_not_owe(a: Replica, b: Replica, client: redis.Redis) -> None:
    token = await a.token()
    await a.renew(token, Progress(settled=token + 4))
    await a.renew(token, Progress(settled=token + 2))
    assert state(client)["off"] == str(token + 4)
    await a.renew(token, Progress(settled=token + 700 * SECOND))  # a wrong clock's
    await a.release(progress=Progress(settled=token + 5))
    assert expect(Granted, await b.acquire()).state.off == token + 5


async def test_what_is_owed_begins_at_the_first_sight_and_anew_after_being_off(
    a: Replica, b: Replica, client: redis.Redis
) -> None:
    first = await a.token(number=1)
    await a.release(number=1)
    assert expect(Granted, await b.acquire()).state.off == first
    await b.release(off=True)
    switched_on = expect(Granted, await a.acquire(number=2)).state
    assert switched_on.off == switched_on.wall
    await a.release(number=2)
    client.hdel(STATE, "off")
    client.hset(STATE, "slot", f"{first}:{first}:m")
    assert expect(Granted, await a.acquire(number=3)).state.off is None  # its slots are known, so it is not new


async def test_a_batch_that_comes_too_late_changes_nothing_and_tells_the_time(a: Replica, client: redis.Redis) -> None:
    request = Acquire(job="j", number=1, lock_expiry=10, above=0)
    at = now(client)
    reply = await a.reply(request, void_at=at - 1)
    assert (reply.void, reply.verdicts) == (True, ())
    assert at <= reply.clock <= now(client)
    assert client.dbsize() == 0
    assert isinstance((await a.reply(request, void_at=now(client) + 5 * SECOND)).verdicts[0], Granted)


async def test_a_thousand_jobs_go_in_one_exchange_and_the_verdicts_come_in_order(a: Replica, b: Replica) -> None:
    jobs = [f"job-{number}" for number in range(1000)]
    await b.reply(*(Acquire(job=job, number=1, lock_expiry=60, above=0) for job in jobs[::7]))
    reply = await a.reply(*(Acquire(job=job, number=1, lock_expiry=60, above=0) for job in jobs))
    assert [isinstance(verdict, Refused) for verdict in reply.verdicts] == [n % 7 == 0 for n in range(1000)]
    tokens = {
        job: verdict.token for job, verdict in zip(jobs, reply.verdicts, strict=True) if isinstance(verdict, Granted)
    }
    renewals = (Renew(job=job, token=token, lock_expiry=60, progress=NO_PROGRESS) for job, token in tokens.items())
    assert set((await a.reply(*renewals)).verdicts) == {Renewed()}


async def test_many_jobs_that_come_too_late_are_one_void_batch(a: Replica, client: redis.Redis) -> None:
    requests = (Acquire(job=f"j{number}", number=1, lock_expiry=60, above=0) for number in range(350))
    assert (await a.reply(*requests, void_at=1)).void
    assert client.dbsize() == 0


def test_the_part_of_a_long_batch_that_came_too_late_has_failed_and_the_rest_counts() -> None:
    # No server can be made to take that long on purpose, so the replies are written here.
    store = RedisStore(Address())
    requests = tuple(Release(job=f"j{number}", number=1, progress=NO_PROGRESS) for number in range(CHUNK + 2))
    batch = Batch(project="p", node="a", bound=1.0, void_at=150, requests=requests)
    reply = store._reply(batch, [[b"100", b"", b"", b"\n".join([b"D1"] * CHUNK)], [b"200"]])
    assert (reply.clock, reply.void, len(reply.verdicts)) == (200, False, CHUNK + 2)
    assert reply.verdicts[CHUNK - 1] == Released(mine=True)
    assert isinstance(reply.verdicts[CHUNK], Failed)


# -- keys that are not as we left them ------------------------------------------------------------------------------


async def test_a_key_of_a_wrong_type_costs_that_job_only(a: Replica, client: redis.Redis) -> None:
    client.hset("p:badlock:lock", "field", "1")
    client.set("{p:badstate:lock}:state", "text")
    jobs = ("first", "badlock", "badstate", "last")
    verdicts = (await a.reply(*(Acquire(job=job, number=1, lock_expiry=10, above=0) for job in jobs))).verdicts
    assert [type(verdict) for verdict in verdicts] == [Granted, Failed, Failed, Granted]
    wrong = "WRONGTYPE Operation against a key holding the wrong kind of value"
    assert verdicts[1:3] == (
        Failed(error=f"GET p:badlock:lock: {wrong}"),
        Failed(error=f"HMGET {{p:badstate:lock}}:state: {wrong}"),
    )
    assert client.exists("p:badstate:lock") == 0  # no lease that nobody was told of


async def test_a_state_that_cannot_be_written_costs_the_lease_and_leaves_no_key_without_it(
    server: Server, client: redis.Redis
) -> None:
    client.execute_command("ACL", "SETUSER", "bob", "on", ">pw", "~*", "allchannels", "+@all", "-hset")  # type: ignore[no-untyped-call]  # has no types
    replica = Replica(from_url(server.url.replace("//", "//bob:pw@")), "a")
    try:
        assert "HSET" in expect(Failed, await replica.acquire()).error
        assert client.exists(LOCK) == 0
    except StoreError:  # what lets nothing be written at all is the matter of all jobs
        assert client.exists(LOCK) == 0
    await replica.store.close()
    client.acl_deluser("bob")


async def test_a_set_of_names_of_a_wrong_type_costs_no_lease(
    a: Replica, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    client.set("p:jobs", "text")
    await a.token()
    (record,) = caplog.records
    assert (record.levelno, record.__dict__["event"]) == (logging.WARNING, "names-failed")


async def test_fields_that_make_no_sense_count_as_missing(a: Replica, client: redis.Redis) -> None:
    client.hset(STATE, mapping={"seq": "x", "token": "", "slot": "1:2", "done": "soon", "off": "never"})
    state = expect(Granted, await a.acquire()).state
    assert (state.slot, state.done, state.ended_ago, state.off) == (None, None, None, state.wall)


async def test_a_lease_whose_state_was_lost_is_taken_anew_by_its_holder_or_given_back(
    a: Replica, b: Replica, client: redis.Redis
) -> None:
    token = await a.token(number=5)
    client.delete(STATE)
    assert expect(Refused, await a.renew(token)).holder == "a"
    assert expect(Refused, await b.acquire()).holder == "a"
    assert expect(Granted, await a.acquire(number=2, above=token)).token > token
    client.delete(STATE)
    assert await a.release(number=1) == Released(mine=True)
    assert isinstance(await b.acquire(), Granted)


async def test_a_state_of_another_holder_says_nothing_about_a_lease_that_is_mine(
    a: Replica, client: redis.Redis
) -> None:
    client.set(LOCK, "a", px=10_000)
    client.hset(STATE, mapping={"holder": "b", "seq": "7", "token": "5"})
    assert expect(Granted, await a.acquire(number=2)).token > 5
    client.hset(STATE, mapping={"holder": "b", "seq": "7"})
    assert await a.release(number=2) == Released(mine=True)


async def test_a_lock_without_an_expiry_is_told_and_its_holder_gives_it_one(
    a: Replica, b: Replica, client: redis.Redis
) -> None:
    token = await a.token()
    client.persist(LOCK)
    assert await b.acquire() == Refused(holder="a", expires_in=None, token=token)
    assert await a.renew(token) == Renewed()
    assert int(client.pttl(LOCK)) > 9000
    client.persist(LOCK)
    await a.token(number=2)
    assert int(client.pttl(LOCK)) > 9000


async def test_c87_a_key_that_somebody_else_took_is_lost(a: Replica, client: redis.Redis) -> None:
    token = await a.token()
    client.set(LOCK, "stranger", px=10_000)
    refused = expect(Refused, await a.renew(token))
    assert (refused.holder, refused.foreign) == ("stranger", True)
    assert await a.release() == Released(mine=False)


# -- the original ---------------------------------------------------------------------------------------------------


async def test_p18_p20_the_originals_scripts_and_ours_take_the_same_lease_in_turn(
    a: Replica, b: Replica, client: redis.Redis
) -> None:
    acquire, release = client.register_script(ORIGINAL_ACQUIRE), client.register_script(ORIGINAL_RELEASE)
    for number in range(1, 6):
        # Theirs: ours asks in vain, sees that it is not one of us, and cannot release it.
        assert acquire(keys=[LOCK], args=["net-1", 10_000]) == 1
        refused = expect(Refused, await a.acquire(number=number))
        assert (refused.holder, refused.foreign) == ("net-1", True)
        assert close_to(refused.expires_in, 10)
        assert await a.release(number=number) == Released(mine=False)
        assert acquire(keys=[LOCK], args=["net-1", 10_000]) == 1
        assert release(keys=[LOCK], args=["net-1"]) == 1
        # Ours: theirs asks in vain and cannot release it.
        token = await a.token(number=number)
        assert acquire(keys=[LOCK], args=["net-1", 10_000]) == 0
        assert release(keys=[LOCK], args=["net-1"]) == 0
        assert await a.renew(token) == Renewed()
        assert expect(Refused, await b.acquire()).foreign is False
        assert await a.release(number=number) == Released(mine=True)


async def test_a_lease_of_the_original_that_ran_out_is_ours_and_the_other_way_round(
    a: Replica, client: redis.Redis
) -> None:
    acquire = client.register_script(ORIGINAL_ACQUIRE)
    assert acquire(keys=[LOCK], args=["net-1", 60]) == 1
    await asyncio.sleep(0.1)
    token = expect(Granted, await a.acquire(lock_expiry=0.06)).token
    await asyncio.sleep(0.1)
    assert acquire(keys=[LOCK], args=["net-1", 10_000]) == 1
    assert expect(Refused, await a.renew(token)).foreign is True


# -- the script -----------------------------------------------------------------------------------------------------


async def test_p19_c84_a_server_that_forgot_the_script_gets_its_text_within_the_same_call(
    a: Replica, client: redis.Redis
) -> None:
    token = await a.token()
    client.script_flush()
    client.config_resetstat()
    assert await a.renew(token) == Renewed()
    assert await a.renew(token) == Renewed()
    calls: dict[str, Any] = client.info("commandstats")
    assert (calls["cmdstat_evalsha"]["calls"], calls["cmdstat_eval"]["calls"]) == (2, 1)
    client.script_flush()
    requests = (Acquire(job=f"j{number}", number=1, lock_expiry=60, above=0) for number in range(350))
    assert {type(verdict) for verdict in (await a.reply(*requests)).verdicts} == {Granted}


async def test_jobs_that_are_released_together_are_told_together(a: Replica, b: Replica, client: redis.Redis) -> None:
    jobs = [f"job-{number}" for number in range(50)]
    await a.reply(*(Acquire(job=job, number=1, lock_expiry=10, above=0) for job in jobs))
    async with aclosing(subscription(b)) as notices:
        await anext(notices)
        await a.reply(*(Release(job=job, number=1, progress=NO_PROGRESS) for job in jobs))
        async with asyncio.timeout(5):
            assert await anext(notices) == set(jobs)
