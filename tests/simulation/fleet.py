"""`Simulation`: a fleet of unmodified replicas, a store and a network that fail, in virtual time, from one seed.

Over 300 lines: what is drawn and what is done with it are read side by side.
"""

from __future__ import annotations

import gc
import logging
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from simulation.sim_checker import Violation, check
from simulation.sim_faults import PROFILES, Profile
from simulation.sim_foreign import Foreigner
from simulation.sim_history import History, Sample
from simulation.sim_logs import Handler
from simulation.sim_replica import JobPlan, Process
from simulation.sim_store import Network, SimStore
from simulation.sim_threads import Threads
from simulation.sim_time import SimClock, World
from singletonjob._core.orders import FollowTrigger, Pause, Resume, StepDown, Trigger

if TYPE_CHECKING:
    from collections.abc import Callable

    from singletonjob._core.values import MisfirePolicy

__all__ = ["Settings", "Simulation"]

LENGTH = 20.0
"""How long a simulation is, in `lock_expiry`s; faults happen in the first two thirds, then all heals."""

HEALS_AT = 0.66

CUTS: dict[str, Literal["both", "requests", "replies"]] = {
    "cut": "both",
    "cut_requests": "requests",
    "cut_replies": "replies",
}
"""What of a replica's connection each kind of cut takes away."""

SCALES = [1.0, 0.6, 0.4]
"""Of leases of unlike length."""

SAMPLES = 5
"""`is_leader` is sampled this often per `lock_expiry`, at random moments."""

STORE_FAULTS = {
    *("refuse", "freeze", "silence", "restart", "restart_old", "store_step", "store_back", "store_ahead", "fail_over"),
    *("flush", "delete", "evict", "half_void", "no_up_time", "negative_up_time", "hidden_restart"),
}

LASTING = {"refuse", "freeze", "silence", "restart", "restart_old", "half_void", "no_up_time"}
"""Those that take a while; of a restart, that after which all may be as before."""

GENTLE = {"quick": 4.0, "long": 1.0}


class Settings(NamedTuple):
    """What all replicas of a simulation share, and what the checker measures against; durations in seconds."""

    lock_expiry: float
    margin: float
    heartbeat_interval: float
    max_backoff: float
    stall_limit: float
    grace: float
    timeout: float | None
    skew: float
    calm: bool
    duplicated: bool

    @property
    def call_timeout(self) -> float:
        """The longest of any replica."""
        return (self.lock_expiry - self.margin - 0.6 * self.heartbeat_interval) / 3

    def scaled(self, scale: float) -> Settings:
        """Those of a replica, or a job, whose lease has another length."""
        return self._replace(
            lock_expiry=self.lock_expiry * scale,
            margin=self.margin * scale,
            heartbeat_interval=self.heartbeat_interval * scale,
            max_backoff=self.max_backoff * scale,
        )


