"""The worker threads of simulated replicas: real threads, of which one at a time has the baton.

So the same seed gives the same order of everything. When a thread reads the clock, it may lose the baton for a while,
as real threads do at the worst of moments, for example between a check and what the check was for.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from singletonjob._system.worker_threads import DaemonWorker
from singletonjob.testing.virtual_threads import Carrier

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulation.sim_replica import Process
    from simulation.sim_time import SimClock, World
    from singletonjob.testing.virtual_threads import VirtualEvent

__all__ = ["Ended", "SimWorker", "Threads"]

PREEMPTED = 0.2
"""How often a thread that reads the clock has to wait for others then; half of them for up to a millisecond."""


class Ended(BaseException):
    """Raised in a thread whose process is gone, to unwind it."""


class Threads:
    """The threads of one simulation, used again and again; `close` ends them."""

    def __init__(self) -> None:
        self._idle: list[Carrier] = []

    def take(self) -> Carrier:
        return self._idle.pop() if self._idle else Carrier("simulated")

    def put_back(self, carrier: Carrier) -> None:
        self._idle.append(carrier)

    def close(self) -> None:
        for carrier in self._idle:
            carrier.go_on()
        self._idle.clear()


class SimWorker(DaemonWorker):
    """The thread of one job's sync bodies in `process`. What awaits a call and its outcome is the library's own."""

    def __init__(self, name: str, *, threads: Threads, world: World, clock: SimClock, process: Process) -> None:
        super().__init__(name)
        self.job: str = name.removeprefix("singletonjob-")
        self.readings: int = 0  # of the clock since the call began
        self.started: bool = False  # the body has begun
        self.napped: bool = False  # the process was frozen right before that
        self.checked_at: float = inf  # when it read the clock last before that
        self._threads = threads
        self._world = world
        self._clock = clock
        self._process = process
        self._waiting: deque[Callable[[], object]] = deque()
        self._carrier: Carrier | None = None  # while a call is made
        self._until = 0.0  # when it goes on, on the loop's clock: a sleeping machine's threads sleep longer
        self._sleeps_for: VirtualEvent | None = None
        self._turn = 0
        self._begun = False
        self._gone = False
        self._started_once = False  # as a real one starts its thread with the first call

    # -- in place of a queue and a thread -----------------------------------------------------------------------------

    def post(self, call: Callable[[], object]) -> None:
        if self._gone:
            return
        if self._carrier is None and not self._started_once:
            if self._process.threads_refused_until > self._world.now:
                raise RuntimeError("can't start new thread")
            self._started_once = True
        self._process.handed_over(self.job)
        self._waiting.append(call)
        if self._carrier is None:
            self._next()

    def stop(self, last: Callable[[], object] | None = None) -> None:
        if last is not None:
            self.post(last)

    def _next(self) -> None:
        """Have the next call made, after the time that a thread takes to begin; now and then that is long."""
        draw = self._world.random.random
        self._carrier = self._threads.take()
        self._carrier.work = self._waiting.popleft()
        self.readings, self.checked_at = 0, inf
        self.started = self.napped = False
        self._begun = False
        self._sleep_for(0.0001 * draw() if draw() < 0.9 else self._process.margin * draw())

    # -- on the thread itself ---------------------------------------------------------------------------------------

    def sleep(self, seconds: float, event: VirtualEvent | None = None) -> None:
        """What `time.sleep` is in a real body; `event` ends it early."""
        if self._gone:
            raise Ended
        assert self._carrier is not None
        self._sleeps_for = event
        self._sleep_for(seconds)
        self._carrier.give_back()
        self._sleeps_for = None
        if self._gone:
            raise Ended

    def reads_clock(self) -> None:
        """Somebody else may run before the thread can use what it has read."""
        draw = self._world.random.random
        self.readings += 1
        if not self.started:
            self.checked_at = self._world.now
        if self._process.strikes_before_start(self):
            self.sleep(0.0)
        elif draw() < PREEMPTED:
            self.sleep(0.001 * draw() if draw() < 0.5 else 0.0)

    # -- on the world's -----------------------------------------------------------------------------------------------

    def notify(self, event: VirtualEvent) -> None:
        """`event` was set."""
        if self._sleeps_for is event:
            self._sleeps_for = None
            self._sleep_for(0.0)

    def kill(self) -> None:
        """Its process is gone: unwind what runs, and make no call any more."""
        self._gone = True
        self._waiting.clear()
        carrier, self._carrier = self._carrier, None
        if carrier is not None:
            if self._begun:
                carrier.go_on()
            carrier.work = None
            self._threads.put_back(carrier)

    def _sleep_for(self, seconds: float) -> None:
        self._until = self._clock.loop_time() + min(seconds, 1e9)
        self._plan()

    def _plan(self) -> None:
        self._turn += 1
        later = 1e-6 + 0.0005 * self._world.random.random()  # never early
        self._world.at(self._clock.true_time(self._until) + later, partial(self._due, self._turn))

    def _due(self, turn: int, when: float) -> None:
        if turn != self._turn or self._gone:
            return
        if when < self._process.frozen_until:
            self._world.at(self._process.frozen_until, partial(self._due, turn))
        elif self._clock.loop_time() < self._until:
            self._plan()
        else:
            self._go_on()

    def _go_on(self) -> None:
        carrier = self._carrier
        assert carrier is not None
        self._begun = True
        self._world.thread = self
        carrier.go_on()
        self._world.thread = None
        if carrier.work is None:
            self._threads.put_back(carrier)
            self._carrier = None
            if self._waiting:
                self._next()
