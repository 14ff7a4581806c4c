"""Cases from the field about connections, replies and endpoints: whole apps on a real server, or a proxy before it.

`lock_expiry` is 1 s, a tenth of the default, and the other durations likewise. Over 300 lines: a section per kind of
case, and all lean on the same few apps.
"""

from __future__ import annotations

import asyncio
import random
import re
from contextlib import ExitStack, asynccontextmanager, suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from integration.test_redis_apps import CALL_TIMEOUT, HEARTBEAT, LONG, MARGIN, One, proxied, started
from integration.test_redis_store import FAST
from proxy import Proxy
from redis_replicas import lock, state
from replicas import boot
from servers import KINDS, OLDEST, Server
from singletonjob import SingletonJobs, StoreUnavailable
from singletonjob.stores import from_url
from singletonjob.stores.protocol import Acquire, Batch, Inspectable
from singletonjob.stores.redis.address import address_from_url
from singletonjob.stores.redis.store import RedisStore
from virtual_loop import Capture, Gate
from waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from singletonjob.stores.protocol import Reply

MAX_BACK_OFF = 0.5
BACK = 1.2 * HEARTBEAT + CALL_TIMEOUT
BACK_AFTER_REFUSALS = 1.2 * MAX_BACK_OFF + CALL_TIMEOUT
"""Somebody leads so soon after the server answers again, and after it no longer refuses commands (L3)."""


@asynccontextmanager
async def many(url: str, jobs: int) -> AsyncIterator[SingletonJobs]:
    """An app with so many jobs, `j0` and so on, that leads them all."""
    app = SingletonJobs("pricing", store=url, **FAST)
    for number in range(jobs):
        app.interval("1h", name=f"j{number}")(nothing)
    async with app:
        await until(lambda: leads_all(app))
        yield app


async def nothing() -> None: ...


def leads_all(app: SingletonJobs) -> bool:
    return all(app.is_leader(job) for job in app.stats())


# -- connections ----------------------------------------------------------------------------------------------------


async def test_c81_connections_that_are_closed_all_the_time_cost_no_leadership_and_no_tick(
    server: Server, client: Any, logs: Capture
) -> None:
    one = One("a", server.url, **LONG)
    async with started(one):
        for _ in range(5):
            await asyncio.sleep(0.7)
            client.client_kill_filter(_type="normal", skipme=True)
        await asyncio.sleep(0.3)
        assert one.leads
        assert one.app.stats()["tick"].terms == 1
    # A tick each 20 ms, of which a busy machine may drop some in a row.
    assert max(later - earlier for (earlier, _), (later, _) in pairwise(one.runs)) < 0.5
    assert logs.of("lost") == []


async def test_c81_a_follower_whose_idle_connection_was_closed_takes_over_in_time(tmp_path: Path) -> None:
    with Server("valkey-9", tmp_path, options={"timeout": "1"}) as own:
        a, b = (One(who, own.url, **LONG) for who in "ab")
        async with started(a, b):
            # A follower of a lease of 5 s says nothing until then.
            await asyncio.sleep(2.5)
            with own.client() as look:
                look.client_kill_filter(_type="normal", skipme=True)
            await a.app.__aexit__(None, None, None)
            await until(lambda: b.runs)
            # One call fails at once, and the next one is a heartbeat away at most.
            assert b.first - a.last < 3 * BACK


async def test_s6_a_leader_reports_its_runs_again_on_a_new_connection_because_the_server_may_have_older_data(
    server: Server, client: Any
) -> None:
    key = state("j0")
    async with many(server.url, 1):
        await until(lambda: client.hexists(key, "run"))
        reported = client.hget(key, "run")
        client.hdel(key, "run", "done")  # as on a replica that was promoted
        client.client_kill_filter(_type="normal", skipme=True)
        await until(lambda: client.hexists(key, "done"))
        assert client.hget(key, "run") == reported


async def test_s6_a_leader_reports_its_runs_again_when_a_job_with_a_broken_state_can_be_served_again(
    server: Server, client: Any, logs: Capture
) -> None:
    key = state("j0")
    async with many(server.url, 1):
        await until(lambda: client.hexists(key, "run"))
        kept = client.hgetall(key)
        reported = kept.pop("run")
        del kept["done"]
        client.set(key, "not a hash")
        await until(lambda: logs.of("job-error"))
        client.delete(key)
        client.hset(key, mapping=kept)  # by hand, or from an older copy
        await until(lambda: client.hexists(key, "done"))
        assert client.hget(key, "run") == reported


