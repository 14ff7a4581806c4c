"""Results: one record per contestant, row and round, kept as JSON, and the medians over the rounds."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from benchmarks.heat import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.heat import Outcome

__all__ = ["HOME", "Check", "Record", "Results", "bounded", "keep_marks", "load", "machine", "of_outcome", "save"]

HOME = ROOT / "benchmarks"

Record: TypeAlias = "dict[str, Any]"


class Check(NamedTuple):
    """One line of what is asked for, and whether it was shown."""

    text: str
    passed: bool


def bounded(text: str, value: float | None, bound: float, *, unit: str = "x", note: str = "") -> Check:
    """Whether `value` is at most `bound`; without a value, it was not shown."""
    if value is None:
        return Check(f"{text}: not measured (<= {bound:g} {unit})", passed=False)
    return Check(f"{text}: {value:.4g} {unit} (<= {bound:g}){note}", passed=value <= bound)


class Results(NamedTuple):
    """All records of one group, and the machine, date and commit that they come from."""

    origin: dict[str, Any]
    records: list[Record]

    def rows(self) -> list[str]:
        return list(dict.fromkeys(record["row"] for record in self.records))

    def contestants(self, row: str) -> list[str]:
        return list(dict.fromkeys(record["contestant"] for record in self.records if record["row"] == row))

    def values(self, row: str, contestant: str, key: str) -> list[Any]:
        """One value for each round."""
        return [
            record[key]
            for record in self.records
            if (record["row"], record["contestant"]) == (row, contestant) and record.get(key) is not None
        ]

    def mid(self, row: str, contestant: str, key: str) -> float | None:
        """The median over the rounds."""
        values = self.values(row, contestant, key)
        return median(values) if values else None

    def total(self, row: str, contestant: str, key: str) -> float | None:
        values = self.values(row, contestant, key)
        return sum(values) if values else None

    def ratio(self, row: str, one: str, other: str, key: str) -> float | None:
        """The median of one contestant over that of another."""
        above, below = self.mid(row, one, key), self.mid(row, other, key)
        return above / below if above is not None and below else None

    def text(self, row: str, contestant: str, key: str, digits: int = 0) -> str:
        """The median and the range over the rounds, for a table."""
        values = self.values(row, contestant, key)
        if not values:
            return "-"
        middle, low, high = median(values), min(values), max(values)
        if f"{low:.{digits}f}" == f"{high:.{digits}f}":
            return f"{middle:.{digits}f}"
        return f"{middle:.{digits}f} ({low:.{digits}f}..{high:.{digits}f})"

    def faults(self) -> list[str]:
        """Who could not take part, and why."""
        return sorted(
            {
                f"{record['row']}: {record['contestant']}: {record['fault']}"
                for record in self.records
                if record["fault"]
            }
        )


def of_outcome(outcome: Outcome, *, row: str, turn: int) -> Record:
    """What every record of a heat has."""
    return {
        "row": row,
        "contestant": outcome.contestant,
        "round": turn,
        "fault": outcome.fault,
        "busy": round(outcome.busy, 4),
        "steal": round(outcome.steal, 4),
    }


def machine(rounds: int) -> dict[str, Any]:
    """Where and when figures come from."""
    commit = _git("rev-parse", "--short", "HEAD")
    changed = "" if _git("status", "--porcelain", "--", "src") == "" else ", sources changed since"
    model = next(
        (
            line.partition(":")[2].strip()
            for line in _read("/proc/cpuinfo").splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": f"{commit}{changed}",
        "python": platform.python_version(),
        "machine": f"{os.cpu_count()} cores, {model}, Linux {platform.release().split('-')[0]}",
        "rounds": rounds,
    }


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def _read(path: str) -> str:
    return Path(path).read_text()


def save(group: str, results: Results) -> None:
    """To results/GROUP.json, one record a line."""
    lines = ",\n".join(json.dumps(record, separators=(",", ":")) for record in results.records)
    file = HOME / "results" / f"{group}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f'{{"origin": {json.dumps(results.origin)},\n"records": [\n{lines}\n]}}\n')


def load(group: str) -> Results | None:
    """What the last run of a group found; None if it has not been run."""
    file = HOME / "results" / f"{group}.json"
    if not file.exists():
        return None
    found = json.loads(file.read_text())
    return Results(found["origin"], found["records"])


def keep_marks(group: str, outcomes: Sequence[Outcome], *, row: str, turn: int) -> None:
    """Add every stamp of the window to raw/GROUP.jsonl: grid point, start and end, in nanoseconds since its begin."""
    file = HOME / "raw" / f"{group}.jsonl"
    file.parent.mkdir(exist_ok=True)
    with file.open("a") as raw:
        for outcome in outcomes:
            inside = [mark for mark in outcome.marks if outcome.begin <= mark.start < outcome.end]
            marks = [[value and value - outcome.begin for value in mark] for mark in inside]
            line = {
                "row": row,
                "contestant": outcome.contestant,
                "round": turn,
                "begin": outcome.begin,
                "period": outcome.assignment.period,
                "offset": outcome.assignment.offset,
                "jobs": outcome.assignment.jobs,
                "cpu": outcome.cpu,
                "rss": outcome.rss,
                "said": outcome.said,
                "marks": marks,
            }
            raw.write(json.dumps(line, separators=(",", ":")) + "\n")
