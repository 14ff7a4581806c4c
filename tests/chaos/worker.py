"""The program of a worker process: six jobs, whose bodies write down when they begin and end.

The file of stamps is that of the demo, a line per stamp, so that SIGKILL loses nothing that was stamped:

    start   a body began; DETAIL is `number:token:scheduled:tick:kind:started`, instants in microseconds, UTC
    over    the body, a sync one, saw for the first time that its term is over; DETAIL is its number
    revived the same body saw later that its term is not over, which must never be
    end     it ended; DETAIL is its number
    beat    the job loop turns
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import sys
import time
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any

from chaos.plan import BEAT, LONGEST_BODY, UNWINDING, draw_plan
from singletonjob import Run, SingletonJobs
from singletonjob._clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from chaos.plan import Plan
    from singletonjob.cli.demo_stamps import StampWriter
    from singletonjob.testing.sim_replica import JobPlan

__all__ = ["main"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LOOK = 0.01
"""A sync body looks so often at its term, in seconds."""


class Bodies:
    """What the jobs of a worker do. `random` is used by several threads: what it draws need not repeat."""

    def __init__(self, plan: Plan, name: str, stamps: StampWriter) -> None:
        self._plan = plan
        self._stamps = stamps
        self._random = Random(f"{plan.seed} {name}")
        self._numbers = itertools.count(1)

    def _begin(self, job: JobPlan, run: Run) -> tuple[int, str]:
        number = next(self._numbers)
        kind = self._random.choices(list(job.bodies), list(job.bodies.values()))[0]
        tick = "" if run.tick is None else run.tick
        due, started = ((at - EPOCH) // timedelta(microseconds=1) for at in (run.scheduled_at, run.started_at))
        self._stamps.write("start", job.name, f"{number}:{run.token}:{due}:{tick}:{kind}:{started}")
        return number, kind

    async def on_loop(self, job: JobPlan, run: Run) -> None:
        number, kind = self._begin(job, run)
        draw, expiry = self._random.random, self._plan.lock_expiry
        try:
            if kind == "blocking":
                time.sleep(expiry * (0.2 + 1.3 * draw()))  # noqa: ASYNC251 - the fault that it is there for
            elif kind == "endless":
                await asyncio.sleep(expiry * LONGEST_BODY)
            else:
                await asyncio.sleep(0.02 * draw() if kind == "quick" else 1.2 * expiry * draw())
        except asyncio.CancelledError:
            await asyncio.sleep(UNWINDING * self._plan.margin * draw())
            raise
        finally:
            self._stamps.write("end", job.name, number)

    def in_thread(self, job: JobPlan, run: Run) -> None:
        number, kind = self._begin(job, run)
        draw, expiry = self._random.random, self._plan.lock_expiry
        seconds = {"quick": 0.03 * draw(), "heeding": 1.2 * expiry * draw()}.get(kind, expiry * (0.5 + draw()))
        until = SystemClock().boot() + seconds
        over = False
        try:
            while True:
                was_over, over = over, run.remaining == 0
                if over != was_over:
                    self._stamps.write("over" if over else "revived", job.name, number)
                if kind == "heeding":
                    run.check()
                if SystemClock().boot() >= until or (kind == "heeding" and run.stopping):
                    return
                time.sleep(LOOK)
        finally:
            self._stamps.write("end", job.name, number)


def _register(app: SingletonJobs, bodies: Bodies, job: JobPlan, *, sync: bool) -> None:
    async def on_loop(run: Run) -> None:
        await bodies.on_loop(job, run)

    def in_thread(run: Run) -> None:
        bodies.in_thread(job, run)

    body: Callable[[Run], Any] = in_thread if sync else on_loop
    if job.shape == "fixed":
        app.fixed_rate(job.every, name=job.name)(body)
    elif job.shape == "interval":
        app.interval(job.every, name=job.name)(body)
    else:
        app.cron(job.every, name=job.name, misfire=job.misfire)(body)


def main(name: str, options: dict[str, Any], stamps: StampWriter) -> None:
    """Work until SIGTERM. `options` are the app's, and the seed and the store of the plan."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    plan = draw_plan(options.pop("seed"), options.pop("kind"))
    app = SingletonJobs("chaos", **options)
    bodies = Bodies(plan, name, stamps)
    for job in plan.jobs.values():
        _register(app, bodies, job, sync=job.name in plan.sync)

    async def work() -> None:
        beats = asyncio.create_task(_beat(stamps))
        await app.serve()
        beats.cancel()

    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if plan.uvloop:
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(work())
        # As `app.run()` does: nobody waits for a body that would not stop, its lease is left to expire.
        logging.shutdown()
        os._exit(0)


async def _beat(stamps: StampWriter) -> None:
    while True:
        stamps.write("beat", "loop", "-")
        await asyncio.sleep(BEAT)
