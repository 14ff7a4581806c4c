"""What a record of the timeline says: each signal, who led after it, and how long that took."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.records import Record

__all__ = ["HandOver", "hand_overs", "lost_ticks", "overlaps"]


class HandOver(NamedTuple):
    """A signal to a replica, and what followed. Moments are seconds from the picture's begin.

    `heir` and what comes behind it are None where the replica did not lead: then nothing was handed over. `given` is
    when the lease was free again: at the release, or after a SIGKILL at its end in the store.
    """

    signal: str
    old: Record
    at: float
    heir: Record | None
    given: float | None
    elected: float | None
    next_run: float | None
    lost: int

    def after(self, moment: float | None) -> int | None:
        """Whole milliseconds from the signal to `moment`."""
        return None if moment is None else round(1000 * (moment - self.at))


def hand_overs(records: Sequence[Record]) -> list[HandOver]:
    """In the order of the signals."""
    signalled = sorted((one for one in records if one["signal"]), key=lambda one: float(one["signalled"]))
    return [_hand_over(one, records) for one in signalled]


def _hand_over(old: Record, records: Sequence[Record]) -> HandOver:
    at = float(old["signalled"])
    if not any(term["to"] is None or term["to"] > at for term in old["terms"]):
        return HandOver(old["signal"], old, at, None, None, None, None, 0)
    others = [one for one in records if one is not old]
    tick, start, heir = min(
        ((run[0], run[1], one) for one in others for run in one["runs"] if run[1] > at), key=lambda found: found[1]
    )
    elected = max(term["from"] for term in heir["terms"] if term["from"] <= start)
    given = old["expires"] if old["signal"] == "SIGKILL" else old["released"]
    return HandOver(old["signal"], old, at, heir, given, elected, start, tick - old["runs"][-1][0] - 1)


def lost_ticks(records: Sequence[Record]) -> int:
    """Points of the grid, between the first and the last run, that have no run."""
    ticks = {int(run[0]) for one in records for run in one["runs"]}
    return max(ticks) - min(ticks) + 1 - len(ticks)


def overlaps(records: Sequence[Record]) -> int:
    """Runs that began before the one before them had ended; a killed replica's last run ended with its signal."""
    spans = sorted(
        (run[1], run[2] or (one["signalled"] if one["signal"] == "SIGKILL" else run[1]))
        for one in records
        for run in one["runs"]
    )
    return sum(later[0] < earlier[1] for earlier, later in pairwise(spans))
