"""aiocron: cron expressions on `loop.call_at`, to the second."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiocron import crontab

from benchmarks.assignment import now
from benchmarks.contestants.until_told import run, sigterm

if TYPE_CHECKING:
    from benchmarks.assignment import Assignment, Stamps


def main(assignment: Assignment, stamps: Stamps) -> None:
    run(serve(assignment, stamps), uvloop=assignment.uvloop)


async def serve(assignment: Assignment, stamps: Stamps) -> None:
    async def body() -> None:
        start = now()
        place = stamps.add(0, start)
        if assignment.body:
            await asyncio.sleep(assignment.body / 1e9)
            stamps.end(place)

    crontab("* * * * * *", func=body, start=True, loop=asyncio.get_running_loop())
    await sigterm()
