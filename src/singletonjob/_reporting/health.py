"""How an app stands, as values: what `app.health()` returns and what the probes tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

__all__ = ["Health", "HealthState", "Status"]

HealthState: TypeAlias = Literal["following", "leading", "store_down", "starved", "stuck", "disabled", "paused"]
"""How one job stands in this process; see `Health`."""

Status: TypeAlias = Literal["ok", "store_down", "starved", "stuck"]
"""How the app stands in sum; see `Health`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How the app stands, per job and in sum.

    Each job is one of

    - `following`: another replica may lead it; this one is ready to;
    - `leading`: this replica holds a valid term;
    - `store_down`: neither of them, since the store does not answer, or cannot serve this job;
    - `starved`: the job loop has been silent for half of `stall_limit`, whatever else holds;
    - `stuck`: it has been silent for `stall_limit`, or a run outlived its timeout and grace, or the heartbeat has not
      beaten for a `lock_expiry`;
    - `disabled`: switched off, or the app does not run in this process;
    - `paused`: an operator paused it.

    `status` is the worst of them: `stuck`, `starved`, `store_down`, else `ok`. `ready`: the app has started and has
    seen its store at least once (or no job needs one).
    """

    status: Status
    ready: bool
    jobs: Mapping[str, HealthState]

    @classmethod
    def of(cls, jobs: Mapping[str, HealthState], *, ready: bool) -> Self:
        """The sum of these jobs."""
        states = frozenset(jobs.values())
        status: Status = "ok"
        # The last word counts. A starved loop is worse than a store that is gone: it is ours, and on its way to stuck.
        if "store_down" in states:
            status = "store_down"
        if "starved" in states:
            status = "starved"
        if "stuck" in states:
            status = "stuck"
        return cls(status=status, ready=ready, jobs=jobs)

    @property
    def live(self) -> bool:
        """Whether a restart of the process would be of no use: nothing is stuck. Leading and the store do not count."""
        return self.status != "stuck"
