"""A body that takes two and a half periods: who overlaps, who leaves the grid, who drops and says so."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.assignment import Assignment
from benchmarks.field import FIELD
from benchmarks.groups.plan import MS, Step, entry, in_turn
from benchmarks.heat import run_heat
from benchmarks.measures import overlap, unaccounted
from benchmarks.records import Check, keep_marks, of_outcome

if TYPE_CHECKING:
    from benchmarks.groups.plan import Settings
    from benchmarks.heat import Outcome
    from benchmarks.records import Record, Results

__all__ = ["QUICK", "SLOW", "TITLE", "checks", "steps", "tables"]

TITLE = "Overlap: a body of two and a half periods"

QUICK = "250 ms every 100 ms"
SLOW = "2.5 s every 1 s"
"""For those that cannot do less than a second."""

ROWS = {
    QUICK: (100, ("ours", "ours_uvloop", "aps3", "aps3_background", "aps4", "redbeat", "pydocket")),
    SLOW: (1000, ("aiocron", "arq")),
}


def steps(settings: Settings) -> list[Step]:
    seconds = settings.seconds or 10
    names = [who for _, contestants in ROWS.values() for who in contestants]
    return [
        Step(f"round {turn}, all side by side", 8 + seconds, partial(_heat, settings, turn, order, seconds))
        for turn, order in in_turn(names, settings.rounds)
    ]


def _heat(settings: Settings, turn: int, names: list[str], seconds: float) -> list[Record]:
    store = settings.server.emptied()
    rows = {who: row for row, (_, contestants) in ROWS.items() for who in contestants}
    entries = []
    for index, who in enumerate(names):
        period = ROWS[rows[who]][0]
        assignment = Assignment(
            module="",
            stamps="",
            period=period * MS,
            offset=index * period // len(names) * MS,
            body=5 * period * MS // 2,
            store=store if FIELD[who].server else "memory",
            project=f"{who}-{turn}",
        )
        entries.append(entry(who, assignment))
    outcomes = run_heat(entries, seconds)
    keep_marks("overlap", outcomes, row="all", turn=turn)
    return [_record(outcome, rows[outcome.contestant], turn) for outcome in outcomes]


def _record(outcome: Outcome, row: str, turn: int) -> Record:
    record = of_outcome(outcome, row=row, turn=turn)
    if outcome.fault:
        return record
    found = overlap(outcome, FIELD[outcome.contestant].grid)
    due = (outcome.end - outcome.begin) // outcome.assignment.period
    record |= {
        "due": due,
        "starts": found.starts,
        "most": found.most,
        "off_grid": found.off_grid,
        "runs": [[round(start, 4), round(end, 4)] for start, end in found.runs],
    }
    return record | {"dropped": outcome.said.get("dropped"), "unaccounted": unaccounted(outcome)}


def checks(results: Results) -> list[Check]:
    found: list[Check] = []
    for loop, who in (("asyncio", "ours"), ("uvloop", "ours_uvloop")):
        most, off, odd = (results.values(QUICK, who, key) for key in ("most", "off_grid", "unaccounted"))
        found += [
            Check(f"{QUICK}, {loop}: most at once: {max(most, default='-')}", passed=bool(most) and max(most) == 1),
            Check(
                f"{QUICK}, {loop}: starts off the grid: {sum(off) if off else '-'}", passed=bool(off) and not any(off)
            ),
            Check(
                f"{QUICK}, {loop}: ticks neither run nor counted as dropped: {sum(odd) if odd else '-'}",
                passed=bool(odd) and not any(odd),
            ),
        ]
    return found


def tables(results: Results) -> list[str]:
    lines = [
        "| contestant | body | due | starts | most at once | starts off the grid | own count of drops, whole life |",
        "| --- | --- | --: | --: | --: | --: | --: |",
    ]
    for row in ROWS:
        for who in [name for name in FIELD if name in results.contestants(row)]:
            cells = [results.text(row, who, key) for key in ("due", "starts", "most", "off_grid", "dropped")]
            lines.append(f"| {FIELD[who].label} | {row} | {' | '.join(cells)} |")
    return ["\n".join(lines)]
