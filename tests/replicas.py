"""Real processes on one SQLite file, and what can be seen of them from outside.

Bodies stamp their starts and ends on the boot clock, each process into a file of its own. Who leads is read from the
SQLite file by a read-only connection. Log lines go as JSON to a file per process. All moments here are seconds on the
boot clock, which the processes of a machine share.

Over 300 lines, 30 of them the text that each process begins with: a process, a fleet of them and a hand-over are
looked at in the same few ways.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from singletonjob._system.clock import SystemClock
from singletonjob.cli.demo_report import BodyRun
from singletonjob.cli.demo_stamps import Stamp, StampReader
from waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Self

__all__ = ["TICK", "Fleet", "HandOver", "LeaseRow", "Replica", "boot", "hand_over"]

boot = SystemClock().boot

PRELUDE = """
import asyncio, itertools, json, os, threading, time
from contextlib import contextmanager
from pathlib import Path
from singletonjob import Run, SingletonJobs
from singletonjob.cli.demo_stamps import StampWriter

name = os.environ["POD_NAME"]
options = json.loads(os.environ["OPTIONS"])
stamps = StampWriter(Path(name + ".stamps"))
numbers = itertools.count(1)

@contextmanager
def stamped(job="tick"):
    number = next(numbers)
    stamps.write("start", job, number)
    try:
        yield
    finally:
        stamps.write("end", job, number)

def stamp_health(app):
    # From a thread of its own: it is wanted while the loop is blocked.
    def watch():
        said = ""
        while True:
            status = app.health().status
            if status != said:
                stamps.write("health", "app", status)
            said = status
            time.sleep(0.02)
    threading.Thread(target=watch, daemon=True).start()
"""
"""What every app file begins with. `options` are those that the test gave, for the constructor."""

TICK = """
app = SingletonJobs("pricing", **options)

@app.fixed_rate("100ms")
async def tick() -> None:
    with stamped():
        await asyncio.sleep(0.01)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRow:
    """A job's row. `holder` is the replica's name; `expires` and `since` (the last acquisition) on the boot clock."""

    holder: str | None = None
    expires: float | None = None
    token: int = 0
    since: float = 0.0


