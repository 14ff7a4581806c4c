"""What the way into a thread adds: a sync no-op body against an async one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.assignment import Assignment
from benchmarks.field import FIELD
from benchmarks.groups.plan import MS, Step, entry, in_turn
from benchmarks.groups.ticks import tick_record
from benchmarks.heat import run_heat
from benchmarks.records import bounded

if TYPE_CHECKING:
    from benchmarks.groups.plan import Settings
    from benchmarks.records import Check, Record, Results

__all__ = ["TITLE", "checks", "steps", "tables"]

TITLE = "Sync bodies: the way into a thread"

PERIODS = {"10 ms": 10, "100 ms": 100}


def steps(settings: Settings) -> list[Step]:
    seconds = settings.seconds or 3
    found: list[Step] = []
    for turn, order in in_turn(("ours", "ours_sync"), settings.rounds):
        found += [
            Step(f"round {turn}, 10 ms: {who}", 2 + seconds, partial(_heat, "10 ms", turn, [who], seconds))
            for who in order
        ]
        found.append(
            Step(f"round {turn}, 100 ms: both", 2 + 2 * seconds, partial(_heat, "100 ms", turn, order, 2 * seconds))
        )
    return found


def _heat(row: str, turn: int, names: list[str], seconds: float) -> list[Record]:
    period = PERIODS[row]
    entries = [
        entry(
            name,
            Assignment(
                module="", stamps="", period=period * MS, offset=index * period // len(names) * MS, project="sync"
            ),
        )
        for index, name in enumerate(names)
    ]
    return [tick_record(outcome, row, turn) for outcome in run_heat(entries, seconds)]


def checks(results: Results) -> list[Check]:
    found: list[Check] = []
    for row in PERIODS:
        hop, direct = (results.mid(row, who, "p50") for who in ("ours_sync", "ours"))
        added = None if hop is None or direct is None else (hop - direct) / 1000
        found.append(bounded(f"{row}: median lateness that the thread adds", added, 0.3, unit="ms"))
    return found


def tables(results: Results) -> list[str]:
    lines = ["| body | period | p50 µs | p99 µs | CPU µs/tick |", "| --- | --: | --: | --: | --: |"]
    for row in results.rows():
        for who in ("ours", "ours_sync"):
            cells = [results.text(row, who, key) for key in ("p50", "p99", "cpu_tick")]
            lines.append(f"| {FIELD[who].label} | {row} | {' | '.join(cells)} |")
    return ["\n".join(lines)]
