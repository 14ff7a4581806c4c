"""Scripted scenarios: a fleet of unmodified replicas in virtual time, to which happens what a test says, when it says.

What `Simulation` draws by chance, a test writes down here, one line after the other:

    with Fleet(Job("tick", "fixed", 0.1)) as fleet:
        a, b = fleet.start("a"), fleet.start("b")
        fleet.wait(20)
        a.pause(15)
        fleet.wait(60)

Times are true seconds since the begin, and moments are taken from the bodies' own starts and ends. Options are the
default settings (10 s, 3 s) unless given. When the scenario ends, the checker of the simulation goes over the whole of
it for S1 to S8; a violation, as any other failure in the block, shows the last seconds. Nothing else is random than
latencies of 0.2 to 2.2 ms and the turns of the loops, from a fixed seed: the same script gives the same history.
"""

from __future__ import annotations

import gc
import logging
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any, Self

from simulation import sim_safety
from simulation.fleet import Settings
from simulation.scenario_replica import Fate, Job, Replica, micros
from simulation.sim_case import Case
from simulation.sim_history import History
from simulation.sim_store import SimStore
from simulation.sim_threads import Threads
from simulation.sim_time import EPOCH, World
from virtual_loop import Capture

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from types import TracebackType

    from simulation.sim_history import Lease, SimRun

__all__ = [
    "BEAT",
    "CALL_TIMEOUT",
    "EXPIRY",
    "MARGIN",
    "NOTICED",
    "RELEASED",
    "TRAVEL",
    "USABLE",
    "Fate",
    "Fleet",
    "Job",
    "Replica",
    "micros",
]

BEAT, EXPIRY, MARGIN, CALL_TIMEOUT = 3.0, 10.0, 1.0, 2.0
"""The default settings, in seconds."""

USABLE = EXPIRY - MARGIN
"""So long a term lasts from the moment at which its last good call left: the fence."""

NOTICED = 0.1
"""L2: so long after the end of a lease somebody else has it."""

RELEASED = 0.05
"""L1: so long after its release."""

TRAVEL = 0.01
"""For a request and its answer, and some turns of the loops."""

DEFAULTS: Mapping[str, Any] = {
    "lock_expiry": EXPIRY,
    "margin": MARGIN,
    "heartbeat_interval": BEAT,
    "max_backoff_delay": 10.0,
    "stall_limit": 60.0,
    "shutdown_grace": 20.0,
    "timeout": None,
}

SHOWN = 40
"""So many lines of the history are shown with a failure."""


