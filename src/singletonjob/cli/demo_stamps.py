"""The demo's evidence: what each worker process wrote down about its runs, a line per stamp.

A line is `MOMENT KIND JOB DETAIL`, the moment in seconds on the boot clock, which all processes of a machine share.
The first two kinds are written by the job bodies themselves; overlaps and hand-over times come from them alone.

    start, end     a body began or ended; DETAIL numbers the runs of the process
    elected        this process leads the job; DETAIL is the token
    stepped-down   its term is over; DETAIL is the reason
    late           a run started; DETAIL is how many microseconds after its time
    dropped        ticks that will not run; DETAIL is how many
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from singletonjob._system.clock import SystemClock

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Stamp", "StampReader", "StampWriter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """One line: what happened to which job, `at` seconds on the boot clock."""

    at: float
    kind: str
    job: str
    detail: str


class StampWriter:
    """Appends stamps to a process's own file; each is with the kernel before `write` returns, so a kill loses none."""

    def __init__(self, path: Path) -> None:
        self._clock = SystemClock()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, kind: str, job: str, detail: object) -> None:
        """Stamp this moment. May be called from any thread."""
        os.write(self._file, f"{self._clock.boot():.6f} {kind} {job} {detail}\n".encode())


class StampReader:
    """Reads what a file gained since the last look. The file may not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> list[Stamp]:
        """The new stamps, in the order written; a line that is not complete yet waits for the next look."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                whole = file.read().rpartition(b"\n")[0]
        except FileNotFoundError:
            return []
        if whole:
            self._offset += len(whole) + 1
        return [_parsed(line) for line in whole.decode().splitlines()]


def _parsed(line: str) -> Stamp:
    at, kind, job, detail = line.split(" ")
    return Stamp(at=float(at), kind=kind, job=job, detail=detail)
