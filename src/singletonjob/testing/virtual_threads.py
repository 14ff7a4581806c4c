"""Real threads of which one at a time runs: a thread runs only while its owner waits for it.

A sync body needs a thread that it can block. In virtual time such a thread gets the baton when its time has come, and
returns it when it sleeps or ends. So the order of everything is the same each time.
"""

from __future__ import annotations

import threading
from math import inf
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Carrier", "Threads", "VirtualEvent"]


class Carrier:
    """A real thread. `work` is what it is to do next; None while it is idle, and when it is to end."""

    def __init__(self) -> None:
        self.work: Callable[[], object] | None = None
        self._error: BaseException | None = None
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        threading.Thread(target=self._serve, name="simulated", daemon=True).start()

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
            except BaseException as error:  # a fault of the simulation, which would wait for ever
                self._error = error
            self.work = None
            self.give_back()
        self._back.release()


class Threads:
    """The threads of one simulation, used again and again; `close` ends them."""

    def __init__(self) -> None:
        self._idle: list[Carrier] = []

    def take(self) -> Carrier:
        return self._idle.pop() if self._idle else Carrier()

    def put_back(self, carrier: Carrier) -> None:
        self._idle.append(carrier)

    def close(self) -> None:
        for carrier in self._idle:
            carrier.go_on()
        self._idle.clear()


class Sleeps(Protocol):
    """Whose thread can wait in virtual time."""

    def sleep(self, seconds: float, event: VirtualEvent) -> None: ...

    def notify(self, event: VirtualEvent) -> None: ...


class VirtualEvent(threading.Event):
    """An event that one body waits for, in virtual time."""

    def __init__(self, worker: Sleeps) -> None:
        super().__init__()
        self._worker = worker

    def set(self) -> None:
        super().set()
        self._worker.notify(self)

    def wait(self, timeout: float | None = None) -> bool:
        if not self.is_set():
            self._worker.sleep(inf if timeout is None else timeout, self)
        return self.is_set()
