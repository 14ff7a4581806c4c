"""The job loop of a sync program: an event loop in a daemon thread of its own."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from .._runtime.service import Service

__all__ = ["start_job_thread"]


def start_job_thread(
    service: Service, begin: Callable[[Service], None], leave: Callable[[Service], Coroutine[object, object, None]]
) -> threading.Thread:
    """The thread that runs `service` from `begin(service)` until it is asked to stop, then `leave(service)`.

    Returns when it has begun. Raises what `begin` raises.
    """
    begun: Future[None] = Future()

    async def main() -> None:
        try:
            begin(service)
        except BaseException as error:
            begun.set_exception(error)
            return
        begun.set_result(None)
        try:
            await service.until_stop_requested()
        finally:
            await leave(service)

    thread = threading.Thread(target=lambda: asyncio.run(main()), name="singletonjob-loop", daemon=True)
    thread.start()
    begun.result()
    return thread
