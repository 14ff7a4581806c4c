"""arq: a worker's cron jobs, to the second, over Redis; its poll delay of 0.5 s as it comes."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from arq.connections import RedisSettings
from arq.cron import cron
from arq.worker import Worker

from benchmarks.assignment import now
from benchmarks.contestants.until_told import run

if TYPE_CHECKING:
    from benchmarks.assignment import Assignment, Stamps


def main(assignment: Assignment, stamps: Stamps) -> None:
    run(serve(assignment, stamps), uvloop=assignment.uvloop)


async def serve(assignment: Assignment, stamps: Stamps) -> None:
    async def body(_context: object) -> None:
        start = now()
        place = stamps.add(0, start)
        if assignment.body:
            await asyncio.sleep(assignment.body / 1e9)
            stamps.end(place)

    async def started(_context: object) -> None:
        if idle:
            stamps.ready()

    idle = assignment.period >= 60_000_000_000
    later = (datetime.now(UTC) + timedelta(hours=12)).hour
    jobs = [
        cron(body, name=f"job-{job}", hour=later if idle else None, second=0 if idle else set(range(60)), microsecond=0)
        for job in range(assignment.jobs)
    ]
    worker = Worker(
        cron_jobs=jobs,
        redis_settings=RedisSettings(port=urlsplit(assignment.store).port or 0),
        queue_name=f"{assignment.project}:queue",
        on_startup=started,
        handle_signals=False,
        timezone=UTC,
    )
    await worker.async_run()
