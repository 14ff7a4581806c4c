"""APScheduler 4 (a pre-release): its asyncio scheduler with a memory data store."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from apscheduler import AsyncScheduler
from apscheduler.triggers.interval import IntervalTrigger

from benchmarks.assignment import now
from benchmarks.contestants.until_told import run, sigterm

if TYPE_CHECKING:
    from benchmarks.assignment import Assignment, Stamps

_running: list[tuple[Assignment, Stamps]] = []  # it names a function by its module, so bodies cannot be closures


async def no_op() -> None:
    start = now()
    _running[0][1].add(0, start)


async def waiting() -> None:
    start = now()
    assignment, stamps = _running[0]
    place = stamps.add(0, start)
    await asyncio.sleep(assignment.body / 1e9)
    stamps.end(place)


def main(assignment: Assignment, stamps: Stamps) -> None:
    _running.append((assignment, stamps))
    run(serve(assignment, stamps), uvloop=assignment.uvloop)


async def serve(assignment: Assignment, stamps: Stamps) -> None:
    async with AsyncExitStack() as stack:
        scheduler = await stack.enter_async_context(AsyncScheduler())
        for job in range(assignment.jobs):
            start = now()
            start += assignment.period - (start - assignment.offset_of(job)) % assignment.period
            trigger = IntervalTrigger(
                seconds=assignment.period // 1_000_000_000,
                microseconds=assignment.period % 1_000_000_000 // 1000,
                start_time=datetime.fromtimestamp(start / 1e9, tz=UTC),
            )
            await scheduler.add_schedule(waiting if assignment.body else no_op, trigger, id=f"job-{job}")
        await scheduler.start_in_background()
        if assignment.period >= 60_000_000_000:
            stamps.ready()
        await sigterm()
