"""A thread of its own for calls that may block: sync bodies, file I/O of a store, name look-ups; and where another
thread is.

Unlike an executor's threads, this one is a daemon: neither the interpreter's exit nor anybody else ever waits for a
call that does not come back.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from concurrent.futures import Executor, Future
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ["DaemonThreads", "DaemonWorker", "PatientLoop", "run_patiently", "where"]

LOOK_UPS = 8
"""So many name look-ups of one loop may hang at once; each of them costs a thread."""

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class DaemonWorker:
    """Runs functions one at a time, in order, on one daemon thread that starts with the first of them."""

    __slots__ = ("_calls", "_name", "_thread")

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def alive(self) -> bool:
        """Whether the thread exists: it has been started, and has not ended after `stop`."""
        return self._thread is not None and self._thread.is_alive()

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """What `function(*args)` returns or raises, run on the thread. The caller's context is not copied.

        Cancellation ends the wait at once: a call that has begun goes on and its outcome is forgotten, one that waits
        for its turn is never made. Must not be called after `stop`. Raises `RuntimeError` if the thread cannot be
        started; the call is not made then, and the next one tries to start the thread again.
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
            except RuntimeError:  # the loop is closed: nobody waits any more
                return
            finally:
                del outcome  # see below

        self.post(call)
        value, error = await future
        if error is not None:
            try:
                raise error
            finally:
                # A traceback whose frames name the error is a cycle: the body's locals would wait for a collection.
                del error, future, settle, call
        return value  # type: ignore[return-value]  # the pair's other half says that this one is a T

    def stop(self, last: Callable[[], object] | None = None) -> None:
        """End the thread after the calls made so far, and after `last`. Does not wait.

        If the thread was never started, `last` is called here, so that it needs none.
        """
        if self._thread is not None:
            if last is not None:
                self.post(last)
            self._calls.put(None)
        elif last is not None:
            last()

    def post(self, call: Callable[[], object]) -> None:
        """Have the thread make this call, which must not raise. Raises `RuntimeError` if there can be no thread."""
        if self._thread is None:
            thread = threading.Thread(target=_serve, args=(self._calls,), name=self._name, daemon=True)
            thread.start()
            self._thread = thread
        self._calls.put(call)


class PatientLoop(asyncio.SelectorEventLoop):
    """A loop on which a name look-up that hangs is waited for by nobody but its caller.

    asyncio's own goes to an executor, whose threads the interpreter joins when it exits: for as long as the system's
    resolver takes, minutes where it tries several servers and search domains. Each look-up has a fresh thread, so that
    one that hangs does not delay the next one, which may find the resolver well again.
    """

    def __init__(self) -> None:
        super().__init__()
        self._looking_up: set[DaemonWorker] = set()

    async def getaddrinfo(self, host: Any, port: Any, **hints: int) -> Any:
        """As that of asyncio; raises `socket.gaierror` at once while too many of them hang."""
        if len(self._looking_up) >= LOOK_UPS:
            raise socket.gaierror(socket.EAI_AGAIN, f"{LOOK_UPS} name look-ups hang")
        worker = DaemonWorker("singletonjob-look-up")
        self._looking_up.add(worker)
        try:
            return await worker.run(partial(socket.getaddrinfo, host, port, **hints))
        finally:
            worker.stop(last=partial(self._looking_up.discard, worker))


class DaemonThreads(Executor):
    """An executor that starts a daemon thread for each call, so that nobody waits for the call at exit.

    An executor, because a loop in virtual time knows the calls of those.
    """

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call `fn` in a thread of its own. Raises `RuntimeError` where no thread can be started."""
        future: Future[T] = Future()

        def call() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=call, name="singletonjob-call", daemon=True).start()
        return future


def run_patiently(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, on a `PatientLoop`."""
    with asyncio.Runner(loop_factory=PatientLoop) as runner:
        return runner.run(main)


def _serve(calls: SimpleQueue[Callable[[], object] | None]) -> None:
    while (call := calls.get()) is not None:
        call()
        call = None  # else the last call's arguments live until the next one comes


def where(thread: int) -> str:
    """The place in the code where that thread is."""
    # The one way to see another thread's stack, private by name only.
    frame = sys._current_frames().get(thread)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    if frame is None:
        return "an unknown place"
    return f"{frame.f_code.co_name} ({frame.f_code.co_filename}:{frame.f_lineno})"