class Replica:
    """One process."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], directory: Path) -> None:
        self.name = name
        self.process = process
        self.signalled = 0.0
        self._killed = False
        self._reader = StampReader(directory / f"{name}.stamps")
        self._stamps: list[Stamp] = []
        self._log = directory / f"{name}.log"

    def signal(self, number: int) -> float:
        """Send a signal; returns a moment just before."""
        self.signalled = boot()
        self._killed = number == signal.SIGKILL
        self.process.send_signal(number)
        return self.signalled

    def end(self, seconds: float = 20) -> int:
        """The exit code, once the process has ended."""
        return self.process.wait(seconds)

    def stamps(self, kind: str, job: str = "tick") -> list[Stamp]:
        """What it stamped so far."""
        self._stamps += self._reader.read()
        return [stamp for stamp in self._stamps if stamp.kind == kind and stamp.job == job]

    def runs(self, job: str = "tick") -> list[BodyRun]:
        """Its runs so far. One that its process did not live to end ended when the process was last known to live."""
        gone = self.process.poll() is not None  # first this, then the file: all that an ended process wrote is there
        ends = {stamp.detail: stamp.at for stamp in self.stamps("end", job)}
        last = self.signalled if self._killed else max((stamp.at for stamp in self._stamps), default=0.0)
        return [
            BodyRun(
                job=job,
                worker=self.name,
                start=stamp.at,
                end=ends.get(stamp.detail, max(last, stamp.at) if gone else None),
            )
            for stamp in self.stamps("start", job)
        ]

    def log(self, event: str | None = None) -> list[dict[str, Any]]:
        """Its log lines, or those of one event."""
        text = self._log.read_text(errors="replace").rpartition("\n")[0]
        lines: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        return [line for line in lines if event in (None, line.get("event"))]

    def complaints(self) -> list[str]:
        """All that it said at WARNING or above, and what is no log line at all; of drops a busy machine is to blame."""
        text = self._log.read_text(errors="replace")
        return [line for line in text.splitlines() if '"level": "INFO"' not in line and "dropped" not in line]


class Fleet:
    """The processes in one directory; those that still run at the end of the block are killed."""

    def __init__(self, directory: Path, **options: object) -> None:
        self.replicas: dict[str, Replica] = {}
        self.database = directory / "leases.db"
        self.store = f"sqlite:///{self.database}"
        self._directory = directory
        self._options = options
        self._connection: sqlite3.Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for replica in self.replicas.values():
            replica.process.kill()
            replica.process.wait()
        if self._connection is not None:
            self._connection.close()

    def start(
        self,
        app: str = TICK,
        *,
        script: bool = False,
        store: str | None = None,
        tree: Path | None = None,
        **options: object,
    ) -> Replica:
        """Start one more on the text of an app: by `singletonjob run`, or as a script that runs its app itself.

        `options` are the app's, over the fleet's; `store` is another way to the fleet's store; `tree` is a directory
        with another release of the library, to run on that.
        """
        name = f"r{len(self.replicas) + 1}"
        (self._directory / f"{name}.py").write_text(PRELUDE + app)
        command = [f"{name}.py"] if script else ["-m", "singletonjob", "run", f"{name}:app", "--log-format", "json"]
        with (self._directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, *command],
                cwd=self._directory,
                env=self._environment(name, store or self.store, tree, {**self._options, **options}),
                stdout=log,
                stderr=log,
            )
        self.replicas[name] = Replica(name, process, self._directory)
        return self.replicas[name]

    def start_followers(self, count: int, app: str = TICK) -> list[Replica]:
        """Start some where another one leads already; they are ready to take over when this returns."""
        followers = [self.start(app) for _ in range(count)]
        for follower in followers:
            wait_for(lambda one=follower: one.log("started"), what="its start")  # type: ignore[misc]  # binds it
        time.sleep(0.5)  # they hear notices now; nothing tells so from outside
        return followers

    def _environment(self, name: str, store: str, tree: Path | None, options: Mapping[str, object]) -> dict[str, str]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("SINGLETONJOB_")}
        return {
            **inherited,
            "PYTHONPATH": os.pathsep.join(str(path) for path in (tree, *sys.path) if path),
            "POD_NAME": name,
            "SINGLETONJOB_STORE": store,
            "OPTIONS": json.dumps(options),
        }

    def lease(self, job: str = "tick", project: str = "pricing") -> LeaseRow:
        """The job's row as it is in the file now."""
        with suppress(sqlite3.OperationalError):  # no file or no table yet
            if self._connection is None:
                self._connection = sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, isolation_level=None)
            found = self._connection.execute(
                "SELECT holder, expires, token, since FROM lease WHERE project = ? AND job = ?", (project, job)
            ).fetchone()
            if found is not None:
                now = SystemClock().now()
                holder, expires, token, since = found
                return LeaseRow(
                    holder=None if holder is None else holder.rpartition("-")[0],
                    expires=None if expires is None else expires / 1e6,
                    token=token,
                    since=now.boot - (now.wall - since) / 1e6,
                )
        return LeaseRow()

    def leader(self, job: str = "tick", project: str = "pricing") -> Replica:
        """Who holds the lease, waited for."""
        wait_for(lambda: self.lease(job, project).holder is not None, what="a leader")
        return self.replicas[self.lease(job, project).holder or ""]

    def runs(self, job: str = "tick") -> list[BodyRun]:
        """The runs of all processes, by their start."""
        found = [run for replica in self.replicas.values() for run in replica.runs(job)]
        return sorted(found, key=attrgetter("start"))

    def starts(self, job: str = "tick", *, after: float) -> list[float]:
        """When runs started, from `after` on, in any process."""
        return [run.start for run in self.runs(job) if run.start >= after]

    def freeze(self, replica: Replica) -> float:
        """SIGSTOP, outside of any transaction; returns a moment just before.

        Frozen inside one, it would keep the file locked for all others: that is another case (C113).
        """
        while True:
            stopped = replica.signal(signal.SIGSTOP)
            with suppress(sqlite3.OperationalError), self.locked(wait=0.2):
                return stopped
            replica.signal(signal.SIGCONT)
            time.sleep(0.05)

    def locked(self, wait: float = 5.0) -> _Locked:
        """A block in which nobody else can write to the file; the lock is waited for."""
        return _Locked(self.database, wait)


class _Locked:
    def __init__(self, database: Path, wait: float) -> None:
        self._connection = sqlite3.connect(database, timeout=wait, isolation_level=None)

    def __enter__(self) -> None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except BaseException:
            self._connection.close()
            raise

    def __exit__(self, *_: object) -> None:
        self._connection.execute("ROLLBACK")
        self._connection.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """How a lease went from one process to the next one.

    The row was looked at each millisecond. `held` is the beginning of the last look that found the old holder in it, so
    the release came after it. `expires` is the end of the lease that this look found. `taken` is the moment
    that the next holder's transaction wrote into the row.
    """

    old: str
    new: str
    signalled: float
    held: float
    expires: float
    taken: float

    @property
    def since_release(self) -> float:
        """Seconds for which nobody led, rounded up."""
        return self.taken - self.held

    @property
    def since_expiry(self) -> float:
        """Seconds from the end of the old lease to the next one."""
        return self.taken - self.expires

    @property
    def since_signal(self) -> float:
        return self.taken - self.signalled


def hand_over(fleet: Fleet, number: int, *, job: str = "tick", limit: float = 15.0) -> HandOver:
    """Send a signal to the job's leader, and watch its lease until another one has it."""
    leader = fleet.leader(job)
    before = fleet.lease(job)
    assert before.expires is not None
    expires = before.expires
    held = signalled = leader.signal(number)
    while True:
        looked = boot()
        row = fleet.lease(job)
        assert (row.holder is None) == (row.expires is None), "a lease without an end"
        if row.holder is not None and row.token != before.token:
            return HandOver(
                old=leader.name, new=row.holder, signalled=signalled, held=held, expires=expires, taken=row.since
            )
        if row.expires is not None:
            held, expires = looked, row.expires
        assert looked < signalled + limit, f"nobody took over within {limit} s"
        time.sleep(0.001)
