"""The timeline's course, recorded: three replicas on Redis, each replaced in turn as a rolling deploy does, and then
the leader is killed.

The records are one per process: what it stamped itself, and what was done to it. All moments are seconds on the boot
clock, which the processes of a machine share, from the begin of the picture on.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.timeline_replica import EVERY, JOB, PROJECT
from singletonjob._system.clock import SystemClock
from singletonjob.cli.demo_stamps import StampReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.records import Record
    from servers import Server

__all__ = ["record"]

SEATS = 3
LEAD, STEP, CRASH_AFTER, RESTART_AFTER, TAIL = 1.0, 1.15, 1.6, 0.3, 0.9
"""Seconds: before the first SIGTERM, to the next one at the earliest, from the last to the SIGKILL, from the
successor's first run to the new process, and from its first request to the end."""

PHASE = 0.012
"""Signals are sent so long after a point of the grid, so in the middle of a run, which is the worst moment."""

PATIENCE = 15.0

boot = SystemClock().boot


class Replica:
    """One process, and all that is known of it."""

    def __init__(self, seat: int, name: str, store: str, directory: Path) -> None:
        self.seat, self.name = seat, name
        self.began = boot()
        self.ended: float | None = None
        self.signal: str | None = None
        self.signalled: float | None = None
        self.expires: float | None = None
        self.beats: list[float] = []
        self.released: float | None = None
        self.terms: list[dict[str, Any]] = []
        self.runs: list[list[Any]] = []
        file = directory / f"{name}.stamps"
        self._stamps = StampReader(file)
        self._process = subprocess.Popen([sys.executable, "-m", "benchmarks.timeline_replica", store, str(file), name])

    def look(self) -> None:
        """Take in what it wrote, and whether it has ended."""
        ended = self._process.poll() is not None
        for stamp in self._stamps.read():
            match stamp.kind:
                case "beat":
                    self.beats.append(stamp.at)
                case "released":
                    self.released = stamp.at
                case "elected":
                    self.terms.append({"token": int(stamp.detail), "from": stamp.at, "to": None})
                case "stepped-down":
                    self.terms[-1]["to"] = stamp.at
                case "start":
                    self.runs.append([int(stamp.detail), stamp.at, None])
                case _:
                    self.runs[-1][2] = stamp.at
        if ended and self.ended is None:
            self.ended = boot()
            assert self._process.returncode in {0, -signal.SIGKILL}, f"replica {self.name}: {self._process.returncode}"

    @property
    def leads(self) -> bool:
        return bool(self.terms) and self.terms[-1]["to"] is None and self.ended is None

    def send(self, number: signal.Signals) -> None:
        self.signal, self.signalled = number.name, boot()
        self._process.send_signal(number)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()

    def record(self, begin: float, end: float) -> Record:
        """As it is kept; what lies outside the picture is left out."""

        def at(moment: float | None) -> float | None:
            return None if moment is None or moment > end else round(moment - begin, 6)

        inside = [run for run in self.runs if begin <= run[1] <= end]
        return {
            "row": f"replica {self.seat}",
            "contestant": self.name,
            "round": 1,
            "fault": None,
            "until": round(end - begin, 6),
            "began": at(self.began),
            "signal": self.signal if at(self.signalled) is not None else None,
            "signalled": at(self.signalled),
            "ended": at(self.ended),
            "released": at(self.released),
            "expires": at(self.expires),
            "terms": [{"token": term["token"], "from": at(term["from"]), "to": at(term["to"])} for term in self.terms],
            "beats": [at(beat) for beat in self.beats if beat <= end],
            "runs": [[tick, at(start), at(finish)] for tick, start, finish in inside],
        }


class Course:
    def __init__(self, server: Server, directory: Path) -> None:
        self.replicas: list[Replica] = []
        self._server = server
        self._directory = directory

    def start(self, seat: int, name: str) -> None:
        self.replicas.append(Replica(seat, name, self._server.url, self._directory))

    def until(self, condition: Callable[[], bool]) -> None:
        """Follow the replicas until it holds."""
        deadline = boot() + PATIENCE
        while True:
            for replica in self.replicas:
                replica.look()
            if condition():
                return
            assert boot() < deadline, "the replicas did not do within 15 s what was awaited"
            time.sleep(0.002)

    def until_moment(self, moment: float) -> None:
        self.until(lambda: boot() >= moment)

    def leader(self) -> Replica:
        self.until(lambda: any(replica.leads for replica in self.replicas))
        return next(replica for replica in self.replicas if replica.leads)

    def until_mid_run(self) -> None:
        """To just after the next point of the grid, which lies on the wall clock."""
        time.sleep((PHASE - time.time()) % EVERY)

    def replace(self, old: Replica, number: signal.Signals, name: str, *, wait: float = 0.0) -> None:
        """Signal it, see that somebody else runs the job and that it has ended, start the one that comes in its place,
        and wait until that takes part: a deploy goes on when the new replica is ready."""
        led = old.leads
        self.until_mid_run()
        old.send(number)
        sent = boot()
        if number is signal.SIGKILL:
            client = self._server.client()
            # A leader's key lives on: the moment of its end is what the store says it is.
            old.expires = client.pttl(f"{PROJECT}:{JOB}:lock") / 1000 + boot()
            client.close()
        self.until(lambda: old.ended is not None)
        if led:
            others = [replica for replica in self.replicas if replica is not old]
            self.until(lambda: any(run[1] > sent for replica in others for run in replica.runs))
        self.until_moment(boot() + wait)
        self.start(old.seat, name)
        self.until(lambda: bool(self.replicas[-1].beats))


def record(server: Server) -> list[Record]:
    """Perform the course on this server: about 10 s."""
    with tempfile.TemporaryDirectory(prefix="singletonjob-timeline-") as directory:
        course = Course(server, Path(directory))
        try:
            return _perform(course)
        finally:
            for replica in course.replicas:
                replica.end()


def _perform(course: Course) -> list[Record]:
    course.start(1, "1")
    course.until(lambda: bool(course.replicas[0].runs))  # so that the first lane leads first
    for seat in range(2, SEATS + 1):
        course.start(seat, str(seat))
    course.until(lambda: all(replica.beats for replica in course.replicas))
    course.until_moment(boot() + 0.5)
    begin = boot()
    course.until_moment(begin + LEAD)
    for old in list(course.replicas):
        signalled = boot()
        course.replace(old, signal.SIGTERM, f"{old.seat}-new")
        course.until_moment(signalled + STEP)
    course.until_moment(signalled + CRASH_AFTER)
    victim = course.leader()
    course.replace(victim, signal.SIGKILL, f"{victim.seat}-again", wait=RESTART_AFTER)
    end = boot() + TAIL
    course.until_moment(end + 0.2)
    return [replica.record(begin, end) for replica in course.replicas]
