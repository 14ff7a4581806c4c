"""Calls of the user's code: which exceptions are the call's own, and the end of a process that the code has forked."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from .signals import handles_interrupts

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["UserCode", "is_foreign"]


def is_foreign(error: BaseException, task: asyncio.Task[None] | None) -> bool:
    """True if `error`, caught around the user's code in `task`, is no failure of that code and must be raised again.

    Everything else that the code raises is a failed call, `SystemExit` included: asyncio lets that one, and
    `KeyboardInterrupt`, end the whole loop, and with it the other jobs. Foreign are:

    - `KeyboardInterrupt` in a main thread whose signals are not ours: Ctrl-C, which must end the program.
    - `CancelledError` while the task is being cancelled.
    - `GeneratorExit` while the task does not run: its coroutine is being closed.
    """
    if isinstance(error, KeyboardInterrupt):
        return threading.current_thread() is threading.main_thread() and not handles_interrupts()
    if task is None:
        return False
    if isinstance(error, asyncio.CancelledError):
        return task.cancelling() > 0
    return isinstance(error, GeneratorExit) and asyncio.current_task(task.get_loop()) is not task


class UserCode:
    """`with` this around each call of the user's code, so that only the process of the app returns from it.

    A child that the code forks and that comes out of the block, by returning or by an exception, ends there. Otherwise
    it would go on in our code and on the parent's event loop, whose descriptors it shares with the parent. Create the
    object in the process that makes the calls; the object keeps no state of a call and may be shared.
    """

    __slots__ = ("_process",)

    def __init__(self) -> None:
        self._process = os.getpid()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if os.getpid() != self._process:
            _end_child(error)


def _end_child(error: BaseException | None) -> NoReturn:
    """End this process as `multiprocessing` ends a forked child, with the exit code that Python would give it.

    Exit functions (`atexit`) are left out because they belong to the parent.
    """
    code = 0
    with suppress(Exception):
        if isinstance(error, SystemExit):
            if isinstance(error.code, int):
                code = error.code & 0xFF
            elif error.code is not None:
                code = 1
                sys.stderr.write(f"{error.code}\n")
        elif error is not None:
            code = 1
            sys.excepthook(type(error), error, error.__traceback__)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code)