async def test_c83_a_demoted_server_is_left_for_the_one_that_the_name_stands_for_now(
    tmp_path: Path, logs: Capture
) -> None:
    (tmp_path / "other").mkdir()
    with (
        Server(OLDEST, tmp_path) as old,
        Server(OLDEST, tmp_path / "other") as new,
        old.client() as in_old,
        new.client(decode_responses=True) as in_new,
    ):
        async with Proxy(old.port) as proxy:
            a, b = (One(who, proxied(proxy)) for who in "ab")
            async with started(a, b):
                proxy.target = new.port  # for new connections; those that are open stay
                in_old.replicaof("127.0.0.1", new.port)
                demoted = boot()
                await until(lambda: in_new.exists(lock()))
                assert boot() - demoted < 3 * BACK_AFTER_REFUSALS + 1  # or the end of the lease, if that is later
                back = boot()
                await until(lambda: a.starts(back) or b.starts(back))
                await asyncio.sleep(2 * HEARTBEAT)
                assert a.leads != b.leads
                assert [run for run in a.runs for other in b.runs if run[0] < other[1] and other[0] < run[1]] == []
    assert any("is a read-only replica" in record.getMessage() for record in logs.of("heartbeat-error"))


async def test_c85_fifty_jobs_and_fifty_restarts_of_the_server_need_two_connections(tmp_path: Path) -> None:
    with Server("valkey-9", tmp_path) as own:
        async with many(own.url, 50) as app:
            for _ in range(50):
                own.kill()
                await asyncio.to_thread(own.start)
                await asyncio.sleep(random.uniform(0, 0.05))
            with own.client() as look:
                await until(lambda: leads_all(app))
                counts = set()
                for _ in range(20):
                    counts.add(len(look.client_list()) - 1)  # but for our own
                    await asyncio.sleep(0.03)
                assert max(counts) <= 2


async def test_c85_a_thousand_calls_given_up_leave_no_connection_behind(server: Server, client: Any) -> None:
    before = len(client.client_list())
    store = RedisStore(address_from_url(server.url))
    most = 0
    for number in range(1000):
        task = asyncio.create_task(ask(store, number + 1))
        await asyncio.sleep(number % 7 / 7000)
        task.cancel()
        with suppress(asyncio.CancelledError, StoreUnavailable):
            await task
        if number % 50 == 0:
            await until(lambda: len(client.client_list()) <= before + 1, 1)
            most = max(most, len(store._links))
    assert most <= 1
    await ask(store, 2000)
    await store.close()


async def ask(store: RedisStore, number: int) -> Reply:
    await store.exchange(Batch(project="pricing", node="me", bound=5.0))
    asked = Acquire(job="tick", number=number, lock_expiry=60, above=0)
    return await store.exchange(Batch(project="pricing", node="me", bound=5.0, requests=(asked,)))


# -- what a server may answer ---------------------------------------------------------------------------------------

KEY = re.compile(r"\{?pricing:")

REFUSALS = (
    "LOADING Redis is loading the dataset in memory",
    "MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk.",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "BUSY Redis is busy running a script.",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "CLUSTERDOWN The cluster is down",
    "NOREPLICAS Not enough good replicas to write.",
    "ERR something that nobody has heard of",
)


async def test_c82_whatever_a_server_refuses_with_no_run_starts_past_the_fence_and_all_goes_on_after_it(
    proxy: Proxy, client: Any
) -> None:
    a, b = (One(who, proxied(proxy)) for who in "ab")
    async with started(a, b):
        refused_at = boot()
        for refusal in REFUSALS:
            proxy.refusal = f"-{refusal}\r\n".encode()
            refused = proxy.refusals
            await asyncio.sleep(0.5)
            await until(lambda: proxy.refusals > refused)  # noqa: B023 - called at once
        assert [one.app.health().status for one in (a, b)] == ["store_down"] * 2
        assert max(a.starts(0) + b.starts(0)) < refused_at + 1.0 - MARGIN
        proxy.refusal = b""
        healed = boot()
        await until(lambda: a.starts(healed) or b.starts(healed))
        assert boot() - healed < 3 * BACK_AFTER_REFUSALS
    assert [run for run in a.runs for other in b.runs if run[0] < other[1] and other[0] < run[1]] == []


async def test_c99_a_slow_reply_makes_the_lease_worth_less_by_as_much(proxy: Proxy, client: Any) -> None:
    proxy.delay = 0.4  # each way
    one = One("a", proxied(proxy), **LONG)
    async with one.app:
        await until(lambda: one.runs)
        remaining, _ = one.remaining
        assert remaining <= 5.0 - 0.3 - 2 * 0.4  # expiry, margin, and the time on the way
        assert one.app.stats()["tick"].terms == 1
        proxy.delay = 0.0


async def test_c99_a_reply_after_the_calls_bound_is_no_renewal_and_one_after_the_lease_no_leadership(
    proxy: Proxy, client: Any
) -> None:
    one = One("a", proxied(proxy))
    async with started(one):
        proxy.delay = 0.75 * CALL_TIMEOUT  # each way: carried out in the server, and answered too late
        slow = boot()
        await asyncio.sleep(1.4)
        assert not one.leads
        assert one.last < slow + 1.0 - MARGIN + 0.02
        assert one.starts(slow + 1.0 - MARGIN) == []
        proxy.hold("down")  # older than the lease when it arrives
        proxy.delay = 0.0
        await asyncio.sleep(1.2)
        terms = one.app.stats()["tick"].terms
        proxy.let_through()
        await until(lambda: one.leads)
        assert one.app.stats()["tick"].terms == terms + 1
        remaining, at = one.remaining
        assert at + remaining <= boot() + int(client.pttl(lock())) / 1000 - MARGIN + 0.002


