"""Many jobs in one process: 1000 busy ones, and 1, 100 and 1000 idle ones on Redis; CPU and memory."""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.assignment import Assignment, now
from benchmarks.field import FIELD
from benchmarks.groups.plan import MS, SECOND, Step, entry, in_turn
from benchmarks.groups.ticks import tick_record
from benchmarks.heat import run_heat
from benchmarks.records import bounded, of_outcome

if TYPE_CHECKING:
    from benchmarks.groups.plan import Settings
    from benchmarks.heat import Entry
    from benchmarks.records import Check, Record, Results

__all__ = ["SIZES", "TITLE", "checks", "idle_row", "steps", "tables"]

TITLE = "Many jobs: lateness, CPU, memory"

BUSY = "1000 jobs of 1 s"
SIZES = (1, 100, 1000)
TRACED = "traced"
"""The row of the processes that count their memory by tracemalloc, which slows them."""

FOLLOWER = "ours_follower"
WEIGHED = ("ours_redis", FOLLOWER, "aps3", "aps4", "arq", "pydocket")


def idle_row(jobs: int) -> str:
    return f"{jobs} idle"


def steps(settings: Settings) -> list[Step]:
    found: list[Step] = []
    busy = settings.seconds or 5
    idle = settings.seconds or 12
    for turn, order in in_turn(("ours", "call_at", "aps3"), settings.rounds):
        found += [Step(f"round {turn}, {BUSY}: {who}", 4 + busy, partial(_busy, who, turn, busy)) for who in order]
        found.append(
            Step(f"round {turn}, idle jobs, all side by side", 22 + idle, partial(_idle, settings, turn, idle))
        )
    return found


def _busy(who: str, turn: int, seconds: float) -> list[Record]:
    assignment = Assignment(module="", stamps="", period=SECOND, jobs=1000, spread=MS, project=f"many-{turn}")
    outcomes = run_heat([entry(who, assignment)], seconds, warm_up=2)
    return [tick_record(outcome, BUSY, turn) for outcome in outcomes]


def _idle(settings: Settings, turn: int, seconds: float) -> list[Record]:
    store = settings.server.emptied()
    due = (now() + 55 * SECOND) // MS * MS  # behind the window's end
    base = Assignment(module="", stamps="", period=60 * SECOND, offset=due % (60 * SECOND), store=store)
    entries: list[tuple[str, Entry]] = [(idle_row(1), entry("bare_redis", base))]
    for jobs in SIZES:
        for who in WEIGHED:
            assignment = base._replace(jobs=jobs, project=_project(who, turn, jobs))
            entries.append((idle_row(jobs), entry(who, assignment, second=who == FOLLOWER)))
    for jobs in (SIZES[0], SIZES[-1]):
        assignment = base._replace(jobs=jobs, project=f"traced-{turn}-{jobs}", traced=True)
        entries.append((TRACED, entry("ours_redis", assignment)))
    entries.sort(key=lambda each: each[1].second)  # the order in which they start, and that of the outcomes
    outcomes = run_heat([each for _, each in entries], seconds, warm_up=3)
    found: list[Record] = []
    for (row, _), outcome in zip(entries, outcomes, strict=True):
        record = of_outcome(outcome, row=row, turn=turn)
        if outcome.end > due:
            record["fault"] = "its jobs came due in the window; take a smaller --seconds or a quieter machine"
        elif not outcome.fault:
            record |= {
                "cpu_percent": round(100 * outcome.cpu / (outcome.end - outcome.begin), 3),
                "rss_mb": round(outcome.rss / 2**20, 2),
            }
        if "traced_bytes" in outcome.said:
            record |= {"jobs": outcome.assignment.jobs, "traced_bytes": outcome.said["traced_bytes"]}
        found.append(record)
    return found


def _project(who: str, turn: int, jobs: int) -> str:
    return f"{'idle' if who.startswith('ours') else who}-{turn}-{jobs}"


def _bytes_per_job(results: Results) -> float | None:
    """From what a process with 1000 jobs holds more than one with a single job."""
    held = {
        jobs: [record["traced_bytes"] for record in results.records if record.get("jobs") == jobs]
        for jobs in (SIZES[0], SIZES[-1])
    }
    if not all(held.values()):
        return None
    few, many = (float(median(values)) for values in held.values())
    return (many - few) / (SIZES[-1] - SIZES[0])


def checks(results: Results) -> list[Check]:
    p99 = results.mid(BUSY, "ours", "p99")
    per_job = _bytes_per_job(results)
    ours, bare = (results.mid(idle_row(1), who, "rss_mb") for who in ("ours_redis", "bare_redis"))
    return [
        bounded(f"{BUSY}: p99 lateness", None if p99 is None else p99 / 1000, 10, unit="ms"),
        bounded(f"{BUSY}: CPU", results.mid(BUSY, "ours", "cpu_percent"), 15, unit="% of a core"),
        bounded(
            "1000 idle jobs on Redis, leader: CPU",
            results.mid(idle_row(1000), "ours_redis", "cpu_percent"),
            1,
            unit="%",
        ),
        bounded(
            "1000 idle jobs on Redis, follower: CPU", results.mid(idle_row(1000), FOLLOWER, "cpu_percent"), 1, unit="%"
        ),
        bounded("memory per job (tracemalloc)", None if per_job is None else per_job / 1024, 8, unit="KB"),
        bounded(
            "1 job on Redis: RSS beyond asyncio + redis.asyncio with one connection",
            None if ours is None or bare is None else ours - bare,
            6,
            unit="MB",
        ),
    ]


def tables(results: Results) -> list[str]:
    lines = [
        f"{BUSY}, offsets 1 ms apart",
        "",
        "| contestant | due | served | p50 µs | p99 µs | max µs | CPU % | CPU µs/tick |",
        "| --- | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for who in [name for name in FIELD if name in results.contestants(BUSY)]:
        cells = [
            FIELD[who].label,
            *(f"{results.total(BUSY, who, key) or 0:.0f}" for key in ("due", "served")),
            *(results.text(BUSY, who, key) for key in ("p50", "p99", "max")),
            results.text(BUSY, who, "cpu_percent", 1),
            results.text(BUSY, who, "cpu_tick"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    idle = [
        "Idle jobs of 60 s, none due in the window; APScheduler keeps its jobs in memory, the others use Redis",
        "",
        "| contestant |"
        + "".join(f" RSS MB, {jobs} |" for jobs in SIZES)
        + "".join(f" CPU %, {jobs} |" for jobs in SIZES),
        "| --- |" + " --: |" * 2 * len(SIZES),
    ]
    for who in ("bare_redis", *WEIGHED):
        cells = [results.text(idle_row(jobs), who, "rss_mb", 1) for jobs in SIZES]
        cells += [results.text(idle_row(jobs), who, "cpu_percent", 2) for jobs in SIZES]
        idle.append(f"| {FIELD[who].label} | {' | '.join(cells)} |")
    return ["\n".join(lines), "\n".join(idle)]
