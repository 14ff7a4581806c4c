"""APScheduler 3: its asyncio scheduler, or its background scheduler with a thread pool; a memory job store."""

from __future__ import annotations

import asyncio
import signal
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.background import BackgroundScheduler

from benchmarks.assignment import now
from benchmarks.contestants.until_told import run, sigterm

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.assignment import Assignment, Stamps


def main(assignment: Assignment, stamps: Stamps) -> None:
    if assignment.flavour == "background":
        background(assignment, stamps)
    else:
        run(serve(assignment, stamps), uvloop=assignment.uvloop)


async def serve(assignment: Assignment, stamps: Stamps) -> None:
    async def no_op(_job: int) -> None:
        start = now()
        stamps.add(0, start)

    async def waiting(_job: int) -> None:
        start = now()
        place = stamps.add(0, start)
        await asyncio.sleep(assignment.body / 1e9)
        stamps.end(place)

    async def of_one_of_many(job: int) -> None:
        start = now()
        stamps.add(start - (start - assignment.offset_of(job)) % assignment.period, start)

    scheduler = AsyncIOScheduler(timezone=UTC)
    add(scheduler, assignment, waiting if assignment.body else of_one_of_many if assignment.jobs > 1 else no_op)
    scheduler.start()
    if assignment.jobs > 1 or assignment.period >= 60_000_000_000:
        stamps.ready()
    await sigterm()


def background(assignment: Assignment, stamps: Stamps) -> None:
    def no_op(_job: int) -> None:
        start = now()
        stamps.add(0, start)

    def waiting(_job: int) -> None:
        start = now()
        place = stamps.add(0, start)
        time.sleep(assignment.body / 1e9)
        stamps.end(place)

    scheduler = BackgroundScheduler(timezone=UTC)
    add(scheduler, assignment, waiting if assignment.body else no_op)
    scheduler.start()
    signal.sigwait({signal.SIGTERM})


def add(
    scheduler: AsyncIOScheduler | BackgroundScheduler, assignment: Assignment, body: Callable[[int], object]
) -> None:
    for job in range(assignment.jobs):
        offset = assignment.offset_of(job)
        start = now()
        start += assignment.period - (start - offset) % assignment.period
        scheduler.add_job(
            body,
            "interval",
            (job,),
            seconds=assignment.period / 1e9,
            start_date=datetime.fromtimestamp(start / 1e9, tz=UTC),
        )
