"""What a round of chaos is: drawn from its seed, and told to the worker processes."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Literal, TypeAlias

from chaos.worker import LONGEST_BODY
from simulation.fleet import Settings
from simulation.sim_replica import JobPlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from singletonjob._core.values import MisfirePolicy

__all__ = ["STANDSTILL", "Plan", "StoreKind", "draw_plan"]

StoreKind: TypeAlias = Literal["redis", "sqlite"]

STANDSTILL = 0.05
"""Two beats that are further apart than this: something stopped the loop, in seconds.

Well below the smallest margin: what is slower than it could be, but stays below, does not make two leaders."""

BODIES = {"quick": 25.0, "long": 1.0, "endless": 0.2, "blocking": 0.15}
THREAD_BODIES = {"quick": 15.0, "heeding": 1.0, "deaf": 0.4}

# Of the interval jobs a run is nearly always in flight, so that whatever is done to their leader is done to a run.
LASTING_BODIES = {"quick": 2.0, "long": 6.0, "endless": 1.0, "blocking": 0.2}
LASTING_THREAD_BODIES = {"quick": 2.0, "heeding": 6.0, "deaf": 2.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One round. Durations in seconds; `jobs` are those of each worker, `sync` names those with a sync body."""

    seed: str
    store: StoreKind
    machines: int
    lock_expiry: float
    heartbeat_interval: float
    margin: float
    shutdown_grace: float
    jobs: Mapping[str, JobPlan]
    sync: frozenset[str]
    uvloop: bool

    @property
    def max_backoff_delay(self) -> float:
        return 2 * self.heartbeat_interval

    @property
    def call_timeout(self) -> float:
        return (self.lock_expiry - self.margin - self.heartbeat_interval) / 3

    @property
    def settings(self) -> Settings:
        """As the checker wants to know them. The workers share one wall clock, so slots are held to it exactly."""
        return Settings(
            lock_expiry=self.lock_expiry,
            margin=self.margin,
            heartbeat_interval=self.heartbeat_interval,
            max_backoff=self.max_backoff_delay,
            stall_limit=60.0,
            grace=self.shutdown_grace,
            timeout=None,
            skew=0.0,
            calm=False,
            duplicated=False,
        )

    @property
    def app_options(self) -> dict[str, object]:
        return {
            name: getattr(self, name)
            for name in ("lock_expiry", "heartbeat_interval", "margin", "max_backoff_delay", "shutdown_grace")
        }

    @property
    def told(self) -> dict[str, object]:
        """What a worker is told of it: plain values, since it may run on another release."""
        jobs = [{**job._asdict(), "sync": job.name in self.sync} for job in self.jobs.values()]
        own = {name: getattr(self, name) for name in ("seed", "lock_expiry", "margin", "uvloop")}
        return {**own, "jobs": jobs}

    @property
    def back_within(self) -> float:
        """How long after the last fault each job has run again, at most: all that may come one after the other.

        A lease that nobody can renew, probation, the guard of a restarted server, a back-off, two calls, a body that
        goes on, the longest wait of a schedule. What a busy machine adds to it, the conductor grants on top.
        """
        ends = (1.01 + 1.01 + 1 + LONGEST_BODY) * self.lock_expiry + 1
        return ends + 1.2 * self.max_backoff_delay + 2 * self.call_timeout + 2.0

    def __str__(self) -> str:
        return (
            f"{self.store}, {self.machines} workers on {'uvloop' if self.uvloop else 'asyncio'},"
            f" lock_expiry {self.lock_expiry:g} s, heartbeat {self.heartbeat_interval:g} s, margin {self.margin:g} s,"
            f" grace {self.shutdown_grace:g} s, misfire {self.jobs['close'].misfire}"
        )


def draw_plan(seed: str, store: StoreKind) -> Plan:
    """The plan of a seed. Which fault comes when is drawn elsewhere, from the same seed."""
    random = Random(f"plan {seed} {store}")
    expiry = random.choice([1.0, 1.0, 1.5, 2.0])
    misfires: list[MisfirePolicy] = ["skip", "fire_once", "catch_up"]
    jobs = [
        JobPlan("tick", "fixed", 0.1, "skip", BODIES),
        JobPlan("pull", "fixed", 0.15, "skip", THREAD_BODIES),
        JobPlan("poll", "interval", 0.2, "skip", LASTING_BODIES),
        JobPlan("sweep", "interval", 0.3, "skip", LASTING_THREAD_BODIES),
        JobPlan("close", "cron", "* * * * * *", random.choice(misfires), BODIES),
        JobPlan("total", "cron", "*/2 * * * * *", random.choice(misfires), THREAD_BODIES),
    ]
    return Plan(
        seed=seed,
        store=store,
        machines=random.choice([3, 3, 4]),
        lock_expiry=expiry,
        heartbeat_interval=round(expiry * random.choice([0.2, 0.25, 0.3]), 3),
        margin=round(expiry * random.choice([0.2, 0.25, 0.3]), 3),
        shutdown_grace=round(expiry * random.choice([0.0, 0.5, 1.0]), 3),
        jobs={job.name: job for job in jobs},
        sync=frozenset({"pull", "sweep", "total"}),
        uvloop=random.random() < 0.4,
    )
