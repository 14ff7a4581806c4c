"""What became of a job's runs: plain counters, and the frozen form of them that users get."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ._lease import instant

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["Counts", "JobStats"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStats:
    """What became of one job in this process since its app started.

    `runs` = `ok` + `failed` + `cancelled` + `timeout`. Ticks that did not run are in `dropped_overlap` (the previous
    run was in flight) and `dropped_late`; slots that did not run when due are in `misfired`. `terms` counts
    elections won; `last_ok` is when a run last ended well, aware, in UTC.
    """

    runs: int
    ok: int
    failed: int
    cancelled: int
    timeout: int
    dropped_overlap: int
    dropped_late: int
    misfired: int
    terms: int
    last_ok: datetime | None


class Counts:
    """What became of a job's runs in this process, since its app started."""

    def __init__(self) -> None:
        self.runs = self.ok = self.failed = self.cancelled = self.timeout = 0
        self.dropped_overlap = self.dropped_late = self.misfired = self.terms = 0
        self.last_ok: int | None = None

    def frozen(self) -> JobStats:
        """As users get them."""
        return JobStats(
            runs=self.runs,
            ok=self.ok,
            failed=self.failed,
            cancelled=self.cancelled,
            timeout=self.timeout,
            dropped_overlap=self.dropped_overlap,
            dropped_late=self.dropped_late,
            misfired=self.misfired,
            terms=self.terms,
            last_ok=None if self.last_ok is None else instant(self.last_ok),
        )
