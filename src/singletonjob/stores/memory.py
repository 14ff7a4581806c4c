"""Leases in the memory of this process, for tests and for a program that runs alone. The reference of all stores."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING

from .._core.protocol import Reply
from .._system.clock import SystemClock
from .rules import Record, apply, is_news, view

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from .._core.protocol import Batch, JobView, Verdict
    from .._system.clock import Clock

__all__ = ["MemoryStore", "shared"]


class MemoryStore:
    """A store for all apps of this process, each on its own event loop.

    Leases expire on `clock.boot()`. There is no connection, so requests need no reading before them, and `close` does
    nothing: the leases exist as long as the object.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = SystemClock() if clock is None else clock
        self._lock = threading.Lock()
        self._records: defaultdict[tuple[str, str], Record] = defaultdict(Record)
        self._listeners: set[_Listener] = set()

    async def exchange(self, batch: Batch) -> Reply:
        """See `LeaseStore.exchange`. Never waits, never fails."""
        with self._lock:
            now = self._clock.now()
            clock = int(now.boot * 1e6)
            if not batch.requests:
                return Reply(clock=clock, up_for=math.inf)
            if batch.void_at is not None and clock > batch.void_at:
                return Reply(clock=clock, void=True)
            verdicts: list[Verdict] = []
            news: set[str] = set()
            for request in batch.requests:
                record = self._records[batch.project, request.job]
                verdict = apply(record, request, node=batch.node, clock=clock, wall=now.wall)
                verdicts.append(verdict)
                if is_news(verdict):
                    news.add(request.job)
            if news:
                for listener in self._listeners:
                    if listener.project == batch.project:
                        listener.tell(news)
            return Reply(clock=clock, verdicts=tuple(verdicts))

    async def notices(self, project: str) -> AsyncGenerator[frozenset[str], None]:
        """See `LeaseStore.notices`. Reports releases and orders; a holder that dies takes this store with it."""
        listener = _Listener(project, asyncio.get_running_loop())
        with self._lock:
            self._listeners.add(listener)
        try:
            yield frozenset()
            while True:
                await listener.told.wait()
                listener.told.clear()
                with self._lock:
                    jobs, listener.jobs = listener.jobs, set()
                yield frozenset(jobs)
        finally:
            with self._lock:
                self._listeners.discard(listener)

    async def peek(self, project: str) -> tuple[JobView, ...]:
        """See `LeaseStore.peek`."""
        with self._lock:
            now = self._clock.now()
            clock, mine = int(now.boot * 1e6), [one for one in self._records.items() if one[0][0] == project]
            listeners = sum(listener.project == project for listener in self._listeners)
            views = [view(job, record, clock=clock, wall=now.wall, listeners=listeners) for (_, job), record in mine]
        return tuple(sorted(one for one in views if one is not None))

    async def close(self) -> None:
        """See `LeaseStore.close`."""


class _Listener:
    """Job names for the loop of one subscriber. The store's lock guards `jobs`."""

    __slots__ = ("jobs", "loop", "project", "told")

    def __init__(self, project: str, loop: asyncio.AbstractEventLoop) -> None:
        self.project = project
        self.loop = loop
        self.told = asyncio.Event()
        self.jobs: set[str] = set()

    def tell(self, jobs: set[str]) -> None:
        self.jobs |= jobs
        try:
            self.loop.call_soon_threadsafe(self.told.set)
        except RuntimeError:  # its loop was closed before the subscription ended
            return


@cache
def shared() -> MemoryStore:
    """Return the store of this process that the URL `memory` names."""
    return MemoryStore()
