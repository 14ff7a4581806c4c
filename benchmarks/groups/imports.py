"""What an import costs: time of a whole process over that of a bare interpreter, memory, modules."""

from __future__ import annotations

import json
import subprocess
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.groups.plan import Step, in_turn
from benchmarks.heat import python_of, settings_of

if TYPE_CHECKING:
    from benchmarks.groups.plan import Settings
    from benchmarks.records import Check, Record, Results

__all__ = ["ROW", "SUBJECTS", "TITLE", "checks", "steps", "tables"]

TITLE = "Imports"

ROW = "imports"

REPEATS = 3
"""Processes per subject and round; the quickest counts, since all that disturbs makes them slower."""


class Subject(NamedTuple):
    label: str
    code: str
    place: str = "main"


SUBJECTS = {
    "bare": Subject("(bare interpreter)", "pass"),
    "bare_aps4": Subject("(bare interpreter, in the environment of APScheduler 4)", "pass", "apscheduler4"),
    "bare_arq": Subject("(bare interpreter, in the environment of arq)", "pass", "arq"),
    "asyncio": Subject("asyncio", "import asyncio"),
    "redis": Subject("asyncio + redis.asyncio", "import asyncio, redis.asyncio"),
    "ours": Subject("singletonjob", "import singletonjob"),
    "ours_app": Subject("singletonjob, SingletonJobs", "from singletonjob import Run, SingletonJobs"),
    "ours_redis": Subject(
        "singletonjob, started on Redis",
        "from singletonjob import Run, SingletonJobs\nimport redis.asyncio\nimport singletonjob.stores.redis.store",
    ),
    "aps3": Subject("APScheduler 3, asyncio", "from apscheduler.schedulers.asyncio import AsyncIOScheduler"),
    "aps4": Subject("APScheduler 4 (pre-release)", "from apscheduler import AsyncScheduler", "apscheduler4"),
    "aiocron": Subject("aiocron", "import aiocron"),
    "arq": Subject("arq", "import arq, arq.worker", "arq"),
    "redbeat": Subject("Celery with RedBeat", "import celery, redbeat.schedulers"),
    "pydocket": Subject("pydocket", "import docket"),
}

_TAIL = """
import sys
modules = len(sys.modules)
import json, os
with open("/proc/self/statm") as file:
    rss = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
print(json.dumps({"modules": modules, "rss": rss}))
"""


def steps(settings: Settings) -> list[Step]:
    return [
        Step(f"round {turn}", len(order) * REPEATS * 0.3, partial(_round, turn, order))
        for turn, order in in_turn(list(SUBJECTS), settings.rounds)
    ]


def _round(turn: int, order: list[str]) -> list[Record]:
    return [_measure(name, turn) for name in order]


def _measure(name: str, turn: int) -> Record:
    subject = SUBJECTS[name]
    best, said, fault = 0.0, {"modules": 0, "rss": 0}, ""
    for _ in range(REPEATS):
        begun = time.perf_counter()
        done = subprocess.run(
            [python_of(subject.place), "-c", subject.code],
            env=settings_of("ours" if name.startswith("ours") else ""),
            capture_output=True,
            text=True,
            check=False,
        )
        taken = 1000 * (time.perf_counter() - begun)
        best = min(best or taken, taken)
        if done.returncode:
            fault = (done.stderr.strip().splitlines() or ["?"])[-1]
    if not fault:
        said = json.loads(
            subprocess.run(
                [python_of(subject.place), "-c", subject.code + _TAIL],
                env=settings_of("ours" if name.startswith("ours") else ""),
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
    return {
        "row": ROW,
        "contestant": name,
        "round": turn,
        "fault": fault,
        "ms": round(best, 2),
        "modules": said["modules"],
        "rss_mb": round(said["rss"] / 2**20, 2),
    }


def bare_of(name: str) -> str:
    """The bare interpreter that a subject is held against."""
    place = SUBJECTS[name].place
    return {"main": "bare", "apscheduler4": "bare_aps4", "arq": "bare_arq"}[place]


def checks(_results: Results) -> list[Check]:
    """None: the figures are wanted, no bound was set."""
    return []


def tables(results: Results) -> list[str]:
    lines = [
        "| import | process ms | over the bare interpreter ms | modules | RSS MB |",
        "| --- | --: | --: | --: | --: |",
    ]
    for name, subject in SUBJECTS.items():
        over, bare = results.mid(ROW, name, "ms"), results.mid(ROW, bare_of(name), "ms")
        cells = [
            results.text(ROW, name, "ms"),
            "-" if over is None or bare is None else f"{over - bare:.0f}",
            results.text(ROW, name, "modules"),
            results.text(ROW, name, "rss_mb", 1),
        ]
        lines.append(f"| {subject.label} | {' | '.join(cells)} |")
    return ["\n".join(lines)]
