"""`singletonjob demo` with real processes: what it measures, what it shows, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

DEMO = [sys.executable, "-m", "singletonjob", "demo"]


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the demo puts its files."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def alive(process: int) -> bool:
    """Whether the process runs; one that has ended and waits to be collected does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@contextmanager
def leading_demo(*options: str) -> Generator[tuple[subprocess.Popen[str], list[int]]]:
    """A demo with plain lines in which somebody leads, and the process ids of its workers."""
    with subprocess.Popen([*DEMO, *options], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        workers: list[int] = []
        try:
            for line in process.stdout:
                workers += [int(number) for number in re.findall(r"started, process (\d+)", line)]
                if "leads" in line:
                    break
            yield process, workers
        finally:
            process.kill()


@dataclass(frozen=True, slots=True)
class Done:
    """A demo that has ended; `err` is empty in a terminal, where all is `out`."""

    code: int
    out: str
    err: str = ""


def without_a_terminal(words: list[str], environment: dict[str, str]) -> Done:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60, env=environment)
    return Done(done.returncode, done.stdout, done.stderr)


def in_a_terminal(words: list[str], environment: dict[str, str]) -> Done:
    """With the control sequences taken out of what it wrote."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        words, stdin=theirs, stdout=theirs, stderr=theirs, env={**environment, "COLUMNS": "110"}
    ) as process:
        os.close(theirs)
        written = b""
        while True:
            try:
                written += os.read(ours, 65536)
            except OSError:  # EIO: the other side is closed
                break
    os.close(ours)
    return Done(process.returncode, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode()))


WITHOUT_RICH = """
import sys
sys.modules["rich"] = None
from singletonjob.cli import main
sys.exit(main(["demo", "--seconds", "6", "--workers", "2"]))
"""

SIX_SECONDS: dict[str, tuple[Callable[[list[str], dict[str, str]], Done], list[str]]] = {
    "memory": (without_a_terminal, [*DEMO, "--json", "--seconds", "6", "--store", "memory"]),
    "plain": (without_a_terminal, [*DEMO, "--workers", "2", "--seconds", "6"]),
    "screen": (in_a_terminal, [*DEMO, "--seconds", "6"]),
    "without rich": (in_a_terminal, [sys.executable, "-c", WITHOUT_RICH]),
}


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Done]:
    """All of those, played at the same time: they mostly wait."""
    environment = {**os.environ, "TERM": "xterm-256color", "TMPDIR": str(tmp_path_factory.mktemp("demos"))}
    with ThreadPoolExecutor(len(SIX_SECONDS)) as pool:
        playing = {name: pool.submit(play, words, environment) for name, (play, words) in SIX_SECONDS.items()}
        return {name: one.result() for name, one in playing.items()}


def test_on_sqlite_no_two_runs_overlap_and_both_kinds_of_handover_are_measured(temporary: Path) -> None:
    done = subprocess.run([*DEMO, "--json", "--seconds", "9"], capture_output=True, text=True, check=False, timeout=60)
    result = json.loads(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(result) == ["workers", "runs", "overlaps", "graceful_handover_ms", "crash_handover_ms", "dropped"]
    assert result["workers"] == 3
    assert result["overlaps"] == 0
    assert result["runs"] > len(result["graceful_handover_ms"]) + len(result["crash_handover_ms"])
    assert result["dropped"] > 0  # every twentieth tick takes as long as two more, whatever the machine
    # The promises are 250 and 400 ms; this only catches a hand-over that waited for something it should not.
    assert result["graceful_handover_ms"]
    assert max(result["graceful_handover_ms"]) < 4 * 250
    assert result["crash_handover_ms"]
    assert max(result["crash_handover_ms"]) < 4 * 400
    assert list(temporary.iterdir()) == []


def test_with_a_memory_store_each_worker_is_alone_and_the_overlaps_are_reported(demos: dict[str, Done]) -> None:
    done = demos["memory"]
    assert done.code == 1
    assert done.out.count("\n") == 1
    assert json.loads(done.out)["overlaps"] > 0


def test_without_a_terminal_it_tells_in_plain_lines_what_happens_and_what_came_of_it(demos: dict[str, Done]) -> None:
    done = demos["plain"]
    assert done.code == 0, done.out + done.err
    assert done.err == ""
    assert re.search(r"worker \d leads .*price-tick", done.out)
    for name in ("SIGTERM", "SIGKILL"):
        assert re.search(rf"{name} to worker \d, which runs price-tick", done.out)
        assert re.search(rf"price-tick runs elsewhere, \d+ ms after the {name}", done.out)
    assert "runs that overlapped     0" in done.out
    assert "\x1b" not in done.out


def test_in_a_terminal_it_shows_a_table_and_a_strip_per_worker(demos: dict[str, Done]) -> None:
    screen = demos["screen"].out
    assert demos["screen"].code == 0, screen[-3000:]
    assert re.search(r"price-tick +every 100 ms +worker \d +\d+ +\d+", screen)
    assert re.search(r"worker \d +\d+ .*▪▪▪", screen)
    assert "✖" in screen
    assert "▼" in screen
    assert "At every moment at most one process ran each job" in screen


def test_in_a_terminal_without_rich_it_tells_in_plain_lines(demos: dict[str, Done]) -> None:
    done = demos["without rich"]
    assert done.code == 0, done.out
    assert re.search(r"\d\.\d s  worker \d leads", done.out)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_stops_all_workers_and_leaves_no_file(number: int, temporary: Path) -> None:
    with leading_demo("--seconds", "60") as (process, workers):
        process.send_signal(number)
        rest = process.communicate(timeout=30)[0]
    assert process.returncode == 130
    assert len(workers) == 3
    assert not any(alive(worker) for worker in workers)
    assert "runs that overlapped     0" in rest
    assert list(temporary.iterdir()) == []


def test_a_demo_killed_with_sigkill_takes_its_workers_and_files_along(temporary: Path) -> None:
    with leading_demo("--seconds", "60") as (process, workers):
        assert len(workers) == 3
        process.kill()
        process.wait()
        wait_for(lambda: not any(map(alive, workers)), what="the end of all workers")
    assert list(temporary.iterdir()) == []


def test_a_worker_that_ends_by_itself_is_reported_and_ends_the_demo() -> None:
    with leading_demo("--seconds", "60") as (process, workers):
        os.kill(workers[1], signal.SIGKILL)
        rest = process.communicate(timeout=30)[0]
    assert process.returncode == 1
    assert "worker 2 ended by itself with exit code -9" in rest
    assert "NOT GOOD" in rest
    assert not any(alive(worker) for worker in workers)
