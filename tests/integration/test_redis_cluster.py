"""The Cluster store on real Clusters of three masters: slots that move, nodes that die, and whom that concerns."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from clusters import Cluster
from fake_node import FakeNode
from servers import OLDEST, Server, free_port
from singletonjob import SingletonJobs, StoreError
from singletonjob._core.errors import StoreUnavailable
from singletonjob._system.clock import SystemClock
from singletonjob.stores import from_url
from singletonjob.stores.protocol import (
    Acquire,
    Batch,
    Failed,
    Granted,
    Inspectable,
    JobView,
    Progress,
    Release,
    Released,
    Renew,
    Renewed,
)
from waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from singletonjob.stores import LeaseStore
    from singletonjob.stores.protocol import Reply, Request

FAST: dict[str, Any] = {
    "lock_expiry": "1s",
    "heartbeat_interval": "300ms",
    "max_backoff_delay": "500ms",
    "amnesia_guard": False,
}

RIGHTS = next(
    line.split()[5:]
    for line in (Path(__file__).parents[2] / "docs" / "redis-cluster.md").read_text().splitlines()
    if line.startswith("ACL SETUSER worker on >secret ")
)
"""What the page lists, for the project `pricing`."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def empty(cluster: Cluster) -> None:
    for node in cluster.nodes:
        if node.process is None:  # a test that failed left it so
            node.start()
    cluster.flush()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[LeaseStore]:
    """A store that has made its reading."""
    store = from_url(url)
    try:
        await store.exchange(Batch("p", "me", 5.0))
        yield store
    finally:
        await store.close()


async def ask(store: LeaseStore, *requests: Request, bound: float = 5.0, void_at: int | None = None) -> Reply:
    return await store.exchange(Batch("p", "me", bound, void_at, requests))


def acquire(job: str, number: int = 1, lock_expiry: float = 60) -> Acquire:
    return Acquire(job, number, lock_expiry, 0)


def renew(job: str, token: int) -> Renew:
    return Renew(job, token, 60, Progress())


async def tokens(store: LeaseStore, *jobs: str, number: int = 1) -> list[int]:
    verdicts = (await ask(store, *(acquire(job, number) for job in jobs))).verdicts
    assert all(isinstance(verdict, Granted) for verdict in verdicts), verdicts
    return [verdict.token for verdict in verdicts if isinstance(verdict, Granted)]


def errors(cluster: Cluster, code: str) -> int:
    """How often the nodes have answered with such an error."""
    found: list[dict[str, Any]] = [cluster.run(node, "INFO", "errorstats") for node in cluster.nodes]
    return sum(int(one.get(f"errorstat_{code}", {"count": 0})["count"]) for one in found)


# -- one exchange for all nodes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", dict.fromkeys([OLDEST, "valkey-9"]))
async def test_c89_hundreds_of_jobs_on_all_nodes_go_in_one_exchange_and_notices_are_heard_on_each_node(
    cluster: Cluster, kind: str, tmp_path: Path
) -> None:
    jobs = [f"job-{number}" for number in range(200)]
    with contextlib.nullcontext(cluster) if kind == OLDEST else Cluster(tmp_path, kind) as cluster:
        crossed, moved = errors(cluster, "CROSSSLOT"), errors(cluster, "MOVED")
        async with opened(cluster.url) as store:
            found = dict(zip(jobs, await tokens(store, *jobs), strict=True))
            verdicts = (await ask(store, *(renew(job, token) for job, token in found.items()))).verdicts
            assert set(verdicts) == {Renewed()}
            assert [view.job for view in await store.peek("p")] == sorted(jobs)
            owners = {cluster.owner(f"p:{job}:lock").port for job in jobs}
            assert len(owners) == 3
            released: set[str] = set()
            for node in cluster.nodes:  # wherever somebody listens, what is published by a script elsewhere arrives
                listening = from_url(f"redis://127.0.0.1:{node.port}/0")
                async with asyncio.timeout(10), aclosing(listening.notices("p")) as notices:  # type: ignore[type-var]  # a generator, declared as its iterator
                    assert await anext(notices) == frozenset()
                    for other in cluster.nodes:
                        job = next(job for job in jobs if cluster.owner(f"p:{job}:lock") is other)
                        jobs.remove(job)
                        await ask(store, Release(job, 1, Progress()))
                        while (heard := await anext(notices)) <= released:
                            pass  # what one node has told already, another one may tell later
                        assert heard == {job}
                        released.add(job)
                await listening.close()
        assert (errors(cluster, "CROSSSLOT"), errors(cluster, "MOVED")) == (crossed, moved)


