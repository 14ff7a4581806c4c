"""One process of a simulation: an unmodified `Service` on two simulated loops, and its worker threads."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from simulation.sim_bodies import Bodies, JobPlan
from simulation.sim_history import Life
from simulation.sim_store import SimClient
from simulation.sim_threads import SimWorker, Threads
from simulation.sim_time import SimLoop, set_running
from singletonjob._jobs.options import APP_READERS, read, resolve_app
from singletonjob._jobs.registry import Registry
from singletonjob._runtime.service import Service

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from simulation.sim_history import History
    from simulation.sim_store import Network, SimStore
    from simulation.sim_time import SimClock, World
    from singletonjob._jobs.definition import JobDefinition
    from singletonjob._runtime.heartbeat import Heartbeat

__all__ = ["DURATIONS", "JobPlan", "Process"]


DURATIONS = ("lock_expiry", "margin", "heartbeat_interval", "max_backoff_delay")
"""The options of a job that its lease's length scales."""


class _Registry(Registry):
    @property
    def definitions(self) -> list[JobDefinition]:
        return list(self._jobs.values())


class Process:
    """A replica from its start to its stop or crash; `name` is its node id. `machine` keeps its clock when it ends."""

    client_type: type[SimClient] = SimClient

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
        threads: Threads | None = None,
        threads_refused_until: float = 0.0,
    ) -> None:
        self.name = name
        self.machine = machine
        self.clock = clock
        self.bodies: Mapping[str, float] | None = None  # in place of the plans', once all is to heal
        self.alive: bool = True
        self.stopping: bool = False
        self.switched_off: set[str] = set()
        self.frozen_until: float = 0.0  # with its threads
        self.naps: dict[str, tuple[float, bool]] = {}  # by job: how long, and whether the machine sleeps
        self.logging: Literal["", "raises", "slow"] = ""  # what its log handler does
        self.threads_refused_until = threads_refused_until
        self._held_up_until = 0.0  # by its log handler
        self._options = options
        self._threads = threads or Threads()
        self._workers: list[SimWorker] = []
        self._world = world
        self._history = history
        self._ended = ended
        self._bodies = Bodies(self, world, history)
        self._runs = self._bodies.runs
        self._begun = world.now
        self.job_loop: SimLoop = SimLoop(world, clock, self.failed)
        self.beat_loop: SimLoop = SimLoop(world, clock, self.failed)
        self.client: SimClient = self.client_type(world, store, self.beat_loop, network, options["heartbeat_interval"])
        store.clients.append(self.client)
        registry = _Registry()
        for plan in plans:
            self._register(registry, plan, switched=switched)
        self.service: Service = Service(
            # Not as an app starts: the environment and the files of whoever runs this must not matter.
            resolve_app(read({"project": "sim", "store": self.client, **options}, APP_READERS)),
            registry.definitions,
            callbacks=[],
            clock=clock,
            start_heartbeat=self._start_heartbeat,
            node=name,
            draw=world.random.random,
            worker=self._make_worker,
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
            self.failed(f"the heartbeat died: {error!r}")
        self.service.post(partial(self.service.heartbeat_ended, error))

    def failed(self, text: str) -> None:
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
            self.failed(f"stop raised {task.exception()!r}")
        self.end("ended")

    def end(self, how: str) -> None:
        """The process is gone, and with it all that still ran in it."""
        if not self.alive:
            return
        self.alive = False
        now = self._world.now
        self.job_loop.kill()
        self.beat_loop.kill()
        for worker in self._workers:
            worker.kill()
        for run in self._runs:
            run.ended = now
        self._history.alive.append(Life(self.name, self._begun, now, how == "crashed"))
        self._history.say(now, f"{self.name}: {how}")
        self._ended(self)

    def freeze(self, kind: str, seconds: float, *, whole: bool) -> None:
        """Let the job loop stand still; `whole`: the heartbeat's too, and the threads of sync bodies."""
        now = self._world.now
        self.job_loop.freeze(now + seconds)
        if whole:
            self.beat_loop.freeze(now + seconds)
            self.frozen_until = max(self.frozen_until, now + seconds)
        self._history.froze(kind, self.name, now, now + seconds)

    def hold_up(self) -> None:
        """A log handler takes its time on the job loop, for each line anew."""
        now = self._world.now
        self._held_up_until = max(self._held_up_until, now) + self.expiry * 0.8
        self.job_loop.freeze(self._held_up_until)
        self._history.froze("blocked", self.name, now, self._held_up_until)

    # -- naps -------------------------------------------------------------------------------------------------------

    def nap(self, nap: tuple[float, bool], job: str) -> None:
        """Freeze, between the last check of the job's term and the begin of its body."""
        seconds, suspended = nap
        now = self._world.now
        self._history.fault("nap", self.name, now, now + seconds, job)
        if suspended:
            self.clock.suspend(seconds)
        self.freeze("suspended" if suspended else "paused", seconds, whole=True)

    def strikes_before_start(self, worker: SimWorker) -> bool:
        """Whether a nap begins while this thread reads the clock, for a check before its call's first statement."""
        # The second reading is that of the last check; now and then it is struck before that.
        if worker.job not in self.naps or (worker.readings == 1 and self._world.random.random() < 0.7):
            return False
        return self.strikes_first_statement(worker)

    def strikes_first_statement(self, worker: SimWorker) -> bool:
        """Whether a nap begins now."""
        if worker.started or worker.napped or worker.job not in self.naps:
            return False
        worker.napped = True
        worker.checked_at = min(worker.checked_at, self._world.now)  # it may have been frozen since its last check
        self.nap(self.naps.pop(worker.job), worker.job)
        return True

    # -- its jobs ---------------------------------------------------------------------------------------------------

    def _make_worker(self, name: str) -> SimWorker:
        worker = SimWorker(name, threads=self._threads, world=self._world, clock=self.clock, process=self)
        self._workers.append(worker)
        return worker

    def handed_over(self, job: str) -> None:
        """A call of that job's body is made in its thread, as soon as that begins."""
        self._bodies.count(job)

    def end_task(self, job: str) -> None:
        """Somebody cancels the task that runs the job."""
        self.job_loop.call_soon(self.job_loop.cancel, f"singletonjob {job}")

    def _register(self, registry: Registry, plan: JobPlan, *, switched: bool) -> None:
        async def enabled() -> bool:
            return plan.name not in self.switched_off

        body = self._bodies.of(plan)
        more: dict[str, Any] = {"name": plan.name, "enabled": enabled if switched else True}
        if plan.scale != 1.0:
            more |= {name: self._options[name] * plan.scale for name in DURATIONS}
        if plan.shape == "fixed":
            registry.fixed_rate(plan.every, **more)(body)
        elif plan.shape == "interval":
            registry.interval(plan.every, **more)(body)
        else:
            registry.cron(plan.every, misfire=plan.misfire, **more)(body)
