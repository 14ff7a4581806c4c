"""Sync bodies in virtual time: each in a thread of its own, of which one at a time has its turn while the loop waits.

So a body runs to its end, or to its next `run.wait`, as if it took no time; and the order of everything is the same
each time.
"""

from __future__ import annotations

import dataclasses
import threading
from math import inf
from typing import TYPE_CHECKING, Any

from .._system.worker_threads import DaemonWorker
from .virtual_threads import Threads, VirtualEvent

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from .._jobs.definition import JobDefinition
    from .._jobs.handles import Run

__all__ = ["TurnWorker", "with_virtual_waits"]

_turn = threading.local()
"""`worker`: the one whose call this thread makes."""


class TurnWorker(DaemonWorker):
    """Makes the calls of one job, on a thread that runs only while `loop` waits for it."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(name)
        self._loop = loop
        self._threads = Threads()
        self._carrier = self._threads.take()
        self._sleep: tuple[float, VirtualEvent] | None = None  # what the thread gave its turn back for
        self._timer: asyncio.Handle | None = None

    def post(self, call: Callable[[], object]) -> None:
        # The runner never hands over a second call before the first one is back.
        def make() -> None:
            _turn.worker = self
            call()

        self._carrier.work = make
        self._go_on()

    def stop(self, last: Callable[[], object] | None = None) -> None:
        if last is not None:
            self.post(last)
        if self._carrier.work is None:
            self._threads.put_back(self._carrier)
            self._threads.close()

    def sleep(self, seconds: float, event: VirtualEvent) -> None:
        """In the thread: give the turn back, until so much time has passed or the event was set."""
        self._sleep = seconds, event
        self._carrier.give_back()

    def notify(self, event: VirtualEvent) -> None:
        """On the loop: the event was set."""
        if self._sleep is not None and self._sleep[1] is event:
            self._plan(0.0)

    def _go_on(self) -> None:
        self._sleep = None
        self._carrier.go_on()
        if self._sleep is not None:
            self._plan(self._sleep[0])

    def _plan(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._go_on) if seconds < inf else None


def with_virtual_waits(job: JobDefinition) -> JobDefinition:
    """The job with a body whose `run.wait` takes virtual time, where it is sync."""
    if job.is_async:
        return job
    body = job.body

    def in_turn(run: Run) -> object:
        signal: Any = run._signal  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # no other way to its event
        event = VirtualEvent(_turn.worker)
        if signal.given:
            threading.Event.set(event)
        signal.event = event
        return body(run)

    return dataclasses.replace(job, body=in_turn)
