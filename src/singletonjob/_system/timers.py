"""Precise wake-ups on the job loop: at a moment of the boot clock, or at a wall-clock instant; never early.

asyncio's own timers round up to whole milliseconds (epoll_wait(2)), uvloop's fire early, and both stand still while
the machine is suspended. On Linux one timerfd per clock serves all jobs of a loop: a heap holds the due times, the
descriptor is set to the earliest. Elsewhere `loop.call_later` serves, in cut sleeps.
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
"""Where the clock cannot tell of a step, look at it at least this often, in seconds."""


class Timer:
    """One wake-up to come, at the time that it was last set to; one that has come or was cancelled may be set again."""

    __slots__ = ("_queue", "callback", "number")

    def __init__(self, queue: _Queue, callback: Callable[[], None]) -> None:
        self._queue = queue
        self.callback: Callable[[], None] = callback
        self.number: int = 0  # of its entry in the heap; 0: it waits for nothing; an entry of another number is void

    def set(self, when: float) -> None:
        queue = self._queue
        heap = queue.heap
        if self.number:
            queue.void += 1
        queue.count = self.number = number = queue.count + 1
        if queue.void > 64 and queue.void > len(heap) // 2:
            # A run's time limit is set with each run and hardly ever reached; they must not pile up.
            heap[:] = [entry for entry in heap if entry[2].number == entry[1]]
            heapq.heapify(heap)
            queue.void = 0
        if when <= queue.ringing:
            # Else an overdue one that is set again and again would keep those behind it, a fence say, from their turn.
            queue.meanwhile.append((when, number, self))
            return
        heapq.heappush(heap, (when, number, self))
        # The entry and not the timer: an older entry of it, now void, may still be first, with others before `when`.
        if heap[0][1] == number and queue.ringing == -inf:
            queue.alarm.set(when)

    def cancel(self) -> None:
        if self.number:
            self.number = 0
            self._queue.void += 1


class _Queue:
    """The wake-ups of one clock, earliest first."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.heap: list[tuple[float, int, Timer]] = []
        self.count = 0
        self.ringing = -inf  # up to when it rings just now
        self.meanwhile: list[tuple[float, int, Timer]] = []  # set while it rings, and due already
        self.void: int = 0
        self.alarm: Alarm

    def at(self, when: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(self, callback)
        timer.set(when)
        return timer

    def ring(self, *, stepped: bool = False) -> None:
        """Call what is due; after a step of the clock everything, since each sleeper must look at it anew."""
        heap = self.heap
        # What is set meanwhile needs no alarm of its own: it is set once, for the earliest.
        self.ringing = now = inf if stepped else self.now()
        try:
            # Those set meanwhile wait for the next turn of the loop, however early they want to be called.
            while heap and (heap[0][0] <= now or heap[0][2].number != heap[0][1]):
                _, number, timer = heapq.heappop(heap)
                if timer.number == number:
                    timer.number = 0
                    timer.callback()
                else:
                    self.void -= 1
        finally:
            self.ringing = -inf
            while self.meanwhile:
                heapq.heappush(heap, self.meanwhile.pop())
            if heap:
                self.alarm.set(heap[0][0])


class Timers:
    """The wake-ups of one loop.

    `at_boot(when, callback)` calls back at or after `when`, in seconds on the boot clock; `at_wall(when, callback)` at
    or after an instant in microseconds since the epoch, or when the wall clock was set. Both give the `Timer`,
    which whoever waits again and again sets again.
    `longest_boot_sleep` bounds a sleep on the boot clock, in seconds, where the loop's own timers must serve: they
    stand still in a suspend, and the fence must notice soon after it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, *, longest_boot_sleep: float) -> None:
        self._boot = _Queue(clock.boot)
        self._wall = _Queue(clock.wall)
        self.at_boot: Callable[[float, Callable[[], None]], Timer] = self._boot.at
        self.at_wall: Callable[[float, Callable[[], None]], Timer] = self._wall.at
        if sys.platform == "linux" and isinstance(clock, SystemClock):
            with suppress(OSError, AttributeError, NotImplementedError):
                self._boot.alarm = TimerFd(loop, self._boot.ring, time.CLOCK_BOOTTIME, unit=1)
                try:
                    self._wall.alarm = TimerFd(loop, self._wall.ring, time.CLOCK_REALTIME, unit=1_000_000)
                except BaseException:
                    self._boot.alarm.close()
                    raise
                return
        self._boot.alarm = LoopAlarm(loop, self._boot.ring, clock.boot, unit=1, longest=longest_boot_sleep)
        self._wall.alarm = LoopAlarm(loop, self._wall.ring, clock.wall, unit=1_000_000, longest=LONGEST_SLEEP)

    def close(self) -> None:
        self._boot.alarm.close()
        self._wall.alarm.close()

    def abandon(self) -> None:
        """Call back no more, and touch memory alone: in a forked child, whose descriptors are its parent's too."""
        self._boot.alarm.abandon()
        self._wall.alarm.abandon()
