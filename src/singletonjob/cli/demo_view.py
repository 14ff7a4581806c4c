"""Where the demo is shown: plain lines, nothing at all, or a live table in a terminal."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from .demo_session import Session, View

__all__ = ["PlainView", "SilentView", "chosen_view"]


class PlainView:
    """One line per noteworthy thing."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def say(self, elapsed: float, line: str) -> None:
        print(f"{elapsed:5.1f} s  {line}", file=self._stream, flush=True)

    def draw(self, session: Session) -> None:
        """Plain lines do not change."""


class SilentView:
    """Nothing: the output is for a program."""

    def say(self, elapsed: float, line: str) -> None:
        """Said to nobody."""

    def draw(self, session: Session) -> None:
        """Drawn for nobody."""


def chosen_view(*, json: bool) -> AbstractContextManager[View]:
    """The view that suits the output: with `json` nothing may go to stdout, lines go to stderr where somebody sees it.

    To be entered with `with`: the live table gives the terminal back at the end.
    """
    if json:
        return nullcontext(PlainView(sys.stderr) if sys.stderr.isatty() else SilentView())
    if sys.stdout.isatty():
        try:
            from .demo_live import LiveView
        except ModuleNotFoundError:  # rich comes with the extra `cli`
            return nullcontext(PlainView(sys.stdout))
        return LiveView()
    return nullcontext(PlainView(sys.stdout))
