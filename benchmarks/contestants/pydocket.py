"""pydocket: perpetual tasks over Redis, docket and worker in one process, its settings as they come."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from docket import Docket, Perpetual, Worker

from benchmarks.assignment import now
from benchmarks.contestants.until_told import run

if TYPE_CHECKING:
    from benchmarks.assignment import Assignment, Stamps


def main(assignment: Assignment, stamps: Stamps) -> None:
    run(serve(assignment, stamps), uvloop=assignment.uvloop)


async def serve(assignment: Assignment, stamps: Stamps) -> None:
    idle = assignment.period >= 60_000_000_000
    every = Perpetual(every=timedelta(microseconds=assignment.period // 1000), automatic=not idle)

    async def body(_again: Perpetual = every) -> None:
        start = now()
        place = stamps.add(0, start)
        if assignment.body:
            await asyncio.sleep(assignment.body / 1e9)
            stamps.end(place)

    async with AsyncExitStack() as stack:
        docket = await stack.enter_async_context(Docket(name=assignment.project, url=assignment.store))
        docket.register(body)
        if idle:
            later = datetime.now(UTC) + timedelta(minutes=5)
            for job in range(assignment.jobs):
                await docket.add(body, when=later, key=f"job-{job}")()
        worker = await stack.enter_async_context(Worker(docket))
        if idle:
            stamps.ready()
        await worker.run_forever()
