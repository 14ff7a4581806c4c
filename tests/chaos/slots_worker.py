"""The program of a worker process with three cron jobs of a slot each second, whose wall clock is off.

It stamps, as the worker of a round of chaos does, into the demo's file of stamps:

    start, end   a body began, or ended; DETAIL is `number:slot`, the slot in microseconds, UTC
    missed       slots were reported; DETAIL is `cause:count:first:last`
"""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any, get_args

from singletonjob import Misfired, Run, SingletonJobs
from singletonjob._core.values import MisfirePolicy, Now
from singletonjob._system.clock import SystemClock

if TYPE_CHECKING:
    from singletonjob._core.values import Event
    from singletonjob.cli.demo_stamps import StampWriter

__all__ = ["JOBS", "make"]

JOBS: tuple[MisfirePolicy, ...] = get_args(MisfirePolicy)
"""The jobs are named after what they do with a slot that was missed."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class OffClock:
    """The machine's clocks, the wall clock ahead by `offset` microseconds. No `SystemClock`, whose timerfd is right."""

    def __init__(self, offset: int) -> None:
        self._clock = SystemClock()
        self._offset = offset

    def boot(self) -> float:
        return self._clock.boot()

    def wall(self) -> int:
        return self._clock.wall() + self._offset

    def now(self) -> Now:
        wall, boot = self._clock.now()
        return Now(wall + self._offset, boot)


def make(name: str, options: dict[str, Any], stamps: StampWriter) -> SingletonJobs:
    """The app. `options` are its own, and the seed of the bodies and the offset of the clock, in seconds."""
    random = Random(f"{options.pop('seed')} {name}")
    app = SingletonJobs("pricing", clock=OffClock(round(options.pop("offset") * 1e6)), **options)
    numbers = itertools.count(1)

    def register(job: MisfirePolicy) -> None:
        @app.cron("* * * * * *", name=job, misfire=job)
        async def body(run: Run) -> None:
            detail = f"{next(numbers)}:{(run.scheduled_at - EPOCH) // timedelta(microseconds=1)}"
            stamps.write("start", job, detail)
            try:
                # Most are over at once, some last, and a few until after the next slot.
                await asyncio.sleep(random.choices([0.01, 0.3, 1.3], [80, 15, 5])[0] * random.uniform(0.5, 1))
            finally:
                stamps.write("end", job, detail)

    for job in JOBS:
        register(job)

    def hear(event: Event) -> None:
        if isinstance(event, Misfired):
            stamps.write("missed", event.job, f"{event.cause}:{event.count}:{event.first}:{event.last}")

    app.subscribe(hear)
    return app
