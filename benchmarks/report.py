"""The tables and figures, written between markers into benchmarks/results.md and README.md."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from benchmarks.field import FIELD
from benchmarks.groups import GROUPS
from benchmarks.heat import ROOT
from benchmarks.records import HOME, load

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.records import Results

__all__ = ["insert", "section", "summary", "write"]

PICTURES = {
    "ticks": ("pictures/lateness.svg", "How late the body of a tick every 10 ms starts, as cumulative shares"),
    "overlap": ("pictures/overlap.svg", "Which runs of a 250 ms body every 100 ms are in flight at once"),
    "many": ("pictures/many.svg", "Memory and CPU of a process with 1, 100 and 1000 idle jobs"),
    "imports": ("pictures/imports.svg", "What an import adds to the start of a process"),
    "timeline": ("../docs/pictures/timeline.svg", "Who runs a job when, through a rolling deploy and a crash"),
}
"""Of each group that has one, its file, seen from results.md, and what it says."""

README_ROWS = ("10 ms", "1 s")
README_FIELD = (
    "floor", "ours", "ours_uvloop", "call_at", "aps3", "aps3_background", "aps4",
    "aiocron", "arq", "redbeat", "pydocket",
)  # fmt: skip


def insert(file: Path, name: str, text: str) -> None:
    """Put `text` between the file's markers `<!-- bench:NAME -->` and `<!-- /bench:NAME -->`."""
    begin, end = f"<!-- bench:{name} -->", f"<!-- /bench:{name} -->"
    whole = file.read_text()
    if begin not in whole or end not in whole:
        raise ValueError(f"{file.name}: the markers {begin} and {end} are missing; write them where the figures belong")
    head, _, rest = whole.partition(begin)
    _, _, tail = rest.partition(end)
    file.write_text(f"{head}{begin}\n{text.strip()}\n{end}{tail}")


def write() -> None:
    """Write all that there are results for."""
    for name in GROUPS:
        results = load(name)
        if results is not None:
            insert(HOME / "results.md", name, section(name, results))
    text = summary()
    if text:
        insert(ROOT / "README.md", "summary", text)


def section(name: str, results: Results) -> str:
    """One group's part of results.md."""
    group, origin = GROUPS[name], results.origin
    parts = [f"## {group.TITLE}", f"{_origin(origin)} {_noise(results)}".strip()]
    found = group.checks(results)
    if found:
        parts.append("\n".join(f"- {'pass' if check.passed else '**FAIL**'}: {check.text}" for check in found))
    parts += group.tables(results)
    if name in PICTURES:
        parts.append(_picture(name))
    faults = results.faults()
    if faults:
        parts.append("Could not take part:\n\n" + "\n".join(f"- {fault}" for fault in faults))
    return "\n\n".join(parts)


def _origin(origin: dict[str, object]) -> str:
    rounds = origin["rounds"]
    how = "one run" if rounds == 1 else f"medians over {rounds} rounds (lowest..highest); counts are sums"
    return f"{origin['date']}, commit {origin['commit']}, Python {origin['python']}, {origin['machine']}; {how}."


def _noise(results: Results) -> str:
    """How much of the machine was in use, which is what the figures have to be judged by."""
    busy = [record["busy"] for record in results.records if "busy" in record]
    steal = [record["steal"] for record in results.records if "steal" in record]
    if not busy:
        return ""
    return (
        f"Of both cores in use while measuring, the contestants included: {100 * median(busy):.0f} % "
        f"(at most {100 * max(busy):.0f} %); stolen by the host: at most {100 * max(steal):.1f} %."
    )


def _picture(group: str, place: str = "") -> str:
    file, says = PICTURES[group]
    return f"![{says}]({place}{file})"


def summary() -> str:
    """The few figures that the README shows."""
    ticks, overlap = load("ticks"), load("overlap")
    if ticks is None or overlap is None:
        return ""
    lines = [
        "| | "
        + "".join(f"every {row}: late by µs, median (p99) | " for row in README_ROWS)
        + "CPU per tick every 10 ms, µs | runs at once, of a body of 2.5 periods |",
        "| --- |" + " --: |" * (len(README_ROWS) + 2),
    ]
    for who in README_FIELD:
        cells = []
        for row in README_ROWS:
            middle, tail = (ticks.mid(row, who, key) for key in ("p50", "p99"))
            cells.append("" if middle is None or tail is None else f"{middle:,.0f} ({tail:,.0f})")
        cpu = ticks.mid("10 ms", who, "cpu_tick")
        cells.append("" if cpu is None else f"{cpu:,.0f}")
        most = [value for row in overlap.rows() for value in overlap.values(row, who, "most")]
        cells.append(str(max(most)) if most else "")
        lines.append(f"| {FIELD[who].label} | {' | '.join(cells)} |")
    origin = ticks.origin
    return "\n".join(lines) + (
        f"\n\n{origin['date']} (the last column: {overlap.origin['date']}), Python {origin['python']}, "
        f"{origin['machine']}; medians over {origin['rounds']} rounds.\nAPScheduler, aiocron, the call_at loop and the "
        "bare timerfd only tick: they hold no lease, know no other replica. Empty: not measured.\n\n"
        + _picture("overlap", "benchmarks/")
    )
