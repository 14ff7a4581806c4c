"""A heat: some contestants, each in a process of its own, measured over the same window."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.assignment import Assignment, Mark, Stamps, now
from benchmarks.field import FIELD

if TYPE_CHECKING:
    from collections.abc import Sequence
    from io import BufferedRandom

__all__ = ["ENVIRONMENTS", "ROOT", "Entry", "Outcome", "python_of", "run_heat", "settings_of"]

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = ROOT / ".venv-bench"

LONGEST_START = 30.0
"""Seconds that a contestant has to serve its first tick."""


class Entry(NamedTuple):
    """One contestant's start in a heat. `second` starts once all others are ready."""

    contestant: str
    assignment: Assignment
    second: bool = False


class Outcome(NamedTuple):
    """What one contestant did in the window from `begin` to `end` (wall clock, nanoseconds).

    `marks` are those of its whole life. `cpu` is the time of all its threads and processes in the window, in
    nanoseconds; `rss` their resident memory at the window's end, in bytes. `busy` and `steal` are the machine's, as
    shares of all cores. `fault` says why it could not take part.
    """

    contestant: str
    assignment: Assignment
    begin: int
    end: int
    marks: list[Mark]
    cpu: int
    rss: int
    said: dict[str, int]
    busy: float
    steal: float
    fault: str = ""


class _Process:
    def __init__(self, entry: Entry, path: Path, places: int) -> None:
        Stamps.make(path, places)
        self.entry = entry
        self.stamps = Stamps(str(path))
        self.fault = ""
        self._log: BufferedRandom = path.with_suffix(".log").open("w+b")
        contestant = FIELD[entry.contestant]
        assignment = entry.assignment._replace(stamps=str(path))
        self._process = subprocess.Popen(
            [python_of(contestant.place), "-m", "benchmarks.contestants", assignment.to_json()],
            cwd=path.parent,
            env=settings_of(contestant.module),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )

    def wait_until_ready(self, until: float) -> None:
        while not self.stamps.is_ready:
            if self._process.poll() is not None:
                self.fault = f"ended with {self._process.returncode}: {self._last_words()}"
                return
            if time.monotonic() > until:
                self.fault = f"served no tick in {LONGEST_START:g} s: {self._last_words()}"
                return
            time.sleep(0.02)

    def _last_words(self) -> str:
        self._log.seek(0)
        return (self._log.read().decode(errors="replace").strip().splitlines() or ["said nothing"])[-1]

    def _family(self) -> list[int]:
        """This process and all its children."""
        found, todo = list[int](), [self._process.pid]
        while todo:
            pid = todo.pop()
            found.append(pid)
            with suppress(OSError):
                for children in Path(f"/proc/{pid}/task").glob("*/children"):
                    todo.extend(map(int, children.read_text().split()))
        return found

    def cpu(self) -> int:
        """Processor time so far in nanoseconds, by each process's own clock: clock_getcpuclockid(3)."""
        total = 0
        for pid in self._family():
            with suppress(OSError):
                total += time.clock_gettime_ns((~pid << 3) | 2)
        return total

    def rss(self) -> int:
        total = 0
        for pid in self._family():
            with suppress(OSError):
                total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return total

    def tell_to_end(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def finish(self) -> dict[str, int]:
        """Wait for its end, which is made where it does not come, and return what it had to say."""
        out = b""
        with suppress(subprocess.TimeoutExpired):
            out, _ = self._process.communicate(timeout=5)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        said: dict[str, int] = {}
        with suppress(ValueError):
            said = json.loads(out)
        return said

    def close(self) -> None:
        self.stamps.close()
        self._log.close()


def python_of(place: str) -> str:
    """The interpreter of one of the environments."""
    return str(ENVIRONMENTS / place / "bin" / "python")


def settings_of(module: str) -> dict[str, str]:
    """The environment of a contestant: nothing in it but ours may find our sources."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SINGLETONJOB_", "PYTHON"))}
    return kept | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}" if module == "ours" else str(ROOT)}


def _machine() -> tuple[int, int, int]:
    """Ticks that the cores spent: in all, not idle, stolen by the host; proc_stat(5)."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return sum(fields), sum(fields) - fields[3] - fields[4], fields[7]


def run_heat(entries: Sequence[Entry], seconds: float, *, warm_up: float = 1.0) -> list[Outcome]:
    """Start all, let them warm up, measure, end them."""
    with tempfile.TemporaryDirectory() as directory:
        processes: list[_Process] = []
        try:
            for second in (False, True):
                wave = [
                    _Process(entry, Path(directory) / f"{number}", _places(entry.assignment, seconds))
                    for number, entry in enumerate(entries)
                    if entry.second is second
                ]
                processes += wave
                until = time.monotonic() + LONGEST_START
                for process in wave:
                    process.wait_until_ready(until)
            time.sleep(warm_up)
            begin, machine, spent = now(), _machine(), [process.cpu() for process in processes]
            time.sleep(seconds)
            end, after, spent_after = now(), _machine(), [process.cpu() for process in processes]
            memory = [process.rss() for process in processes]
            for process in processes:
                process.tell_to_end()
            total = max(after[0] - machine[0], 1)
            return [
                Outcome(
                    contestant=process.entry.contestant,
                    assignment=process.entry.assignment,
                    begin=begin,
                    end=end,
                    said=process.finish(),
                    marks=process.stamps.marks(),
                    cpu=spent_after[index] - spent[index],
                    rss=memory[index],
                    busy=(after[1] - machine[1]) / total,
                    steal=(after[2] - machine[2]) / total,
                    fault=process.fault,
                )
                for index, process in enumerate(processes)
            ]
        finally:
            for process in processes:
                process.tell_to_end()
            for process in processes:
                process.finish()
                process.close()


def _places(assignment: Assignment, seconds: float) -> int:
    """Room for the calls of the whole life: the start of a heat may take as long as its slowest contestant."""
    return 100 + int(assignment.jobs * (seconds + 2 * LONGEST_START) * 1_000_000_000 / assignment.period)
