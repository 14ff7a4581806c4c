"""An outage of minutes, at the default settings, in virtual time: what is said of it, and when replicas try again."""

from __future__ import annotations

import asyncio
import logging
from math import inf
from typing import TYPE_CHECKING, Any

from singletonjob import SingletonJobs, StoreUnavailable
from virtual_loop import Capture, Gate, Replica, memory, run_virtually, running, the_loop

if TYPE_CHECKING:
    from singletonjob.stores import LeaseStore
    from singletonjob.stores.protocol import Batch, Reply


def test_c86_an_outage_of_five_minutes_is_told_in_a_few_lines_and_the_retries_of_replicas_spread() -> None:
    replicas, jobs, outage = 20, 10, 300.0

    async def main() -> tuple[list[float], dict[str, int], float, float]:
        store = memory()
        gates = [Gate(store) for _ in range(replicas)]
        apps = [fleet_app(gate, number, jobs) for number, gate in enumerate(gates)]
        fleet = [Replica(app).start() for app in apps]
        await asyncio.sleep(30)
        led = {replica.service._heartbeat._elector.node: 0 for replica in fleet}
        for app, replica in zip(apps, fleet, strict=True):
            led[replica.service._heartbeat._elector.node] = sum(app.is_leader(f"j{number}") for number in range(jobs))
        assert sum(led.values()) == jobs
        tries: list[float] = []
        down = the_loop().time()
        for gate in gates:
            gate.error = StoreUnavailable("redis store: cache:6379, database 0: Connection refused")
            gate.batches = Timed(tries)
        await asyncio.sleep(outage)
        assert not any(app.is_leader(f"j{number}") for app in apps for number in range(jobs))
        for gate in gates:
            gate.error = None
        up = the_loop().time()
        while not all(any(app.is_leader(f"j{number}") for app in apps) for number in range(jobs)):
            await asyncio.sleep(0.1)
        back = the_loop().time() - up
        await asyncio.sleep(15)  # the last one hears that all is well
        for replica in fleet:
            await replica.stop()
        return tries, led, down, back

    with Capture() as logs:
        tries, led, down, back = run_virtually(main())
    assert back < 1.2 * 10 + 2 < 30
    for node, count in led.items():
        # From the outage's begin to its end; INFO and above, which is what is written at the default level.
        lines = [record for record in logs.records if record.node == node and record.levelno >= logging.INFO]
        lines = [record for record in lines if record.event not in {"started", "elected", "released"}]
        assert 6 <= len(lines) <= 20 + 2 * count, [record.getMessage() for record in lines]
        assert {record.event for record in lines} <= {
            "heartbeat-error",
            "store-up",
            "lost",
            "run-cancelled",
            "following",
        }
    # While leases are alive, their holders ask on. After it, retries back off, each by its own time.
    late = [at - down for at in tries if 60 < at - down < outage]
    slots: dict[int, int] = {}
    for at in late:
        slots[int(at * 10)] = slots.get(int(at * 10), 0) + 1
    assert len(late) > replicas * 200 / 12
    assert max(slots.values()) <= 0.3 * replicas


class Timed(list[Any]):
    """What is appended is only counted, by its time."""

    def __init__(self, times: list[float]) -> None:
        super().__init__()
        self._times = times

    def append(self, _item: Any) -> None:
        self._times.append(the_loop().time())


def fleet_app(store: LeaseStore, number: int, jobs: int) -> SingletonJobs:
    app = SingletonJobs("pricing", store=store, node_id=f"r{number}")
    for job in range(jobs):
        app.interval("1s", name=f"j{job}")(nothing)
    return app


class Young(Gate):
    """In front of a store that has just been restarted: it tells its time, and refuses all else."""

    restarted_at = -inf
    refuses = False

    async def exchange(self, batch: Batch) -> Reply:
        if batch.requests and self.refuses:
            raise StoreUnavailable("redis store: the server at cache:6379, database 0 is loading its data")
        return (await self.store.exchange(batch))._replace(up_for=the_loop().time() - self.restarted_at)


def test_c86_a_leader_that_asks_on_and_on_says_once_that_others_wait_because_the_store_restarted() -> None:
    async def main() -> None:
        store = memory()
        gate = Young(store)
        first, second = (SingletonJobs("pricing", store=one) for one in (store, gate))
        for app, jobs in ((first, ("theirs",)), (second, ("ours", "theirs"))):
            for job in jobs:
                app.interval("1s", name=job)(nothing)
        async with running(first):
            await asyncio.sleep(1)
            async with running(second):
                await asyncio.sleep(1)
                assert second.is_leader("ours")
                gate.restarted_at = the_loop().time()
                gate.refuses = True
                await asyncio.sleep(60)
                assert second.health().status == "store_down"
                gate.refuses = False
                await asyncio.sleep(15)
                assert second.is_leader("ours")

    with Capture() as logs:
        run_virtually(main())
    assert len(logs.of("store-restarted")) == 1
    assert 1 <= len(logs.of("heartbeat-error")) <= 2


async def nothing() -> None: ...