# -- a call that does not end ---------------------------------------------------------------------------------------


class Stubborn(Gate):
    """A store whose calls, once it hangs, do not heed their cancellation for two leases."""

    async def exchange(self, batch: Batch) -> Reply:
        if self.hang:
            until = boot() + 2.0
            while boot() < until:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(until - boot())
        return await self.store.exchange(batch)

    async def close(self) -> None:
        await self.store.close()


async def test_c98_a_call_that_ignores_its_cancellation_delays_neither_the_fence_nor_the_next_leader(
    server: Server, client: Any
) -> None:
    gate = Stubborn(RedisStore(address_from_url(server.url)))
    a, b = One("a", gate), One("b", server.url)
    ended: list[float] = []

    @a.app.interval("1h")
    async def long() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(boot())

    async with started(a, b):
        await until(lambda: a.app.is_leader("long"))
        gate.hang = True
        hung = boot()
        await until(lambda: b.runs)
        assert not a.leads
        (cancelled,) = ended
        assert cancelled < hung + 1.0 - MARGIN + MARGIN / 2
        assert a.starts(hung + 1.0 - MARGIN) == []
        assert b.first - hung < 1.01 + 5 * 0.1
        gate.hang = False


# -- the wrong endpoint ---------------------------------------------------------------------------------------------


async def test_c90_a_plain_url_to_a_cluster_says_so_and_nothing_runs(tmp_path: Path, logs: Capture) -> None:
    with ExitStack() as stack:
        nodes = []
        for number in range(2):
            (tmp_path / str(number)).mkdir()
            options = {"cluster-enabled": "yes"}
            node = Server("valkey-9", tmp_path / str(number), options=options)
            nodes.append(stack.enter_context(node))
        inside: list[Any] = [stack.enter_context(node.client(decode_responses=True)) for node in nodes]
        inside[0].execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 8191)
        inside[1].execute_command("CLUSTER", "ADDSLOTSRANGE", 8192, 16383)
        inside[0].execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[1].port)
        for node in inside:
            await until(lambda: node.execute_command("CLUSTER INFO")["cluster_state"] == "ok")  # noqa: B023 - called at once
        runs: list[str] = []
        app = SingletonJobs("pricing", store=nodes[0].url, **FAST)

        async def body() -> None:
            runs.append("run")

        for number in range(20):
            app.interval("50ms", name=f"j{number}")(body)
        inside[0].config_resetstat()
        async with app:
            await until(lambda: logs.of("heartbeat-error"))
            await asyncio.sleep(1.5)
            assert app.health().status == "store_down"
        calls = inside[0].info("commandstats")["cmdstat_evalsha"]["calls"]
    (record,) = logs.of("heartbeat-error")
    assert "is a node of a Cluster" in record.getMessage()
    assert runs == []
    assert calls <= 2 + 1.5 / HEARTBEAT  # no storm


@pytest.mark.parametrize("kind", KINDS)
async def test_c89_scripts_touch_no_key_but_those_that_they_are_given(kind: str, tmp_path: Path) -> None:
    with Server(kind, tmp_path) as own, own.client(decode_responses=True) as look, look.monitor() as watch:
        async with many(own.url, 3):
            await asyncio.sleep(2 * HEARTBEAT)
        store = from_url(own.url)
        assert isinstance(store, Inspectable)
        await store.peek("pricing")
        await store.inspect("pricing")
        await store.close()
        with own.client() as last:
            last.echo("the end")
        given: set[str] = set()
        seen: set[str] = set()
        while (command := watch.next_command())["command"] != "ECHO the end":
            words = str(command["command"]).split(" ")
            if words[0].upper() in {"EVAL", "EVALSHA"}:
                # A script's text has spaces, too; it is followed by the number of keys, and then by the keys.
                places = [at for at, (word, key) in enumerate(pairwise(words)) if word.isdigit() and KEY.match(key)]
                given = {key for at in places[:1] for key in words[at + 1 : at + 1 + int(words[at])]}
            elif command["client_type"] == "lua" and words[0].upper() not in {"TIME", "PUBLISH"}:
                seen.add(words[0].upper())
                assert words[1] in given, words
    assert seen >= {"GET", "SET", "HMGET", "HSET", "PEXPIRE", "DEL", "SADD"}


# -- loops ----------------------------------------------------------------------------------------------------------


def test_c105_an_app_runs_on_one_loop_after_the_other_and_in_a_thread(server: Server, client: Any) -> None:
    one = One("a", server.url)

    async def until_it_ran() -> None:
        count = len(one.runs)
        async with one.app:
            await until(lambda: len(one.runs) > count)

    for _ in range(2):
        asyncio.run(until_it_ran())
    with one.app.in_thread():
        count = len(one.runs)
        deadline = boot() + 10
        while len(one.runs) == count:
            assert boot() < deadline
    asyncio.run(until_it_ran())
    assert not client.exists(lock())
    assert client.hget(state(), "holder").startswith("a-")
