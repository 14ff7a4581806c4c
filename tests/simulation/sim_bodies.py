"""What the jobs of a simulated replica do: kinds of body by name, on the loop and in a thread, and the record of each.

Before some runs there is a nap: the whole process is frozen after the last check of the term, before the body's first
statement has any effect. Those begin late, and no library can help it; but at once they must be able to tell.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from simulation.sim_history import SimRun
from singletonjob._core.errors import LeadershipLost
from singletonjob.testing.virtual_threads import VirtualEvent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from simulation.sim_history import History
    from simulation.sim_replica import Process
    from simulation.sim_threads import SimWorker
    from simulation.sim_time import World
    from singletonjob._core.values import MisfirePolicy
    from singletonjob._jobs.handles import Run

__all__ = ["UNWINDING", "Bodies", "JobPlan"]

UNWINDING = 0.25
"""A body that heeds its cancellation, or asks, takes at most this part of the margin to end."""

LOOKS = frozenset({"quick", "endless", "checks"})
"""The kinds of sync body that are as good as cancelled: they end by themselves at once, or look all the time."""

BEGIN = datetime(1970, 1, 1, tzinfo=UTC)


class JobPlan(NamedTuple):
    """A job of the fleet. `bodies` are the weights of the kinds of body that its runs have.

    `scale`: of its lease's durations, over those of the app. `limited`: its slots have a `late_limit` of their own.
    """

    name: str
    shape: str
    every: Any
    misfire: MisfirePolicy
    bodies: Mapping[str, float]
    sync: bool = False
    scale: float = 1.0
    limited: bool = False


class Bodies:
    """The bodies of one process. `counted` is for each job how many ticks were accounted for when its run began."""

    def __init__(self, process: Process, world: World, history: History) -> None:
        self._process = process
        self._world = world
        self._history = history
        self._handles: dict[str, tuple[int, Run]] = {}
        self._scales: dict[str, float] = {}
        self.runs: list[SimRun] = []
        self.counted: dict[str, int] = {}

    def of(self, plan: JobPlan) -> Any:
        """The function to be registered for a job."""
        self._scales[plan.name] = plan.scale

        async def body(run: Run) -> None:
            await self._on_loop(plan, run)

        def sync_body(run: Run) -> None:
            self._in_thread(plan, run)

        return sync_body if plan.sync else body

    def count(self, job: str) -> None:
        """A run of the job begins now."""
        counts = self._process.service.runners[job].counts
        self.counted[job] = counts.runs - counts.triggered + counts.dropped_late + counts.dropped_overlap

    def _margin(self, record: SimRun) -> float:
        return self._process.margin * self._scales[record.job]

    # -- the record ---------------------------------------------------------------------------------------------------

    def _begins(self, plan: JobPlan, run: Run) -> SimRun:
        process, world = self._process, self._world
        token, handle = self._handles.get(plan.name, (run.token, run))
        if token != run.token and handle.remaining > 0:
            process.failed(f"the handle of token {token} is usable in the term of token {run.token}")
        self._handles[plan.name] = run.token, run
        weights = process.bodies or plan.bodies
        kind = world.random.choices(list(weights), list(weights.values()))[0]
        record = SimRun(
            process.name,
            process.machine,
            plan.name,
            run.token,
            (run.scheduled_at - BEGIN) // timedelta(microseconds=1),
            run.tick,
            kind,
            world.now,
            self.counted[plan.name],
            sync=plan.sync,
            looks=not plan.sync or kind in LOOKS,
        )
        self._history.runs.append(record)
        self.runs.append(record)
        self._history.say(world.now, f"{record} starts")
        return record

    def _ends(self, record: SimRun) -> None:
        if self._process.alive:
            record.ended = self._world.now
            self.runs.remove(record)
            self._history.say(self._world.now, f"{record} ends")

    def _wakes(self, record: SimRun, run: Run) -> None:
        """The first statement after a nap."""
        record.woke = self._world.now
        try:
            run.check()
        except LeadershipLost:
            record.told = run.stopping
        self._history.say(record.woke, f"{record} wakes, and is {'' if record.told else 'not '}told to end")

    # -- on the loop --------------------------------------------------------------------------------------------------

    async def _on_loop(self, plan: JobPlan, run: Run) -> None:
        if not self._process.alive:
            return  # a loop that is unwound
        self.count(plan.name)
        record = self._begins(plan, run)
        try:
            nap = self._process.naps.pop(plan.name, None)
            if nap is not None:
                self._process.nap(nap, plan.name)
                await self._process.job_loop.block(0.0)
                self._wakes(record, run)
            await self._work(record)
        finally:
            self._ends(record)

    async def _work(self, record: SimRun) -> None:
        process, draw = self._process, self._world.random.random
        kind, expiry = record.kind, process.expiry
        try:
            if kind == "quick":
                await asyncio.sleep(0.02 * draw())
            elif kind == "long":
                await asyncio.sleep(expiry * draw())
            elif kind == "endless":
                await asyncio.sleep(expiry * 6)
            elif kind == "rude":
                await asyncio.sleep(expiry * (0.5 + draw()))
            else:
                await self._block(kind, expiry)
        except asyncio.CancelledError:
            if not process.alive:
                raise
            if kind == "rude":
                record.rude = True
                await asyncio.sleep(expiry * draw())
                return
            await asyncio.sleep(UNWINDING * self._margin(record) * draw() / process.clock.rate)
            raise

    async def _block(self, kind: str, expiry: float) -> None:
        draw, process = self._world.random.random, self._process
        await asyncio.sleep(0.01 * draw())
        seconds = expiry * draw() if kind == "blocking" else expiry * (1 + 2 * draw())
        now = self._world.now
        self._history.froze(kind, process.name, now, now + seconds)
        await process.job_loop.block(seconds)
        await asyncio.sleep(0.01 * draw())

    # -- in a thread --------------------------------------------------------------------------------------------------

    def _in_thread(self, plan: JobPlan, run: Run) -> None:
        worker = self._world.thread
        if worker is None:
            return  # a thread that is unwound
        if self._process.strikes_first_statement(worker):
            worker.sleep(0.0)
        worker.started = True
        record = self._begins(plan, run)
        if self._process.frozen_until > worker.checked_at:
            record.started = worker.checked_at
            self._wakes(record, run)
        try:
            self._work_in_thread(record, run, worker)
        except LeadershipLost:
            worker.sleep(UNWINDING * self._margin(record) * self._world.random.random())
            raise
        finally:
            self._ends(record)

    def _work_in_thread(self, record: SimRun, run: Run, worker: SimWorker) -> None:
        draw, expiry = self._world.random.random, self._process.expiry
        if record.kind == "quick":
            worker.sleep(0.02 * draw())
        elif record.kind == "long":
            worker.sleep(expiry * draw())
        elif record.kind == "deaf":
            worker.sleep(expiry * (1 + 2 * draw()))
        elif record.kind == "checks":
            for _ in range(50):
                worker.sleep(UNWINDING * self._margin(record) * draw())
                run.check()
        else:
            _wait_virtually(run, worker)
            if run.wait(expiry * 6):
                worker.sleep(UNWINDING * self._margin(record) * draw())


def _wait_virtually(run: Run, worker: SimWorker) -> None:
    """Let `run.wait` sleep as all else here: the one thing that a run waits with is a real event."""
    signal = run._signal  # pyright: ignore[reportPrivateUsage]  # no other way to a run's event
    event = VirtualEvent(worker)
    if signal.given:
        event.set()
    signal.event = event
