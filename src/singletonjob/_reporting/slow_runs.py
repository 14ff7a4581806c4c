"""Warnings about a job loop that is silent and about runs that take long."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Protocol

from .._system.worker_threads import where

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._jobs.options import JobOptions
    from .log_lines import Journal

__all__ = ["SlowRuns"]

LONG_RUN = 0.8
"""A run that takes longer than this part of `lock_expiry` causes a warning."""

SAY_AGAIN = 60.0
"""Seconds until a warning is repeated."""


class RunningTerm(Protocol):
    """The lease of a term, as far as its run is watched; `warned_at` is written here."""

    job: str
    token: int
    run_started: float | None
    warned_at: float | None

    @property
    def state(self) -> str: ...

    @property
    def in_thread(self) -> bool: ...


class SlowRuns:
    """Warns about a silent job loop and about long runs. Used on the heartbeat's thread only."""

    def __init__(
        self,
        leases: Mapping[str, RunningTerm],
        options: Mapping[str, JobOptions],
        *,
        stall_limit: float,
        journal: Journal,
    ) -> None:
        self._leases = leases
        self._options = options
        self._stall_limit = stall_limit
        self._journal = journal
        self._warned_at = -inf

    def check(self, now: float, *, alive_at: float, loop_thread: int) -> None:
        """Log each warning that is due. The job loop, in `loop_thread`, was last alive at `alive_at`."""
        silent = now - alive_at
        if silent > self._stall_limit / 2 and now - self._warned_at >= SAY_AGAIN:
            self._warned_at = now
            running = [
                job for job, lease in self._leases.items() if lease.run_started is not None and not lease.in_thread
            ]
            self._journal.loop_blocked(running, silent, where(loop_thread))
        for lease in self._leases.values():
            if (started := lease.run_started) is not None and self._long_run_at(lease, started) <= now:
                lease.warned_at = now
                options = self._options[lease.job]
                self._journal.run_long(lease.job, lease.token, now - started, options.lock_expiry, options.timeout)

    def next_check(self, now: float) -> float:
        """Return the moment at which a run in flight will be a long one."""
        soonest = inf
        for lease in self._leases.values():
            # Read `run_started` once, because the job loop may end the run meanwhile.
            if (started := lease.run_started) is not None and now < (at := self._long_run_at(lease, started)) < soonest:
                soonest = at
        return soonest

    def _long_run_at(self, lease: RunningTerm, started: float) -> float:
        options = self._options[lease.job]
        if lease.state == "over" or not options.warn_on_long_run:
            return inf  # a run without its lease has a warning of its own
        if lease.warned_at is not None and lease.warned_at >= started:
            return lease.warned_at + SAY_AGAIN if options.timeout is None else inf
        return started + LONG_RUN * options.lock_expiry
