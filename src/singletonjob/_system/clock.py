"""The operating system's clocks. With `timers`, the only module that reads them.

Two clocks matter. Deadlines of a lease live on the *boot clock*: it never jumps and goes on while the machine is
suspended, which CLOCK_MONOTONIC on Linux does not (clock_gettime(2)): a leader that slept must find its lease expired.
Ticks and slots live on the *wall clock*, the one that all replicas share.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Protocol

from .._core.values import Now

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """What the runtime asks of time; tests put their own in its place."""

    def boot(self) -> float:
        """Seconds on a clock that never jumps and counts suspend; its zero means nothing."""
        ...

    def wall(self) -> int:
        """Microseconds since the epoch, UTC, as this machine believes."""
        ...

    def now(self) -> Now:
        """Both clocks, read together."""
        ...


# On macOS the raw monotonic clock goes on during sleep; time.monotonic() does not (clock_gettime(3) there).
BOOT_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC_RAW", None))


_boot = time.monotonic if BOOT_CLOCK is None else partial(time.clock_gettime, BOOT_CLOCK)


# A named tuple's own `__new__` is a function in Python, and both clocks are read twice a tick.
_as_now = partial(tuple.__new__, Now)  # pyright: ignore[reportUnknownMemberType]


class SystemClock:
    """The machine's own clocks."""

    __slots__ = ()

    boot = staticmethod(_boot)

    def wall(self) -> int:
        return time.time_ns() // 1000

    def now(self) -> Now:
        return _as_now((time.time_ns() // 1000, _boot()))
