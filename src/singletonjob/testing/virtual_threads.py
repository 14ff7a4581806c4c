"""Threads in virtual time: real threads, of which one at a time runs while the loop waits for it.

A sync body needs a thread that it can block. Here it runs to its end, or to its next `run.wait`, as if it took no time,
and the order of everything is the same each time.
"""

from __future__ import annotations

import threading
from math import inf
from typing import TYPE_CHECKING, Protocol

from .._system.worker_threads import DaemonWorker

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

__all__ = ["Carrier", "TurnWorker", "VirtualEvent", "this_worker"]

_thread = threading.local()
"""`worker`: the `TurnWorker` whose call this thread makes."""


class Carrier:
    """A real thread that runs only between `go_on` and `give_back`.

    `work` is the next call that it makes, which must not raise; None while it is idle. It ends when it goes on without
    work. Raises `RuntimeError` if the thread cannot be started.
    """

    def __init__(self, name: str) -> None:
        self.work: Callable[[], object] | None = None
        self._error: BaseException | None = None
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def go_on(self) -> None:
        """Give it the baton, and wait until it comes back."""
        self._go.release()
        self._back.acquire()
        if self._error is not None:
            raise self._error

    def give_back(self) -> None:
        """On its own thread: give the baton back, and wait for it."""
        self._back.release()
        self._go.acquire()

    def _serve(self) -> None:
        self._go.acquire()
        while self.work is not None:
            try:
                self.work()
            except BaseException as error:  # otherwise `go_on` would wait for ever
                self._error = error
            self.work = None
            self.give_back()
        self._back.release()


class _Sleeps(Protocol):
    """Whose thread can wait in virtual time."""

    def sleep(self, seconds: float, event: VirtualEvent) -> None: ...

    def notify(self, event: VirtualEvent) -> None: ...


class VirtualEvent(threading.Event):
    """What one body waits for, in virtual time."""

    def __init__(self, worker: _Sleeps) -> None:
        super().__init__()
        self._worker = worker

    def set(self) -> None:
        super().set()
        self._worker.notify(self)

    def wait(self, timeout: float | None = None) -> bool:
        if not self.is_set():
            self._worker.sleep(inf if timeout is None else timeout, self)
        return self.is_set()


class TurnWorker(DaemonWorker):
    """Makes the calls of one job, one at a time, on a thread that runs only while `loop` waits for it."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(name)
        self._loop = loop
        self._carrier: Carrier | None = None  # before the first call
        self._sleep: tuple[float, VirtualEvent] | None = None  # the reason why the thread gave its turn back
        self._timer: asyncio.Handle | None = None
        self._stopped = False

    def post(self, call: Callable[[], object]) -> None:
        if self._carrier is None:
            self._carrier = Carrier(self._name)

        def make() -> None:
            _thread.worker = self
            call()

        self._carrier.work = make  # the runner never hands over a second call before the first one is back
        self._go_on()

    def stop(self, last: Callable[[], object] | None = None) -> None:
        if last is not None:
            self.post(last)
        self._stopped = True
        if self._carrier is not None and self._carrier.work is None:
            self._carrier.go_on()

    def sleep(self, seconds: float, event: VirtualEvent) -> None:
        """In the thread: give the turn back, until so much time has passed or the event was set."""
        assert self._carrier is not None  # noqa: S101 - it makes this call
        self._sleep = seconds, event
        self._carrier.give_back()

    def notify(self, event: VirtualEvent) -> None:
        """On the loop: the event was set."""
        if self._sleep is not None and self._sleep[1] is event:
            self._plan(0.0)

    def _go_on(self) -> None:
        assert self._carrier is not None  # noqa: S101 - it has a call to make
        self._sleep = None
        self._carrier.go_on()
        if self._sleep is not None:
            self._plan(self._sleep[0])
        elif self._stopped:
            self._carrier.go_on()

    def _plan(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._go_on) if seconds < inf else None


def this_worker() -> TurnWorker:
    """Return the worker whose call this thread makes."""
    worker: TurnWorker = _thread.worker
    return worker
