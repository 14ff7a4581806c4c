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
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar, TypeVarTuple

from .clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable

__all__ = ["DaemonThreads", "DaemonWorker", "PatientLoop", "run_patiently", "slow_look_up", "where"]

LOOK_UPS = 8
"""So many name look-ups of one loop may hang at once; each of them costs a thread."""

LATE_ANSWER_LASTS = 15.0
"""Seconds for which the answer of a look-up that was given up may be used: longer than a replica backs off at default
settings (12 s), because an answer that is gone by the next call is of no use."""

SLOW_LOOK_UP = "looking up the name"
"""What the note begins with that a look-up leaves on the cancellation that ends its call."""

LookUp: TypeAlias = "asyncio.Task[tuple[Any, float]]"
"""The answer, and when it came, on the boot clock."""

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

    asyncio's own look-up goes to an executor, whose threads the interpreter joins when it exits: for as long as the
    system's resolver takes, minutes where it tries several servers and search domains.

    A look-up goes on when its call is given up, and the next call for the same name takes it over. Otherwise a resolver
    that is slower than the calls are patient would never be of use. That call looks the name up anew as well, so that a
    look-up that hangs delays nobody, and takes the first answer. An answer is used for one call only.

    `boot` is the boot clock.
    """

    def __init__(self, boot: Callable[[], float] = SystemClock.boot) -> None:
        super().__init__()
        self._boot = boot
        self._looking_up: set[DaemonWorker] = set()
        self._given_up: dict[Hashable, set[LookUp]] = {}

    async def getaddrinfo(self, host: Any, port: Any, **hints: int) -> Any:
        """As that of asyncio; raises `socket.gaierror` also while too many look-ups hang, and if there is no thread for
        this one. See `slow_look_up` for a call that is cancelled meanwhile."""
        name = (host, port, *sorted(hints.items()))
        earlier = self._given_up.pop(name, set())
        for look_up in earlier:
            if (answer := self._late_answer(look_up)) is not None:
                return answer
        waiting = {look_up for look_up in earlier if not look_up.done()}
        own: LookUp | None = None
        if len(self._looking_up) < LOOK_UPS:
            own = self.create_task(self._look_up(partial(socket.getaddrinfo, host, port, **hints)))
            own.add_done_callback(_retrieved)
            waiting.add(own)
        elif not waiting:
            raise socket.gaierror(socket.EAI_AGAIN, f"{LOOK_UPS} name look-ups hang")
        begun = self.time()
        try:
            while True:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for look_up in done:
                    if look_up is own or not waiting or look_up.exception() is None:
                        return look_up.result()[0]
        except asyncio.CancelledError as error:
            self._given_up.setdefault(name, set()).update(waiting)
            error.add_note(f"{SLOW_LOOK_UP} {host} took longer than {self.time() - begun:.2g} s")
            raise

    async def _look_up(self, look: Callable[[], Any]) -> tuple[Any, float]:
        """What `look` returns, and when it did. Each has a thread of its own, so that none delays the next one."""
        worker = DaemonWorker("singletonjob-look-up")

        def look_and_leave() -> tuple[Any, float]:
            try:
                return look(), self._boot()
            finally:
                self._looking_up.discard(worker)

        self._looking_up.add(worker)
        try:
            return await worker.run(look_and_leave)
        except RuntimeError as error:
            self._looking_up.discard(worker)
            raise socket.gaierror(socket.EAI_AGAIN, f"a name look-up needs a thread: {error}") from error
        finally:
            worker.stop()

    def _late_answer(self, look_up: LookUp) -> Any:
        """What a look-up that was given up has found since; None if it still goes on, failed, or is too long ago."""
        if not look_up.done() or look_up.exception() is not None:
            return None
        answer, ended = look_up.result()
        return answer if self._boot() - ended <= LATE_ANSWER_LASTS else None


def _retrieved(look_up: LookUp) -> None:
    """Fetch the outcome, so that asyncio does not complain of a failure that nobody waited for."""
    if not look_up.cancelled():
        look_up.exception()


def slow_look_up(error: BaseException) -> str:
    """Which name was being looked up when a call was cancelled, and for how long; '' if none was.

    `error` is what became of the cancellation on its way up, such as the `TimeoutError` of `asyncio.timeout`.
    """
    one: BaseException | None = error
    while one is not None:
        for note in getattr(one, "__notes__", ()):
            if note.startswith(SLOW_LOOK_UP):
                return str(note)
        one = one.__cause__ or one.__context__
    return ""


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
