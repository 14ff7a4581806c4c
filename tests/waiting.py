"""Waiting in real time until a condition holds, with an end."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

__all__ = ["until", "wait_for"]


def wait_for(
    condition: Callable[[], object], seconds: float = 30, what: str = "it", alive: subprocess.Popen[bytes] | None = None
) -> None:
    """Return as soon as the condition holds; wait no longer than the process lives."""
    end = time.monotonic() + seconds
    while not condition():
        assert alive is None or alive.poll() is None, f"the process exited with {alive.poll()} before {what}"
        assert time.monotonic() < end, f"{what} did not come within {seconds} s"
        time.sleep(0.005)


async def until(condition: Callable[[], object], seconds: float = 20, what: str = "it") -> None:
    """As `wait_for`, while the loop turns."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} did not come within {seconds} s"
        await asyncio.sleep(0.005)
