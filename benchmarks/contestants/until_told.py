"""The asyncio frame that contestants share: the loop asked for, and waiting for SIGTERM."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ["new_loop", "run", "sigterm"]


def new_loop(*, uvloop: bool) -> Callable[[], asyncio.AbstractEventLoop]:
    if not uvloop:
        return asyncio.new_event_loop
    from uvloop import new_event_loop

    return new_event_loop


def run(main: Coroutine[object, object, None], *, uvloop: bool) -> None:
    with asyncio.Runner(loop_factory=new_loop(uvloop=uvloop)) as runner:
        runner.run(main)


async def sigterm() -> None:
    """Return when this process is told to end."""
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    await told.wait()
