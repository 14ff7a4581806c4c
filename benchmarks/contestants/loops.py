"""Loops that people write by hand: a grid kept with `loop.call_at`, and `while True: body; sleep(period)`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from benchmarks.assignment import now
from benchmarks.contestants.until_told import run

if TYPE_CHECKING:
    from benchmarks.assignment import Assignment, Stamps


def main(assignment: Assignment, stamps: Stamps) -> None:
    run(serve(assignment, stamps), uvloop=assignment.uvloop)


async def serve(assignment: Assignment, stamps: Stamps) -> None:
    loop = naive if assignment.flavour == "naive" else grid
    await asyncio.gather(*(loop(assignment, stamps, assignment.offset_of(job)) for job in range(assignment.jobs)))


async def grid(assignment: Assignment, stamps: Stamps, offset: int) -> None:
    async def body(planned: int) -> None:
        start = now()
        stamps.add(planned, start)

    loop = asyncio.get_running_loop()
    period = assignment.period
    wall_to_loop = loop.time() - now() / 1e9
    planned = now()
    planned += period - (planned - offset) % period
    while True:
        waiter = loop.create_future()
        loop.call_at(planned / 1e9 + wall_to_loop, waiter.set_result, None)
        await waiter
        await body(planned)
        late = now() - planned
        planned += max(1, late // period + 1 if late > 0 else 1) * period


async def naive(assignment: Assignment, stamps: Stamps, offset: int) -> None:
    async def body(planned: int) -> None:
        start = now()
        stamps.add(planned, start)

    period = assignment.period
    planned = now()
    await asyncio.sleep((period - (planned - offset) % period) / 1e9)
    planned = now()
    while True:
        await body(planned)
        await asyncio.sleep(period / 1e9)
        planned += period
