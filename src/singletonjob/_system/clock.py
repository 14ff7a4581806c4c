"""The clocks of the operating system. With `timers`, this is the only module that reads them.

Deadlines of a lease use the *boot clock*. It never jumps, and it goes on while the machine is suspended, so that a
leader finds its lease expired after a suspend. CLOCK_MONOTONIC on Linux stands still (clock_gettime(2)). Ticks and
slots use the *wall clock*, which all replicas share.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Protocol

from .._core.values import Now

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """The clocks of a machine; tests use clocks of their own."""

    def boot(self) -> float:
        """Return seconds on a clock that never jumps and counts suspend; its zero has no meaning."""
        ...

    def wall(self) -> int:
        """Return microseconds since the epoch, UTC, by the clock of this machine."""
        ...

    def now(self) -> Now:
        """Return both clocks, read together."""
        ...


# On macOS the raw monotonic clock goes on during a suspend, and time.monotonic() does not (clock_gettime(3)).
BOOT_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC_RAW", None))


_boot = time.monotonic if BOOT_CLOCK is None else partial(time.clock_gettime, BOOT_CLOCK)


# Faster than `Now(...)`, whose `__new__` is a Python function; both clocks are read twice per tick.
_as_now = partial(tuple.__new__, Now)  # pyright: ignore[reportUnknownMemberType]


class SystemClock:
    """The clocks of this machine."""

    __slots__ = ()

    boot = staticmethod(_boot)

    def wall(self) -> int:
        return time.time_ns() // 1000

    def now(self) -> Now:
        return _as_now((time.time_ns() // 1000, _boot()))
