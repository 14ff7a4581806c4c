"""A history as the rules of the checker need it, and what one of them finds."""

from __future__ import annotations

from collections import defaultdict
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from simulation.sim_bodies import UNWINDING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from simulation.fleet import Settings
    from simulation.sim_bodies import JobPlan
    from simulation.sim_history import Fault, History, Lease, SimRun

__all__ = ["FASTEST", "SLACK", "Case", "Found"]

FASTEST = 1.01
"""A replica's duration in true time, at most, per second."""

SLACK = 0.01
"""For turns of loops and the network's own latency, in seconds."""


class Found(NamedTuple):
    """A broken promise: when, which, and what happened."""

    when: float
    rule: str
    text: str


class Case:
    """A history, sorted as the rules need it."""

    def __init__(self, history: History, settings: Settings, plans: Mapping[str, JobPlan]) -> None:
        self.history = history
        self.settings = settings
        self._scaled = {1.0: settings}
        self.plans = plans
        self.runs: defaultdict[str, list[SimRun]] = defaultdict(list)
        for run in sorted(history.runs, key=attrgetter("started")):
            self.runs[run.job].append(run)
        self.frozen: defaultdict[str, list[Fault]] = defaultdict(list)
        for one in history.frozen:
            self.frozen[one.process].append(one)
        self.leases: defaultdict[str, list[Lease]] = defaultdict(list)
        for lease in history.leases.values():
            self.leases[lease.job].append(lease)

    def slow_start(self, run: SimRun) -> float:
        """How long before its body's first statement a run may have begun for the library: a thread takes its time."""
        return self.settings.margin + SLACK if run.sync else 0.0

    def of(self, process: str, job: str) -> Settings:
        """The settings of one job in one replica; `settings` has the longest durations of any."""
        scale = self.history.scales.get(process, 1.0) * self.plans[job].scale
        if scale not in self._scaled:
            self._scaled[scale] = self.settings.scaled(scale)
        return self._scaled[scale]

    def unused(self, lease: Lease) -> bool:
        """Whether the lease was taken and no term began with it: its replica has taken it again."""
        return (
            lease.replaced
            and lease.gone == inf
            and not lease.renewed
            and not any(run.token == lease.token for run in self.runs[lease.job])
        )

    def may_overlap(self, one: Lease, other: Lease) -> bool:
        """Whether two terms may be in force at once: the store lost the older one's lease, its up-time does not tell
        so, and the replica of the newer one had no refusal in force that named it, so that it could not know."""
        older, newer = sorted((one, other), key=attrgetter("granted"))
        if not older.gone_unseen(newer.granted):
            return False
        leases = self.leases[newer.job]
        first, at = newer, leases.index(newer)
        while at > 0 and leases[at].node == newer.node and older.gone_unseen(leases[at].granted):
            first, at = (leases[at] if leases[at].heard else first), at - 1
        if not first.heard:
            return False
        sent = first.heard[0][1]
        led = [lease.heard[0][0] for lease in leases if lease.node == newer.node and lease.heard]
        since = max((when for when in led if when <= sent), default=0.0)  # a term of its own came in between
        last = [one for one in self.history.refusals.get((newer.node, newer.job), ()) if since < one.heard <= sent]
        return not last or last[-1].holder != older.node or sent > last[-1].until

    def excused(self, run: SimRun, at: float, *, by_loop: bool = False) -> bool:
        """Whether the design lets `run` be in flight at the moment `at` without a lease.

        `by_loop`: it ends by the job loop's word, also if it is a sync one, which can see the end of a lease by itself.
        """
        if run.rude or not run.looks:
            return True
        # A sleeping machine's timers stand still: noticed within half the margin of the resume; then it unwinds.
        notices = (0.5 + UNWINDING) * self.of(run.process, run.job).margin * FASTEST + SLACK
        standstill = -1.0
        frozen = self.frozen[run.process]
        if run.sync and not by_loop and not any(one.kind == "suspended" for one in frozen):
            # Its thread goes on while the loop is blocked. A wait that slept through a suspend needs the loop's word.
            frozen = [one for one in frozen if one.kind == "paused"]
        for one in frozen:
            # What blocks again before it could notice stands still once.
            standstill = max(standstill, one.end) if one.begin <= max(at, standstill + notices) else standstill
        return run.ended <= standstill + notices
