"""Daemon threads for calls that may block: sync bodies, file I/O of a store, name look-ups.

Unlike the threads of an executor they are daemons, so that nothing waits for a call that does not return, not even the
exit of the interpreter.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import TYPE_CHECKING, ParamSpec, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DaemonThreads", "DaemonWorker", "where"]

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class DaemonWorker:
    """Runs functions one after the other on one daemon thread, which starts with the first function."""

    __slots__ = ("_calls", "_name", "_thread")

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def alive(self) -> bool:
        """True if the thread has been started and has not ended after `stop`."""
        return self._thread is not None and self._thread.is_alive()

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Return or raise what `function(*args)` does on the thread. The caller's context is not copied.

        Cancellation ends the wait at once: a call that has begun goes on, and its outcome is ignored; a call that has
        not begun is never made. Must not be called after `stop`. Raises `RuntimeError` if the thread cannot be started;
        then the call is not made, and the next call tries to start the thread again.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[T, None] | tuple[None, BaseException]] = loop.create_future()

        def settle(outcome: tuple[T, None] | tuple[None, BaseException]) -> None:
            if not future.done():
                future.set_result(outcome)

        def call() -> None:
            if future.cancelled():
                return
            outcome: tuple[T, None] | tuple[None, BaseException]
            try:
                outcome = function(*args), None
            except BaseException as error:
                outcome = None, error
            try:
                loop.call_soon_threadsafe(settle, outcome)
            except RuntimeError:  # the loop is closed, so nothing waits for the outcome
                return
            finally:
                del outcome  # see below

        self.post(call)
        value, error = await future
        if error is not None:
            try:
                raise error
            finally:
                # A traceback whose frames name the error is a cycle, which would keep the body's locals alive.
                del error, future, settle, call
        return value  # type: ignore[return-value]  # `error` is None, so this is a T

    def stop(self, last: Callable[[], object] | None = None) -> None:
        """End the thread after the calls made so far and after `last`. Does not wait.

        If the thread was never started, `last` is called here.
        """
        if self._thread is not None:
            if last is not None:
                self.post(last)
            self._calls.put(None)
        elif last is not None:
            last()

    def post(self, call: Callable[[], object]) -> None:
        """Run this call, which must not raise, on the thread. Raises `RuntimeError` if the thread cannot be started."""
        if self._thread is None:
            thread = threading.Thread(target=_serve, args=(self._calls,), name=self._name, daemon=True)
            thread.start()
            self._thread = thread
        self._calls.put(call)


class DaemonThreads(Executor):
    """An executor that starts a daemon thread for each call, so that the exit of the program does not wait for it.

    It is an executor because a loop in virtual time counts the calls of executors.
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call `fn` in a new thread. Raises `RuntimeError` if no thread can be started."""
        future: Future[T] = Future()

        def call() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=call, name="singletonjob-call", daemon=True).start()
        return future


def _serve(calls: SimpleQueue[Callable[[], object] | None]) -> None:
    while (call := calls.get()) is not None:
        call()
        call = None  # otherwise the arguments of this call live until the next one


def where(thread: int) -> str:
    """Return the place in the code where that thread is."""
    # There is no other way to see the stack of another thread.
    frame = sys._current_frames().get(thread)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    if frame is None:
        return "an unknown place"
    return f"{frame.f_code.co_name} ({frame.f_code.co_filename}:{frame.f_lineno})"
