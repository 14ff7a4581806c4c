"""A project on a real Cluster of three masters: its one slot may move, and the node of that slot may die or hang."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import time
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from clusters import Cluster
from fake_node import FakeNode
from integration.test_redis_apps import HEARTBEAT, LONG, One, started
from integration.test_redis_sentinel import overlap
from redis_replicas import lock
from replicas import boot
from servers import OLDEST, Server, free_port
from singletonjob._core.errors import StoreError, StoreUnavailable
from singletonjob.stores import from_url
from singletonjob.stores.protocol import Acquire, Batch, Granted, Inspectable, Progress, Release, Released, Renewed
from store_calls import acquire, ask, fails, opened, read, release, renew, token_of, unread
from waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from virtual_loop import Capture

PAGE = (Path(__file__).parents[2] / "docs" / "redis-cluster.md").read_text()

(LINE,) = re.findall(r"^ACL SETUSER worker on >secret (.*)$", PAGE, re.MULTILINE)

RIGHTS = [right.replace("{pricing}", "{p}") for right in LINE.split()]
"""The rights of the project `p`, as the page lists them."""

LOCK, STATE = lock("j", "{p}"), "{p}:j:lock:state"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def source(cluster: Cluster) -> Server:
    """The node that serves the slot of the project `p`; the Cluster is empty."""
    for node in cluster.nodes:
        if node.process is None:  # a test that failed left the node so
            node.start()
    cluster.end_move(LOCK, cluster.owner(LOCK))
    cluster.flush()
    return cluster.owner(LOCK)


@pytest.fixture
def to(cluster: Cluster, source: Server) -> Server:
    """Another node."""
    return next(node for node in cluster.nodes if node is not source)


def errors(cluster: Cluster, code: str) -> int:
    """How often the nodes have answered with such an error."""
    found: list[dict[str, Any]] = [cluster.run(node, "INFO", "errorstats") for node in cluster.nodes]
    return sum(int(one.get(f"errorstat_{code}", {"count": 0})["count"]) for one in found)


def move(cluster: Cluster, to: Server) -> None:
    cluster.begin_move(LOCK, to)
    cluster.move_keys(LOCK, to)
    cluster.end_move(LOCK, to)


# -- one slot for a project ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", dict.fromkeys([OLDEST, "valkey-9"]))
async def test_c89_all_keys_of_a_project_share_one_slot_and_hundreds_of_jobs_go_in_one_exchange(
    cluster: Cluster, source: Server, kind: str, tmp_path: Path
) -> None:
    jobs = sorted(f"job-{number}" for number in range(250))
    with contextlib.nullcontext(cluster) if kind == OLDEST else Cluster(tmp_path, kind) as cluster:
        crossed, moved = errors(cluster, "CROSSSLOT"), errors(cluster, "MOVED")
        async with opened(cluster.url) as store:
            batch = Batch("p", "me", 5.0)
            requests = tuple(Acquire(job, number, 60, 0) for number, job in enumerate(jobs, 1))
            granted = (await store.exchange(batch._replace(requests=requests))).verdicts
            assert {type(verdict) for verdict in granted} == {Granted}
            assert [view.job for view in await store.peek("p")] == jobs
            async with asyncio.timeout(10), aclosing(store.notices("p")) as notices:
                assert await anext(notices) == frozenset()
                await store.exchange(batch._replace(requests=(Release(jobs[7], 8, Progress()),)))
                assert await anext(notices) == {jobs[7]}
        assert (errors(cluster, "CROSSSLOT"), errors(cluster, "MOVED")) == (crossed, moved)
        with cluster.client(LOCK) as client:
            keys = {str(key) for key in client.scan_iter(count=1000)}
        assert keys == {
            "{p}:jobs",
            *(lock(job, "{p}") for job in jobs if job != jobs[7]),
            *(f"{{p}}:{job}:lock:state" for job in jobs),
        }


async def test_two_projects_of_one_store_are_each_asked_of_their_own_node(cluster: Cluster, to: Server) -> None:
    other = cluster.project_on(to)
    async with opened(cluster.url) as store:
        await token_of(store)
        batch = Batch(other, "me", 5.0)
        await store.exchange(batch)
        await store.exchange(batch._replace(requests=(acquire(),)))
        assert await ask(store, release()) == Released(mine=True)
        assert [view.holder for view in await store.peek(other)] == ["me"]


# -- a slot that moves -----------------------------------------------------------------------------------------------


async def test_a_slot_that_moves_costs_no_lease_and_takes_the_state_along(
    cluster: Cluster, source: Server, to: Server
) -> None:
    async with opened(cluster.url) as store:
        token = await token_of(store)
        asked, moved = errors(cluster, "ASK"), errors(cluster, "MOVED")
        cluster.begin_move(LOCK, to)
        assert await ask(store, renew(token)) == Renewed()
        assert sorted(cluster.move_keys(LOCK, to)) == [LOCK, STATE, "{p}:jobs"]
        for _ in range(2):  # the old node has nothing left, and the new one does not serve the slot yet
            assert isinstance(await fails(store, renew(token)), StoreUnavailable)
            await read(store)
        assert errors(cluster, "ASK") == asked + 2
        cluster.end_move(LOCK, to)
        assert isinstance(await fails(store, renew(token)), StoreUnavailable)
        assert errors(cluster, "MOVED") == moved + 1
        await read(store)
        assert await ask(store, renew(token)) == Renewed()
        assert [(view.holder, view.token) for view in await store.peek("p")] == [("me", token)]
        assert await ask(store, release()) == Released(mine=True)
        with to.client() as client:
            assert client.exists(LOCK, STATE) == 1


async def test_a_lease_that_is_free_while_its_slot_moves_is_given_only_after_the_move(
    cluster: Cluster, source: Server, to: Server
) -> None:
    async with opened(cluster.url) as store:
        token = await token_of(store)
        await ask(store, release())
        cluster.begin_move(LOCK, to)
        # The state is here and the lock is not: TRYAGAIN, or ASK from Redis 6.2.
        assert isinstance(await fails(store, acquire(2)), StoreUnavailable)
        cluster.move_keys(LOCK, to)
        await read(store)
        assert isinstance(await fails(store, acquire(3)), StoreUnavailable)
        for node in cluster.nodes:
            with node.client() as client:
                assert client.keys(LOCK) == []
        cluster.end_move(LOCK, to)
        await read(store)
        assert await token_of(store, 4) > token


async def test_while_the_slot_of_a_project_moves_its_leader_goes_on_alone_and_another_takes_over_on_the_new_node(
    cluster: Cluster, source: Server, to: Server
) -> None:
    a, b = (One(who, cluster.url, project="p", **LONG) for who in "ab")
    key = lock(project="{p}")
    async with started(a, b):
        began = boot()
        with source.client(decode_responses=True) as client:
            token = client.hget(f"{key}:state", "token")
        cluster.begin_move(key, to)
        await asyncio.sleep(2 * HEARTBEAT)
        cluster.move_keys(key, to)
        await asyncio.sleep(2 * HEARTBEAT)
        cluster.end_move(key, to)
        with to.client(decode_responses=True) as client:
            await until(lambda: client.pttl(key) > 5000 - 1000 * HEARTBEAT, what="a renewal on the new node")
            assert client.hget(f"{key}:state", "token") == token
            assert (a.leads, b.leads, b.runs) == (True, False, [])
            await until(lambda: client.pubsub_numsub("{p}:notice")[0][1] == 2, what="subscriptions on the new node")
        await a.app.__aexit__(None, None, None)
        await until(lambda: b.runs)
        assert b.first - a.last < HEARTBEAT
        assert overlap(began, a, b) == 0


async def test_a_slot_that_was_given_away_without_its_keys_makes_no_two_leaders(
    cluster: Cluster, source: Server, to: Server
) -> None:
    a, b = (One(who, cluster.url, project="p", **LONG) for who in "ab")
    async with started(a, b):
        began = boot()
        with source.client() as client:
            client.flushall()
        cluster.end_move(LOCK, to)
        await until(lambda: any(one.starts(began + 3 * HEARTBEAT) for one in (a, b)))
        await asyncio.sleep(HEARTBEAT)
        assert overlap(began, a, b) == 0


async def test_a_subscription_follows_the_slot(cluster: Cluster, source: Server, to: Server) -> None:
    async with opened(cluster.url, ping_interval=0.1) as store:
        async with asyncio.timeout(10), aclosing(store.notices("p")) as notices:
            assert await anext(notices) == frozenset()
            move(cluster, to)
            with pytest.raises(StoreUnavailable, match="is the server no more"):
                await anext(notices)
        async with asyncio.timeout(10), aclosing(store.notices("p")) as notices:
            assert await anext(notices) == frozenset()
            assert cluster.run(to, "PUBSUB", "NUMSUB", "{p}:notice") == ["{p}:notice", 1]


async def test_s8_a_node_that_the_slot_moved_to_says_how_young_it_is(
    cluster: Cluster, source: Server, to: Server
) -> None:
    await until(lambda: cluster.run(source, "INFO", "server")["uptime_in_seconds"] >= 2)
    async with opened(cluster.url) as store:
        assert ((await read(store)).up_for or 0) >= 2
        to.kill()
        to.start()
        await until(lambda: cluster.facts(to)["cluster_state"] == "ok")
        await until(lambda: cluster.facts(source)["cluster_slots_ok"] == "16384")
        move(cluster, to)
        await fails(store, renew(1))
        young = (await read(store)).up_for
        assert young is not None
        assert young <= cluster.run(to, "INFO", "server")["uptime_in_seconds"]
        assert young < cluster.run(source, "INFO", "server")["uptime_in_seconds"]


@pytest.mark.parametrize("seed", ["127.0.0.1", "localhost"])  # the latter is another name of the owner
async def test_s1_what_a_node_says_counts_only_while_another_one_names_it_as_the_owner(seed: str) -> None:
    async with FakeNode() as old, FakeNode() as new:
        old.masters = (old, new)
        async with opened(f"redis+cluster://{seed}:{old.port}") as store:
            new.masters = (old, new)
            assert await ask(store, renew(1)) == Renewed()
            new.masters = (new, old)
            # The old one still takes itself for the owner, as one does that was frozen while it was replaced.
            for _ in range(2):  # each node is asked in turn where to connect
                assert "is the server no more" in str(await fails(store, renew(1)))
                await read(store)
            assert (old.served, new.served) == (3, 0)
            old.masters = (new, old)
            assert await ask(store, renew(1)) == Renewed()
            assert new.served == 1


async def test_a_node_that_does_not_know_of_a_move_yet_costs_no_connection() -> None:
    async with FakeNode() as old, FakeNode() as new, FakeNode() as late:
        late.masters = (old, new, late)
        old.masters = new.masters = (new, old, late)
        async with opened(f"redis+cluster://127.0.0.1:{late.port},127.0.0.1:{old.port}") as store:
            for _ in range(3):
                assert await ask(store, renew(1)) == Renewed()
                await read(store)
        assert (old.served, new.served) == (0, 3)


# -- nodes that die --------------------------------------------------------------------------------------------------


async def test_c89_a_node_that_dies_costs_its_own_projects_alone_and_they_go_on_when_it_comes_back(
    cluster: Cluster, source: Server, to: Server, logs: Capture
) -> None:
    one = One("a", cluster.url, project="p")
    other = One("b", cluster.url, project=cluster.project_on(to))
    async with one.app, other.app:
        await until(lambda: one.runs and other.runs)
        source.kill()
        await until(lambda: not one.leads)
        with pytest.raises(StoreUnavailable, match=rf":{source.port}\b"):
            await from_url(cluster.url).peek("p")
        await asyncio.sleep(2 * HEARTBEAT)
        assert one.app.health().jobs["tick"] == "store_down"
        assert f"127.0.0.1:{source.port}" in logs.of("heartbeat-error")[0].getMessage()
        source.start()
        again = boot()
        await until(lambda: one.starts(again))
        assert other.app.stats()["tick"].terms == 1
        pauses = [later - earlier for (earlier, _), (later, _) in zip(other.runs, other.runs[1:], strict=False)]
        assert max(pauses) < 1.0  # of the default 20 ms


async def test_a_node_that_says_nothing_costs_no_more_than_the_bound(cluster: Cluster, source: Server) -> None:
    assert source.process is not None
    async with opened(cluster.url) as store:
        token = await token_of(store)
        os.kill(source.process.pid, signal.SIGSTOP)
        try:
            for call in (ask(store, renew(token), 0.6), read(store, 0.6)):
                begun = time.monotonic()
                with pytest.raises(StoreUnavailable, match="no answer"):
                    await call
                assert time.monotonic() - begun < 0.6 + 0.3
        finally:
            os.kill(source.process.pid, signal.SIGCONT)
        await read(store)
        assert await ask(store, renew(token)) == Renewed()


async def test_a_node_of_other_projects_that_says_nothing_costs_one_exchange_a_part_of_its_time(
    cluster: Cluster, source: Server
) -> None:
    others = [node for node in cluster.nodes if node is not source]
    async with opened(cluster.url) as store:
        token = await token_of(store)
        for silent in others:
            assert silent.process is not None
            os.kill(silent.process.pid, signal.SIGSTOP)
            try:
                spent: list[float] = []
                for _ in range(3):
                    begun = time.monotonic()
                    assert await ask(store, renew(token), 0.8) == Renewed()
                    spent.append(time.monotonic() - begun)
                assert sum(each > 0.15 for each in spent) <= 1, spent
                assert max(spent) < 0.5
                await read(store)
            finally:
                os.kill(silent.process.pid, signal.SIGCONT)


async def test_a_cluster_that_is_down_is_unavailable_and_one_line_names_all_nodes_that_do_not_answer(
    tmp_path: Path,
) -> None:
    with Cluster(tmp_path, masters=2) as cluster:
        source = cluster.owner(LOCK)
        (other,) = (node for node in cluster.nodes if node is not source)
        async with opened(cluster.url) as store:
            token = await token_of(store)
            other.kill()
            # One of two is no majority, so it stops after a second.
            await until(lambda: cluster.facts(source)["cluster_state"] == "fail")
            assert "belongs to a Cluster that is down" in str(await fails(store, renew(token)))
        source.kill()
        error = await unread(cluster.url)
        assert isinstance(error, StoreUnavailable)
        assert all(f":{node.port}" in str(error) for node in cluster.nodes)


# -- what people are told --------------------------------------------------------------------------------------------


async def test_a_url_of_a_cluster_that_leads_to_a_plain_server_is_told(tmp_path: Path) -> None:
    with Server(OLDEST, tmp_path) as server:
        error = str(await unread(f"redis+cluster://127.0.0.1:{server.port}"))
        assert re.search(rf"no node of a Cluster .* write redis://127.0.0.1:{server.port}/0", error)


async def test_a_slot_that_no_node_serves_is_told(tmp_path: Path) -> None:
    with Server(OLDEST, tmp_path, {"cluster-enabled": "yes"}) as node:
        assert "no node serves the slot 16023 of {p}:*" in str(await unread(f"redis+cluster://127.0.0.1:{node.port}"))


async def test_a_seed_that_is_gone_is_passed_over(cluster: Cluster, source: Server) -> None:
    async with opened(f"redis+cluster://127.0.0.1:{free_port()},127.0.0.1:{cluster.nodes[2].port}") as store:
        await token_of(store)


async def test_c88_the_documented_rights_are_enough_for_everything_and_check_names_each_that_is_missing(
    cluster: Cluster, source: Server, to: Server
) -> None:
    for node in cluster.nodes:
        cluster.run(node, "ACL", "SETUSER", "worker", "reset", "on", ">secret", *RIGHTS)
    url = cluster.url.replace("://", "://worker:secret@")
    async with opened(url) as store:
        async with asyncio.timeout(20), aclosing(store.notices("p")) as notices:
            assert await anext(notices) == frozenset()
            token = await token_of(store)
            assert [view.token for view in await store.peek("p")] == [token]
            assert isinstance(store, Inspectable)
            findings = await store.inspect("p")
            assert {finding.level for finding in findings} == {"ok"}, findings
            assert await ask(store, release()) == Released(mine=True)
            heard = await anext(notices)
            while heard != {"j"}:  # the inspection published something, too
                heard = await anext(notices)
        assert cluster.run(source, "KEYS", "{p}:check*") == []
        move(cluster, to)
        await fails(store, renew(token))
        await read(store)
        await token_of(store, 2)
        cluster.run(to, "ACL", "SETUSER", "worker", "-hset")
        (text,) = [finding.text for finding in await store.inspect("p") if finding.level == "error"]
        assert "has not the right for HSET" in text
        cluster.run(to, "ACL", "SETUSER", "worker", "+hset", "resetkeys", "~p:*")
        with pytest.raises(StoreError, match=r"grant it by ACL SETUSER with ~\{p\}:\*$"):
            await store.inspect("p")
    for node in cluster.nodes:
        cluster.run(node, "ACL", "SETUSER", "worker", "-cluster")
    assert "has not the right for CLUSTER SLOTS" in str(await unread(url))
