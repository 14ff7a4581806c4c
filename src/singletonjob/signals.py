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
    stopped = threading.Event()
    signalled = False

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal signalled
        if signalled:
            os._exit(128 + number)
        signalled = True
        threading.Thread(target=_watch, args=(service, stopped), name="singletonjob-watchdog", daemon=True).start()
        service.request_stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        stopped.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch(service: Service, stopped: threading.Event) -> None:
    """End the process if its stop does not end. For a body that was left behind, no release is waited for either."""
    if stopped.wait(service.longest_drain):
        return
    if service.abandoned or not stopped.wait(service.longest_stop - service.longest_drain):
        logging.shutdown()
        os._exit(1)
