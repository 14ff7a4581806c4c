"""What a look into a store shows, whatever keeps the leases; nothing that looks is a replica."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest

from servers import ALL_KINDS, Server
from singletonjob import StoreError, StoreUnavailable
from singletonjob.stores import from_url
from singletonjob.stores.memory import MemoryStore
from singletonjob.stores.protocol import (
    Acquire,
    Batch,
    Granted,
    Inspectable,
    JobView,
    Progress,
    Release,
    Renew,
    Renewed,
)
from singletonjob.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import redis

    from singletonjob.stores import LeaseStore
    from singletonjob.stores.protocol import Request, Verdict


CHANNELS = ("resetchannels", "&p:*")

DYING = """
import asyncio, os, sys
from singletonjob.stores import from_url
from singletonjob.stores.protocol import Acquire, Batch

async def main():
    store = from_url(sys.argv[1])
    await store.exchange(Batch("p", "n-1", 5.0))
    await store.exchange(Batch("p", "n-1", 5.0, None, (Acquire("a", 1, 300.0, 0),)))
    os._exit(0)

asyncio.run(main())
"""


@pytest.fixture(scope="module", params=ALL_KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(request.param, tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(params=["memory", "sqlite", *ALL_KINDS])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], LeaseStore]]:
    """What makes a store, each time another way to the same leases."""
    if request.param == "memory":
        store = MemoryStore()
        yield lambda: store
    elif request.param == "sqlite":
        yield lambda: SqliteStore(tmp_path / "leases.db")
    else:
        with Server(request.param, tmp_path) as server:
            yield lambda: from_url(server.url)


async def ask(store: LeaseStore, *requests: Request, node: str = "n-1", project: str = "p") -> tuple[Verdict, ...]:
    """As a replica would; its first exchange is a reading."""
    await store.exchange(Batch(project, node, 5.0))
    return (await store.exchange(Batch(project, node, 5.0, None, requests))).verdicts


def bare(view: JobView) -> JobView:
    """Without what is about the look and not about the job."""
    return view._replace(standby=None, wall=None)


async def granted(store: LeaseStore, job: str, seconds: float = 30.0, **where: str) -> int:
    (verdict,) = await ask(store, Acquire(job, 1, seconds, 0), **where)
    assert isinstance(verdict, Granted)
    return verdict.token


async def test_who_leads_is_seen_by_a_store_that_nobody_started(make: Callable[[], LeaseStore]) -> None:
    replica = make()
    await granted(replica, "other", project="q")
    second = await granted(replica, "b")
    first = await granted(replica, "a", node="n-2")
    await ask(replica, Renew("a", first, 30.0, Progress(ended_ago=100.0)), node="n-2")

    one, two = await make().peek("p")

    assert (one.job, one.holder, one.token, one.paused) == ("a", "n-2", first, None)
    assert (two.job, two.holder, two.token, two.ended) == ("b", "n-1", second, None)
    assert one.since == first  # a first token is the store's wall clock
    assert one.ended is not None
    assert 99 < (one.since - one.ended) / 1e6 < 101
    assert one.expires_in is not None
    assert 20 < one.expires_in <= 30
    await replica.close()


async def test_nobody_leads_after_a_release_and_the_last_end_stays(make: Callable[[], LeaseStore]) -> None:
    replica = make()
    token = await granted(replica, "a")
    await ask(replica, Release("a", 1, Progress(ended_ago=5.0)))
    (view,) = await make().peek("p")
    assert bare(view)._replace(ended=None) == JobView(job="a")
    assert view.ended is not None
    assert abs(view.ended - token + 5_000_000) < 2_000_000
    await replica.close()


async def test_a_lease_that_ended_by_itself_is_nobody_s(make: Callable[[], LeaseStore]) -> None:
    replica = make()
    await granted(replica, "a", 0.1)
    async with asyncio.timeout(10):
        while (await make().peek("p"))[0].holder is not None:
            await asyncio.sleep(0.02)
    assert [bare(view) for view in await make().peek("p")] == [JobView(job="a")]
    await replica.close()


async def test_a_job_that_was_only_asked_about_is_not_shown(make: Callable[[], LeaseStore]) -> None:
    replica = make()
    await ask(replica, Renew("a", 7, 30.0, Progress()), Release("b", 1, Progress()))
    assert await make().peek("p") == ()
    await replica.close()


async def test_looking_does_not_disturb_the_one_that_leads(make: Callable[[], LeaseStore]) -> None:
    replica = make()
    token = await granted(replica, "a")
    looks = asyncio.gather(*(make().peek("p") for _ in range(5)))
    (renewed,) = await ask(replica, Renew("a", token, 30.0, Progress()))
    assert isinstance(renewed, Renewed)
    assert {view.token for views in await looks for view in views} == {token}
    assert (await make().peek("p"))[0].token == token
    await replica.close()


# -- SQLite --------------------------------------------------------------------------------------------------------


async def test_a_file_that_is_not_there_is_told_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"there is no file .*leases.db; no replica"):
        await SqliteStore(tmp_path / "leases.db").peek("p")
    assert list(tmp_path.iterdir()) == []


async def test_a_file_of_another_program_is_told(tmp_path: Path) -> None:
    (tmp_path / "leases.db").write_bytes(b"SQLite format 4\0 and so on" * 99)
    with pytest.raises(StoreError, match="is not an SQLite database"):
        await SqliteStore(tmp_path / "leases.db").peek("p")
    (tmp_path / "empty.db").touch()
    with pytest.raises(StoreError, match="holds no leases"):
        await SqliteStore(tmp_path / "empty.db").peek("p")


async def test_a_path_with_signs_of_a_url_is_a_path(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a?mode=rw#%41.db")
    token = await granted(store, "a")
    assert (await store.peek("p"))[0].token == token
    await store.close()


async def test_a_holder_that_died_leads_no_more_though_its_lease_lasts(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'leases.db'}"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", DYING, url)
    assert await process.wait() == 0
    assert [bare(view) for view in await from_url(url).peek("p")] == [JobView(job="a")]


# -- Redis ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    with server.client() as client:
        client.flushall()
        client.acl_deluser("bob")
        yield client


def let_bob(client: redis.Redis, *rules: str) -> None:
    """Make a user of the password `pw` with these rights."""
    client.execute_command("ACL", "SETUSER", "bob", "on", ">pw", *rules)  # type: ignore[no-untyped-call]  # has no types


async def test_a_leader_of_another_implementation_has_no_token(server: Server, client: redis.Redis) -> None:
    store = from_url(server.url)
    await granted(store, "a")
    client.set("p:a:lock", "original-7", px=20_000)
    client.sadd("p:jobs", "b", "c")
    client.set("p:b:lock", "original-8")
    client.lpush("p:c:lock", "what is this")
    a, b, c = await from_url(server.url).peek("p")
    assert a[:4] == ("a", "original-7", None, None)
    assert a.expires_in is not None
    assert 10 < a.expires_in <= 20
    assert bare(b) == JobView(job="b", holder="original-8")
    assert bare(c) == JobView(job="c")
    await store.close()


async def test_more_jobs_than_fit_into_one_call_are_shown_in_order(server: Server, client: redis.Redis) -> None:
    store = from_url(server.url)
    names = [f"job-{number:03}" for number in range(250)]
    await ask(store, *(Acquire(name, number + 1, 30.0, 0) for number, name in enumerate(names)))
    assert [view.job for view in await store.peek("p") if view.holder == "n-1"] == names
    await store.close()


async def test_a_look_without_the_right_names_it(server: Server, client: redis.Redis) -> None:
    let_bob(client, "~*", "+@all", "-smembers")
    with pytest.raises(StoreError, match=r"user 'bob' at .* has not the right for SMEMBERS"):
        await from_url(server.url.replace("//", "//bob:pw@")).peek("p")


async def test_an_inspection_finds_a_fit_server_fit_and_leaves_nothing_behind(
    server: Server, client: redis.Redis
) -> None:
    store = from_url(server.url)
    assert isinstance(store, Inspectable)
    findings = await store.inspect("p")
    assert {finding.level for finding in findings} == {"ok"}
    texts = [finding.text for finding in findings]
    assert texts[0].startswith(("Redis 6.2.", "Valkey 9.", "Redis "))
    assert texts[1:] == ["maxmemory-policy is noeviction, without a limit", "the user has all rights that are needed"]
    assert client.keys() == []


@pytest.mark.parametrize("missing", ["eval", "evalsha", "time", "set", "get", "pttl", "pexpire", "hset", "hmget"])
async def test_an_inspection_finds_each_command_that_is_not_allowed(
    missing: str, server: Server, client: redis.Redis
) -> None:
    let_bob(client, "~p:*", "~{p:*", *CHANNELS, "+@all", f"-{missing}")
    assert await errors(server) == [missing.upper()]
    assert client.keys() == []


@pytest.mark.parametrize("missing", ["del", "sadd", "publish", "subscribe"])
async def test_an_inspection_finds_the_rest_of_them_too(missing: str, server: Server, client: redis.Redis) -> None:
    let_bob(client, "~p:*", "~{p:*", *CHANNELS, "+@all", f"-{missing}")
    assert await errors(server) == [missing.upper()]
    async with asyncio.timeout(10):
        while client.keys():  # without DEL they expire
            await asyncio.sleep(0.05)


async def test_an_inspection_finds_keys_and_channels_that_are_not_allowed(server: Server, client: redis.Redis) -> None:
    let_bob(client, "~p:*", "resetchannels", "+@all")
    found = await errors(server)
    assert "EVAL" in found or {"PUBLISH", "SUBSCRIBE"} < set(found)  # keys are declared: EVAL itself may be refused


async def errors(server: Server) -> list[str]:
    """The commands that bob has no right for, as the inspection has it."""
    store = from_url(server.url.replace("//", "//bob:pw@"))
    assert isinstance(store, Inspectable)
    try:
        texts = [finding.text for finding in await store.inspect("p") if finding.level == "error"]
    except StoreError as error:
        texts = [str(error)]
    assert all("has not the right for " in text for text in texts), texts
    return [text.partition("has not the right for ")[2].split()[0] for text in texts]


@pytest.mark.parametrize(
    ("policy", "limit", "level"),
    [
        ("noeviction", 10**8, "ok"),
        ("allkeys-lru", 0, "warning"),
        ("allkeys-random", 10**8, "warning"),
        ("volatile-ttl", 10**8, "warning"),
        ("volatile-ttl", 0, "ok"),
    ],
)
async def test_an_inspection_warns_of_a_policy_that_may_throw_leases_away(
    policy: str, limit: int, level: str, server: Server, client: redis.Redis
) -> None:
    client.config_set("maxmemory-policy", policy)
    client.config_set("maxmemory", limit)
    store = from_url(server.url)
    assert isinstance(store, Inspectable)
    try:
        (finding,) = [finding for finding in await store.inspect("p") if "policy" in finding.text]
    finally:
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", 0)
    assert finding.level == level
    assert policy in finding.text


async def test_a_replica_and_a_cluster_node_are_told_apart_from_a_server_that_will_do(
    server: Server, client: redis.Redis, tmp_path: Path
) -> None:
    client.replicaof("127.0.0.1", "1")
    store = from_url(server.url)
    assert isinstance(store, Inspectable)
    try:
        with pytest.raises(StoreError, match="read-only replica; name the primary"):
            await store.peek("p")
        assert "read-only replica" in (await store.inspect("p"))[1].text
    finally:
        client.replicaof("NO", "ONE")
    with (
        Server(server.kind, tmp_path, {"cluster-enabled": "yes"}) as node,
        pytest.raises(StoreError, match="a node of a Cluster"),
    ):
        await from_url(node.url).peek("p")


async def test_a_server_that_is_not_there_is_unavailable(server: Server, tmp_path: Path) -> None:
    gone = Server(server.kind, tmp_path)
    with pytest.raises(StoreUnavailable, match=f"redis store: 127.0.0.1:{gone.port}"):
        await from_url(gone.url).peek("p")
