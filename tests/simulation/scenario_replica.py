"""What a scenario is made of: jobs with the bodies that a test gives them, and the replicas that run them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from simulation.sim_history import SimRun
from simulation.sim_replica import JobPlan, Process
from simulation.sim_store import Network, SimClient
from simulation.sim_time import SimClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from simulation.scenario import Fleet
    from singletonjob import Run
    from singletonjob._core.values import MisfirePolicy
    from singletonjob._jobs.registry import Registry
    from singletonjob.stores.protocol import Batch, Reply, Request

__all__ = ["Client", "Fate", "Job", "Replica", "micros"]

Fate: TypeAlias = "BaseException | Literal['request lost', 'reply lost'] | Callable[[Reply], Any] | None"
"""What becomes of a call: it raises; no answer ever comes; the answer is made into another; nothing odd (None)."""


def micros(moment: datetime) -> int:
    """An aware datetime in microseconds since the epoch."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


async def _quick(_run: Run, _replica: Replica) -> None:
    await asyncio.sleep(0.01)


class Job(NamedTuple):
    """A job of the fleet. `body` is async, or runs in a thread and sleeps by `Replica.sleep`.

    `more`: keywords of its decorator.
    """

    name: str
    shape: Literal["fixed", "interval", "cron"]
    every: Any
    body: Callable[[Run, Replica], Awaitable[None] | None] = _quick
    misfire: MisfirePolicy = "skip"
    more: Mapping[str, Any] = {}

    @property
    def plan(self) -> JobPlan:
        limited = "late_limit" in self.more
        return JobPlan(self.name, self.shape, self.every, self.misfire, {}, sync=self.sync, limited=limited)

    @property
    def sync(self) -> bool:
        return not iscoroutinefunction(self.body)


class Client(SimClient):
    """Notes what left when, and which calls were answered; `fate` says what becomes of a call."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.sent: list[tuple[float, Batch]] = []
        self.answered: list[float] = []  # when those calls with requests left that were answered
        self.in_flight: Batch | None = None
        self.fate: Callable[[Batch], Fate] = lambda _batch: None

    async def exchange(self, batch: Batch) -> Reply:
        sent, fate = self._world.now, self.fate(batch)
        self.sent.append((sent, batch))
        self.in_flight = batch
        try:
            if isinstance(fate, BaseException):
                raise fate
            if fate == "request lost":
                await asyncio.Event().wait()
            reply = await super().exchange(batch)
            if fate == "reply lost":
                await asyncio.Event().wait()
        finally:
            self.in_flight = None
        if callable(fate):
            other: Reply = fate(reply)
            return other
        if batch.requests:
            self.answered.append(sent)
        return reply

    def asked(self, kind: type[Request], *, since: float = 0.0) -> list[float]:
        """When calls with such a request left."""
        return [
            when
            for when, batch in self.sent
            if when >= since and any(isinstance(request, kind) for request in batch.requests)
        ]


class Replica(Process):
    """A replica that a test starts, and what a test may do to it. `told`: each `on_stepped_down`, and when."""

    client_type = Client
    client: Client

    def __init__(self, fleet: Fleet, name: str, options: Mapping[str, Any], *, ahead: float) -> None:
        self._fleet = fleet
        self.told: list[tuple[float, str, str]] = []
        super().__init__(
            name,
            len(fleet.replicas),
            world=fleet.world,
            clock=SimClock(fleet.world, 1.0, fleet.offset + round(ahead * 1e6)),
            store=fleet.store,
            history=fleet.history,
            network=Network(),
            plans=[job.plan for job in fleet.jobs.values()],
            options=options,
            switched=False,
            ended=lambda _process: fleet.store.clients.remove(self.client),
            threads=fleet.threads,
        )
        self._history.say(fleet.now, f"{name}: started")

    def _register(self, registry: Registry, plan: JobPlan, *, switched: bool) -> None:
        job = self._fleet.jobs[plan.name]

        async def on_loop(run: Run) -> None:
            if not self.alive:
                return  # a loop that is unwound after the end
            record = self._begins(job, run)
            try:
                answer = job.body(run, self)
                assert answer is not None
                await answer
            finally:
                self._ends(record)

        def in_thread(run: Run) -> None:
            record = self._begins(job, run)
            try:
                job.body(run, self)
            finally:
                self._ends(record)

        body: Any = in_thread if job.sync else on_loop
        more: dict[str, Any] = {"name": job.name, **job.more}
        if job.shape == "fixed":
            registry.fixed_rate(job.every, **more)(body)
        elif job.shape == "interval":
            registry.interval(job.every, **more)(body)
        else:
            registry.cron(job.every, misfire=job.misfire, **more)(body)
        # As the class form has it; the decorators know no hooks.
        told = partial(self._stepped_down, job.name)
        registry._jobs[job.name] = replace(registry._jobs[job.name], on_stepped_down=told)

    def _stepped_down(self, job: str, reason: str) -> None:
        self.told.append((self._world.now, job, reason))

    def _begins(self, job: Job, run: Run) -> SimRun:
        world, history = self._world, self._history
        record = SimRun(
            process=self.name,
            machine=self.machine,
            job=job.name,
            token=run.token,
            scheduled=micros(run.scheduled_at),
            tick=run.tick,
            kind="scripted",
            started=world.now,
            counted=0,
            sync=job.sync,
            looks=not job.sync,  # whether it looks, and ends in time, is for the test to say
        )
        history.runs.append(record)
        self._runs.append(record)
        history.say(world.now, f"{record} starts")
        return record

    def _ends(self, record: SimRun) -> None:
        if self.alive:
            record.ended = self._world.now
            self._runs.remove(record)
            self._history.say(record.ended, f"{record} ends")

    @property
    def running(self) -> bool:
        """Whether one of its bodies runs."""
        return bool(self._runs)

    # -- for bodies ----------------------------------------------------------------------------------------------------

    async def block(self, seconds: float) -> None:
        """What `time.sleep` is in a body on the loop."""
        now = self._world.now
        self._history.froze("blocked", self.name, now, now + seconds)
        await self.job_loop.block(seconds)

    def sleep(self, seconds: float) -> None:
        """What `time.sleep` is in a body in a thread."""
        thread = self._world.thread
        assert thread is not None
        thread.sleep(seconds)

    # -- for the script ------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """SIGKILL."""
        self._history.fault("crash", self.name, self._world.now, self._world.now)
        self.end("crashed")

    def stop(self) -> None:
        """SIGTERM."""
        self._history.fault("stop", self.name, self._world.now, self._world.now)
        super().stop()

    def pause(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT so much later."""
        self.freeze("paused", seconds, whole=True)

    def suspend(self, seconds: float) -> None:
        """Its machine sleeps: the loops' clocks stand still, boot clock and wall clock do not."""
        self.clock.suspend(seconds)
        self.freeze("suspended", seconds, whole=True)

    def step_clock(self, seconds: float) -> None:
        """Set the wall clock forward, or back."""
        self.clock.offset += round(seconds * 1e6)

    def cut(self, which: Literal["both", "requests", "replies"] = "both") -> None:
        """Its connections go dead, and nobody says so."""
        self.client.cut = which
        self.client.lose_subscription(at_once=False)

    def heal(self) -> None:
        self.client.cut = ""
        self.client.fate = lambda _batch: None

    def leads(self, job: str) -> bool:
        """What `app.is_leader` says."""
        return self.alive and self.service.is_leader(job)
