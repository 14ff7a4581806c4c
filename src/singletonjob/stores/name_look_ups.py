"""An event loop whose name look-ups delay only the call that needs them."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from .._system.clock import SystemClock
from .._system.worker_threads import DaemonWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable

__all__ = ["PatientLoop", "run_patiently", "slow_look_up"]

LOOK_UPS = 8
"""The number of name look-ups of one loop that may hang at once; each of them needs a thread."""

LATE_ANSWER_LASTS = 15.0
"""Seconds for which the answer of an abandoned look-up may be used. Longer than the back-off of a replica at default
settings (12 s), because the answer must still be there for the next call."""

SLOW_LOOK_UP = "looking up the name"
"""The beginning of the note that a look-up adds to the cancellation of its call."""

LookUp: TypeAlias = "asyncio.Task[tuple[Any, float]]"
"""The answer and its time of arrival on the boot clock."""

T = TypeVar("T")


class PatientLoop(asyncio.SelectorEventLoop):
    """An event loop on which a name look-up that hangs delays only its caller.

    The look-up of asyncio uses an executor, whose threads the interpreter joins when it exits. That takes as long as
    the system's resolver: minutes, if it tries several servers and search domains.

    A look-up goes on when its call is cancelled, and the next call for the same name takes it over. Otherwise a
    resolver that is slower than the time limit of a call would never be of use. The next call starts a new look-up as
    well, so that one that hangs delays nothing, and uses the first answer. An answer is used for one call only.

    `boot` is the boot clock.
    """

    def __init__(self, boot: Callable[[], float] = SystemClock.boot) -> None:
        super().__init__()
        self._boot = boot
        self._looking_up: set[DaemonWorker] = set()
        self._given_up: dict[Hashable, set[LookUp]] = {}

    async def getaddrinfo(self, host: Any, port: Any, **hints: int) -> Any:
        """Look a name up as asyncio does.

        Raises `socket.gaierror` also while too many look-ups hang, and if no thread can be started. See `slow_look_up`
        for a call that is cancelled meanwhile.
        """
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
        """Return what `look` returns, and when. Each has a separate thread, so that none delays the next one."""
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
        """Return the answer of an abandoned look-up; None if it still runs, failed, or is too old."""
        if not look_up.done() or look_up.exception() is not None:
            return None
        answer, ended = look_up.result()
        return answer if self._boot() - ended <= LATE_ANSWER_LASTS else None


def _retrieved(look_up: LookUp) -> None:
    """Fetch the outcome, so that asyncio does not log a failure that nothing awaited."""
    if not look_up.cancelled():
        look_up.exception()


def slow_look_up(error: BaseException) -> str:
    """Return which name was being looked up when a call was cancelled, and for how long; '' if none was.

    `error` is the cancellation or an error that it caused, such as the `TimeoutError` of `asyncio.timeout`.
    """
    one: BaseException | None = error
    while one is not None:
        for note in getattr(one, "__notes__", ()):
            if note.startswith(SLOW_LOOK_UP):
                return str(note)
        one = one.__cause__ or one.__context__
    return ""


def run_patiently(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine as `asyncio.run` does, on a `PatientLoop`."""
    with asyncio.Runner(loop_factory=PatientLoop) as runner:
        return runner.run(main)
