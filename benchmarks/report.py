"""The tables, written between markers into benchmarks/results.md and README.md."""

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
    "lateness": "How late the body of a tick every 10 ms starts, as cumulative shares",
    "overlap": "Which runs of a 250 ms body every 100 ms are in flight at once",
    "many": "Memory and CPU of a process with 1, 100 and 1000 idle jobs",
    "imports": "What an import adds to the start of a process",
}

README_ROWS = ("10 ms", "100 ms", "1 s")
README_FIELD = (
    "floor", "ours", "ours_uvloop", "call_at", "call_at_uvloop", "naive",
    "aps3", "aps3_background", "aps4", "aiocron", "arq", "redbeat", "pydocket",
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
    faults = results.faults()
    if faults:
        parts.append("Could not take part:\n\n" + "\n".join(f"- {fault}" for fault in faults))
    return "\n\n".join(parts)


def _origin(origin: dict[str, object]) -> str:
    return (
        f"{origin['date']}, commit {origin['commit']}, Python {origin['python']}, {origin['machine']}; "
        f"medians over {origin['rounds']} rounds (lowest..highest); counts are sums."
    )


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


def summary() -> str:
    """The few figures that the README shows."""
    results = load("ticks")
    if results is None:
        return ""
    lines = [
        "| median lateness, µs (p99) |"
        + "".join(f" every {row} |" for row in README_ROWS)
        + " CPU per tick at 10 ms, µs |",
        "| --- |" + " --: |" * (len(README_ROWS) + 1),
    ]
    for who in README_FIELD:
        cells = []
        for row in README_ROWS:
            middle, tail, drift = (results.mid(row, who, key) for key in ("p50", "p99", "drift"))
            if middle is None or tail is None or drift is None:
                cells.append("")
            elif who == "naive":  # its lateness only tells how long it has been running
                cells.append(f"drifts {drift:.0f} s/h")
            else:
                cells.append(f"{middle:,.0f} ({tail:,.0f})")
        cpu = results.mid("10 ms", who, "cpu_tick")
        cells.append("" if cpu is None else f"{cpu:,.0f}")
        if any(cells):
            lines.append(f"| {FIELD[who].label} | {' | '.join(cells)} |")
    origin = results.origin
    lines += [
        "",
        f"{origin['date']}, Python {origin['python']}, {origin['machine']}; medians over {origin['rounds']} rounds.",
        "APScheduler, the hand-made loops and the bare timerfd only tick: they hold no lease, know no other replica.",
    ]
    for name, says in PICTURES.items():
        if (HOME / "pictures" / f"{name}.svg").exists():
            lines += ["", f"![{says}](benchmarks/pictures/{name}.svg)"]
    return "\n".join(lines)
