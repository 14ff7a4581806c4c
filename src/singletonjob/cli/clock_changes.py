"""What the change of a zone's clocks does to the slots of a cron expression, in words.

The rules are those of `_core/cron.py`; this module only reports them. The wall times that a change skips or repeats are
found by the same expression in UTC, where no clock ever changes.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from .._core.cron import Cron
from .instants import EPOCH

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Change", "ClockChanges"]

SECOND = 1_000_000
HOUR = 3600 * SECOND


class Change(NamedTuple):
    """The clocks of a zone change at the instant `at`, in microseconds; what they show before and after, naive."""

    at: int
    before: datetime
    after: datetime

    @property
    def forward(self) -> bool:
        return self.after > self.before

    def __str__(self) -> str:
        """`+1 h` or `-30 min`."""
        minutes = round((self.after - self.before) / timedelta(minutes=1))
        return f"{minutes // 60:+d} h" if minutes % 60 == 0 else f"{minutes:+d} min"

    @property
    def walls(self) -> str:
        """`clocks go from 02:00 to 03:00`, with dates where the change leaves out a day."""
        if abs(self.after - self.before) >= timedelta(days=1):
            return f"clocks go from {self.before:%Y-%m-%d %H:%M} to {self.after:%Y-%m-%d %H:%M}"
        return f"clocks go from {self.before:%H:%M} to {self.after:%H:%M}"


class ClockChanges:
    """Explains the slots of one expression, asked for in the order in which they come."""

    def __init__(self, cron: Cron) -> None:
        self._cron = cron
        self._plain = Cron(cron.expression)
        self._told: set[int] = set()
        self._known: dict[date, Change | None] = {}

    def on_the_day_of(self, slot: int) -> Change | None:
        """The change on the slot's local date, if there is one."""
        day = self._cron.local(slot).date()
        if day not in self._known:
            changes = [change for change in self._around(slot) if change.after.date() == day]
            self._known[day] = changes[0] if changes else None
        return self._known[day]

    def why(self, slot: int) -> str | None:
        """One line on what the change of that day did to this slot or just before it; None: nothing.

        What it did to many slots, of an interval-like expression, is told at the first of them only.
        """
        change = self.on_the_day_of(slot)
        if change is None:
            return None
        if change.forward:
            if self._cron.after(change.at - 1) != slot:  # not the first one after the gap
                return None
            text = self._times(change.before, change.after, "does not exist", "do not exist")
            outcome = f"runs at {change.after:%H:%M}" if self._cron.fixed else "left out"
        else:
            span = _micros(change.before) - _micros(change.after)
            if not change.at - span <= slot < change.at + span:
                return None
            if self._cron.fixed:
                wall = self._cron.local(slot).replace(tzinfo=None)
                text = self._times(wall, wall + timedelta(seconds=1), "comes twice", "come twice")
                outcome = "runs the first time only"
            elif change.at in self._told:
                return None
            else:
                self._told.add(change.at)
                text = self._times(change.after, change.before, "comes twice", "come twice")
                outcome = "runs both times"
        return f"{text} ({change.walls}); {outcome}" if text else None

    def _times(self, low: datetime, high: datetime, one: str, several: str) -> str:
        """The matching wall times from `low` to before `high`, in few words; empty: there are none."""
        start, end = _micros(low) - 1, _micros(high) - 1
        found: list[datetime] = []
        while (later := self._plain.after(start)) is not None and later <= end and len(found) < 3:
            found.append(_naive(later))
            start = later
        if not found:
            return ""
        if len(found) == 3:
            found[1:] = [_naive(self._plain.newest(_micros(low) - 1, end) or end)]
            joint = " to "
        else:
            joint = ", "
        form = "%H:%M:%S" if any(wall.second for wall in found) else "%H:%M"
        return f"{joint.join(wall.strftime(form) for wall in found)} {one if len(found) == 1 else several}"

    def _around(self, slot: int) -> Iterator[Change]:
        """The changes within a day of `slot`; no zone has two in half a day."""
        low, step = slot // SECOND * SECOND - 26 * HOUR, 13 * HOUR
        for start in range(low, low + 4 * step, step):
            before = self._offset(start)
            if self._offset(start + step) != before:
                at = self._end_of(before, start, start + step)
                yield Change(at, _naive(at) + before, self._cron.local(at).replace(tzinfo=None))

    def _end_of(self, offset: timedelta, low: int, high: int) -> int:
        """The first whole second in (low, high] that has another offset."""
        seconds = range(low, high, SECOND)
        return low + SECOND * bisect_left(seconds, True, key=lambda second: self._offset(second) != offset)

    def _offset(self, instant: int) -> timedelta:
        return self._cron.local(instant).utcoffset() or timedelta()


def _naive(instant: int) -> datetime:
    return (EPOCH + timedelta(microseconds=instant)).replace(tzinfo=None)


def _micros(wall: datetime) -> int:
    return (wall.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
