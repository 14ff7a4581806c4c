"""The demo's course: start the workers, stop and kill the one that leads, start it again, stop them all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from singletonjob._system.clock import SystemClock

from .demo_report import JOBS, Ledger, Report, Stop, handover
from .demo_stamps import StampReader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .demo_report import SignalName

__all__ = ["Interrupts", "Session", "View", "Worker"]

LOOK_EVERY = 0.02
"""Seconds between two looks at the stamps. Nothing measured depends on it."""

FIRST_RUN_LIMIT = 20.0
"""For how long the workers may take until one of them runs price-tick; a store that restarted may hold back 11 s."""

PATIENCE = 3.0
"""For how long nothing may be seen of that before the demo says why."""

HANDOVER_LIMIT = 13.0
"""For how long a hand-over is awaited: more than the default `lock_expiry`, for stores that cannot notice a death."""

END_LIMIT = 10.0
"""For how long a worker may take to end after SIGTERM."""


class View(Protocol):
    """Where the demo is shown."""

    def say(self, elapsed: float, line: str) -> None:
        """Something noteworthy happened, `elapsed` seconds after the start."""
        ...

    def draw(self, session: Session) -> None:
        """Some time has passed."""
        ...


class Interrupts:
    """Counts SIGINT and SIGTERM while it is entered, instead of letting them end the demo half-way."""

    def __init__(self) -> None:
        self.count: int = 0

    def __enter__(self) -> Interrupts:
        self._before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, *_: object) -> None:
        self.count += 1


class Worker:
    """One worker process. `seat` counts from 1; the process that replaces an ended one has its seat, and a new name."""

    def __init__(self, *, seat: int, name: str, store: str, directory: Path, now: float) -> None:
        self.seat = seat
        self.name = name
        self.started = now
        self.gone: float | None = None
        self.stop: Stop | None = None
        self.heard = False
        self.reader: StampReader = StampReader(directory / f"{name}.stamps")
        self._errors = directory / f"{name}.stderr"
        # What the user's shell says about apps is not meant for this one: it shows the default settings.
        surroundings = {key: value for key, value in os.environ.items() if not key.startswith("SINGLETONJOB_")}
        with self._errors.open("wb") as errors:
            self.process: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                # Modules come from where ours came from (PYTHONPATH), and -P: not from the working directory first.
                [sys.executable, "-P", "-m", "singletonjob.cli.demo_worker", store, str(directory), name],
                stdin=subprocess.PIPE,  # its end tells the worker that we are gone
                stdout=errors,
                stderr=errors,
                env={**surroundings, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,  # Ctrl-C in the terminal is for the demo, which then stops its workers
            )

    def last_words(self) -> str:
        """The last line that the process wrote to its standard error."""
        lines = self._errors.read_text(errors="replace").split("\n") if self._errors.exists() else []
        return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")


class _Over(Exception):
    """The course cannot go on, or the user does not want it to."""


class Session:
    """One demo, from the start of the workers to their end."""

    def __init__(
        self, *, workers: int, seconds: float, store: str, directory: Path, view: View, interrupts: Interrupts
    ) -> None:
        self.seats = workers
        self.seconds = seconds
        self.store = store
        self.workers: list[Worker] = []
        self.ledger: Ledger = Ledger()
        self.stops: list[Stop] = []
        self.handovers: dict[Stop, float] = {}
        self.troubles: list[str] = []
        self._directory = directory
        self._view = view
        self._interrupts = interrupts
        self._clock = SystemClock()
        self._began = self._clock.boot()

    @property
    def now(self) -> float:
        """The boot clock, in seconds."""
        return self._clock.boot()

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return self.now - self._began

    def run(self, store_name: str) -> Report:
        """Go through the whole course; afterwards no worker is left. `store_name` is how the report calls the store."""
        try:
            with suppress(_Over):
                self._perform()
            self._end_all()
        finally:
            for worker in self.workers:
                worker.process.kill()
                worker.process.communicate()
        return Report(
            workers=self.seats,
            store=store_name,
            runs=self.ledger.runs,
            dropped=sum(self.ledger.dropped.values()),
            lateness=self.ledger.lateness["price-tick"],
            stops=self.stops,
            troubles=self.troubles,
        )

    # -- the course ----------------------------------------------------------------------------------------------------

    def _perform(self) -> None:
        for seat in range(1, self.seats + 1):
            self._start(seat)
        if not self._wait(self._runs, PATIENCE):
            self._say("nobody leads yet: a store that has restarted gives no lease for 11 s, another demo may hold one")
        if not self._wait(self._runs, FIRST_RUN_LIMIT - PATIENCE):
            self.troubles.append(
                f"no worker ran price-tick within {FIRST_RUN_LIMIT:.0f} s; is another demo using the store?"
                f" Worker 1 says: {self.workers[0].last_words()}"
            )
            return
        led_from = self.now
        lead = min(3.0, self.seconds / 4)
        pairs = max(1, int((self.seconds - lead) / 5.5))
        gap = (self.seconds - lead) / (2 * pairs)
        for number in range(2 * pairs):
            self._wait_until(led_from + lead + number * gap)
            self._take_down("SIGKILL" if number % 2 else "SIGTERM", left=led_from + self.seconds - self.now)
        self._wait_until(led_from + self.seconds)

    def _take_down(self, name: SignalName, *, left: float) -> None:
        """Signal the worker that ran price-tick last, await its successor's first run, and replace the process."""
        if left < max((time for stop, time in self.handovers.items() if stop.signal == name), default=0.0) / 1000:
            return
        last = self.ledger.newest["price-tick"].worker
        worker = next(one for one in self.workers if one.name == last)
        if worker.gone is not None:
            return
        seen = len(self.ledger.runs)
        stop = self._signal(worker, name)
        self.stops.append(stop)
        self._say(f"{name} to worker {worker.seat}, which runs price-tick")
        self._wait(lambda: handover(self.ledger.runs[seen:], stop) is not None, HANDOVER_LIMIT)
        time_taken = handover(self.ledger.runs[seen:], stop)
        if time_taken is None:
            self._say(f"no other worker ran price-tick within {HANDOVER_LIMIT:.0f} s")
        else:
            self.handovers[stop] = time_taken
            self._say(f"price-tick runs elsewhere, {time_taken:.0f} ms after the {name}")
        if self._wait(lambda: worker.gone is not None, END_LIMIT):
            self._start(worker.seat)

    def _end_all(self) -> None:
        self._say("the end: SIGTERM to every worker")
        for worker in self.workers:
            if worker.gone is None and worker.stop is None:
                self._signal(worker, "SIGTERM")
        deadline = self.now + END_LIMIT
        while any(worker.gone is None for worker in self.workers):
            if self.now > deadline or self._interrupts.count > 1:
                left = ", ".join(str(worker.seat) for worker in self.workers if worker.gone is None)
                self.troubles.append(f"killed before their end: worker {left}")
                break
            self._look()
        self._look()

    # -- single steps --------------------------------------------------------------------------------------------------

    def _start(self, seat: int) -> None:
        again = sum(worker.seat == seat for worker in self.workers)
        name = f"{seat}.{again + 1}" if again else str(seat)
        worker = Worker(seat=seat, name=name, store=self.store, directory=self._directory, now=self.now)
        self.workers.append(worker)
        self._say(f"worker {seat} started{' again' if again else ''}, process {worker.process.pid}")

    def _signal(self, worker: Worker, name: SignalName) -> Stop:
        worker.stop = Stop(signal=name, worker=worker.name, at=self.now)
        worker.process.send_signal(signal.Signals[name])
        return worker.stop

    def _runs(self) -> bool:
        return "price-tick" in self.ledger.newest

    def _wait_until(self, moment: float) -> None:
        self._wait(lambda: False, moment - self.now)

    def _wait(self, condition: Callable[[], bool], limit: float) -> bool:
        """Follow the workers until the condition holds (True) or `limit` seconds have passed."""
        deadline = self.now + limit
        while not condition():
            if self.now >= deadline:
                return False
            self._look()
            if self._interrupts.count:
                self._say("interrupted: stopping the workers")
                raise _Over
            if self.troubles:
                raise _Over
        return True

    def _look(self) -> None:
        """Take in what the workers wrote, and who of them has ended; then show it, and pause a little."""
        for worker in self.workers:
            if worker.gone is None:
                # First the process, then its file: all that an ended process wrote is there to be read.
                ended = worker.process.poll() is not None
                self._read(worker)
                if ended:
                    self._close(worker)
        self._view.draw(self)
        time.sleep(LOOK_EVERY)

    def _read(self, worker: Worker) -> None:
        won: list[str] = []
        for stamp in worker.reader.read():
            worker.heard = True
            self.ledger.add(worker.name, stamp)
            if stamp.kind == "elected":
                won.append(stamp.job)
        if won:
            self._say(f"worker {worker.seat} leads {', '.join(job for job in JOBS if job in won)}")

    def _close(self, worker: Worker) -> None:
        worker.gone = self.now
        killed = worker.stop is not None and worker.stop.signal == "SIGKILL"
        # The last moment at which a killed process surely lived is the one before the kill.
        self.ledger.close(worker.name, worker.stop.at if killed and worker.stop else worker.gone)
        code = worker.process.returncode
        # A worker told to stop while it still starts has no handler yet, and dies of the signal.
        expected = {0} if worker.heard else {0, -signal.SIGTERM}
        if worker.stop is None or (code not in expected and not killed):
            how = "by itself" if worker.stop is None else "after SIGTERM"
            self.troubles.append(f"worker {worker.seat} ended {how} with exit code {code}: {worker.last_words()}")

    def _say(self, line: str) -> None:
        self._view.say(self.elapsed, line)
