"""Where the show is seen: plain lines, or a screen that is drawn anew (with rich, in a terminal)."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from .course import Course, View

__all__ = ["PlainView", "chosen_view", "status"]

STATUS_EVERY = 2.0
"""Seconds between two lines of plain status."""


class PlainView:
    """A line for what happens, and one every two seconds for how it stands."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._next = STATUS_EVERY

    def say(self, elapsed: float, line: str, style: str = "") -> None:  # noqa: ARG002 - lines have no colour
        print(f"{elapsed:5.1f} s  {line}", file=self._stream, flush=True)

    def draw(self, course: Course) -> None:
        if course.elapsed >= self._next:
            self._next = course.elapsed + STATUS_EVERY
            self.say(course.elapsed, f"  {status(course)}")


def status(course: Course) -> str:
    """How it stands, in one line."""
    ledger = course.ledger
    age = course.staleness
    prices = "  ".join(f"{symbol} {price:,.2f}" for symbol, price in ledger.prices.items())
    return (
        f"{ledger.leaders.get('snapshot', 'nobody')} leads   {prices or 'no prices yet'}"
        f"   {'-' if age is None else f'{age:.1f} s'} old   dropped {ledger.dropped.total()}"
        f"{'   STALE' if ledger.alarm_is_on else ''}"
    )


def chosen_view(*, json: bool) -> AbstractContextManager[View]:
    """The view that suits the output; with `json`, stdout is for the summary, and the lines go to stderr.

    To be entered with `with`: the screen gives the terminal back at the end.
    """
    if json:
        return nullcontext(PlainView(sys.stderr))
    if sys.stdout.isatty():
        try:
            from .screen import Screen
        except ModuleNotFoundError:  # rich is not installed
            return nullcontext(PlainView(sys.stdout))
        return Screen()
    return nullcontext(PlainView(sys.stdout))