class Fleet:
    """Replicas of one project with these jobs. `begin` is what all clocks show at time zero; options as an app's."""

    def __init__(self, *jobs: Job, begin: datetime | None = None, seed: int = 1, **options: Any) -> None:
        self.jobs = {job.name: job for job in jobs}
        self.options = {**DEFAULTS, **options}
        self.world = World(Random(seed))
        self.history = History()
        self.offset = 0 if begin is None else micros(begin) - EPOCH
        self.store = SimStore(self.world, self.history, rate=1.0, offset=self.offset)
        self.replicas: dict[str, Replica] = {}
        self.threads = Threads()
        self.logs = Capture()
        self.settings = self._settings(self.options)

    def _settings(self, options: Mapping[str, Any]) -> Settings:
        """What the checker measures with: the longest of any replica."""
        return Settings(
            lock_expiry=options["lock_expiry"],
            margin=options["margin"],
            heartbeat_interval=options["heartbeat_interval"],
            max_backoff=options["max_backoff_delay"],
            stall_limit=options["stall_limit"],
            grace=options["shutdown_grace"],
            timeout=options["timeout"],
            skew=1.0,
            calm=True,
            duplicated=False,
        )

    def __enter__(self) -> Self:
        self.logs.__enter__()
        logging.getLogger("singletonjob").setLevel(logging.INFO)  # a line for each run would take most of the time
        self._collects = gc.isenabled()
        gc.disable()  # as in `Simulation.run`
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for replica in self.replicas.values():
            replica.end("the scenario is over")
        for replica in self.replicas.values():
            replica.job_loop.unwind()
            replica.beat_loop.unwind()
        self.threads.close()
        if self._collects:
            gc.enable()
        self.logs.__exit__()
        history = self.history
        if error is not None:
            error.add_note(self._timeline(self.now))
            return
        history.ended_at = self.now
        case = Case(history, self.settings, {job.name: job.plan for job in self.jobs.values()})
        found = min((one for rule in sim_safety.RULES for one in rule(case)), default=None)
        assert found is None, f"{found.rule}: {found.text}\n{self._timeline(found.when)}"
        assert history.errors == []

    def _timeline(self, until: float) -> str:
        lines = self.history.timeline(until, 2.5 * self.settings.lock_expiry).splitlines()
        return "\n".join(lines[-SHOWN:])

    # -- the script ----------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self.world.now

    def start(self, name: str, *, ahead: float = 0.0, **options: Any) -> Replica:
        """Start a replica, whose wall clock is so many seconds ahead."""
        own = {**self.options, **options}
        if own["lock_expiry"] > self.settings.lock_expiry:
            self.settings = self._settings(own)
        replica = self.replicas[name] = Replica(self, name, own, ahead=ahead)
        return replica

    def start_in_turn(self, *names: str) -> list[Replica]:
        """Start replicas; the first leads when this returns."""
        replicas = []
        for name in names:
            replicas.append(self.start(name))
            self.wait(0.5)
        return replicas

    def until(self, when: float) -> None:
        """Let everything happen up to that moment."""
        self.world.run(when)

    def wait(self, seconds: float) -> None:
        self.world.run(self.now + seconds)

    def wait_for(self, condition: Callable[[], object], *, within: float, step: float = 0.001) -> float:
        """Let time pass until the condition holds, which is looked at each millisecond; the moment of it."""
        end = self.now + within
        while not condition():
            assert self.now < end, f"within {within} s it did not come to that"
            self.wait(step)
        return self.now

    def at(self, when: float, call: Callable[[], object]) -> None:
        """Have `call()` made at that moment."""

        def made(_when: float) -> None:
            call()

        self.world.at(when, made)

    def each(self, seconds: float, call: Callable[[], object]) -> None:
        """Have `call()` made again and again, to the end."""

        def again() -> None:
            call()
            self.at(self.now + seconds, again)

        self.at(self.now, again)

    def steal(self, job: str, seconds: float) -> None:
        """Somebody writes himself into the key for so long, as `SET key somebody-else PX ...` does."""
        record = self.store._records[job]
        record.holder = "somebody-else"
        record.expires = self.store.wall() + round(seconds * 1e6)
        self.history.say(self.now, f"store: {job} is stolen until {self.now + seconds:.3f}")

    # -- what is to be seen --------------------------------------------------------------------------------------------

    def holder(self, job: str) -> str | None:
        """Whose lease it is, as the store has it."""
        return self.store.holder(job)

    def ttl(self, job: str) -> float | None:
        """What is left of the key, in seconds; None: there is no key."""
        record = self.store._records[job]
        if record.holder is None:
            return None
        assert record.expires is not None, f"{job}: a key without an expiry"
        left = (record.expires - self.store.wall()) / 1e6
        return left if left > 0 else None

    def lease(self, job: str) -> Lease:
        """The newest term."""
        return [lease for lease in self.history.leases.values() if lease.job == job][-1]

    def leases(self, job: str) -> list[Lease]:
        return [lease for lease in self.history.leases.values() if lease.job == job]

    def runs(self, job: str, replica: Replica | None = None, *, since: float = 0.0) -> list[SimRun]:
        """The runs that started since then, on that replica or anywhere, in order."""
        return [
            run
            for run in self.history.runs
            if run.job == job and run.started >= since and (replica is None or run.process == replica.name)
        ]

    def overlaps(self, job: str) -> list[tuple[SimRun, SimRun]]:
        """Each run that started before the one before it had ended."""
        return [(one, other) for one, other in pairwise(self.runs(job)) if other.started < one.ended]

    def said(self, event: str, replica: Replica | None = None) -> list[Any]:
        """The log records of that event, from that replica or any."""
        return [record for record in self.logs.of(event) if replica is None or record.node == replica.name]

    def first_start(self, job: str, replica: Replica) -> float:
        return self.runs(job, replica)[0].started

    def assert_stopped_at_its_fence(self, job: str, replica: Replica, sent: float) -> None:
        """The last tick, of those each 100 ms, before the deadline of the call that left at `sent` ran; none after."""
        last = self.runs(job, replica)[-1].started
        assert sent + USABLE - 0.1 - TRAVEL <= last < sent + USABLE
