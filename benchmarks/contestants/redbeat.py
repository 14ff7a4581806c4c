"""Celery beat with RedBeat over Redis: one worker with four threads, and beat as the process that it embeds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from celery import Celery

from benchmarks.assignment import now

if TYPE_CHECKING:
    from benchmarks.assignment import Assignment, Stamps


def main(assignment: Assignment, stamps: Stamps) -> None:
    app = Celery("bench", broker=assignment.store)
    app.conf.update(
        redbeat_redis_url=assignment.store,
        task_ignore_result=True,
        broker_connection_retry_on_startup=True,
        beat_schedule={
            f"job-{job}": {"task": "bench.body", "schedule": assignment.period / 1e9} for job in range(assignment.jobs)
        },
    )

    def body() -> None:
        start = now()
        place = stamps.add(0, start)
        if assignment.body:
            time.sleep(assignment.body / 1e9)
            stamps.end(place)

    app.task(body, name="bench.body")
    app.Worker(
        pool="threads", concurrency=4, beat=True, scheduler_cls="redbeat.RedBeatScheduler", loglevel="ERROR"
    ).start()
