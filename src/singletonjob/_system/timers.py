"""Precise timers on the job loop, for a moment of the boot clock or an instant of the wall clock. They are never early.

The timers of asyncio round up to whole milliseconds (epoll_wait(2)), those of uvloop fire early, and both stand still
while the machine is suspended. On Linux one timerfd per clock serves all jobs of a loop: a heap holds the due times,
and the timerfd is set to the earliest one. Elsewhere `loop.call_later` is used, in short sleeps.
"""

from __future__ import annotations

import heapq
import sys
import time
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING

from .clock import SystemClock
from .timerfd import LoopAlarm, TimerFd

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from .clock import Clock
    from .timerfd import Alarm

__all__ = ["Timer", "Timers"]

LONGEST_SLEEP = 30.0
"""Seconds after which a clock that does not report steps is read again."""


class Timer:
    """A call of `callback` at the time that was last set. A timer that fired or was cancelled can be set again."""

    __slots__ = ("_queue", "callback", "number")

    def __init__(self, queue: _Queue, callback: Callable[[], None]) -> None:
        self._queue = queue
        self.callback: Callable[[], None] = callback
        self.number: int = 0  # of its entry in the heap, 0: none; entries with another number are stale

    def set(self, when: float) -> None:
        queue = self._queue
        heap = queue.heap
        if self.number:
            queue.stale += 1
        queue.count = self.number = number = queue.count + 1
        if queue.stale > 64 and queue.stale > len(heap) // 2:
            # The time limit of a run is set with each run and hardly ever reached, so stale entries would pile up.
            heap[:] = [entry for entry in heap if entry[2].number == entry[1]]
            heapq.heapify(heap)
            queue.stale = 0
        if when <= queue.firing:
            # Timers re-armed during this pass wait for the next one. Otherwise an overdue timer that keeps re-arming
            # would starve the timers behind it, for example a fence.
            queue.meanwhile.append((when, number, self))
            return
        heapq.heappush(heap, (when, number, self))
        # Compare heap entries, not timers: the first entry may be a stale one of this same timer.
        if heap[0][1] == number and queue.firing == -inf:
            queue.alarm.set(when)

    def cancel(self) -> None:
        if self.number:
            self.number = 0
            self._queue.stale += 1


class _Queue:
    """The timers of one clock, earliest first."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.heap: list[tuple[float, int, Timer]] = []
        self.count = 0
        self.firing = -inf  # the timers due by then are being called
        self.meanwhile: list[tuple[float, int, Timer]] = []  # set during that pass, and due already
        self.stale: int = 0
        self.alarm: Alarm

    def at(self, when: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(self, callback)
        timer.set(when)
        return timer

    def fire(self, *, stepped: bool = False) -> None:
        """Call each timer that is due; after a step of the clock all timers, because each caller must check again."""
        heap = self.heap
        # Timers set during the pass need no alarm of their own: it is set once, at the end, for the earliest.
        self.firing = now = inf if stepped else self.now()
        try:
            # Timers set during the pass wait for the next turn of the loop, even if they are due.
            while heap and (heap[0][0] <= now or heap[0][2].number != heap[0][1]):
                _, number, timer = heapq.heappop(heap)
                if timer.number == number:
                    timer.number = 0
                    timer.callback()
                else:
                    self.stale -= 1
        finally:
            self.firing = -inf
            while self.meanwhile:
                heapq.heappush(heap, self.meanwhile.pop())
            if heap:
                self.alarm.set(heap[0][0])


class Timers:
    """The timers of one loop.

    `at_boot(when, callback)` calls back at or after `when`, in seconds on the boot clock. `at_wall(when, callback)`
    calls back at or after an instant in microseconds since the epoch, and when the wall clock was set. Both return the
    `Timer`, which can be set again.
    `longest_boot_sleep` limits a sleep on the boot clock, in seconds, if the timers of the loop are used. Those stand
    still during a suspend, and the fence must notice the suspend soon afterwards.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, *, longest_boot_sleep: float) -> None:
        self._boot = _Queue(clock.boot)
        self._wall = _Queue(clock.wall)
        self.at_boot: Callable[[float, Callable[[], None]], Timer] = self._boot.at
        self.at_wall: Callable[[float, Callable[[], None]], Timer] = self._wall.at
        if sys.platform == "linux" and isinstance(clock, SystemClock):
            with suppress(OSError, AttributeError, NotImplementedError):
                self._boot.alarm = TimerFd(loop, self._boot.fire, time.CLOCK_BOOTTIME, unit=1)
                try:
                    self._wall.alarm = TimerFd(loop, self._wall.fire, time.CLOCK_REALTIME, unit=1_000_000)
                except BaseException:
                    self._boot.alarm.close()
                    raise
                return
        self._boot.alarm = LoopAlarm(loop, self._boot.fire, clock.boot, unit=1, longest=longest_boot_sleep)
        self._wall.alarm = LoopAlarm(loop, self._wall.fire, clock.wall, unit=1_000_000, longest=LONGEST_SLEEP)

    def close(self) -> None:
        self._boot.alarm.close()
        self._wall.alarm.close()

    def abandon(self) -> None:
        """Stop calling back, and change memory only. For a forked child, which shares its descriptors."""
        self._boot.alarm.abandon()
        self._wall.alarm.abandon()
