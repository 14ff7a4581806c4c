"""The program of a worker process: six jobs, whose bodies write down when they begin and end.

It may run on another release than this tree's (`chaos.releases`), so all that it knows of the library are public
names, and it is told the plan as plain values.

The file of stamps is that of the demo, a line per stamp, so that SIGKILL loses nothing that was stamped:

    start   a body began; DETAIL is `number:token:scheduled:tick:kind:started`, instants in microseconds, UTC
    over    the body, a sync one, saw for the first time that its term is over; DETAIL is its number
    revived the same body saw later that its term is not over, which must never be
    end     it ended; DETAIL is its number
    beat    the job loop turns
    on      the library that it runs on, once, before the first beat; DETAIL is the file that it was imported from
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
from urllib.parse import quote

import singletonjob
from singletonjob import Run, SingletonJobs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from singletonjob.cli.demo_stamps import StampWriter

__all__ = ["BEAT", "LONGEST_BODY", "UNWINDING", "main"]

BEAT = 0.02
"""So often does the job loop of each worker write down that it turns, in seconds."""

LONGEST_BODY = 2.5
"""In lock_expiries."""

UNWINDING = 0.25
"""A body that heeds its cancellation takes at most this part of the margin to end; the checker reckons with it."""

LOG_LINE = "%(asctime)s %(levelname)s [%(event)s] %(message)s"

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LOOK = 0.01
"""A sync body looks so often at its term, in seconds."""


class Bodies:
    """What the jobs of a worker do. `random` is used by several threads: what it draws need not repeat."""

    def __init__(self, plan: Mapping[str, Any], name: str, stamps: StampWriter) -> None:
        self._lock_expiry: float = plan["lock_expiry"]
        self._margin: float = plan["margin"]
        self._stamps = stamps
        self._random = Random(f"{plan['seed']} {name}")
        self._numbers = itertools.count(1)

    def _begin(self, job: Mapping[str, Any], run: Run) -> tuple[int, str]:
        number = next(self._numbers)
        kind: str = self._random.choices(list(job["bodies"]), list(job["bodies"].values()))[0]
        tick = "" if run.tick is None else run.tick
        due, started = ((at - EPOCH) // timedelta(microseconds=1) for at in (run.scheduled_at, run.started_at))
        self._stamps.write("start", job["name"], f"{number}:{run.token}:{due}:{tick}:{kind}:{started}")
        return number, kind

    async def on_loop(self, job: Mapping[str, Any], run: Run) -> None:
        number, kind = self._begin(job, run)
        draw, expiry = self._random.random, self._lock_expiry
        try:
            if kind == "blocking":
                time.sleep(expiry * (0.2 + 1.3 * draw()))  # noqa: ASYNC251 - the fault that it is there for
            elif kind == "endless":
                await asyncio.sleep(expiry * LONGEST_BODY)
            else:
                await asyncio.sleep(0.02 * draw() if kind == "quick" else 1.2 * expiry * draw())
        except asyncio.CancelledError:
            await asyncio.sleep(UNWINDING * self._margin * draw())
            raise
        finally:
            self._stamps.write("end", job["name"], number)

    def in_thread(self, job: Mapping[str, Any], run: Run) -> None:
        number, kind = self._begin(job, run)
        draw, expiry = self._random.random, self._lock_expiry
        seconds = {"quick": 0.03 * draw(), "heeding": 1.2 * expiry * draw()}.get(kind, expiry * (0.5 + draw()))
        until = time.monotonic() + seconds
        over = False
        try:
            while True:
                was_over, over = over, run.remaining == 0
                if over != was_over:
                    self._stamps.write("over" if over else "revived", job["name"], number)
                if kind == "heeding":
                    run.check()
                if time.monotonic() >= until or (kind == "heeding" and run.stopping):
                    return
                time.sleep(LOOK)
        finally:
            self._stamps.write("end", job["name"], number)


def _register(app: SingletonJobs, bodies: Bodies, job: Mapping[str, Any]) -> None:
    async def on_loop(run: Run) -> None:
        await bodies.on_loop(job, run)

    def in_thread(run: Run) -> None:
        bodies.in_thread(job, run)

    body: Callable[[Run], Any] = in_thread if job["sync"] else on_loop
    name, every = job["name"], job["every"]
    if job["shape"] == "fixed":
        app.fixed_rate(every, name=name)(body)
    elif job["shape"] == "interval":
        app.interval(every, name=name)(body)
    else:
        app.cron(every, name=name, misfire=job["misfire"])(body)


def main(name: str, options: dict[str, Any], stamps: StampWriter) -> None:
    """Work until SIGTERM. `options` are the app's, and what `Plan.told` says."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(LOG_LINE, defaults={"event": None}))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    plan = options.pop("plan")
    app = SingletonJobs("chaos", **options)
    bodies = Bodies(plan, name, stamps)
    for job in plan["jobs"]:
        _register(app, bodies, job)

    async def work() -> None:
        beats = asyncio.create_task(_beat(stamps))
        await app.serve()
        beats.cancel()

    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if plan["uvloop"]:
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(work())
        # As `app.run()` does: nobody waits for a body that would not stop, its lease is left to expire.
        logging.shutdown()
        os._exit(0)


async def _beat(stamps: StampWriter) -> None:
    stamps.write("on", "library", quote(singletonjob.__file__))
    while True:
        stamps.write("beat", "loop", "-")
        await asyncio.sleep(BEAT)
