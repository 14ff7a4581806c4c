"""singletonjob, by its public API."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import tracemalloc
from contextlib import suppress
from typing import TYPE_CHECKING

from benchmarks.assignment import now
from benchmarks.contestants.until_told import run, sigterm

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from benchmarks.assignment import Assignment, Stamps
    from singletonjob import Run, SingletonJobs


def main(assignment: Assignment, stamps: Stamps) -> None:
    if assignment.traced:
        tracemalloc.start()
    run(serve(assignment, stamps), uvloop=assignment.uvloop)


class Ledger:
    """What the app has counted as dropped, read inside a body: then every tick before that run has been decided."""

    def __init__(self, app: SingletonJobs) -> None:
        self.wanted = True
        self.read: list[tuple[int, int]] = []
        self._app = app

    def take(self, place: int) -> None:
        self.wanted = False
        counts = self._app.stats().values()
        self.read.append((place, sum(job.dropped_overlap + job.dropped_late for job in counts)))


async def serve(assignment: Assignment, stamps: Stamps) -> None:
    from singletonjob import SingletonJobs

    app = SingletonJobs(assignment.project, store=assignment.store)
    ledger = Ledger(app)
    make: Callable[..., Callable[[Run], object]] = sync_body if assignment.flavour == "sync" else async_body
    shared = make(assignment, stamps, ledger, assignment.offset)  # what bodies weigh is not ours
    for job in range(assignment.jobs):
        offset = assignment.offset_of(job)
        body = make(assignment, stamps, ledger, offset) if assignment.spread else shared
        app.fixed_rate(
            f"{assignment.period // 1_000_000}ms",
            name=f"job-{job}",
            offset=f"{offset // 1_000_000}ms",
            shutdown_grace=0,
        )(body)
    wanted = "following" if assignment.flavour == "follower" else "leading"
    async with app:
        end = asyncio.create_task(sigterm())
        while not (app.health().ready and set(app.health().jobs.values()) == {wanted}):  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0.05)
        stamps.ready()
        await end
        sys.stdout.write(json.dumps(await last_words(assignment, ledger)))


async def last_words(assignment: Assignment, ledger: Ledger) -> dict[str, int]:
    if assignment.traced:
        gc.collect()
        return {"traced_bytes": tracemalloc.get_traced_memory()[0]}
    if assignment.jobs > 1 or not ledger.read:
        return {}
    ledger.wanted = True
    with suppress(TimeoutError):
        async with asyncio.timeout(2):
            while ledger.wanted:  # noqa: ASYNC110 - an event would cost the body that is measured
                await asyncio.sleep(0.005)
    (first, before), (last, after) = ledger.read[0], ledger.read[-1]
    return {"first": first, "last": last, "dropped": after - before}


def async_body(assignment: Assignment, stamps: Stamps, ledger: Ledger, offset: int) -> Callable[[Run], Awaitable[None]]:
    period, wait = assignment.period, assignment.body / 1e9

    async def body(run: Run) -> None:
        start = now()
        place = stamps.add((run.tick or 0) * period + offset, start)
        if ledger.wanted:
            ledger.take(place)
        if wait:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(wait)
            stamps.end(place)

    return body


def sync_body(assignment: Assignment, stamps: Stamps, ledger: Ledger, offset: int) -> Callable[[Run], None]:
    period = assignment.period

    def body(run: Run) -> None:
        start = now()
        place = stamps.add((run.tick or 0) * period + offset, start)
        if ledger.wanted:
            ledger.take(place)

    return body