class Simulation:
    """One fleet's life from one seed; the same seed and arguments make the same history, byte for byte.

    `run` returns what happened and raises `Violation` if a promise was broken. `faults` is a profile or its name
    in `PROFILES`. `length` says how long it is, in `lock_expiry`s. Raises `KeyError` for a name that is none.
    """

    def __init__(self, seed: int, replicas: int = 3, jobs: int = 2, faults: Profile | str = "mixed") -> None:
        self.seed: int = seed
        self.replicas: int = replicas
        self.jobs: int = jobs
        self.length = LENGTH
        self.profile: Profile = PROFILES[faults] if isinstance(faults, str) else faults
        # Seeded with text: how that becomes a state does not depend on the process.
        self._random = random = Random(f"{seed} {self.profile.name}")
        self._world = World(random)
        self.history: History = History()
        self._network = self.profile.network
        self._settings = settings = self._draw_settings()
        self._plans = [self._draw_plan(number) for number in range(jobs)]
        self._at_limit = random.random() < self.profile.at_limit
        # Any two clocks' rates differ by less than 1 %.
        rate = 1.0049 if self._at_limit else random.uniform(0.9951, 1.0049)
        self._store = SimStore(self._world, self.history, rate=rate, offset=0)
        self._clocks = [SimClock(self._world, self._draw_rate(n), self._draw_offset()) for n in range(replicas)]
        self._scales = [random.choice(SCALES) if self.profile.unlike == "replicas" else 1.0 for _ in range(replicas)]
        self._options = [self._draw_options(settings.scaled(scale)) for scale in self._scales]
        self._processes: list[Process | None] = [None] * replicas
        self._started, self._threads = [0] * replicas, Threads()
        self._threads_refused_until = [0.0] * replicas
        self._gone: list[Process] = []  # kept to the end: what falls to a garbage collection is not repeatable
        self._healing = False

    def run(self) -> History:
        """Let it all happen, and check it. Raises `Violation`."""
        history, world, expiry = self.history, self._world, self._settings.lock_expiry
        length = self.length * expiry
        history.healed_at, history.ended_at = length * HEALS_AT, length
        for number in range(len(self._processes)):
            world.at(self._random.random() * expiry / 2, partial(self._start, number))
        for _ in range(max(3, round(self._random.gauss(self.profile.number, 2)))):
            world.at(length * self._random.uniform(0.05, HEALS_AT - 0.04), self._strike)
        for turn in range(int(LENGTH * HEALS_AT * 2)):
            world.at(turn * expiry / 2 + 0.1, lambda _: self._store.keep_state())
        # Moments from a separate source, so that sampling does not change what a seed draws.
        moments = Random(f"{self.seed} samples")
        for _ in range(int(self.length * SAMPLES)):
            world.at(moments.random() * length, self._sample)
        world.at(length * HEALS_AT, self._heal)
        logger, collects = logging.getLogger("singletonjob"), gc.isenabled()
        told, logger.disabled = logger.disabled, not self.profile.logs
        handlers, logger.handlers = logger.handlers, []
        logger.addHandler(Handler(self._find))
        level, propagates, logger.propagate = logger.level, logger.propagate, False
        logger.setLevel(logging.INFO)
        gc.disable()  # what a collection ends, it ends at no repeatable moment
        try:
            world.run(length)
            for process in [*self._processes]:
                if process is not None:
                    process.end("the simulation is over")
            for process in self._gone:
                process.job_loop.unwind()
                process.beat_loop.unwind()
        finally:
            self._threads.close()
            logger.disabled, logger.handlers, logger.propagate = told, handlers, propagates
            logger.setLevel(level)
            if collects:
                gc.enable()
        history.say(length, "end")
        found = check(history, self._settings, {plan.name: plan for plan in self._plans})
        if found is not None:
            timeline = history.timeline(found.when, 2.5 * expiry)
            raise Violation(self.seed, self.profile.name, found.rule, found.text, timeline)
        return history

    # -- what is drawn ------------------------------------------------------------------------------------------------

    def _draw_settings(self) -> Settings:
        random, network = self._random, self.profile.network
        expiry = random.choice([1.5, 2.0, 3.0])
        return Settings(
            lock_expiry=expiry,
            margin=expiry * random.choice([0.05, 0.1, 0.1, 0.1, 0.2]),
            heartbeat_interval=expiry * random.choice([0.2, 0.3, 0.3, 0.39]),
            max_backoff=expiry,
            stall_limit=random.choice([3.0, 5.0]),
            grace=random.choice([0.0, expiry / 4, expiry]),
            timeout=random.choice([None, expiry * 1.5]),
            skew=self.profile.skew,
            calm=network == Network(),
            duplicated=network.duplicated > 0,
        )

    def _draw_plan(self, number: int) -> JobPlan:
        random = self._random
        shape = ["fixed", "cron", "interval"][number % 3] if random.random() < 0.7 else ["cron", "interval"][number % 2]
        every: Any = {"fixed": 0.7, "interval": 0.9, "cron": "*/2 * * * * *"}[shape]
        misfire: MisfirePolicy = random.choice(["skip", "skip", "fire_once", "catch_up"])
        sync = random.random() < self.profile.sync
        bodies = self.profile.sync_bodies if sync else self.profile.bodies
        scale = random.choice(SCALES) if self.profile.unlike == "jobs" else 1.0
        return JobPlan(f"{shape}-{number}", shape, every, misfire, bodies, sync, scale)

    def _draw_rate(self, number: int) -> float:
        if self._at_limit:
            return 0.9951 if number == 0 else 1.0049
        return self._random.uniform(0.9951, 1.0049)

    def _draw_offset(self) -> int:
        return round(self._random.uniform(-self.profile.skew, self.profile.skew) * 1e6)

    def _draw_options(self, settings: Settings) -> dict[str, Any]:
        beat = settings.heartbeat_interval * self._random.choice([1, 1, 0.6])
        return {
            "lock_expiry": settings.lock_expiry,
            "margin": settings.margin,
            "heartbeat_interval": beat,
            "max_backoff_delay": max(beat, settings.max_backoff * self._random.choice([1, 0.5])),
            "stall_limit": settings.stall_limit,
            "shutdown_grace": settings.grace,
            "timeout": settings.timeout,
            "warn_on_long_run": False,
        }

    # -- what users see -----------------------------------------------------------------------------------------------

    def _sample(self, when: float) -> None:
        """Call `is_leader` for every job in every process in which some thread could call it now."""
        for process in self._processes:
            if process is None or process.frozen_until > when:
                continue
            for plan in self._plans:
                if process.service.is_leader(plan.name):
                    self.history.samples.append(Sample(when, process.name, plan.name))

    def _find(self, name: str) -> Process | None:
        return next((one for one in self._processes if one is not None and one.name == name), None)

    # -- processes ----------------------------------------------------------------------------------------------------

    def _start(self, number: int, _when: float = 0.0) -> None:
        if self._processes[number] is not None:
            return
        self._started[number] += 1
        process = self._processes[number] = Process(
            f"r{number}.{self._started[number]}",
            number,
            world=self._world,
            clock=self._clocks[number],
            store=self._store,
            history=self.history,
            network=self._network,
            plans=self._plans,
            options=self._options[number],
            switched="switch" in self.profile.faults,
            ended=self._ended,
            threads=self._threads,
            threads_refused_until=self._threads_refused_until[number],
        )
        if process.threads_refused_until > self._world.now:
            self.history.fault("no_threads", process.name, self._world.now, process.threads_refused_until)
        self.history.scales[process.name] = self._scales[number]
        if self.profile.unlike:
            self.history.fault(f"unlike_{self.profile.unlike}", process.name, self._world.now, self._world.now)
        if self._healing:
            process.bodies = GENTLE
        self.history.say(self._world.now, f"{process.name}: started")

    def _ended(self, process: Process) -> None:
        self._store.clients.remove(process.client)
        self._processes[process.machine] = None
        self._gone.append(process)
        pause = self._settings.lock_expiry * self._random.uniform(0.05, 2.0)
        if self._world.now < self.history.ended_at:
            self._world.at(self._world.now + pause, partial(self._start, process.machine))

    # -- faults -------------------------------------------------------------------------------------------------------

    def _strike(self, when: float) -> None:
        random, profile, expiry = self._random, self.profile, self._settings.lock_expiry
        kind = random.choices(list(profile.faults), list(profile.faults.values()))[0]
        longest = self.history.healed_at - when - 0.01
        share = random.choice([random.uniform(0.02, 0.4), random.uniform(0.2, 1.0)])
        seconds = min(expiry * profile.longest * share, longest)
        job = random.choice(self._plans).name
        if kind == "foreign":
            margin = self._settings.margin
            Foreigner(
                self._world, self._store, self.history, job=job, expiry=expiry, margin=margin, until=when + seconds
            )
            leader = self._find(self._store.holder(job) or "")
            if leader is not None and random.random() < 0.7:  # one kind of replica makes way for the other
                self._later(0.1 * expiry * random.random(), partial(self._stop, leader))
            return
        if kind in STORE_FAULTS:
            self.history.fault(kind, "", when, when + seconds if kind in LASTING else when)
            if kind in {"delete", "evict"}:
                self._store.delete([job] if kind == "delete" else [plan.name for plan in self._plans])
                return
            self._strike_store(kind, seconds)
            return
        if kind.startswith("order_"):
            self.history.fault(kind, "", when, when + seconds if kind == "order_pause" else when)
            self._order(kind, job, seconds)
            return
        if kind == "stop_all":
            for one in self._processes:
                if one is not None:
                    self._later(0.1 * expiry * random.random(), partial(self._stop, one))
            return
        process = self._victim(job)
        if process is None:
            return
        leads = self._store.holder(job) == process.name
        ends = when if kind in {"crash", "stop", "wall_step", "end_task"} else when + seconds
        if kind == "no_threads":
            self._threads_refused_until[process.machine] = ends
        if kind != "nap":  # that is told of when it begins
            self.history.fault(kind, process.name, when, ends, job if leads else "")
        self._strike_process(kind, process, job, seconds)

    def _order(self, kind: str, job: str, seconds: float) -> None:
        order = self._store.order
        if kind == "order_pause":
            order(Pause(job, "an operator"))
            self._later(seconds, lambda: order(Resume(job)))
        elif kind == "order_step_down":
            order(StepDown(job))
        else:
            name, wait = f"t{self._world.now:.6f}", 2 * self._settings.heartbeat_interval
            order(Trigger(job, name, wait))
            self._later(wait, lambda: order(FollowTrigger(job, name, withdraw=True)))

    def _stop(self, process: Process) -> None:
        if process.alive and not process.stopping:
            self.history.fault("stop", process.name, self._world.now, self._world.now)
            process.stop()

    def _victim(self, job: str) -> Process | None:
        living = [process for process in self._processes if process is not None]
        if self._random.random() < self.profile.aim:
            holder = self._store.holder(job)
            living = [process for process in living if process.name == holder] or living
        return self._random.choice(living) if living else None

    def _strike_store(self, kind: str, seconds: float) -> None:
        store = self._store
        modes: dict[str, Literal["refuses", "frozen", "silent"]]
        modes = {"refuse": "refuses", "freeze": "frozen", "silence": "silent"}
        if kind in modes:
            store.set_mode(modes[kind])
            self._later(seconds, lambda: store.set_mode("up"))
        elif kind == "store_step":
            if self.history.stepped == 0:  # more than one within a lease would be more than is promised
                store.step(self._shortest_margin / 2 * self._random.random())
        elif kind in {"store_back", "store_ahead"}:
            step = self._random.uniform(0.05, 5.0) * self._settings.lock_expiry
            store.step(step if kind == "store_ahead" else -step, promised=False)
            self.history.untold(self._guarded_since)  # up-times are wrong by as much
        elif kind == "fail_over":
            store.fail_over(self._random.uniform(-1.0, 1.0) * self._settings.lock_expiry)
        elif kind == "flush":
            store.flush()
        elif kind == "half_void":
            store.halves = True
            self._later(seconds, partial(setattr, store, "halves", False))
        elif kind == "no_up_time":
            store.hide_up_time(self._guarded_since)
            if self._random.random() < 0.7:
                store.restart(old=self._random.random() < 0.5)
            self._later(seconds, partial(setattr, store, "tells_up_time", True))
        elif kind == "negative_up_time":
            ahead = self._random.uniform(0.05, 5.0) * self._settings.lock_expiry
            store.restart(old=self._random.random() < 0.5, ahead=ahead)
        elif kind == "hidden_restart":
            store.restart(old=self._random.random() < 0.5, hidden=True)
        else:
            store.restart(old=kind == "restart_old")

    def _strike_process(self, kind: str, process: Process, job: str, seconds: float) -> None:
        client = process.client
        if kind == "crash":
            process.end("crashed")
        elif kind == "stop":
            process.stop()
        elif kind == "pause":
            process.freeze("paused", seconds, whole=True)
        elif kind == "suspend":
            process.clock.suspend(seconds)
            process.freeze("suspended", seconds, whole=True)
        elif kind == "nap":
            process.naps[job] = seconds, self._random.random() < 0.5
        elif kind == "end_task":
            process.end_task(job)
        elif kind == "block":
            process.freeze("blocked", seconds, whole=False)
        elif kind in {"log_raises", "log_slow"}:
            process.logging = "raises" if kind == "log_raises" else "slow"
            self._later(seconds, partial(setattr, process, "logging", ""))
        elif kind == "no_threads":
            process.threads_refused_until = self._threads_refused_until[process.machine]
        elif kind == "stall":
            process.beat_loop.freeze(self._world.now + seconds)
        elif kind == "deaf":
            usual, client.network = client.network, replace(client.network, deaf=1.0)
            self._later(seconds, partial(setattr, client, "network", usual))
        elif kind == "wall_step":
            process.clock.offset = self._draw_offset()
        elif kind == "switch":
            process.switched_off.add(job)
            self._later(seconds, partial(process.switched_off.discard, job))
        else:
            client.cut = CUTS[kind]
            client.lose_subscription(at_once=False)
            self._later(seconds, partial(setattr, client, "cut", ""))

    @property
    def _guarded_since(self) -> float:
        """What the store lost before this moment is over, for all that the up-time guards."""
        return self._world.now - 1.02 * self._settings.lock_expiry - 1

    @property
    def _shortest_margin(self) -> float:
        return self._settings.margin * min([*self._scales, *(plan.scale for plan in self._plans)])

    def _later(self, seconds: float, call: Callable[[], object]) -> None:
        def ended(_when: float) -> None:
            call()

        self._world.at(self._world.now + seconds, ended)

    def _heal(self, when: float) -> None:
        self.history.say(when, "all heals")
        self._healing = True
        self._network = Network()
        self._store.set_mode("up")
        self._store.halves, self._store.tells_up_time = False, True
        self._threads_refused_until = [0.0] * len(self._processes)
        for plan in self._plans:
            self._store.order(Resume(plan.name))
        for number, process in enumerate(self._processes):
            if process is None:
                self._start(number)
                continue
            process.bodies = GENTLE
            process.client.network = self._network
            process.client.cut = ""
            process.switched_off.clear()
            process.naps.clear()
            process.logging, process.threads_refused_until = "", 0.0
