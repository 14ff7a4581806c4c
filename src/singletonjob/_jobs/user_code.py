"""Calls of the user's code: their context variables, which exceptions are their own, how a fork of theirs ends."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = ["UserCode", "handled_signals", "handles_interrupts", "in_own_task", "inside", "is_foreign", "result_of"]

inside: contextvars.ContextVar[object] = contextvars.ContextVar("singletonjob_inside", default=None)
"""The start of an app, a `Service`, of whose code the caller is a part: of a body, hook or switch, or of a task or
thread that one of those started and that has a copy of its context."""


handled_signals: set[int] = set()
"""The numbers of the signals that request an app of this process to stop; written where the handlers are installed."""


def handles_interrupts() -> bool:
    """True if Ctrl-C is the request to stop an app of this process, and so never raises `KeyboardInterrupt`."""
    return signal.SIGINT in handled_signals


def is_foreign(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
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


async def result_of(call: Callable[[], object]) -> tuple[object, BaseException | None]:
    """Return what the user's code `call()` returns, awaited if it is awaitable, or the exception that it raises.

    A `SystemExit` is a failure like any other here. If it left a task, it would end the loop. Raises only what
    `is_foreign`.
    """
    user_code = UserCode()
    try:
        with user_code:
            answer = call()
            return (await answer if inspect.isawaitable(answer) else answer), None
    except BaseException as error:
        if is_foreign(error, asyncio.current_task()):
            raise
        return None, error


async def in_own_task(call: Callable[[], object], context: contextvars.Context) -> object:
    """Return or raise what the user's code `call()` does, in a separate task in `context`.

    A cancellation of the caller reaches that task.
    """
    value, error = await asyncio.get_running_loop().create_task(result_of(call), context=context)
    if error is not None:
        try:
            raise error
        finally:
            del error  # a traceback whose frames name the error is a cycle
    return value


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
