"""Precise wake-ups on the job loop: at a moment of the boot clock, or at a wall-clock instant; never early.

asyncio's own timers round up to whole milliseconds (epoll_wait(2)), uvloop's fire early, and both stand still while
the machine is suspended. On Linux one timerfd per clock (timerfd_create(2)) serves all jobs of a loop: a heap holds
the due times, the descriptor is set to the earliest. Elsewhere `loop.call_later` serves, in cut sleeps.
"""

from __future__ import annotations

import errno
import heapq
import os
import sys
import time
from contextlib import suppress
from math import ceil
from typing import TYPE_CHECKING, Any, Protocol

from ._clock import SystemClock

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ._clock import Clock

__all__ = ["Timer", "Timers"]

LONGEST_SLEEP = 30.0
"""Where the clock cannot tell of a step, look at it at least this often, in seconds."""


class Timer:
    """One wake-up to come."""

    __slots__ = ("_queue", "callback")

    def __init__(self, queue: _Queue, callback: Callable[[], None]) -> None:
        self._queue = queue
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self._queue.cancelled += 1


class Alarm(Protocol):
    """Calls back once, at or after the moment it was last set to."""

    def set(self, when: float) -> None: ...

    def close(self) -> None: ...


class _Queue:
    """The wake-ups of one clock, earliest first."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self._heap: list[tuple[float, int, Timer]] = []
        self._count = 0
        self.cancelled = 0
        self.alarm: Alarm

    def at(self, when: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(self, callback)
        self._count += 1
        heap = self._heap
        if self.cancelled > 64 and self.cancelled > len(heap) // 2:
            # A run's time limit is set with each run and hardly ever reached; they must not pile up.
            heap[:] = [entry for entry in heap if entry[2].callback is not None]
            heapq.heapify(heap)
            self.cancelled = 0
        heapq.heappush(heap, (when, self._count, timer))
        if heap[0][2] is timer:
            self.alarm.set(when)
        return timer

    def ring(self, *, stepped: bool = False) -> None:
        """Call what is due; after a step of the clock everything, since each sleeper must look at it anew."""
        heap = self._heap
        now = self.now()
        due: list[Timer] = []
        while heap and (stepped or heap[0][0] <= now or heap[0][2].callback is None):
            due.append(heapq.heappop(heap)[2])
        if heap:
            self.alarm.set(heap[0][0])
        for timer in due:
            callback, timer.callback = timer.callback, None
            if callback is None:
                self.cancelled -= 1
            else:
                callback()


class _LoopAlarm:
    """On `loop.call_later`, for injected clocks and for systems without a timerfd."""

    def __init__(self, loop: asyncio.AbstractEventLoop, queue: _Queue, *, unit: int, longest: float) -> None:
        self._loop = loop
        self._queue = queue
        self._unit = unit
        self._longest = longest
        self._handle: asyncio.TimerHandle | None = None

    def set(self, when: float) -> None:
        self.close()
        delay = max(when - self._queue.now(), 0.0) / self._unit
        self._handle = self._loop.call_later(min(delay, self._longest), self._queue.ring)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()


class _TimerFd:
    """On a timerfd of one of the system's clocks; `unit` of the queue's units make a second."""

    def __init__(self, loop: asyncio.AbstractEventLoop, queue: _Queue, clock_id: int, *, unit: int) -> None:
        self._loop = loop
        self._queue = queue
        self._nanoseconds = 1_000_000_000 // unit
        self._settime, self._fd = _timerfd(clock_id)
        loop.add_reader(self._fd, self._ready)

    def set(self, when: float) -> None:
        self._settime(self._fd, ceil(when * self._nanoseconds))

    def _ready(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return  # set to a later moment after it had become readable
        except OSError as error:
            if error.errno != errno.ECANCELED:
                raise
            self._queue.ring(stepped=True)  # the wall clock was set (TFD_TIMER_CANCEL_ON_SET)
            return
        self._queue.ring()

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)


def _timerfd(clock_id: int) -> tuple[Callable[[int, int], None], int]:
    """A non-blocking timerfd and the function that sets it, in absolute nanoseconds of its clock."""
    # A step of the wall clock makes the descriptor readable at once; the flag is ignored for other clocks.
    absolute, cancel_on_set = 1, 2
    if sys.version_info >= (3, 13):
        flags = os.TFD_TIMER_ABSTIME | os.TFD_TIMER_CANCEL_ON_SET

        def settime(fd: int, when: int) -> None:
            os.timerfd_settime_ns(fd, flags=flags, initial=max(when, 1))

        return settime, os.timerfd_create(clock_id, flags=os.TFD_NONBLOCK | os.TFD_CLOEXEC)
    import ctypes

    libc: Any = ctypes.CDLL(None, use_errno=True)
    itimerspec = ctypes.c_long * 4

    def settime(fd: int, when: int) -> None:
        seconds, nanoseconds = divmod(max(when, 1), 1_000_000_000)
        value = itimerspec(0, 0, seconds, nanoseconds)
        if libc.timerfd_settime(fd, absolute | cancel_on_set, value, None):
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    fd = libc.timerfd_create(clock_id, os.O_NONBLOCK | os.O_CLOEXEC)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "timerfd_create")
    return settime, fd


class Timers:
    """The wake-ups of one loop.

    `longest_boot_sleep` bounds a sleep on the boot clock, in seconds, where the loop's own timers must serve: they
    stand still in a suspend, and the fence must notice soon after it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, *, longest_boot_sleep: float) -> None:
        self._boot = _Queue(clock.boot)
        self._wall = _Queue(clock.wall)
        if sys.platform == "linux" and isinstance(clock, SystemClock):
            with suppress(OSError, AttributeError, NotImplementedError):
                self._boot.alarm = _TimerFd(loop, self._boot, time.CLOCK_BOOTTIME, unit=1)
                self._wall.alarm = _TimerFd(loop, self._wall, time.CLOCK_REALTIME, unit=1_000_000)
                return
        self._boot.alarm = _LoopAlarm(loop, self._boot, unit=1, longest=longest_boot_sleep)
        self._wall.alarm = _LoopAlarm(loop, self._wall, unit=1_000_000, longest=LONGEST_SLEEP)

    def at_boot(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call back at or after `when`, in seconds on the boot clock."""
        return self._boot.at(when, callback)

    def at_wall(self, when: int, callback: Callable[[], None]) -> Timer:
        """Call back at or after the instant `when`, in microseconds since the epoch, or when the wall clock was set."""
        return self._wall.at(when, callback)

    def close(self) -> None:
        self._boot.alarm.close()
        self._wall.alarm.close()
