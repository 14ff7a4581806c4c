"""User code that runs in threads: the sync calls of a job, and the blocking calls of async bodies.

Nothing can interrupt such code, and it outlives the task and the loop that wait for it. So the calls of a term are
counted, and the term is drained only when none of them runs any more.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import TYPE_CHECKING, TypeVar

from .._system.worker_threads import DaemonThreads
from .user_code import UserCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._system.worker_threads import DaemonWorker

__all__ = ["JobThread", "ThreadCalls", "run_in_thread"]

T = TypeVar("T")


class ThreadCalls:
    """The calls of one term that run in threads. Any object stands for a call."""

    __slots__ = ("_lock", "_running", "_then")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[object] = set()
        self._then: Callable[[], object] | None = None

    def __bool__(self) -> bool:
        """True while any of them runs."""
        return bool(self._running)

    def begin(self, call: object) -> None:
        self._running.add(call)

    def end(self, call: object) -> None:
        """The call has ended, or was never made. Safe from any thread."""
        with self._lock:
            self._running.discard(call)
            then = None
            if not self._running:
                then, self._then = self._then, None
        if then is not None:
            then()

    def after_all(self, then: Callable[[], object]) -> None:
        """Call `then()` once: now, or in the thread whose call ends last."""
        with self._lock:
            if self._running:
                self._then = then
                return
        then()


class JobThread:
    """The thread of a job's sync body and sync hooks, which starts with the first call."""

    __slots__ = ("_make", "_user_code", "_worker")

    def __init__(self, make: Callable[[], DaemonWorker]) -> None:
        self._make = make
        self._user_code = UserCode()
        self._worker: DaemonWorker | None = None

    async def call(self, calls: ThreadCalls, function: Callable[[], T], context: contextvars.Context) -> T:
        """Return what `function()` returns in the thread, where it reads and sets the context variables of `context`.

        A function that has begun stays in `calls` until it has ended, whatever becomes of this task. If the task is
        cancelled before that, the function is never called.
        """
        turn = threading.Lock()  # taken by whichever comes first: the thread that begins, or our end from outside

        def call() -> T:
            if not turn.acquire(blocking=False):
                raise asyncio.CancelledError  # nobody waits for it any more
            try:
                with self._user_code:
                    return context.run(function)
            finally:
                calls.end(turn)

        if self._worker is None:
            self._worker = self._make()
        calls.begin(turn)
        try:
            return await self._worker.run(call)
        except BaseException:
            if turn.acquire(blocking=False):
                calls.end(turn)
            raise

    def stop(self) -> None:
        """End the thread after the call that it makes; the next call starts another one."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None


async def run_in_thread(calls: ThreadCalls, function: Callable[[], T]) -> T:
    """Return what `function()` returns in a thread of its own; a cancellation waits until it has ended.

    After a cancellation, raise what the function raised, otherwise `CancelledError`.
    """
    call, user_code = object(), UserCode()
    context = contextvars.copy_context()

    def call_in_thread() -> tuple[T, None] | tuple[None, BaseException]:
        try:
            with user_code:
                return context.run(function), None
        except BaseException as error:
            return None, error
        finally:
            calls.end(call)

    calls.begin(call)
    try:
        future = asyncio.get_running_loop().run_in_executor(DaemonThreads(), call_in_thread)
    except BaseException:  # no thread could be started
        calls.end(call)
        raise
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError as error:
            cancelled = error
    value, failure = future.result()
    if failure is not None:
        try:
            raise failure
        finally:
            del failure, future  # a traceback whose frames name the error is a cycle
    if cancelled is not None:
        raise cancelled
    return value  # type: ignore[return-value]  # the pair's other half says that this one is a T
