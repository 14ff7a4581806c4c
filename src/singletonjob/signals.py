"""SIGTERM and SIGINT while an app runs: the first stops it in good order, the second exits at once.

The handlers are Python's own (`signal.signal`), not the loop's: a body that blocks the job loop does not keep them
from running, as long as it returns to the interpreter now and then (`time.sleep` does, signal(7): EINTR).
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType

    from ._service import Service

__all__ = ["stop_signals"]


@contextmanager
def stop_signals(service: Service, *, wanted: bool) -> Generator[None]:
    """Have SIGTERM and SIGINT stop `service` inside the block; only the main thread can, elsewhere nothing changes.

    A stop that does not end in its time (a body blocks the loop) ends the process with code 1.
    """
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield
        return
    watchdog: threading.Timer | None = None

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal watchdog
        if watchdog is not None:
            os._exit(128 + number)
        watchdog = threading.Timer(service.longest_stop, _give_up)
        watchdog.daemon = True
        watchdog.start()
        service.request_stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        if watchdog is not None:
            watchdog.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


def _give_up() -> None:
    logging.shutdown()
    os._exit(1)
