"""Signs of life, and what the heartbeat sees of the job loop: that it is silent for long, and that a run takes long."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from .._system.worker_threads import where

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._jobs.options import JobOptions
    from .._reporting.log_lines import Journal
    from .lease import Lease

__all__ = ["LoopWatch", "Pulse"]

LONG_RUN = 0.8
"""A run that takes longer than this part of `lock_expiry` is worth a warning."""

SAY_AGAIN = 60.0
"""Seconds until it is said again."""


class Pulse:
    """The signs of life that job loop and heartbeat give each other, on the boot clock."""

    __slots__ = ("alive_at", "beat_at", "loop_thread")

    def __init__(self, now: float) -> None:
        self.alive_at: float = now  # the job loop turned
        self.beat_at: float = now  # the heartbeat turned
        self.loop_thread: int = 0


class LoopWatch:
    """Looks at `leases` and at the loop's signs of life in `pulse`. Used on the heartbeat's thread alone."""

    def __init__(
        self,
        leases: Mapping[str, Lease],
        options: Mapping[str, JobOptions],
        *,
        stall_limit: float,
        pulse: Pulse,
        journal: Journal,
    ) -> None:
        self._leases = leases
        self._options = options
        self._stall_limit = stall_limit
        self._pulse = pulse
        self._journal = journal
        self._blocked_said_at = -inf

    def look(self, now: float) -> None:
        """Say what there is to say at this moment."""
        silent = now - self._pulse.alive_at
        if silent > self._stall_limit / 2 and now - self._blocked_said_at >= SAY_AGAIN:
            self._blocked_said_at = now
            running = [
                job for job, lease in self._leases.items() if lease.run_started is not None and not lease.in_thread
            ]
            self._journal.loop_blocked(running, silent, where(self._pulse.loop_thread))
        for lease in self._leases.values():
            if (started := lease.run_started) is not None and self._long_run_at(lease, started) <= now:
                lease.warned_at = now
                options = self._options[lease.job]
                self._journal.run_long(lease.job, lease.token, now - started, options.lock_expiry, options.timeout)

    def next_look(self, now: float) -> float:
        """When a run in flight will have taken long."""
        soonest = inf
        for lease in self._leases.values():
            # The job loop may end the run between two looks at it, so there is one.
            if (started := lease.run_started) is not None and now < (at := self._long_run_at(lease, started)) < soonest:
                soonest = at
        return soonest

    def _long_run_at(self, lease: Lease, started: float) -> float:
        options = self._options[lease.job]
        if lease.state == "over" or not options.warn_on_long_run:
            return inf  # of a run that goes on without its lease, something else is told
        if lease.warned_at is not None and lease.warned_at >= started:
            return lease.warned_at + SAY_AGAIN if options.timeout is None else inf
        return started + LONG_RUN * options.lock_expiry
