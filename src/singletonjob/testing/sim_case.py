"""A history as the rules of the checker need it, and what one of them finds."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from .sim_replica import UNWINDING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .sim_history import Fault, History, Lease, SimRun
    from .sim_replica import JobPlan
    from .simulation import Settings

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
        self.plans = plans
        self.runs: defaultdict[str, list[SimRun]] = defaultdict(list)
        for run in history.runs:
            self.runs[run.job].append(run)
        self.frozen: defaultdict[str, list[Fault]] = defaultdict(list)
        for one in history.frozen:
            self.frozen[one.process].append(one)
        self.leases: defaultdict[str, list[Lease]] = defaultdict(list)
        for lease in history.leases.values():
            self.leases[lease.job].append(lease)

    def excused(self, run: SimRun, at: float) -> bool:
        """Whether the design lets `run` be in flight at the moment `at` without a lease."""
        if run.rude:
            return True
        # A sleeping machine's timers stand still: noticed within half the margin of the resume; then it unwinds.
        notices = (0.5 + UNWINDING) * self.settings.margin * FASTEST + SLACK
        standstill = -1.0
        for one in self.frozen[run.process]:
            # What blocks again before it could notice stands still once.
            standstill = max(standstill, one.end) if one.begin <= max(at, standstill + notices) else standstill
        return run.ended <= standstill + notices
