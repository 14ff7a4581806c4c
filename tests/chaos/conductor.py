"""A round of chaos: worker processes on one store, faults for a while, then none, until all jobs run again.

Given more than one release, the faults are deploys: all workers are replaced, one by one, again and again.
Each fault is drawn from the plan's seed; what comes of it depends on real time, so a seed repeats the kind of a round,
not its course.

Over 300 lines: the course of a round, what is done to a worker in it, and which of that when, stand together.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from itertools import cycle, pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING
from urllib.parse import unquote

import singletonjob
from chaos.observed import Observed, Recorder
from chaos.rules import excused_overlaps, overlaps, repeated_slots, violation
from chaos.sides import make_side
from replicas import boot
from singletonjob._system.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from chaos.plan import Plan
    from chaos.sides import Deed
    from replicas import Replica
    from simulation.sim_case import Found

__all__ = ["LEAST", "SRC", "Result", "play"]

SRC = Path(singletonjob.__file__).parents[1]
"""The tree whose release the tests themselves run on."""

APP = """
import chaos.worker
if __name__ == "__main__":
    chaos.worker.main(name, options, stamps)
"""

BUSY = 15.0
"""What a busy machine may add to a bound, in seconds: starts of processes, and all that then happens late."""

PAUSE = 0.6
"""From one fault to the next, on average, in lock_expiries."""

PAUSE_IN_DEPLOY = 0.8
"""From one replacement to the next: long enough that old and new workers meet, in lock_expiries."""

LEAST = 3
"""So many faults a round has at least: it goes on until then. A short one might draw fewer in its time."""

OF_STORE, AIM = 0.3, 0.6
"""How often a fault hits the store, or all; how often one of a worker hits a worker that leads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a round. `back` is the time from the last fault to the first run of the last job to come back.

    `broken` lists how long two led at once against the promise, `unguarded` how long where a running server lost the
    lease and the next leader had not been following; `probations` counts how often a replica noticed such a loss.
    `repeated` counts the cron slots that ran again since a running server had gone back to an old state.
    `trees` says for each worker on which release it ran: the number of its tree.
    """

    plan: Plan
    history: Observed
    found: Found | None
    back: float
    excused: Counter[str]
    broken: list[float]
    unguarded: list[float]
    probations: int
    repeated: int
    trees: Mapping[str, int]

    def hand_overs(self) -> Counter[tuple[int, int]]:
        """How often the lease of a job went from a worker on one release to another worker, on that or another one."""
        found = Counter[tuple[int, int]]()
        for job in self.plan.jobs:
            terms = {run.token: run.process for run in self.history.runs if run.job == job}
            holders = [terms[token] for token in sorted(terms)]
            found.update(
                (self.trees[before], self.trees[after]) for before, after in pairwise(holders) if before != after
            )
        return found

    @property
    def complaint(self) -> str:
        """What was broken, with what led to it; "" if nothing was."""
        if self.found is None:
            return ""
        when, rule, text = self.found
        shown = 1.5 * self.plan.lock_expiry
        return f"seed {self.plan.seed!r} ({self.plan}), rule {rule}: {text}\n{self.history.timeline(when, shown)}"


async def play(
    plan: Plan,
    directory: Path,
    seconds: float,
    tell: Callable[[Recorder], None] | None = None,
    trees: Sequence[Path] = (SRC,),
) -> Result:
    """One round: faults for so many seconds, and then as long as it takes until all is well. `tell` is called often.

    `trees` are directories with releases of the library. With more than one, the workers begin on the first, and each
    deploy puts them on the next one; it is brought to its end, and there are at least as many as trees.
    """
    return await _Conductor(plan, directory, tell, trees).play(seconds)


@dataclass
class _Machine:
    """A place for a worker; one fault at a time is done to it."""

    number: int
    worker: Replica | None = None
    busy: bool = False
    tree: int = 0


class _Conductor:
    def __init__(
        self, plan: Plan, directory: Path, tell: Callable[[Recorder], None] | None, trees: Sequence[Path]
    ) -> None:
        now = SystemClock().now()
        self._plan = plan
        self._tell = tell
        self._random = Random(f"faults {plan.seed} {plan.store}")
        self._recorder = Recorder(plan, directory, begun=now.boot, epoch=now.wall)
        self._side = make_side(plan, directory, self._random, self._recorder)
        self._trees = trees
        self._on: dict[str, int] = {}
        self._machines = [_Machine(number) for number in range(plan.machines)]
        self._store_busy = False
        self._probations = 0
        self._deeds: set[asyncio.Task[None]] = set()

    async def play(self, seconds: float) -> Result:
        async with AsyncExitStack() as stack:
            await self._side.open(stack)
            for machine in self._machines:
                self._start(machine)
            await self._until(lambda: self._all_have_run(0.0), self._plan.back_within, "the first run of each job")
            await (self._faults if len(self._trees) == 1 else self._deploys)(boot() + seconds)
            healed = boot()
            await self._until(lambda: self._all_have_run(healed), self._plan.back_within, "a run of each job again")
            back = max((at for at, _ in self._recorder.last_starts().values()), default=healed) - healed
            await asyncio.gather(*(self._terminate(machine) for machine in self._machines))
            self._look_at_logs()
        history = self._recorder.finish(healed, boot())
        broken, unguarded = overlaps(self._plan, history)
        return Result(
            plan=self._plan,
            history=history,
            found=violation(self._plan, history),
            back=back,
            excused=excused_overlaps(self._plan, history),
            broken=broken,
            unguarded=unguarded,
            probations=self._probations,
            repeated=repeated_slots(self._plan, history),
            trees=self._on,
        )

    # -- workers ----------------------------------------------------------------------------------------------------

    def _start(self, machine: _Machine) -> None:
        tree = self._trees[machine.tree]
        machine.worker = self._side.fleet.start(APP, script=True, store=self._side.url(machine.number), tree=tree)
        self._recorder.joined(machine.worker.name, machine.number)
        self._on[machine.worker.name] = machine.tree

    async def _gone(self, worker: Replica, within: float, killed: float | None = None) -> None:
        end = boot() + within
        while worker.process.poll() is None:
            if killed is None and boot() > end:
                self._recorder.failed(f"{worker.name} did not end within {within:.1f} s of SIGTERM")
                killed = worker.signal(signal.SIGKILL)
            await asyncio.sleep(0.01)
        code = worker.process.returncode
        unready = code == -signal.SIGTERM and not self._recorder.has_begun(worker.name)
        if killed is None and code not in {0, 1} and not unready:
            self._recorder.failed(f"{worker.name} ended with code {code}")
        self._recorder.left(worker.name, killed)

    def _signal(self, machine: _Machine, number: int) -> tuple[Replica, float]:
        """The worker, and a moment just before it got the signal."""
        assert machine.worker is not None
        if machine.worker.process.poll() is not None:
            self._recorder.failed(f"{machine.worker.name} ended by itself")
        return machine.worker, machine.worker.signal(number)

    async def _terminate(self, machine: _Machine) -> None:
        worker, _ = self._signal(machine, signal.SIGTERM)
        plan = self._plan
        longest = 1 + plan.shutdown_grace + plan.margin + 2 * plan.call_timeout
        await self._gone(worker, longest + BUSY)

    def _look_at_logs(self) -> None:
        for name, replica in self._side.fleet.replicas.items():
            for stamp in replica.stamps("on", "library"):
                if Path(unquote(stamp.detail)).parents[1] != self._trees[self._on[name]]:
                    self._recorder.failed(f"{name} ran on {stamp.detail}, not on {self._trees[self._on[name]]}")
            text = "\n".join(replica.complaints())
            self._probations += text.count("[probation]")
            if "Traceback" in text:
                at = text.index("Traceback")
                self._recorder.failed(f"{name} said: {text[max(0, at - 300) : at + 3000]}")

    # -- faults of workers --------------------------------------------------------------------------------------------

    def _machine_faults(self, machine: _Machine) -> Mapping[str, tuple[float, Deed]]:
        return {
            "kill": (1.5, lambda: self._kill(machine)),
            "term": (1.5, lambda: self._term(machine)),
            "stop": (2.5, lambda: self._stop(machine)),
            "stop-kill": (0.5, lambda: self._stop(machine, kill=True)),
            **self._side.path_faults(machine.number),
        }

    def _some(self, least: float, most: float) -> float:
        return self._plan.lock_expiry * self._random.uniform(least, most)

    async def _kill(self, machine: _Machine) -> None:
        pause = self._some(0, 1)
        worker, killed = self._signal(machine, signal.SIGKILL)
        await self._gone(worker, BUSY, killed)
        await asyncio.sleep(pause)
        self._start(machine)

    async def _term(self, machine: _Machine) -> None:
        pause = self._some(0, 1)
        await self._terminate(machine)
        await asyncio.sleep(pause)
        self._start(machine)

    async def _stop(self, machine: _Machine, *, kill: bool = False) -> None:
        seconds = self._some(0.1, 2.5)
        self._signal(machine, signal.SIGSTOP)
        await asyncio.sleep(seconds)
        if kill:
            await self._kill(machine)
        else:
            self._signal(machine, signal.SIGCONT)

    # -- which fault, and when ----------------------------------------------------------------------------------------

    async def _faults(self, until: float) -> None:
        while boot() < until or len(self._deeds) < LEAST:
            await asyncio.sleep(self._random.expovariate(1 / (PAUSE * self._plan.lock_expiry)))
            self._strike()
            self._watch()
        await asyncio.gather(*self._deeds)

    async def _deploys(self, until: float) -> None:
        trees = range(len(self._trees))
        for number, tree in enumerate(cycle([*trees[1:], 0])):
            if boot() > until and number >= len(trees):
                return
            for machine in self._random.sample(self._machines, len(self._machines)):
                await asyncio.sleep(self._random.expovariate(1 / (PAUSE_IN_DEPLOY * self._plan.lock_expiry)))
                machine.tree = tree
                self._begin(
                    machine, {"term": (2, partial(self._term, machine)), "kill": (1, partial(self._kill, machine))}
                )
                await asyncio.gather(*self._deeds)
                self._watch()

    def _strike(self) -> None:
        if self._random.random() < OF_STORE and not self._store_busy:
            self._begin(None, self._side.faults)
            return
        idle = [machine for machine in self._machines if not machine.busy]
        if not idle:
            return
        machine = self._random.choice(idle)
        if self._random.random() < AIM:
            starts = self._recorder.last_starts()
            job = self._random.choice(list(self._plan.jobs))
            leader = starts[job][1] if job in starts else ""
            machine = next((one for one in idle if one.worker is not None and one.worker.name == leader), machine)
        self._begin(machine, self._machine_faults(machine))

    def _begin(self, machine: _Machine | None, faults: Mapping[str, tuple[float, Deed]]) -> None:
        kind = self._random.choices(list(faults), [weight for weight, _ in faults.values()])[0]
        worker = "" if machine is None or machine.worker is None else machine.worker.name

        async def do() -> None:
            begin = boot()
            await faults[kind][1]()
            self._recorder.fault(kind, worker, begin, boot())
            self._mark(machine, busy=False)

        self._mark(machine, busy=True)
        self._deeds.add(asyncio.create_task(do()))

    def _mark(self, machine: _Machine | None, *, busy: bool) -> None:
        if machine is None:
            self._store_busy = busy
        else:
            machine.busy = busy

    # -- looking ------------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        self._recorder.read()
        if self._tell is not None:
            self._tell(self._recorder)

    def _all_have_run(self, since: float) -> bool:
        starts = self._recorder.last_starts()
        return all(job in starts and starts[job][0] > since for job in self._plan.jobs)

    async def _until(self, condition: Callable[[], bool], within: float, what: str) -> None:
        end = boot() + within + BUSY
        while not condition():
            if boot() > end:
                self._recorder.failed(f"{what} did not come within {within:.1f} s and {BUSY:.0f} s more")
                return
            await asyncio.sleep(0.02)
            self._watch()
