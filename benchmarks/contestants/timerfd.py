"""A bare timerfd on the wall clock, for the floor: what no scheduler on this machine can undercut."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["timerfd"]

_ABSOLUTE = 1  # TFD_TIMER_ABSTIME


def timerfd(*, blocking: bool) -> tuple[int, Callable[[int], None]]:
    """A descriptor, and what sets it to an instant of CLOCK_REALTIME in nanoseconds; timerfd_create(2)."""
    flags = os.O_CLOEXEC | (0 if blocking else os.O_NONBLOCK)
    if sys.version_info >= (3, 13):
        fd = os.timerfd_create(time.CLOCK_REALTIME, flags=flags)

        def set_to(instant: int) -> None:
            os.timerfd_settime_ns(fd, flags=os.TFD_TIMER_ABSTIME, initial=instant)

        return fd, set_to
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.timerfd_create(time.CLOCK_REALTIME, flags)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "timerfd_create")
    spec = (ctypes.c_long * 4)()
    settime = libc.timerfd_settime

    def set_to(instant: int) -> None:
        spec[2], spec[3] = divmod(instant, 1_000_000_000)
        if settime(fd, _ABSOLUTE, spec, None):
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    return fd, set_to
