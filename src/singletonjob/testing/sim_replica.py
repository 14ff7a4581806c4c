"""One process of a simulation: an unmodified `Service` on two simulated loops, and the bodies that it runs."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from .._service import Service
from ..jobs.options import APP_READERS, read, resolve_app
from ..jobs.registry import Registry
from .sim_history import Life, SimRun
from .sim_store import SimClient
from .sim_time import SimLoop, set_running

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .._heartbeat import Heartbeat
    from .._lease import Run
    from .._schedule import Misfire
    from ..jobs.definition import JobDefinition
    from .sim_history import History
    from .sim_store import Network, SimStore
    from .sim_time import SimClock, World

__all__ = ["UNWINDING", "JobPlan", "Process"]

UNWINDING = 0.25
"""A body that heeds its cancellation takes at most this part of the margin to end."""


BEGIN = datetime(1970, 1, 1, tzinfo=UTC)


class JobPlan(NamedTuple):
    """A job of the fleet. `bodies` are the weights of the kinds of body that its runs have."""

    name: str
    shape: str
    every: Any
    misfire: Misfire
    bodies: Mapping[str, float]


class _Registry(Registry):
    @property
    def definitions(self) -> list[JobDefinition]:
        return list(self._jobs.values())


class Process:
    """A replica from its start to its stop or crash; `name` is its node id. `machine` keeps its clock when it ends."""

    def __init__(
        self,
        name: str,
        machine: int,
        *,
        world: World,
        clock: SimClock,
        store: SimStore,
        history: History,
        network: Network,
        plans: list[JobPlan],
        options: Mapping[str, Any],
        switched: bool,
        ended: Callable[[Process], None],
    ) -> None:
        self.name = name
        self.machine = machine
        self.clock = clock
        self.bodies: Mapping[str, float] | None = None  # in place of the plans', once all is to heal
        self.alive = True
        self.stopping = False
        self.switched_off: set[str] = set()
        self._world = world
        self._history = history
        self._ended = ended
        self._runs: list[SimRun] = []
        self._handles: dict[str, tuple[int, Run]] = {}
        self._begun = world.now
        self.job_loop = SimLoop(world, clock, self._failed)
        self.beat_loop = SimLoop(world, clock, self._failed)
        self.client = SimClient(world, store, self.beat_loop, network, options["heartbeat_interval"])
        store.clients.append(self.client)
        registry = _Registry()
        for plan in plans:
            self._register(registry, plan, switched=switched)
        self.service = Service(
            # Not as an app starts: the environment and the files of whoever runs this must not matter.
            resolve_app(read({"project": "sim", "store": self.client, **options}, APP_READERS)),
            registry.definitions,
            callbacks=[],
            clock=clock,
            start_heartbeat=self._start_heartbeat,
            node=name,
            draw=world.random.random,
        )
        self.margin: float = options["margin"]
        self.expiry: float = options["lock_expiry"]
        self.job_loop.call_soon(self.service.start)

    # -- its life ---------------------------------------------------------------------------------------------------

    def _start_heartbeat(self, heartbeat: Heartbeat) -> None:
        set_running(self.beat_loop)
        task = heartbeat.start_here()
        set_running(self.job_loop)
        task.add_done_callback(self._heartbeat_ended)

    def _heartbeat_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failed(f"the heartbeat died: {error!r}")
        self.service.post(partial(self.service.heartbeat_ended, error))

    def _failed(self, text: str) -> None:
        self._history.errors.append(f"{self.name}: {text}")
        self._history.say(self._world.now, f"{self.name}: {text}")

    def stop(self) -> None:
        """Leave in good order; the process ends when the library says so."""
        if self.alive and not self.stopping:
            self.stopping = True
            self.job_loop.call_soon(self._begin_stop)

    def _begin_stop(self) -> None:
        self._stop_task = self.job_loop.create_task(self.service.stop())
        self._stop_task.add_done_callback(self._stopped)

    def _stopped(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._failed(f"stop raised {task.exception()!r}")
        self.end("ended")

    def end(self, how: str) -> None:
        """The process is gone, and with it all that still ran in it."""
        if not self.alive:
            return
        self.alive = False
        now = self._world.now
        self.job_loop.kill()
        self.beat_loop.kill()
        for run in self._runs:
            run.ended = now
        self._history.alive.append(Life(self.name, self._begun, now, how == "crashed"))
        self._history.say(now, f"{self.name}: {how}")
        self._ended(self)

    def freeze(self, kind: str, seconds: float, *, whole: bool) -> None:
        """Let the job loop stand still; `whole`: the heartbeat's too."""
        now = self._world.now
        self.job_loop.freeze(now + seconds)
        if whole:
            self.beat_loop.freeze(now + seconds)
        self._history.froze(kind, self.name, now, now + seconds)

    # -- its jobs ---------------------------------------------------------------------------------------------------

    def _register(self, registry: Registry, plan: JobPlan, *, switched: bool) -> None:
        async def body(run: Run) -> None:
            await self._run(plan, run)

        async def enabled() -> bool:
            return plan.name not in self.switched_off

        more: dict[str, Any] = {"name": plan.name, "enabled": enabled if switched else True}
        if plan.shape == "fixed":
            registry.fixed_rate(plan.every, **more)(body)
        elif plan.shape == "interval":
            registry.interval(plan.every, **more)(body)
        else:
            registry.cron(plan.every, misfire=plan.misfire, **more)(body)

    async def _run(self, plan: JobPlan, run: Run) -> None:
        world, history = self._world, self._history
        token, handle = self._handles.get(plan.name, (run.token, run))
        if token != run.token and handle.remaining > 0:
            self._failed(f"the handle of token {token} is usable in the term of token {run.token}")
        self._handles[plan.name] = run.token, run
        weights = self.bodies or plan.bodies
        kind = world.random.choices(list(weights), list(weights.values()))[0]
        counts = self.service.runners[plan.name].counts
        record = SimRun(
            self.name,
            self.machine,
            plan.name,
            run.token,
            (run.scheduled_at - BEGIN) // timedelta(microseconds=1),
            run.tick,
            kind,
            world.now,
            counts.runs + counts.dropped_late + counts.dropped_overlap,
        )
        history.runs.append(record)
        self._runs.append(record)
        history.say(world.now, f"{record} starts")
        try:
            await self._work(kind, record)
        finally:
            if self.alive:
                record.ended = world.now
                self._runs.remove(record)
                history.say(world.now, f"{record} ends")

    async def _work(self, kind: str, record: SimRun) -> None:
        """What the body does; the kinds of body by name."""
        draw, expiry, margin = self._world.random.random, self.expiry, self.margin
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
            if not self.alive:
                raise
            if kind == "rude":
                record.rude = True
                await asyncio.sleep(expiry * draw())
                return
            await asyncio.sleep(UNWINDING * margin * draw() / self.clock.rate)
            raise

    async def _block(self, kind: str, expiry: float) -> None:
        draw = self._world.random.random
        await asyncio.sleep(0.01 * draw())
        seconds = expiry * draw() if kind == "blocking" else expiry * (1 + 2 * draw())
        now = self._world.now
        self._history.froze(kind, self.name, now, now + seconds)
        await self.job_loop.block(seconds)
        await asyncio.sleep(0.01 * draw())
