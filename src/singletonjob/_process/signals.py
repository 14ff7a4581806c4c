"""SIGTERM, SIGINT and their kin while an app runs: the first stops it in good order, the second exits at once.

The handlers are Python's own (`signal.signal`), not the loop's: a body that blocks the job loop does not keep them
from running, as long as it returns to the interpreter now and then (`time.sleep` does, signal(7): EINTR).
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from .._jobs.user_code import handled_signals
from .._reporting.log_writer import is_blocked, write
from .._system.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import FrameType
    from typing import NoReturn

    from .._runtime.service import Service

__all__ = ["exit_now", "stop_signals"]

FLUSH = 0.25
"""Seconds that log handlers have to flush what they hold before the process is ended."""

LEAVE = 0.5
"""Seconds, of the last one of a stop, that the rest of the program has when everything is released."""


def exit_now(code: int, last_words: Callable[[], object] | None = None) -> NoReturn:
    """End the process without waiting for a thread. Log handlers are flushed, unless one of them blocks."""

    def flushed() -> None:
        if last_words is not None:
            last_words()
        logging.shutdown()

    flush = threading.Thread(target=flushed, name="singletonjob-flush", daemon=True)
    with suppress(RuntimeError):  # no thread can be started; a flush on this one might never return
        flush.start()
        flush.join(FLUSH)
    os._exit(code)


@contextmanager
def stop_signals(service: Service, *, wanted: bool) -> Generator[None]:
    """Have these signals stop `service` inside the block; only the main thread can, elsewhere nothing changes.

    A stop that does not end in its time (a body blocks the loop) ends the process with code 1.
    """
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield
        return
    stopped = threading.Event()
    signals = 0
    process = os.getpid()

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal signals
        if os.getpid() != process:
            # A child that a body forked, of multiprocessing say: it must die of SIGTERM as if we were not there.
            signal.signal(number, before[number] or signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        signals += 1
        if signals > 2:
            os._exit(128 + number)
        if signals == 2:
            exit_now(128 + number, service.log_exit)
        service.request_stop()
        try:
            threading.Thread(target=_watch, args=(service, stopped), name="singletonjob-watchdog", daemon=True).start()
        except RuntimeError as error:
            text = f"no thread watches this stop ({error}); if it does not end, a second signal ends the process"
            service.post(lambda: write(logging.ERROR, "watchdog-refused", text))

    before = {number: signal.signal(number, handle) for number in _numbers()}
    handled_signals.update(before)
    try:
        yield
    finally:
        stopped.set()
        handled_signals.difference_update(before)
        for number, handler in before.items():
            signal.signal(number, handler)


# -- forks ---------------------------------------------------------------------------------------------------------

_masks = threading.local()


def _hold() -> None:
    """Before a fork: let no signal that we handle arrive until the child can see to it.

    CPython forgets in a new child what its handlers were told before it got ready (_PySignal_AfterFork). A parent that
    terminates a child just born would wait for it for ever.
    """
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, handled_signals) if handled_signals else None


def _let_go() -> None:
    mask = getattr(_masks, "before", None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(before=_hold, after_in_parent=_let_go, after_in_child=_let_go)

# ------------------------------------------------------------------------------------------------------------------


def _numbers() -> list[int]:
    """SIGTERM, SIGINT, and where they are known: SIGBREAK (Ctrl-Break), and SIGHUP unless it is ignored or used."""
    names = ["SIGTERM", "SIGINT", "SIGBREAK"]
    # Under nohup a hang-up is ignored, and stays so; a program may have made it its order to reload.
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        names.append("SIGHUP")
    return [int(getattr(signal, name)) for name in names if hasattr(signal, name)]


def _watch(service: Service, stopped: threading.Event) -> None:
    """End the process if its stop does not end. For a body that was left behind, no release is waited for either."""
    boot = SystemClock().boot
    limit = boot() + service.longest_drain - FLUSH
    if not stopped.wait(service.longest_drain - LEAVE) and (
        service.abandoned
        or not stopped.wait(LEAVE - FLUSH if service.finished else service.longest_stop - service.longest_drain)
    ):
        exit_now(1)
    if is_blocked():
        # The interpreter waits for the locks of all log handlers at its exit. That would be for ever, so this thread
        # stays until the rest of the program has ended and has had its time.
        threading.main_thread().join()
        while is_blocked():
            if boot() >= limit:
                exit_now(1)
            threading.Event().wait(0.05)
