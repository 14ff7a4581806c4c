"""What the show proves, from the tapes: counts, hand-overs, the longest staleness."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .ledger import Ledger
    from .process import SignalName

__all__ = ["HandOver", "Summary", "missed"]

PERIOD = 0.5
"""Seconds between two snapshots, where none is missed."""


def missed(gap: float) -> int:
    """How many snapshots are missing between two that are `gap` seconds apart."""
    return max(0, round(gap / PERIOD) - 1)


@dataclass(frozen=True, kw_only=True)
class HandOver:
    """What it cost that the replica that took the snapshots got a signal; in seconds."""

    signal: SignalName
    old: str
    new: str
    lead_after: float
    """From the signal to the moment at which the next one led."""
    gap: float
    """From the last snapshot of the one to the first of the other; the period, where none is missed."""

    @classmethod
    def find(cls, ledger: Ledger, signal: SignalName, old: str, at: float) -> HandOver | None:
        """The hand-over after a signal to `old`. None: it is not complete yet."""
        first = next((one for one in ledger.snapshots if one.at > at and one.replica != old), None)
        last = next((one for one in reversed(ledger.snapshots) if one.replica == old), None)
        if first is None or last is None:
            return None
        led = [
            entry.at
            for entry, who in ledger.elections
            if entry.job == "snapshot" and who == first.replica and entry.at <= first.at
        ]
        lead_after = max(led, default=first.at) - at
        return cls(signal=signal, old=old, new=first.replica, lead_after=lead_after, gap=first.at - last.at)

    def __str__(self) -> str:
        lost = missed(self.gap)
        when = f"{self.lead_after * 1000:.0f} ms after" if self.lead_after >= 0 else "already before"
        return f"{self.new} led {when} {self.signal}; snapshots {self.gap:.2f} s apart, {lost or 'none'} missed"


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The result. Times in seconds. `late_writes` were sent with the token of a term that is over."""

    replicas: int
    snapshots: int
    snapshots_missed: int
    features: int
    dropped_overlap: int
    dropped_late: int
    hand_overs: list[HandOver]
    silence: float
    alarms: int
    longest_stale: float
    longest_stale_at: str
    overlapping_runs: int
    late_writes: int
    late_writes_refused: int
    most_connections: int
    troubles: list[str]

    @property
    def good(self) -> bool:
        """Whether all went as promised."""
        return (
            not self.troubles
            and self.overlapping_runs == 0
            and self.alarms > 0
            and {one.signal for one in self.hand_overs} == {"SIGTERM", "SIGKILL"}
            and self.late_writes_refused == self.late_writes > 0
        )

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        return asdict(self)

    def lines(self) -> list[tuple[str, str]]:
        """The same for people: what, and how much."""
        if not self.snapshots:
            return [("trouble", trouble) for trouble in self.troubles]
        overlaps = str(self.overlapping_runs)
        if self.overlapping_runs:
            overlaps += "  <- two replicas worked at once"
        rows = [
            ("snapshots taken", f"{self.snapshots}, {self.snapshots_missed} missed"),
            ("features computed", f"{self.features}"),
            ("ticks dropped", f"{self.dropped_overlap} overlap (a run was in flight), {self.dropped_late} late"),
            *((_NAMES[one.signal], str(one)) for one in self.hand_overs),
            ("the silent feed", f"{self.silence:.1f} s without a price"),
            ("the alarm", f"rang {_times(self.alarms)}"),
            ("longest staleness", f"{self.longest_stale:.2f} s ({self.longest_stale_at or 'no event'})"),
            ("overlapping runs", overlaps),
            ("late writes refused", f"{self.late_writes_refused} of {self.late_writes}"),
            ("connections to the feed", f"{self.most_connections} at most"),
        ]
        return rows + [("trouble", trouble) for trouble in self.troubles]


_NAMES: dict[SignalName, str] = {"SIGTERM": "hand-over, stop", "SIGKILL": "hand-over, crash"}


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
