"""Many jobs and many replicas on one real server: what a beat is, and an outage that twenty of them live through.

`lock_expiry` is 3 s and the other durations likewise, but for what is said once a minute.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from proxy import Proxy
from replicas import boot
from servers import Server
from singletonjob import SingletonJobs
from singletonjob.stores.redis.address import address_from_url
from singletonjob.stores.redis.store import RedisStore
from virtual_loop import Capture, Gate
from waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from singletonjob.stores.protocol import Batch, Reply

REPLICAS, JOBS = 20, 10
OUTAGE, SETTLED = 11.0, 4.0
"""The retries are looked at from SETTLED on, when no lease is alive and all replicas back off."""

MAX_BACK_OFF, CALL_TIMEOUT = 4.0, 0.6
OPTIONS: dict[str, Any] = {
    "lock_expiry": "3s",
    "heartbeat_interval": "900ms",
    "max_backoff_delay": "4s",
    "amnesia_guard": False,
}


class Watched(Gate):
    """Keeps the moments of its calls."""

    def __init__(self, url: str) -> None:
        super().__init__(RedisStore(address_from_url(url)))
        self.tried: list[float] = []

    async def exchange(self, batch: Batch) -> Reply:
        self.tried.append(boot())
        return await super().exchange(batch)

    async def close(self) -> None:
        await self.store.close()


async def nothing() -> None: ...


async def test_c86_of_an_outage_twenty_replicas_say_little_and_their_retries_spread(tmp_path: Path) -> None:
    stores: list[Watched] = []
    apps: list[SingletonJobs] = []

    def led() -> list[int]:
        return [sum(app.is_leader(f"j{job}") for job in range(JOBS)) for app in apps]

    with Capture() as logs, Server("valkey-9", tmp_path) as server:
        async with AsyncExitStack() as stack:
            for number in range(REPLICAS):
                stores.append(Watched(server.url))
                apps.append(SingletonJobs("pricing", store=stores[-1], node_id=f"r{number}", **OPTIONS))
                for job in range(JOBS):
                    apps[-1].interval("200ms", name=f"j{job}")(nothing)
                await stack.enter_async_context(apps[-1])
            await until(lambda: sum(led()) == JOBS)
            await asyncio.sleep(2)
            before = led()
            assert sum(before) == JOBS
            server.kill()
            down = boot()
            await asyncio.sleep(OUTAGE)
            assert sum(led()) == 0
            await asyncio.to_thread(server.start)
            up = boot()
            await until(lambda: sum(led()) == JOBS, 30)
            assert boot() - up < 3 * (1.2 * MAX_BACK_OFF + CALL_TIMEOUT)
            await until(lambda: all(app.health().status == "ok" for app in apps), 30)
    for number, count in enumerate(before):
        mine = [record for record in logs.records if record.node.startswith(f"r{number}-")]
        lines = [record for record in mine if record.levelno >= logging.INFO]
        lines = [record for record in lines if record.event not in {"started", "elected", "released"}]
        said = [record.event for record in lines]
        assert 1 <= len(lines) <= 20 + 2 * count, said
        assert said.count("heartbeat-error") == 1, said
        assert said.count("lost") == count, said
    late = [at - down for store in stores for at in store.tried if SETTLED < at - down < OUTAGE]
    assert len(late) >= REPLICAS * (OUTAGE - SETTLED) / (1.2 * MAX_BACK_OFF + 1)
    slots = [int(at * 10) for at in late]
    assert max(map(slots.count, slots)) <= 0.3 * REPLICAS


async def test_a_beat_of_a_thousand_jobs_is_sent_before_any_of_it_is_answered(tmp_path: Path) -> None:
    """So it is one round trip, however many calls of the script it is cut into."""
    jobs = [f"j{job}" for job in range(1000)]
    with Server("valkey-9", tmp_path) as server, server.client(decode_responses=True) as look:

        def calls(command: str) -> int:
            found: dict[str, dict[str, int]] = look.info("commandstats")
            return found.get(f"cmdstat_{command}", {"calls": 0})["calls"]

        async with Proxy(server.port) as proxy:
            app = SingletonJobs("pricing", store=f"redis://127.0.0.1:{proxy.port}/0", **OPTIONS)
            for job in jobs:
                app.interval("1h", name=job)(nothing)
            async with app:
                await until(lambda: all(map(app.is_leader, jobs)))
                proxy.hold("down")
                renewed, scripts = calls("pexpire"), calls("evalsha")
                await until(lambda: calls("pexpire") >= renewed + len(jobs), 2)
                assert calls("evalsha") > scripts + 1
                proxy.let_through()
                await asyncio.sleep(2)
                assert all(map(app.is_leader, jobs))
                assert {stats.terms for stats in app.stats().values()} == {1}