async def test_requests_need_a_reading_and_a_closed_store_answers_nothing(cluster: Cluster) -> None:
    store = from_url(cluster.url)
    with pytest.raises(StoreUnavailable, match="a reading comes first"):
        await ask(store, acquire("j"))
    await store.exchange(Batch("p", "me", 5.0))
    await tokens(store, "j")
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await ask(store, acquire("j", 2))


async def test_the_clock_of_the_store_is_this_machine_s_boot_clock(cluster: Cluster) -> None:
    clock = SystemClock()
    async with opened(cluster.url) as store:
        before = clock.boot()
        reply = await ask(store, acquire("j"), void_at=int((before + 5.0) * 1e6))
        assert isinstance(reply.verdicts[0], Granted)
        assert before <= reply.clock / 1e6 <= clock.boot()
        late = await ask(store, acquire("j", 2), void_at=int((clock.boot() - 0.001) * 1e6))
        assert (late.void, late.verdicts) == (True, ())


async def test_each_node_gets_the_time_on_its_own_clock_and_one_that_calls_it_late_is_asked_once_more() -> None:
    async with FakeNode(ahead=3600.0) as first, FakeNode(ahead=-7200.0) as second:
        first.serves, second.serves = (0, 8191), (8192, 16383)
        first.peers = second.peers = (first, second)
        clock = SystemClock()
        async with opened(f"redis+cluster://127.0.0.1:{first.port}") as store:
            jobs = [f"j{number}" for number in range(40)]
            void_at = clock.boot() + 5.0
            reply = await ask(store, *(renew(job, 7) for job in jobs), void_at=int(void_at * 1e6))
            assert set(reply.verdicts) == {Renewed()}
            assert first.voids == second.voids == 0
            for node in (first, second):
                assert node.void_at
                assert all(0 <= node.clock_at(void_at) - each < 100_000 for each in node.void_at)
            first.step = 50.0  # its clock jumped: what was read before is far too early
            void_at = clock.boot() + 5.0
            reply = await ask(store, *(renew(job, 7) for job in jobs), void_at=int(void_at * 1e6))
            assert set(reply.verdicts) == {Renewed()}
            assert first.voids > 0
            assert second.voids == 0
            assert 0 <= first.clock_at(void_at) - first.void_at[-1] < 100_000


# -- slots that move -------------------------------------------------------------------------------------------------


async def test_a_slot_that_moves_costs_no_lease(cluster: Cluster) -> None:
    source, to = cluster.nodes[0], cluster.nodes[1]
    job = cluster.job_on(source)
    key = f"p:{job}:lock"
    async with opened(cluster.url) as store:
        (token,) = await tokens(store, job)
        asked, moved = errors(cluster, "ASK"), errors(cluster, "MOVED")
        cluster.begin_move(key, to)
        assert (await ask(store, renew(job, token))).verdicts == (Renewed(),)
        assert sorted(cluster.move_keys(key, to)) == [key, f"{{{key}}}:state"]
        assert (await ask(store, renew(job, token))).verdicts == (Renewed(),)
        assert (await store.peek("p"))[0].token == token
        assert errors(cluster, "ASK") > asked
        assert (await ask(store, renew(job, token))).verdicts == (Renewed(),)
        cluster.end_move(key, to)
        assert errors(cluster, "MOVED") == moved
        for _ in range(3):
            assert (await ask(store, renew(job, token))).verdicts == (Renewed(),)
        assert errors(cluster, "MOVED") == moved + 1
        assert (await ask(store, Release(job, 1, Progress()))).verdicts == (Released(mine=True),)
        (view,) = await store.peek("p")
        assert view._replace(standby=None, wall=None) == JobView(job=job)
    assert errors(cluster, "CROSSSLOT") == 0


async def test_a_lease_that_is_free_while_its_slot_moves_is_refused_until_it_has_moved(cluster: Cluster) -> None:
    source, to = cluster.nodes[0], cluster.nodes[1]
    job, other = cluster.job_on(source), cluster.job_on(to)
    key = f"p:{job}:lock"
    async with opened(cluster.url) as store:
        cluster.begin_move(key, to)
        failed, granted = (await ask(store, acquire(job, 1), acquire(other, 2))).verdicts
        assert isinstance(failed, Failed)
        assert "moving" in failed.error
        assert isinstance(granted, Granted)
        cluster.end_move(key, to)
        await tokens(store, job, number=3)


