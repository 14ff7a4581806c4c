"""A stderr that nobody reads: a pipe that is full blocks whoever writes a log line, and must not keep a process."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import singletonjob
from waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

BOUND = 0.1 + 0.1 + 1.0
"""Seconds that a stop may take: shutdown_grace, margin and 1 s, since the store answers."""

JOBS = """
import logging, time
from singletonjob import RunFinished, SingletonJobs

app = SingletonJobs("pricing", lock_expiry="1s", heartbeat_interval="200ms", margin="100ms", shutdown_grace="100ms")
log = logging.getLogger("mine")

@app.interval("10s")
async def quiet(run):
    pass

def finished(event):  # a callback hears of a run when the job loop has logged all that it has to say of the run
    if isinstance(event, RunFinished):
        open("ran", "w").close()

app.subscribe(finished)
"""

SYNC = JOBS + '@app.fixed_rate("20ms")\ndef chatty(run):\n    log.info("x" * 4000)\n'
ON_THE_LOOP = JOBS + '@app.fixed_rate("20ms")\nasync def chatty(run):\n    log.info("x" * 4000)\n'

AFTERWARDS = JOBS + 'import sys\nlogging.basicConfig(level="DEBUG")\napp.run()\nopen("returned", "w").close()\n'
"""A program that has something left to do when the jobs have ended."""


class Blocked:
    """A process whose stdout and stderr are a pipe that nobody reads."""

    def __init__(self, directory: Path, jobs: str, *words: str) -> None:
        (directory / "jobs.py").write_text(jobs)
        self._directory = directory
        self._words = words
        self._pipe, self._end = os.pipe()
        fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, 4096)
        self.process: subprocess.Popen[bytes]

    def __enter__(self) -> Blocked:
        source = str(Path(singletonjob.__file__).parents[1])
        store = f"sqlite:///{self._directory / 'leases.db'}"
        self.process = subprocess.Popen(
            [sys.executable, *self._words],
            cwd=self._directory,
            env={**os.environ, "PYTHONPATH": source, "SINGLETONJOB_STORE": store},
            stdout=self._end,
            stderr=self._end,
        )
        os.close(self._end)
        return self

    def __exit__(self, *_error: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._pipe)

    def until_blocked(self) -> None:
        """Wait until the process runs its jobs, fill the pipe, and wait until a thread is blocked by that."""
        wait_for((self._directory / "ran").exists, what="the first run", alive=self.process)
        # Opened anew, because O_NONBLOCK belongs to a description of a file that the process would share.
        writer = os.open(f"/proc/self/fd/{self._pipe}", os.O_WRONLY | os.O_NONBLOCK)
        with suppress(BlockingIOError):
            while True:
                os.write(writer, b"x")
        os.close(writer)
        threads = Path(f"/proc/{self.process.pid}/task")
        wait_for(
            lambda: any("pipe_write" in (thread / "wchan").read_text() for thread in threads.iterdir()),
            what="a thread that writes into the full pipe",
            alive=self.process,
        )

    def stop(self) -> tuple[float, int]:
        """SIGTERM; after how many seconds it ended, and its exit code."""
        signalled = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(15)
        return time.monotonic() - signalled, self.process.returncode


RUN = ("-m", "singletonjob", "run", "jobs:app")


@pytest.fixture
def blocked(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Blocked]:
    with Blocked(tmp_path, *request.param) as process:
        process.until_blocked()
        yield process


@pytest.mark.parametrize(
    ("blocked", "code"),
    [
        pytest.param((SYNC, *RUN), 1, id="a sync body writes"),
        pytest.param((ON_THE_LOOP, *RUN), 1, id="the job loop writes"),
        pytest.param((JOBS, *RUN, "--log-level", "debug"), 1, id="the heartbeat writes"),
    ],
    indirect=["blocked"],
)
def test_a_stderr_that_nobody_reads_does_not_keep_the_process_from_its_end(blocked: Blocked, code: int) -> None:
    seconds, ended = blocked.stop()
    assert seconds < 3 * BOUND
    assert ended == code


@pytest.mark.parametrize("blocked", [(AFTERWARDS, "jobs.py")], indirect=True)
def test_what_a_program_does_after_run_is_done_before_the_process_is_ended(blocked: Blocked, tmp_path: Path) -> None:
    seconds, _ = blocked.stop()
    assert seconds < 3 * BOUND
    assert (tmp_path / "returned").exists()
