"""From the stamps of worker processes and the faults done to them, the history that the simulation's checker reads.

What nobody did on purpose is seen in the beats of each worker's job loop: where two are too far apart, the loop stood
still, for whatever reason, and the history says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

from chaos.plan import STANDSTILL
from simulation.sim_history import Fault, History, Lease, SimRun
from singletonjob.cli.demo_stamps import StampReader

if TYPE_CHECKING:
    from pathlib import Path

    from chaos.plan import Plan
    from singletonjob._core.values import Now
    from singletonjob.cli.demo_stamps import Stamp

__all__ = ["DELETED", "FLUSHED", "FORGETS", "STALE", "Observed", "ObservedRun", "Recorder"]

FLUSHED, DELETED, STALE = "FLUSHALL", "lock deleted", "old state restored"
FORGETS = {FLUSHED, DELETED, STALE}
"""Faults in which a server loses leases while it runs, so that its up-time does not tell."""

ORDERED = {"stop", "stop-kill"}
"""Faults that freeze a process."""


@dataclass(slots=True)
class ObservedRun(SimRun):
    """A run of a real process. `left` is when its body ended.

    `ended` is the same, but for a body in a thread that saw at `over_at` that its term is over, and goes on: it cannot
    be interrupted, so it counts up to the moment at which it could know.
    """

    left: float = inf
    over_at: float | None = None
    begun: float = 0.0  # when it was decided that it starts


@dataclass
class Observed(History):
    """A history in which a lease has only its begin, which its token tells.

    `restarts` are the moments just before a server was started; `lost_leases` what a running server lost, of the named
    job or of all; `begun` says when the job loop of each worker turned first; `stalls` the standstills that nobody
    ordered; `unexplained` the sync runs whose term was lost with nothing wrong around.
    """

    restarts: list[float] = field(default_factory=list[float])
    lost_leases: list[Fault] = field(default_factory=list[Fault])
    begun: dict[str, float] = field(default_factory=dict[str, float])
    stalls: list[Fault] = field(default_factory=list[Fault])
    unexplained: list[ObservedRun] = field(default_factory=list[ObservedRun])


@dataclass(slots=True)
class _Worker:
    reader: StampReader
    machine: int
    stamps: list[Stamp] = field(default_factory=list["Stamp"])
    killed: float | None = None
    exited: bool = False


class Recorder:
    """Collects what happens in a round. All moments that it is given are on the boot clock.

    In the history they are seconds since `begun`; `epoch` is the wall clock then, in microseconds.
    """

    def __init__(self, plan: Plan, directory: Path, *, begun: float, epoch: int) -> None:
        self.history = Observed()
        self._plan = plan
        self._directory = directory
        self._begun = begun
        self._epoch = epoch
        self._workers: dict[str, _Worker] = {}

    # -- what the conductor tells ---------------------------------------------------------------------------------

    def joined(self, worker: str, machine: int) -> None:
        self._workers[worker] = _Worker(StampReader(self._directory / f"{worker}.stamps"), machine)

    def left(self, worker: str, killed: float | None) -> None:
        """Its process is gone; `killed` is a moment just before the signal, if it got one that it could not handle."""
        self._workers[worker].killed = killed
        self._workers[worker].exited = True

    def fault(self, kind: str, worker: str, begin: float, end: float) -> None:
        """`worker` is "" for what was done to the store, or to all."""
        self.history.fault(kind, worker, begin - self._begun, end - self._begun)

    def server_started(self, now: Now, *, forgot: bool) -> None:
        """A server was started just after `now`; `forgot`: with an old state, or none."""
        since = now.boot - self._begun
        self.history.restarts.append(since)
        if forgot:
            self.history.losses.append((since, now.wall))
        self.history.say(since, f"store: started{', its data lost' if forgot else ''}")

    def store_forgot(self, kind: str, job: str, before: Now, after: Now, *, slots: bool) -> None:
        """A running server lost its leases between these two moments; `job` is "" for those of all jobs.

        `slots`: it lost the state of the jobs, too.
        """
        begin, end = before.boot - self._begun, after.boot - self._begun
        self.history.lost_leases.append(Fault(kind, "", begin, end, job))
        if slots:
            self.history.losses.append((end, before.wall))
        self.history.say(begin, f"store: {kind} {job}".rstrip())

    def failed(self, text: str) -> None:
        self.history.errors.append(text)

    # -- what the workers wrote -----------------------------------------------------------------------------------

    def read(self) -> None:
        """Take in what was stamped since the last time."""
        for worker in self._workers.values():
            worker.stamps += worker.reader.read()

    def has_begun(self, worker: str) -> bool:
        """Whether its job loop has turned."""
        self.read()
        return bool(self._workers[worker].stamps)

    @property
    def started(self) -> int:
        """The number of runs so far."""
        return sum(stamp.kind == "start" for worker in self._workers.values() for stamp in worker.stamps)

    def last_starts(self) -> dict[str, tuple[float, str]]:
        """For each job, when a body began last, and in which worker."""
        found: dict[str, tuple[float, str]] = {}
        for name, worker in self._workers.items():
            seen: set[str] = set()
            for stamp in reversed(worker.stamps):
                if stamp.kind == "start" and stamp.job not in seen:
                    seen.add(stamp.job)
                    found[stamp.job] = max(found.get(stamp.job, (0.0, "")), (stamp.at, name))
                    if len(seen) == len(self._plan.jobs):
                        break
        return found

    def finish(self, healed: float, ended: float) -> Observed:
        """The history of the whole round; all workers have left."""
        self.read()
        history = self.history
        history.healed_at, history.ended_at = healed - self._begun, ended - self._begun
        history.say(history.healed_at, "all healed")
        runs = [run for name, worker in self._workers.items() for run in self._runs_of(name, worker)]
        for name, worker in self._workers.items():
            blocking = [run for run in runs if run.process == name and run.kind == "blocking"]
            self._note_standstills(name, worker, blocking)
            if worker.stamps:
                history.begun[name] = worker.stamps[0].at - self._begun
        for run in runs:
            self._settle(run)
        runs.sort(key=lambda run: run.started)
        history.runs += runs
        for run in runs:
            granted = (run.token - self._epoch) / 1e6
            history.leases.setdefault((run.job, run.token), Lease(run.job, run.process, run.token, granted, granted))
            history.say(run.started, f"{run} starts")
            history.say(run.left, f"{run} ends")
        history.lines.sort(key=lambda line: line[0])
        return history

    def _runs_of(self, name: str, worker: _Worker) -> list[ObservedRun]:
        runs: dict[str, ObservedRun] = {}
        last = 0.0
        for stamp in worker.stamps:
            at = last = stamp.at - self._begun
            match stamp.kind:
                case "start":
                    number, token, due, tick, kind, started = stamp.detail.split(":")
                    runs[number] = ObservedRun(
                        process=name,
                        machine=worker.machine,
                        job=stamp.job,
                        token=int(token),
                        scheduled=int(due),
                        tick=int(tick) if tick else None,
                        kind=kind,
                        started=at,
                        counted=0,
                        begun=(int(started) - self._epoch) / 1e6,
                    )
                case "end":
                    runs[stamp.detail].ended = runs[stamp.detail].left = at
                case "over":
                    runs[stamp.detail].over_at = at
                    self.history.say(at, f"{runs[stamp.detail]} sees that its term is over")
                case "revived":
                    self.failed(f"the term of {runs[stamp.detail]} was over, and at {at:.3f} it was not")
                case _:
                    pass
        gone = last if worker.killed is None else worker.killed - self._begun
        for run in runs.values():
            if run.left == inf:
                run.ended = run.left = max(gone, run.started)
        return list(runs.values())

    def _note_standstills(self, name: str, worker: _Worker, blocking: list[ObservedRun]) -> None:
        beats = [stamp.at - self._begun for stamp in worker.stamps if stamp.kind == "beat"]
        if worker.killed is not None:
            beats.append(worker.killed - self._begun)
        stops = [one for one in self.history.faults if one.process == name and one.kind in ORDERED]
        for before, after in pairwise(beats):
            if after - before < STANDSTILL:
                continue
            if any(one.begin < after and one.end > before for one in stops):
                kind = "stopped"
            elif any(run.started < after and run.left > before for run in blocking):
                kind = "blocked"
            else:
                kind = "stalled"
            self.history.froze(kind, name, before, after)
            if kind == "stalled":
                self.history.stalls.append(self.history.frozen[-1])

    def _settle(self, run: ObservedRun) -> None:
        """Where a run begins and ends, for the checker."""
        standstills = [one for one in self.history.frozen if one.process == run.process]
        if any(one.begin < run.started and one.end > run.begun for one in standstills):
            run.started = min(run.started, run.begun)  # frozen between the check and the first line of the body
        if run.over_at is not None:
            if self._could_be_lost(run.process, run.over_at):
                run.ended = min(run.ended, run.over_at)
            else:
                self.history.unexplained.append(run)

    def _could_be_lost(self, process: str, at: float) -> bool:
        """Whether something can have kept that process from renewing, or the store from remembering.

        On one SQLite file, a process that is stopped within a transaction holds all others up.
        """
        since = at - 1.02 * self._plan.lock_expiry - self._plan.call_timeout - STANDSTILL
        shared = self._plan.store == "sqlite"
        mine = [one for one in self.history.faults if one.process in {"", process} and one.kind not in {"term", "kill"}]
        frozen = [one for one in self.history.frozen if shared or one.process == process]
        return any(one.begin < at and one.end > since for one in (*mine, *frozen, *self.history.lost_leases))