async def test_a_leader_is_not_disturbed_while_its_slot_moves(cluster: Cluster) -> None:
    source, to = cluster.nodes[2], cluster.nodes[0]
    job = cluster.job_on(source, "pricing")
    key = f"pricing:{job}:lock"
    ran: set[tuple[str, int]] = set()
    async with app_of(cluster.url, [job], ran) as app:
        await until(lambda: ran)
        cluster.begin_move(key, to)
        await asyncio.sleep(0.4)
        cluster.move_keys(key, to)
        await asyncio.sleep(0.4)
        cluster.end_move(key, to)
        await asyncio.sleep(1.0)
        assert app.is_leader(job)
        assert len(ran) == 1


# -- nodes that die --------------------------------------------------------------------------------------------------


@asynccontextmanager
async def app_of(url: str, jobs: list[str], ran: set[tuple[str, int]]) -> AsyncIterator[SingletonJobs]:
    app = SingletonJobs("pricing", store=url, node_id="n", **FAST)

    async def body(run: Any) -> None:
        ran.add((run.job, run.token))  # two jobs may have one token: each counts by its node's clock

    for job in jobs:
        app.fixed_rate("20ms", name=job)(body)
    async with app:
        yield app


async def test_c89_a_master_that_dies_costs_its_own_jobs_and_no_others_and_comes_back(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = [cluster.job_on(node, "pricing") for node in cluster.nodes]
    lost = [jobs[1], cluster.job_on(cluster.nodes[1], "pricing", 1)]
    ran: set[tuple[str, int]] = set()
    async with app_of(cluster.url, [*jobs, lost[1]], ran) as app:
        await until(lambda: all(app.is_leader(job) for job in [*jobs, *lost]))
        await until(lambda: len(ran) == 4)
        caplog.clear()
        caplog.set_level(logging.INFO, "singletonjob")
        cluster.nodes[1].kill()
        killed = time.monotonic()
        await until(lambda: not any(app.is_leader(job) for job in lost))
        assert time.monotonic() - killed < 1.5
        with pytest.raises(StoreUnavailable, match=str(cluster.nodes[1].port)):
            await from_url(cluster.url).peek("pricing")
        await asyncio.sleep(0.6)
        assert app.is_leader(jobs[0])
        assert app.is_leader(jobs[2])
        assert len(ran) == 4
        await until(lambda: {app.health().jobs[job] for job in lost} == {"store_down"})
        assert [app.health().jobs[job] for job in (jobs[0], jobs[2])] == ["leading"] * 2
        assert app.health().live
        # The node's refusal is said once, not for each of its jobs, and each of these once that it is lost.
        said = [getattr(record, "event", "") for record in caplog.records]
        assert (said.count("job-error"), said.count("lost")) == (1, 2), caplog.text
        cluster.nodes[1].start()
        await until(lambda: all(app.is_leader(job) for job in [*jobs, *lost]))
        assert app.health().status == "ok"
        assert len(ran) >= 4


async def test_a_node_that_says_nothing_costs_no_more_than_the_bound_and_no_other_job(cluster: Cluster) -> None:
    frozen = cluster.nodes[1]
    jobs = [cluster.job_on(node) for node in cluster.nodes]
    assert frozen.process is not None
    async with opened(cluster.url) as store:
        first, second, third = await tokens(store, *jobs)
        os.kill(frozen.process.pid, signal.SIGSTOP)
        try:
            begun = time.monotonic()
            requests = [renew(job, token) for job, token in zip(jobs, (first, second, third), strict=True)]
            verdicts = (await ask(store, *requests, bound=0.6)).verdicts
            assert time.monotonic() - begun < 0.6 + 0.3
            assert [type(verdict) for verdict in verdicts] == [Renewed, Failed, Renewed]
        finally:
            os.kill(frozen.process.pid, signal.SIGCONT)
        await until(lambda: cluster.run(frozen, "PING"))
        assert set((await ask(store, *requests)).verdicts) == {Renewed()}


async def test_s4_a_lease_asked_for_in_vain_is_not_released_before_the_call_is_void(cluster: Cluster) -> None:
    frozen = cluster.nodes[1]
    job, other = cluster.job_on(frozen), cluster.job_on(cluster.nodes[0])
    clock = SystemClock()
    assert frozen.process is not None
    async with opened(cluster.url) as store:
        # Another lease of the node, so that it is connected.
        await tokens(store, cluster.job_on(frozen, number=1), other)
        os.kill(frozen.process.pid, signal.SIGSTOP)
        try:
            begun = clock.boot()
            void_at = begun + 1.0
            failed, granted = (
                await ask(store, acquire(job, 2), acquire(other, 3), bound=1.0, void_at=int(void_at * 1e6))
            ).verdicts
            assert (type(failed), type(granted)) == (Failed, Granted)
            assert clock.boot() < void_at, "the machine is too slow for this test"
            (held,) = (await ask(store, Release(job, 2, Progress()))).verdicts
            assert isinstance(held, Failed)
            assert "may still be carried out" in held.error
            await asyncio.sleep(void_at + 0.01 - clock.boot())
        finally:
            os.kill(frozen.process.pid, signal.SIGCONT)
        assert (await ask(store, Release(job, 2, Progress()))).verdicts == (Released(mine=False),)
        with cluster.client(f"p:{job}:lock") as client:
            assert client.exists(f"p:{job}:lock") == 0  # what came late did nothing


async def test_a_call_that_a_node_runs_in_time_though_its_answer_was_not_waited_for_is_released_by_its_number(
    cluster: Cluster,
) -> None:
    frozen = cluster.nodes[1]
    job, other = cluster.job_on(frozen), cluster.job_on(cluster.nodes[0])
    key = f"p:{job}:lock"
    clock = SystemClock()
    assert frozen.process is not None
    async with opened(cluster.url) as store:
        await tokens(store, cluster.job_on(frozen, number=1), other)
        void_at = clock.boot() + 1.5
        os.kill(frozen.process.pid, signal.SIGSTOP)
        try:
            failed, _ = (
                await ask(store, acquire(job, 2), acquire(other, 3), bound=0.5, void_at=int(void_at * 1e6))
            ).verdicts
            assert isinstance(failed, Failed)
        finally:
            os.kill(frozen.process.pid, signal.SIGCONT)
        with cluster.client(key) as client:
            await until(lambda: client.exists(key))
            assert clock.boot() < void_at
            (held,) = (await ask(store, Release(job, 2, Progress()))).verdicts
            assert isinstance(held, Failed)
            await asyncio.sleep(void_at + 0.01 - clock.boot())
            assert (await ask(store, Release(job, 2, Progress()))).verdicts == (Released(mine=True),)
            assert client.exists(key) == 0


async def test_a_node_that_was_restarted_gives_no_lease_for_a_while_and_the_others_do(cluster: Cluster) -> None:
    young = cluster.nodes[1]
    jobs = [cluster.job_on(node) for node in cluster.nodes]
    await until(lambda: all(cluster.run(node, "INFO", "server")["uptime_in_seconds"] >= 4 for node in cluster.nodes))
    young.kill()
    young.start()
    store = from_url(cluster.url)
    reply = await store.exchange(Batch("p", "me", 5.0, guard=True))
    assert reply.up_for == float("inf")
    requests = [acquire(job, number, 2.0) for number, job in enumerate(jobs, 1)]
    one, two, three = (await ask(store, *requests)).verdicts
    assert (type(one), type(two), type(three)) == (Granted, Failed, Granted)
    assert isinstance(two, Failed)
    assert "may have forgotten leases" in two.error
    assert isinstance(one, Granted)
    started = cluster.run(cluster.nodes[0], "INFO", "server")["uptime_in_seconds"]
    assert one.state.up_from is not None
    assert abs((one.state.wall - one.state.up_from) / 1e6 - started) < 2
    await until(lambda: cluster.facts(young)["cluster_state"] == "ok")
    await until(lambda: cluster.run(young, "INFO", "server")["uptime_in_seconds"] >= 2)
    # On the same connection: what was read counts from its arrival.
    (two,) = (await ask(store, acquire(jobs[1], 9, 0.01))).verdicts
    assert isinstance(two, Granted)
    await store.close()


async def test_a_subscription_whose_node_dies_is_made_elsewhere_and_a_cluster_that_is_down_is_unavailable(
    tmp_path: Path,
) -> None:
    with Cluster(tmp_path, masters=2) as cluster:
        async with opened(cluster.url) as store:
            tokens_of = {node.port: await tokens(store, cluster.job_on(node)) for node in cluster.nodes}
            async with aclosing(store.notices("p")) as notices:  # type: ignore[type-var]  # a generator, declared as its iterator
                assert await anext(notices) == frozenset()
                heard = next(node for node in cluster.nodes if cluster.run(node, "PUBSUB", "CHANNELS"))
                (other,) = (node for node in cluster.nodes if node is not heard)
                job = cluster.job_on(other)
                heard.kill()
                with pytest.raises(StoreUnavailable):
                    await anext(notices)
            for _ in range(2):  # the heartbeat tries again and again
                async with aclosing(store.notices("p")) as notices:  # type: ignore[type-var]  # a generator, declared as its iterator
                    with contextlib.suppress(StoreUnavailable):
                        assert await anext(notices) == frozenset()
                        break
            else:
                pytest.fail("no other node was tried")
            (token,) = tokens_of[other.port]
            assert (await ask(store, renew(job, token))).verdicts == (Renewed(),)
            # One of two is no majority, so it stops after a second.
            await until(lambda: cluster.facts(other)["cluster_state"] == "fail")
            with pytest.raises(StoreUnavailable, match="a Cluster that is down"):
                await ask(store, renew(job, token))
            other.kill()
            with pytest.raises(StoreUnavailable, match=r"closed|refused"):
                await ask(store, renew(job, token))
            with pytest.raises(StoreUnavailable, match="refused"):
                await store.exchange(Batch("p", "me", 1.0))


# -- what people are told --------------------------------------------------------------------------------------------


async def test_a_url_of_a_cluster_that_leads_to_a_plain_server_is_told(tmp_path: Path) -> None:
    with Server(OLDEST, tmp_path) as server:
        store = from_url(f"redis+cluster://127.0.0.1:{server.port}")
        with pytest.raises(StoreError, match=rf"no node of a Cluster .* write redis://127.0.0.1:{server.port}/0"):
            await store.exchange(Batch("p", "me", 5.0))
        await store.close()


async def test_a_seed_that_is_gone_is_passed_over(cluster: Cluster) -> None:
    gone = free_port()
    async with opened(f"redis+cluster://127.0.0.1:{gone},127.0.0.1:{cluster.nodes[2].port}") as store:
        await tokens(store, *(cluster.job_on(node) for node in cluster.nodes))


async def test_c88_the_documented_rights_are_enough_for_everything_and_check_names_each_that_is_missing(
    cluster: Cluster,
) -> None:
    source, to = cluster.nodes[1], cluster.nodes[2]
    job = cluster.job_on(source, "pricing")
    key = f"pricing:{job}:lock"
    for node in cluster.nodes:
        cluster.run(node, "ACL", "SETUSER", "worker", "reset", "on", ">secret", *RIGHTS)
    url = cluster.url.replace("://", "://worker:secret@")
    store = from_url(url)
    async with asyncio.timeout(20), aclosing(store.notices("pricing")) as notices:  # type: ignore[type-var]  # a generator, declared as its iterator
        await store.exchange(Batch("pricing", "me", 5.0))
        assert await anext(notices) == frozenset()

        async def verdict(request: Request) -> object:
            return (await store.exchange(Batch("pricing", "me", 5.0, None, (request,)))).verdicts[0]

        granted = await verdict(acquire(job))
        assert isinstance(granted, Granted)
        cluster.begin_move(key, to)
        cluster.move_keys(key, to)
        assert await verdict(renew(job, granted.token)) == Renewed()
        cluster.end_move(key, to)
        assert await verdict(renew(job, granted.token)) == Renewed()
        assert [view.token for view in await store.peek("pricing")] == [granted.token]
        assert await verdict(Release(job, 1, Progress())) == Released(mine=True)
        assert await anext(notices) == {job}
        assert isinstance(store, Inspectable)
        findings = await store.inspect("pricing")
        assert {finding.level for finding in findings} == {"ok"}, findings
        assert findings[0].text == "a Cluster of 3 masters"
        cluster.run(to, "ACL", "SETUSER", "worker", "-hset")
        texts = [finding.text for finding in await store.inspect("pricing") if finding.level == "error"]
        assert len(texts) == 1
        assert texts[0].startswith(f"127.0.0.1:{to.port}: ")
        assert "has not the right for HSET" in texts[0]
    await store.close()
