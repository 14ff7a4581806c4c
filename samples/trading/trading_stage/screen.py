"""The show in a terminal: a strip of time per replica, how old the prices are, what happened last. Needs rich."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from trading_desk.jobs import TOO_OLD

from .ledger import JOBS

if TYPE_CHECKING:
    from types import TracebackType

    from .course import Course
    from .process import Replica

__all__ = ["Screen"]

CELL = 0.5
"""Seconds per character of a strip: the period of the snapshots."""

SIGNALS = {"SIGTERM": ("▼", "bold yellow"), "SIGKILL": ("✖", "bold red")}

BARS = " ▁▂▃▄▅▆▇█"

FULL_BAR = 3.0
"""Seconds of age that fill a cell."""

MOST_LINES = 10
"""How many of the last lines are shown, where the terminal is high enough."""

OTHER_LINES = 15
"""The height of everything else, for three replicas and the two that have ended."""


class Screen:
    """Drawn ten times a second."""

    def __init__(self) -> None:
        self._console = Console()
        self._live = Live(console=self._console, auto_refresh=False)
        self._room = max(3, min(MOST_LINES, self._console.height - OTHER_LINES - 1))
        self._lines: deque[tuple[str, str]] = deque(maxlen=self._room)
        self._drawn = -1.0
        self._ages: dict[int, float] = {}
        self._silent: set[int] = set()

    def __enter__(self) -> Screen:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def say(self, elapsed: float, line: str, style: str = "") -> None:
        self._lines.append((f"{elapsed:5.1f} s  {line}", style or "dim"))

    def draw(self, course: Course) -> None:
        now = course.elapsed
        cell = int(now / CELL)
        self._ages[cell] = max(self._ages.get(cell, 0.0), course.staleness or 0.0)
        if course.market.silent:
            self._silent.add(cell)
        if now - self._drawn >= 0.1:
            self._drawn = now
            self._live.update(self._picture(course), refresh=True)

    def _picture(self, course: Course) -> Group:
        lines = [*self._lines, *[("", "")] * (self._room - len(self._lines))]
        return Group(
            _heading(course),
            Text(),
            _prices(course),
            Text(),
            self._strips(course),
            Text(),
            _counts(course),
            Text(),
            *(Text(line, style=style, no_wrap=True, overflow="ellipsis") for line, style in lines),
        )

    def _strips(self, course: Course) -> Table:
        table = Table.grid(padding=(0, 2, 0, 0))
        for _ in range(3):
            table.add_column(no_wrap=True)
        width = max(20, min(80, self._console.width - 47))
        newest = int(course.elapsed / CELL)
        cells = range(newest - width + 1, newest + 1)
        for replica in course.replicas[-course.count - 2 :]:
            led = [job for job in JOBS if course.ledger.leaders.get(job) == replica.name]
            if replica.gone_at is not None:
                doing = Text({"SIGTERM": "stopped", "SIGKILL": "killed"}.get(str(replica.signal), "ended"), style="dim")
            else:
                doing = Text(" ".join(led) or "follows", style="bold green" if led else "dim")
            table.add_row(Text(replica.name, style="bold" if led else ""), doing, _strip(course, replica, cells))
        feed = [("━", "red") if cell in self._silent else ("·", "dim") if cell >= 0 else (" ", "") for cell in cells]
        feed[-1] = ("━", "red") if course.market.silent else ("·", "dim")
        table.add_row("feed", Text("silent", style="red") if course.market.silent else "", Text.assemble(*feed))
        age = course.staleness
        told = Text() if age is None else Text(f"{age:.1f} s", style=_colour(age))
        table.add_row("age of prices", told, Text.assemble(*(_bar(self._ages.get(cell, 0.0)) for cell in cells)))
        legend = Text.assemble(
            ("■", "green"), " snapshot  ", SIGNALS["SIGTERM"], " SIGTERM  ", SIGNALS["SIGKILL"], " SIGKILL"
        )
        table.add_row("", "", legend)
        return table


def _heading(course: Course) -> Text:
    text = Text.assemble(("trading desk", "bold"), f"   {course.count} replicas   {course.elapsed:.1f} s   ")
    return text.append(" STALE ", style="bold white on red") if course.ledger.alarm_is_on else text


def _prices(course: Course) -> Text:
    text = Text()
    for symbol, price in course.ledger.prices.items():
        move = course.ledger.features.get(symbol, 0.0)
        text.append(f"{symbol} ", style="dim").append(f"{price:,.2f}", style="bold")
        text.append(f" {move:+.1f} bp   ", style="green" if move >= 0 else "red")
    return text


def _strip(course: Course, replica: Replica, cells: range) -> Text:
    """The last seconds of a replica: where it lived, the snapshots that it took, the signal that it got."""
    row = dict.fromkeys(cells, (" ", ""))

    def put(moment: float, mark: str, style: str) -> None:
        cell = int((moment - course.began) / CELL)
        if cell in row:
            row[cell] = (mark, style)

    end = course.elapsed if replica.gone_at is None else replica.gone_at - course.began
    for cell in cells:
        if replica.started_at - course.began <= (cell + 1) * CELL and cell * CELL <= end:
            row[cell] = ("·", "dim")
    for snapshot in course.ledger.snapshots[-2 * len(cells) :]:
        if snapshot.replica == replica.name:
            put(snapshot.at, "■", "green")
    if replica.signal is not None and replica.signalled_at < course.ending_at:
        put(replica.signalled_at, *SIGNALS[replica.signal])
    return Text.assemble(*row.values())


def _counts(course: Course) -> Text:
    ledger = course.ledger
    counts = {
        "snapshots": len(ledger.snapshots),
        "features": ledger.counts["features"],
        "dropped": ledger.dropped.total(),
        "alarms": len(ledger.alarms),
        "connections": course.market.connections,
    }
    text = Text()
    for name, count in counts.items():
        text.append(f"{name} ", style="dim").append(f"{count}    ", style="bold")
    return text


def _bar(age: float) -> tuple[str, str]:
    return BARS[min(len(BARS) - 1, round(age / FULL_BAR * (len(BARS) - 1)))], _colour(age)


def _colour(age: float) -> str:
    return "red" if age > TOO_OLD else "yellow" if age > 0.75 else "green"
