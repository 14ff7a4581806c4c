"""Whole apps on real servers in one process: what goes wrong between a replica and its server, case by case.

Over 300 lines: a section per kind of trouble, and all lean on the same few apps.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
import redis as client_library

from integration.test_redis_store import FAST, RIGHTS
from proxy import Proxy
from redis_replicas import lock, old_enough, state
from replicas import boot
from servers import OLDEST, Server, free_port
from singletonjob import ConfigError, Run, SingletonJobs
from singletonjob.stores.protocol import Acquire, Batch, Progress, Refused, Release, Released
from singletonjob.stores.redis.address import address_from_url
from singletonjob.stores.redis.store import RedisStore
from virtual_loop import Capture, Gate
from waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import redis

    from singletonjob.stores import LeaseStore
    from singletonjob.stores.protocol import Reply

HEARTBEAT, MARGIN, CALL_TIMEOUT = 0.3, 0.1, 0.2
"""Of FAST, in seconds: a tenth of the defaults, and no amnesia guard."""

LONG: dict[str, str] = {"lock_expiry": "5s", "margin": "300ms"}
"""A lease so long that it is not its end that stops a leader."""

FORGOTTEN = HEARTBEAT + (5.0 - 0.3 - HEARTBEAT) / 3
"""Of FAST | LONG: a leader knows of a lease that the server forgot within one heartbeat and one call."""


class One:
    """An app with one job, `tick`, each 20 ms, and when its runs began and ended on the boot clock."""

    def __init__(self, who: str, store: str | LeaseStore, *, project: str = "pricing", **options: Any) -> None:
        self.runs: list[tuple[float, float]] = []
        self.remaining = (0.0, 0.0)  # of the term, and when
        self.app = SingletonJobs(project, store=store, node_id=who, **(FAST | options))

        @self.app.fixed_rate("20ms")
        async def tick(run: Run) -> None:
            began = boot()
            self.remaining = (run.remaining, began)
            try:
                await asyncio.sleep(0.01)
            finally:
                self.runs.append((began, boot()))

    @property
    def leads(self) -> bool:
        return self.app.is_leader("tick")

    def starts(self, after: float) -> list[float]:
        return [began for began, _ in self.runs if began > after]

    @property
    def first(self) -> float:
        return self.runs[0][0]

    @property
    def last(self) -> float:
        return self.runs[-1][1]


@asynccontextmanager
async def started(*ones: One) -> AsyncIterator[None]:
    """All of them run in this block; the first one has run, and the others hear notices, when it begins."""
    async with AsyncExitStack() as stack:
        for one in ones:
            await stack.enter_async_context(one.app)
            await until(lambda: any(one.runs for one in ones))
        await asyncio.sleep(0.3 if len(ones) > 1 else 0)
        yield


def proxied(proxy: Proxy) -> str:
    return f"redis://127.0.0.1:{proxy.port}/0"


# -- no answer is no leadership -------------------------------------------------------------------------------------


async def asked_in_vain(one: One, logs: Capture) -> str:
    """What it complained of, once."""
    async with one.app:
        await asyncio.sleep(1.0)
        assert not one.leads
        assert one.app.stats()["tick"].terms == 0
    assert one.runs == []
    (record,) = logs.of("heartbeat-error")
    return str(record.getMessage())


async def test_c02_a_refused_connection_is_no_lease(logs: Capture) -> None:
    one = One("b", f"redis://127.0.0.1:{free_port()}/0")
    assert "Connection refused" in await asked_in_vain(one, logs)


async def test_c02_silence_is_no_lease(proxy: Proxy, client: redis.Redis, logs: Capture) -> None:
    proxy.hold("down")  # all that it asks is carried out, and no answer comes
    assert "no answer to" in await asked_in_vain(One("b", proxied(proxy)), logs)


async def test_c02_the_refusal_of_a_replica_is_no_lease(server: Server, tmp_path: Path, logs: Capture) -> None:
    with Server(OLDEST, tmp_path, options={"replicaof": f"127.0.0.1 {free_port()}"}) as replica:
        assert "is a read-only replica" in await asked_in_vain(One("b", replica.url), logs)


async def test_c02_the_refusal_of_a_full_server_is_no_lease(server: Server, client: redis.Redis, logs: Capture) -> None:
    client.config_set("maxmemory", 1)
    try:
        assert "is out of memory" in await asked_in_vain(One("b", server.url), logs)
    finally:
        client.config_set("maxmemory", 0)
    assert client.dbsize() == 0


@pytest.mark.parametrize(
    "answer",
    [b"$-1\r\n", b"*-1\r\n", b"+OK\r\n", b"+1\r\n", b":1\r\n", b"*0\r\n", b"*4\r\n:1\r\n+\r\n+\r\n+G\r\n", b"?\r\n"],
)
async def test_c02_an_answer_of_another_shape_is_no_lease(answer: bytes, logs: Capture) -> None:
    asked = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        with suppress(OSError):
            while data := await reader.read(65536):
                if b"EVAL" in data:
                    asked += 1
                    writer.write(answer)
                elif b"INFO" in data:  # the reading
                    writer.write(b"*2\r\n$10\r\n1795000000\r\n$1\r\n0\r\n$-1\r\n")
                else:
                    writer.write(b"*3\r\n$9\r\nsubscribe\r\n$14\r\npricing:notice\r\n:1\r\n")
                await writer.drain()
        writer.transport.abort()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as fake:
        url = f"redis://127.0.0.1:{fake.sockets[0].getsockname()[1]}/0"
        one = One("b", url, lock_expiry="400ms", heartbeat_interval="100ms", max_backoff_delay="200ms")
        async with one.app:
            await until(lambda: asked >= 3)
            await asyncio.sleep(0.1)
            assert not one.leads
            assert one.app.stats()["tick"].terms == 0
        fake.close()
    assert one.runs == []


class Raising(Gate):
    """Raises, at random, what no store should."""

    KINDS = (ConnectionResetError, TimeoutError, OSError, ValueError, KeyError, MemoryError, ZeroDivisionError)

    def __init__(self, store: LeaseStore) -> None:
        super().__init__(store)
        self.raised = 0
        self.on = False

    async def exchange(self, batch: Batch) -> Reply:
        if self.on:
            self.raised += 1
            kind = random.choice(
                [*self.KINDS, asyncio.QueueFull, asyncio.InvalidStateError, client_library.ResponseError]
            )
            raise kind("whatever")
        return await super().exchange(batch)

    async def close(self) -> None:
        await self.store.close()


async def test_c07_the_heartbeat_survives_whatever_a_store_raises(server: Server, client: redis.Redis) -> None:
    gate = Raising(RedisStore(address_from_url(server.url)))
    one = One("a", gate, heartbeat_interval="20ms", max_backoff_delay="20ms")
    async with started(one):
        gate.on = True
        await until(lambda: gate.raised >= 200 and not one.leads, 20)
        gate.on = False
        resumed = boot()
        await until(lambda: one.starts(resumed))


# -- a server that forgot -------------------------------------------------------------------------------------------


async def test_c20_after_a_flush_the_old_leader_runs_for_a_heartbeat_and_a_call_at_most(
    server: Server, client: redis.Redis, logs: Capture
) -> None:
    a, b = (One(who, server.url, **LONG) for who in "ab")
    async with started(a):
        client.flushdb()
        async with b.app:  # asks as soon as it can
            await until(lambda: b.leads)
            await until(lambda: b.runs)
            await until(lambda: not a.leads)
            await asyncio.sleep(0.2)
            assert a.last - b.first <= FORGOTTEN
            assert logs.of("lost")
            count = len(a.runs)
            await asyncio.sleep(2 * HEARTBEAT)
            assert len(a.runs) == count
            assert str(client.get(lock())).startswith("b-")


async def test_c21_s8_without_the_guard_an_empty_server_has_one_leader_at_a_time_of_those_that_were_following(
    tmp_path: Path,
) -> None:
    with Server(OLDEST, tmp_path) as own:
        apps = {who: One(who, own.url, **LONG) for who in "abc"}
        async with started(*apps.values()):
            for _ in range(3):
                (old,) = [one for one in apps.values() if one.leads]
                terms = old.app.stats()["tick"].terms
                own.kill()
                own.start()
                back = boot()
                with own.client(decode_responses=True) as look:
                    await until(lambda: look.exists(lock()))
                    assert boot() - back < 3 * (1.2 * 0.5 + FORGOTTEN)
                    (new,) = [one for who, one in apps.items() if str(look.get(lock())).startswith(f"{who}-")]
                if new is old:  # it had to ask like everybody else
                    await until(lambda: old.app.stats()["tick"].terms == terms + 1)  # noqa: B023 - called at once
                else:
                    await until(lambda: new.starts(back) and not old.leads)  # noqa: B023 - called at once
                    assert old.last < new.starts(back)[0]
                await asyncio.sleep(0.7)
                assert [one for one in apps.values() if one.leads] == [new]


async def test_c41_after_a_fail_over_that_lost_the_lease_its_term_is_not_continued(
    tmp_path: Path, logs: Capture
) -> None:
    (tmp_path / "replica").mkdir()
    with (
        Server("valkey-9", tmp_path) as master,
        Server("valkey-9", tmp_path / "replica", options={"replicaof": f"127.0.0.1 {master.port}"}) as replica,
        replica.client(decode_responses=True) as inside,
    ):
        await until(lambda: inside.info("replication")["master_link_status"] == "up")
        inside.replicaof("NO", "ONE")  # it misses all that comes
        async with Proxy(master.port) as proxy:
            a, b = (One(who, proxied(proxy), **LONG) for who in "ab")
            async with started(a, b):
                with master.client(decode_responses=True) as look:
                    old = int(str(look.hget(state(), "token")))
                master.kill()
                proxy.target = replica.port
                proxy.hang_up()
                await until(lambda: inside.exists(lock()))
                await until(lambda: logs.of("lost") or a.app.stats()["tick"].terms > 1)
                assert int(str(inside.hget(state(), "token"))) > old
                await until(lambda: a.leads != b.leads)
                await until(lambda: a.leads or b.runs)
                assert a.leads or a.last - b.first <= FORGOTTEN
        assert {record.token for record in logs.of("elected")} > {old}


async def test_c84_a_restart_that_kept_the_data_costs_no_leadership(tmp_path: Path, logs: Capture) -> None:
    with Server("valkey-9", tmp_path, options={"appendonly": "yes", "appendfsync": "always"}) as own:
        one = One("a", own.url, **LONG)
        async with started(one):
            for _ in range(3):
                own.kill()
                own.start()  # it knows the script no more
                await asyncio.sleep(2 * HEARTBEAT)
            assert one.leads
            assert one.app.stats()["tick"].terms == 1
        assert max(later[0] - earlier[0] for earlier, later in itertools.pairwise(one.runs)) < 0.5
        assert logs.of("lost") == []


async def test_a_server_that_restarts_with_an_old_state_makes_no_second_leader(tmp_path: Path) -> None:
    with Server(OLDEST, tmp_path) as own, own.client(decode_responses=True) as look:
        old_enough(own, 2)
        on = True
        a = One("a", own.url, amnesia_guard=True, enabled=lambda: on)
        b = One("b", own.url, amnesia_guard=True)
        async with started(a, b):
            look.pexpire(lock(), 10_000)  # as if the snapshot were just written when the server comes back
            look.save()
            snapshot = (tmp_path / "dump.rdb").read_bytes()
            on = False
            await until(lambda: b.runs)
            on = True
            await asyncio.sleep(2 * HEARTBEAT)
            own.kill()
            (tmp_path / "dump.rdb").write_bytes(snapshot)
            count = len(a.runs)
            own.start()
            back = boot()
            await until(lambda: len(a.runs) > count)  # the key names it, and it is there
            again = a.runs[count][0]
            assert 0.9 < again - back < 2 + 5 * 0.5  # the server tells its up-time in whole seconds
            assert b.last < again
            assert b.last - back < 1.0 - MARGIN


# -- names ----------------------------------------------------------------------------------------------------------


async def test_c22_jobs_of_one_name_in_two_projects_on_one_server_both_run(server: Server, client: redis.Redis) -> None:
    staging, production = One("a", server.url, project="staging"), One("a", server.url, project="production")
    async with staging.app, production.app:
        await until(lambda: staging.runs and production.runs)
        assert staging.leads
        assert production.leads
        assert client.exists(lock(project="staging"), lock(project="production")) == 2
    for project in ("a:b", "", " "):
        with pytest.raises(ConfigError):
            SingletonJobs(project, store=server.url)


@pytest.mark.parametrize(("holder", "asks"), [("n-10", "n-1"), ("n-1", "n-10"), ("n ", "n"), ("n", "n "), ("N", "n")])
async def test_c23_only_the_whole_name_is_the_holder(
    server: Server, client: redis.Redis, holder: str, asks: str
) -> None:
    store = RedisStore(address_from_url(server.url))
    client.set(lock(), holder, px=60_000)

    async def ask(*requests: Acquire | Release) -> Reply:
        return await store.exchange(Batch(project="pricing", node=asks, bound=5.0, requests=requests))

    await ask()
    (refused,) = (await ask(Acquire(job="tick", number=1, lock_expiry=60, above=0))).verdicts
    assert isinstance(refused, Refused)
    assert refused.holder == holder
    assert (await ask(Release(job="tick", number=1, progress=Progress()))).verdicts == (Released(mine=False),)
    assert client.get(lock()) == holder
    await store.close()


# -- leaving --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_flight", [False, True])
async def test_c37_cancelling_the_task_that_runs_an_app_releases_its_lease(
    proxy: Proxy, client: redis.Redis, in_flight: bool
) -> None:
    for _ in range(5):
        one = One("a", proxied(proxy))
        task = asyncio.create_task(one.app.serve(signals=False))
        await until(lambda: one.leads)  # noqa: B023 - called at once
        if in_flight:
            proxy.hold("down")
            client.config_resetstat()
            await until(lambda: "cmdstat_evalsha" in client.info("commandstats"))
        task.cancel()
        asyncio.get_running_loop().call_later(0.03, proxy.let_through)
        left = boot()
        await until(lambda: not client.exists(lock()))
        assert boot() - left < 0.5
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_c38_stopping_twice_and_at_once_never_ends_the_next_ones_lease(
    server: Server, client: redis.Redis
) -> None:
    a, b = (One(who, server.url) for who in "ab")
    async with started(a, b):
        leaving = [asyncio.create_task(a.app.__aexit__(None, None, None)) for _ in range(2)]
        await until(lambda: b.leads)
        await asyncio.gather(*leaving)
        await a.app.__aexit__(None, None, None)
        await asyncio.sleep(0.1)
        assert b.leads
        assert str(client.get(lock())).startswith("b-")


# -- a connection that fails ----------------------------------------------------------------------------------------


async def test_c39_a_grant_whose_answer_was_lost_is_taken_up_with_the_next_try_and_counted_from_its_sending(
    proxy: Proxy, client: redis.Redis
) -> None:
    client.set(lock(), "stranger", px=60_000)
    one = One("a", proxied(proxy), **LONG)
    async with one.app:
        await asyncio.sleep(0.4)
        proxy.hold("down")  # what it asks is carried out, and the answer is dropped
        client.delete(lock())
        await until(lambda: str(client.get(lock())).startswith("a-"))
        token = int(str(client.hget(state(), "token")))
        await asyncio.sleep(0.1)
        proxy.hang_up()
        proxy.let_through()
        lost = boot()
        await until(lambda: one.runs)
        # One retry: 1.2 times a heartbeat doubled, at most the longest back-off.
        assert boot() - lost < 3 * 1.2 * 0.5
        assert int(str(client.hget(state(), "token"))) > token
        remaining, at = one.remaining
        ends = boot() + int(client.pttl(lock())) / 1000
        assert at + remaining <= ends - 0.3 + 0.002  # the margin; PTTL is in whole milliseconds


# -- rights ---------------------------------------------------------------------------------------------------------


def user(server: Server, *missing: str) -> str:
    """A user with the documented rights of project `pricing`, but for some; its URL."""
    return server.user(*(right.replace("p:*", "pricing:*") for right in RIGHTS if right not in missing))


async def test_c88_with_the_documented_rights_one_takes_over_from_another_without_a_complaint(
    server: Server, client: redis.Redis, logs: Capture
) -> None:
    url = user(server)
    a, b = (One(who, url, **LONG) for who in "ab")
    async with started(a, b):
        await a.app.__aexit__(None, None, None)
        await until(lambda: b.runs)
        assert b.first - a.last < 5 * 0.05 + 0.02
    # Of dropped ticks a busy machine is to blame.
    warnings = [record.getMessage() for record in logs.records if record.levelno >= logging.WARNING]
    assert [text for text in warnings if "dropped" not in text] == []


async def test_c88_without_the_channel_a_release_is_a_warning_and_the_next_one_leads_within_a_heartbeat(
    server: Server, client: redis.Redis, logs: Capture
) -> None:
    url = user(server, "&p:*")
    a, b = (One(who, url, **LONG) for who in "ab")
    async with started(a, b):
        await a.app.__aexit__(None, None, None)
        await until(lambda: b.runs)
        assert b.first - a.last < 3 * HEARTBEAT
    assert {record.levelno for record in logs.of("publish-failed")} == {logging.WARNING}


@pytest.mark.parametrize("missing", [("+evalsha",), ("+evalsha", "+eval"), ("+set",)])
async def test_c88_without_a_command_nothing_runs_and_the_error_names_it_without_a_storm(
    server: Server, client: redis.Redis, logs: Capture, missing: tuple[str, ...]
) -> None:
    url = user(server, *missing)
    client.execute_command("ACL", "LOG", "RESET")  # type: ignore[no-untyped-call]  # has no types
    client.config_resetstat()
    one = One("a", url)
    async with one.app:
        await asyncio.sleep(2)
        stats = client.info("commandstats")
    assert one.runs == []
    (record,) = logs.of("heartbeat-error")
    assert f"has not the right for {missing[0][1:].upper()}" in record.getMessage()
    # Each try begins with a reading, which asks for INFO; between two of them is a back-off of 0.4 s at least.
    assert 2 <= stats["cmdstat_info"]["calls"] <= 8
