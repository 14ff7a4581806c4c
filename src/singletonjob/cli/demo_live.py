"""The demo in a terminal: who leads each job, a strip of time per worker, what happened last. Needs rich."""

from __future__ import annotations

from itertools import groupby, takewhile
from operator import itemgetter
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from .demo_report import JOBS

if TYPE_CHECKING:
    from types import TracebackType

    from .demo_report import SignalName
    from .demo_session import Session, Worker

__all__ = ["LiveView"]

CELL = 0.1
"""Seconds per character of a strip: one period of price-tick."""

MARKS = {"price-tick": ("▪", "green"), "book-sync": ("●", "cyan"), "candle-close": ("◆", "magenta")}
"""A run in a strip. Where two fall into one cell, the later entry is seen."""

SIGNALS: dict[SignalName, tuple[str, str]] = {"SIGTERM": ("▼", "bold yellow"), "SIGKILL": ("✖", "bold red")}

MOST_LINES = 8
"""How many of the last noteworthy lines are shown, where the terminal is high enough."""

OTHER_LINES = 14
"""The height of everything else, but for the strips."""


class LiveView:
    """A table that is redrawn ten times a second."""

    def __init__(self) -> None:
        self._console = Console()
        self._live = Live(console=self._console, auto_refresh=False, transient=False)
        self._lines: list[str] = []
        self._drawn = 0.0

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def say(self, elapsed: float, line: str) -> None:
        self._lines.append(f"{elapsed:5.1f} s  {line}")

    def draw(self, session: Session) -> None:
        if session.now - self._drawn < CELL:
            return
        self._drawn = session.now
        self._live.update(self._screen(session), refresh=True)

    def _screen(self, session: Session) -> Group:
        room = max(2, min(MOST_LINES, self._console.height - OTHER_LINES - session.seats))
        lines = self._lines[-room:] + [""] * (room - len(self._lines))
        return Group(
            Text.assemble(("singletonjob demo", "bold"), f"   {session.seats} workers   {session.elapsed:.1f} s"),
            Text(),
            _jobs(session),
            Text(),
            _strips(session, self._console.width),
            _legend(self._console.width),
            Text(),
            _handovers(session),
            Text(),
            *(Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in lines),
        )


def _jobs(session: Session) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("job")
    table.add_column("when", style="dim")
    table.add_column("leader", min_width=8)
    # As wide as they will become, so that nothing moves; and all of it in 80 columns.
    for heading, width in (("runs", 5), ("dropped", 7), ("late", 7), ("last run", 9)):
        table.add_column(heading, justify="right", min_width=width)
    seats = {worker.name: worker.seat for worker in session.workers}
    for job, when in JOBS.items():
        leader = session.ledger.leaders.get(job)
        last = session.ledger.newest.get(job)
        table.add_row(
            Text(job, style=MARKS[job][1]),
            when,
            Text(f"worker {seats[leader]}", style="bold") if leader else Text("nobody", style="dim"),
            str(session.ledger.counts[job]),
            str(session.ledger.dropped[job]),
            f"{session.ledger.lateness[job].quantile(0.5) * 1e3:.1f} ms" if last else "",
            f"{max(0.0, session.now - last.start):.1f} s ago" if last else "",
        )
    return table


def _strips(session: Session, width: int) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="dim", min_width=7)
    table.add_column(no_wrap=True)
    cells = max(20, min(100, width - 22))
    for seat in range(1, session.seats + 1):
        here = [worker for worker in session.workers if worker.seat == seat]
        leads = any(worker.name in session.ledger.leaders.values() for worker in here)
        pid = str(here[-1].process.pid) if here and here[-1].gone is None else ""
        table.add_row(Text(f"worker {seat}", style="bold" if leads else ""), pid, _strip(session, here, cells))
    return table


def _strip(session: Session, here: list[Worker], cells: int) -> Text:
    """The last seconds of a worker's seat. Cells are laid so that a tick falls into the middle of one."""
    phase = next((run.start for run in session.ledger.runs if run.job == "price-tick"), 0.0) + CELL / 2
    newest = int((session.now - phase) // CELL)
    row: list[tuple[str, str]] = [(" ", "")] * cells

    def put(first: float, last: float, mark: str, style: str) -> None:
        begin = int((first - phase) // CELL) - newest + cells - 1
        end = int((last - phase) // CELL) - newest + cells - 1
        for cell in range(max(0, begin), min(cells - 1, end) + 1):
            row[cell] = (mark, style)

    for worker in here:
        put(worker.started, worker.gone or session.now, "·", "bright_black")
    names = {worker.name for worker in here}
    oldest = session.now - cells * CELL - 1
    recent = list(takewhile(lambda run: run.start > oldest, reversed(session.ledger.runs)))
    for job, (mark, style) in MARKS.items():
        for run in recent:
            if run.job == job and run.worker in names:
                put(run.start, run.end or session.now, mark, style)
    for stop in session.stops:
        if stop.worker in names:
            put(stop.at, stop.at, *SIGNALS[stop.signal])
    # One segment per stretch of a colour: a tenth of the bytes to the terminal.
    return Text.assemble(*(("".join(mark for mark, _ in same), style) for style, same in groupby(row, itemgetter(1))))


def _legend(width: int) -> Text:
    """Under the strips where there is room, else at the left edge, where 80 columns hold it."""
    parts: list[tuple[str, str]] = []
    for name, (mark, style) in [*MARKS.items(), *SIGNALS.items()]:
        parts += [(mark, style), (f" {name}   ", "dim")]
    legend = Text.assemble(*parts, ("each 0.1 s", "dim"), no_wrap=True, overflow="ellipsis")
    legend.pad_left(max(0, min(19, width - len(legend))))
    return legend


def _handovers(session: Session) -> Text:
    text = Text.assemble(("hand-over of price-tick, signal to next start", "dim"))
    for name, (mark, style) in SIGNALS.items():
        text.append(f"   {mark} ", style)
        times = [session.handovers.get(stop) for stop in session.stops if stop.signal == name][-5:]
        text.append("  ".join("..." if time is None else f"{time:.0f}" for time in times) or "-", "bold")
        text.append(" ms", "dim")
    return text
