"""The alarm for the earliest timer of a clock: a Linux timerfd, or a timer of the event loop."""

from __future__ import annotations

import errno
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

__all__ = ["Alarm", "LoopAlarm", "TimerFd"]


class Alarm(Protocol):
    """Calls its `Ring` once, at or after the moment it was last set to, and when its clock was set."""

    def set(self, when: float) -> None: ...

    def close(self) -> None: ...

    def abandon(self) -> None:
        """Stop calling, and do not touch the operating system's timer, which a forked child shares with its parent."""
        ...


class Ring(Protocol):
    """The callback of an alarm. `stepped`: it is called because the clock was set."""

    def __call__(self, *, stepped: bool = False) -> None: ...


class LoopAlarm:
    """An alarm on `loop.call_later`, in sleeps of at most `longest` seconds, for systems and clocks without a timerfd.

    `now` reads the clock; `unit` is the number of its units in a second.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, ring: Ring, now: Callable[[], float], *, unit: int, longest: float
    ) -> None:
        self._loop = loop
        self._ring = ring
        self._now = now
        self._unit = unit
        self._longest = longest
        self._seen = 0.0  # by the clock; if it shows less later, it was set back
        self._stepped = False
        self._handle: asyncio.TimerHandle | None = None

    def set(self, when: float) -> None:
        self.close()
        now = self._now()
        self._stepped |= now < self._seen
        self._seen = now
        delay = 0.0 if self._stepped else max(when - now, 0.0) / self._unit
        self._handle = self._loop.call_later(min(delay, self._longest), self._call)

    def _call(self) -> None:
        stepped, self._stepped = self._stepped, False
        self._ring(stepped=stepped)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def abandon(self) -> None:
        self._ring = _nothing


class TimerFd:
    """An alarm on a timerfd (timerfd_create(2)) of a system clock; `unit` is the number of its units in a second.

    Raises `OSError` if the kernel refuses a timerfd, and `AttributeError` if the C library does not have the call.
    """

    __slots__ = ("_armed", "_fd", "_loop", "_nanoseconds", "_ring", "_settime")

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Ring, clock_id: int, *, unit: int) -> None:
        self._loop = loop
        self._ring = ring
        self._nanoseconds = 1_000_000_000 // unit
        self._armed = False
        self._settime, self._fd = _timerfd(clock_id)
        loop.add_reader(self._fd, self._ready)

    def set(self, when: float) -> None:
        self._armed = True
        self._set_to(max(int(when * self._nanoseconds) + 1, 1))  # rounded up, so never early; 0 would disarm it

    def _ready(self) -> None:
        self._armed = False
        try:
            self._ring()
        finally:
            if not self._armed:
                self._set_to(0)  # no timer waits, and setting the descriptor makes it unreadable

    def _set_to(self, nanoseconds: int) -> None:
        try:
            self._settime(nanoseconds)
        except OSError as error:
            if error.errno != errno.ECANCELED:
                raise
            # The clock was set since the last call. The kernel reports that once, and has set the timer nevertheless.
            self._loop.call_soon(partial(self._ring, stepped=True))

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def abandon(self) -> None:
        self._ring = self._settime = _nothing


def _nothing(*_: object, **__: object) -> None:
    pass


def _timerfd(clock_id: int) -> tuple[Callable[[int], None], int]:
    """Return a non-blocking timerfd and the function that sets it to a moment of its clock in nanoseconds.

    0 disarms the timerfd.
    """
    # With `cancel_on_set`, a step of the wall clock makes the descriptor readable at once; other clocks ignore the
    # flag.
    absolute, cancel_on_set = 1, 2
    if sys.version_info >= (3, 13):
        fd = os.timerfd_create(clock_id, flags=os.TFD_NONBLOCK | os.TFD_CLOEXEC)
        flags = os.TFD_TIMER_ABSTIME | os.TFD_TIMER_CANCEL_ON_SET

        def settime(when: int) -> None:
            os.timerfd_settime_ns(fd, flags=flags, initial=when)

        return settime, fd
    import ctypes

    libc: Any = ctypes.CDLL(None, use_errno=True)
    fd = libc.timerfd_create(clock_id, os.O_NONBLOCK | os.O_CLOEXEC)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "timerfd_create")
    timerfd_settime = libc.timerfd_settime
    value = (ctypes.c_long * 4)()  # struct itimerspec: no interval, then the moment, in seconds and nanoseconds

    def settime(when: int) -> None:
        value[2], value[3] = divmod(when, 1_000_000_000)
        if timerfd_settime(fd, absolute | cancel_on_set, value, None):
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    return settime, fd
