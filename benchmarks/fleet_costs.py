"""What single acts cost a server, in CPU time: the coefficients of the fleet's model, measured one by one.

At the pace of a fleet and not as fast as it goes: a server that sleeps between two calls pays for waking up.
"""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from benchmarks.fleet_model import Cost
from singletonjob.stores import from_url
from singletonjob.stores.protocol import Acquire, Batch, Refused, Request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from servers import Server

__all__ = ["cpu_of", "measured_cost"]

PACE = 0.01
TIMES = 300
JOBS = 20
HEARERS = 100
RELEASES = 30


def cpu_of(pid: int) -> float:
    """Processor time of a process in seconds, by its own clock: clock_getcpuclockid(3)."""
    return time.clock_gettime((~pid << 3) | 2)


def measured_cost(server: Server) -> Cost:
    """The costs on this server, on this machine, now. Takes half a minute. The server is empty afterwards."""
    return asyncio.run(_measured(server))


async def _measured(server: Server) -> Cost:
    assert server.process is not None
    pid = server.process.pid

    async def per_act(act: Callable[[], Awaitable[object]], times: int = TIMES, pace: float = PACE) -> float:
        for _ in range(3):
            await act()
        before = cpu_of(pid)
        for _ in range(times):
            await act()
            await asyncio.sleep(pace)
        return (cpu_of(pid) - before) / times - idle * pace

    idle = 0.0

    async def nothing() -> None: ...

    idle = await per_act(nothing) / PACE

    client = server.client()

    async def ping() -> None:
        client.ping()

    one, many = [await per_act(act) for act in (await _ask(server, 1), await _ask(server, JOBS))]
    request = (many - one) / (JOBS - 1)
    pinged = await per_act(ping)
    with ExitStack() as stack:
        for _ in range(HEARERS):
            hearer = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=5))
            hearer.sendall(b"SUBSCRIBE costs\r\n")
            hearer.recv(100)

        async def publish() -> None:
            client.publish("costs", "job-1")

        told = await per_act(publish, RELEASES, 5 * PACE)
    client.flushall()
    client.close()
    return Cost(idle=idle, call=one - request, request=request, ping=pinged, message=(told - pinged) / HEARERS)


async def _ask(server: Server, jobs: int) -> Callable[[], Awaitable[object]]:
    """Ask for so many jobs that are led by somebody else, as a follower does."""

    def batch(node: str, number: int) -> Batch:
        requests: list[Request] = [
            Acquire(job=f"price-tick-{job}", number=number, lock_expiry=600.0, above=0) for job in range(jobs)
        ]
        return Batch(project="market", node=node, bound=2.0, requests=tuple(requests))

    store, asker = from_url(server.url), from_url(server.url)
    reading = Batch(project="market", node="", bound=2.0)
    for one in (store, asker):
        await one.exchange(reading)
    await store.exchange(batch("leader-00000000", 1))

    async def ask() -> None:
        reply = await asker.exchange(batch("asker-00000000", 2))
        assert all(isinstance(verdict, Refused) for verdict in reply.verdicts)

    return ask
