"""How often a job changes hands in a rolling deploy: unmodified replicas, rolled out as Kubernetes does it.

    PYTHONPATH=src:tests python -m simulation.deploys          # prints the table of docs/deploys.md

A pod takes part 1 to 4 s after it was made, and is found ready up to 5 s later (a probe's period). Pods are made while
there are fewer than `pods + surge`, and old ones stopped while more than `pods - unavailable` are ready; those that end
are not counted, as a Deployment does not count them. Which old pod goes next is drawn, unless an `order` says
otherwise. Pods that are stopped together hear of it within 50 ms. Times are virtual.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import ceil
from random import Random
from statistics import mean
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from simulation.scenario import EXPIRY, Fleet, Job
from simulation.sim_store import Network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from simulation.scenario_replica import Replica

__all__ = ["Deploy", "Order", "blue_green", "expected", "recreate", "rollout"]

BOOT = (1.0, 4.0)
"""Seconds from a pod's making to its taking part, from and to."""

READY = (0.0, 5.0)
"""From there to its being known as ready."""

TOGETHER = 0.05
"""Within so many seconds pods hear SIGTERM that are stopped at once."""

STEP = 0.25
TICK = Job("tick", "fixed", 0.1)

Order: TypeAlias = Literal["any", "leader first", "leader last", "worst"]
"""Which old pod is stopped next. At worst it is who leads, and new pods hear of no release: an old one leads next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deploy:
    """What a deploy cost: `hand_overs` are the terms that began after its begin; `gap` is the longest time between two
    starts of runs, in seconds, where the job ticks every 0.1 s."""

    hand_overs: int
    gap: float


class _Rollout:
    def __init__(self, fleet: Fleet, pods: int, surge: int, unavailable: int, order: Order, random: Random) -> None:
        self._fleet, self._order, self._random = fleet, order, random
        self._pods, self._surge, self._unavailable = pods, surge, unavailable
        self.old: list[Replica] = []
        self._ready_at: list[float] = []  # of the new ones

    def run(self) -> None:
        while self.old or len(self._ready_at) < self._pods:
            self._make()
            self._stop()
            self._fleet.wait(STEP)
        self._fleet.wait(EXPIRY)

    def _ready(self) -> int:
        return len(self.old) + sum(self._fleet.now >= ready_at for ready_at in self._ready_at)

    def _make(self) -> None:
        while len(self._ready_at) < self._pods and len(self.old) + len(self._ready_at) < self._pods + self._surge:
            up_at = self._fleet.now + self._random.uniform(*BOOT)
            self._fleet.at(up_at, partial(self._start, f"new-{len(self._ready_at)}"))
            self._ready_at.append(up_at + self._random.uniform(*READY))

    def _start(self, name: str) -> None:
        self._fleet.start(name).client.network = Network(deaf=float(self._order == "worst"))

    def _stop(self) -> None:
        while self.old and self._ready() > self._pods - self._unavailable:
            self.old.remove(pod := self._next())
            pod.stop()
            self._fleet.wait(self._random.uniform(0, TOGETHER))

    def _next(self) -> Replica:
        leads = {pod.name: pod.leads("tick") for pod in self.old}
        if self._order == "leader last":
            return min(self.old, key=lambda pod: (leads[pod.name], self._random.random()))
        if self._order in {"leader first", "worst"}:
            return max(self.old, key=lambda pod: (leads[pod.name], self._random.random()))
        return self._random.choice(self.old)


def _started(fleet: Fleet, pods: int) -> list[Replica]:
    old = [fleet.start(f"old-{number}") for number in range(pods)]
    fleet.wait(5)
    return old


def _cost(fleet: Fleet, begun: float, terms: int) -> Deploy:
    starts = [run.started for run in fleet.runs("tick", since=begun)]
    return Deploy(
        hand_overs=len(fleet.leases("tick")) - terms, gap=max(later - earlier for earlier, later in pairwise(starts))
    )


def rollout(pods: int, *, surge: int, unavailable: int, order: Order = "any", seed: int = 1) -> Deploy:
    """A `RollingUpdate` of so many pods."""
    with Fleet(TICK, seed=seed) as fleet:
        plan = _Rollout(fleet, pods, surge, unavailable, order, Random(f"deploy {seed}"))
        plan.old = _started(fleet, pods)
        begun, terms = fleet.now - 1, len(fleet.leases("tick"))
        plan.run()
        return _cost(fleet, begun, terms)


def _stop_together(fleet: Fleet, pods: list[Replica], random: Random) -> None:
    for pod in pods:
        fleet.at(fleet.now + random.uniform(0, TOGETHER), pod.stop)
    fleet.wait_for(lambda: not any(pod.alive for pod in pods), within=5)


def recreate(pods: int, *, seed: int = 1) -> Deploy:
    """`Recreate`: all old pods are stopped at once, and new ones are made when the last has gone."""
    with Fleet(TICK, seed=seed) as fleet:
        random = Random(f"recreate {seed}")
        old = _started(fleet, pods)
        begun, terms = fleet.now - 1, len(fleet.leases("tick"))
        _stop_together(fleet, old, random)
        for number in range(pods):
            fleet.at(fleet.now + random.uniform(*BOOT), partial(fleet.start, f"new-{number}"))
        fleet.wait(BOOT[1] + 1)
        return _cost(fleet, begun, terms)


def blue_green(pods: int, *, seed: int = 1) -> Deploy:
    """All new pods are there, then all old ones are stopped at once."""
    with Fleet(TICK, seed=seed) as fleet:
        old = _started(fleet, pods)
        begun, terms = fleet.now - 1, len(fleet.leases("tick"))
        for number in range(pods):
            fleet.start(f"new-{number}")
        fleet.wait(BOOT[1])
        _stop_together(fleet, old, Random(f"blue-green {seed}"))
        fleet.wait(1)
        return _cost(fleet, begun, terms)


def expected(pods: int) -> float:
    """The mean with `surge=1, unavailable=0` where the next leader is drawn evenly from all that are there.

    With `m` old pods left, of which the leader is one with probability `p`, the one that stops leads with `p / m`, and
    the lease then stays among the old with `(m - 1) / pods`; the sum over `m` is `(1 + 1 / pods) ** pods - 1`, below
    `e - 1`, about 1.72.
    """
    return (1 + 1 / pods) ** pods - 1


def _row(name: str, pods: int, done: list[Deploy]) -> str:
    counts = [one.hand_overs for one in done]
    return f"| {name} | {pods} | {mean(counts):.1f} | {max(counts)} | {max(one.gap for one in done):.1f} s |"


class Variant(NamedTuple):
    """A line of the table: `surge` and `unavailable` as Kubernetes has them for so many pods."""

    name: str
    of: Callable[[int, int], Deploy]


def _rolling(surge: float, unavailable: float, order: Order = "any") -> Callable[[int, int], Deploy]:
    """Below 1, or 1.0, a share of the pods: Kubernetes rounds that of the surge up, the other down."""

    def one(pods: int, seed: int) -> Deploy:
        more = ceil(surge * pods) if isinstance(surge, float) else surge
        fewer = int(unavailable * pods) if isinstance(unavailable, float) else unavailable
        return rollout(pods, surge=more, unavailable=fewer, order=order, seed=seed)

    return one


VARIANTS = (
    Variant("`maxSurge: 1, maxUnavailable: 0`", _rolling(1, 0)),
    Variant("`maxSurge: 25%, maxUnavailable: 25%` (default)", _rolling(0.25, 0.25)),
    Variant("`maxSurge: 0, maxUnavailable: 1`", _rolling(0, 1)),
    Variant("`maxSurge: 100%, maxUnavailable: 0`", _rolling(1.0, 0)),
    Variant("`maxSurge: 1`, who leads is always stopped next", _rolling(1, 0, "leader first")),
    Variant("`maxSurge: 1`, who leads is stopped last", _rolling(1, 0, "leader last")),
    Variant("blue/green: all new ones, then all old ones at once", lambda pods, seed: blue_green(pods, seed=seed)),
    Variant("`Recreate`", lambda pods, seed: recreate(pods, seed=seed)),
)


def table(seeds: int) -> Iterator[str]:
    """The lines of the page's table."""
    yield "| deploy | pods | hand-overs: mean | most | exactly one | longest gap |"
    yield "| --- | --: | --: | --: | --: | --: |"
    for variant in VARIANTS:
        for pods in (3, 10):
            done = [variant.of(pods, seed) for seed in range(seeds)]
            counts = [one.hand_overs for one in done]
            once, gap = counts.count(1) / seeds, max(one.gap for one in done)
            yield f"| {variant.name} | {pods} | {mean(counts):.1f} | {max(counts)} | {once:.0%} | {gap:.1f} s |"


if __name__ == "__main__":
    for line in table(seeds=300):
        sys.stdout.write(line + "\n")
