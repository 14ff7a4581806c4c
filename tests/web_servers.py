"""Real web servers around an app: started, asked, signalled, and what their workers' bodies wrote."""

from __future__ import annotations

import http.client
import os
import signal
import sqlite3
import subprocess
import sys
import sysconfig
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from servers import free_port
from waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

__all__ = ["JOBS", "Ran", "WebServer"]

SCRIPTS = Path(sysconfig.get_path("scripts"))

JOBS = """
import json, logging, os, time
from pathlib import Path
from singletonjob import Run, SingletonJobs

logging.getLogger("singletonjob").setLevel("INFO")
jobs = SingletonJobs("shop", **json.loads(os.environ.get("OPTIONS", "{}")))

@jobs.fixed_rate(os.environ.get("EVERY", "100ms"))
def tick(run: Run) -> None:
    with open("runs", "a") as file:
        file.write(f"{os.getpid()} {run.tick} {time.monotonic()} {run.node_id}\\n")
"""
"""The module `jobs`, which each server's application imports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One run: in which process, at which grid point, and when on the clock that all processes share."""

    pid: int
    tick: int
    at: float
    node: str


class WebServer:
    """A server process in a directory that holds `jobs.py` and `web.py`; its whole process group is killed at the end.

    `words` is its command; `{port}` in it becomes a free port.
    """

    def __init__(
        self, directory: Path, web: str, *words: str, jobs: str = JOBS, environment: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory
        self.port = free_port()
        (directory / "jobs.py").write_text(jobs)
        (directory / "web.py").write_text(web)
        self._words = [word.replace("{port}", str(self.port)) for word in words]
        if (SCRIPTS / self._words[0]).exists():
            self._words[0] = str(SCRIPTS / self._words[0])
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("SINGLETONJOB_")}
        self._environment = {
            **inherited,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(directory), *sys.path])),
            "PYTHONUNBUFFERED": "1",
            "SINGLETONJOB_STORE": f"sqlite:///{directory / 'leases.db'}",
            **(environment or {}),
        }
        self.process: subprocess.Popen[bytes]

    def __enter__(self) -> Self:
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self._words,
                cwd=self.directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if kind is not None:
            sys.stderr.write(self.log)  # pytest shows it with the failure

    @property
    def log_path(self) -> Path:
        return self.directory / "server.log"

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def runs(self) -> list[Ran]:
        """All runs so far, of all servers in this directory, in the order of their ends."""
        path = self.directory / "runs"
        text = path.read_text().rpartition("\n")[0] if path.exists() else ""
        rows = [line.split() for line in text.splitlines()]
        return [Ran(pid=int(pid), tick=int(tick), at=float(at), node=node) for pid, tick, at, node in rows]

    def until_it_ran(self, more: int = 5) -> list[Ran]:
        """Wait for so many more runs; all of them."""
        before = len(self.runs())
        wait_for(lambda: len(self.runs()) >= before + more, what=f"{more} runs", alive=self.process)
        return self.runs()

    def until_another_ran(self, pid: int) -> list[Ran]:
        """Wait for a run in another process than that; all of them."""
        wait_for(lambda: self.runs()[-1].pid != pid, what="a run elsewhere", alive=self.process)
        return self.runs()

    def holder(self) -> str | None:
        """The node that holds the lease of `tick`, as the store has it."""
        with closing(sqlite3.connect(f"file:{self.directory / 'leases.db'}?mode=ro", uri=True)) as connection:
            found = connection.execute("SELECT holder FROM lease WHERE project = 'shop' AND job = 'tick'").fetchone()
        return None if found is None else str(found[0]) if found[0] else None

    def get(self, path: str = "/") -> str:
        """The body of an answer, waited for while the server comes up."""
        answers: list[str] = []

        def asked() -> bool:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
            with suppress(OSError):
                connection.request("GET", path)
                answers.append(connection.getresponse().read().decode())
            connection.close()
            return bool(answers)

        wait_for(asked, what="an answer", alive=self.process)
        return answers[0]

    def stop(self, number: int = signal.SIGTERM, seconds: float = 20) -> int:
        """Its exit code after a signal."""
        self.process.send_signal(number)
        return self.process.wait(seconds)
