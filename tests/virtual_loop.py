"""Fleets of unmodified apps on a loop whose time is virtual: hours pass in milliseconds."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

from singletonjob._core.values import Now
from singletonjob.stores.memory import MemoryStore
from singletonjob.testing.virtual_loop import VirtualLoop, run_virtually
from singletonjob.testing.virtual_threads import TurnWorker, VirtualEvent, this_worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from singletonjob import SingletonJobs
    from singletonjob._runtime.heartbeat import Heartbeat
    from singletonjob._runtime.service import Service
    from singletonjob.stores import LeaseStore
    from singletonjob.stores.protocol import Batch, JobView, Reply

__all__ = [
    "EPOCH",
    "Capture",
    "Gate",
    "Replica",
    "VirtualClock",
    "VirtualLoop",
    "holder",
    "memory",
    "nap",
    "run_virtually",
    "running",
    "the_loop",
    "turn_worker",
]

EPOCH = 1_795_000_000_000_000
"""The wall clock at virtual time zero, in microseconds."""


def turn_worker(name: str) -> TurnWorker:
    """Return a worker whose calls take no virtual time but what they `nap`: the worker of a `Replica`."""
    return TurnWorker(name, the_loop())


def nap(seconds: float) -> None:
    """Sleep in virtual time, as `time.sleep` does in real time; for calls of a `turn_worker`."""
    VirtualEvent(this_worker()).wait(seconds)


class VirtualClock:
    """One replica's clocks on the loop's time; `offset` is how far its wall clock is ahead, in seconds."""

    def __init__(self, loop: VirtualLoop, offset: float = 0.0) -> None:
        self.loop = loop
        self.offset = offset
        self.slept = 0.0  # suspended so far: the boot clock counts it, the loop's own time does not

    def boot(self) -> float:
        return self.loop.time() + 1000.0 + self.slept

    def wall(self) -> int:
        return EPOCH + round((self.loop.time() + self.offset + self.slept) * 1e6)

    def now(self) -> Now:
        return Now(self.wall(), self.boot())


def the_loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


def memory() -> MemoryStore:
    """An empty store on the loop's time."""
    return MemoryStore(VirtualClock(the_loop()))


def holder(store: MemoryStore, job: str, project: str = "pricing") -> str | None:
    """Whose lease it is, as the store has it; None: the key is free."""
    record = store._records[project, job]
    live = record.expires is not None and record.expires > store._clock.boot() * 1e6
    return record.holder if live else None


class Gate:
    """A store in front of another, that a test can cut, slow down or make fail."""

    def __init__(self, store: LeaseStore) -> None:
        self.store = store
        self.error: BaseException | None = None
        self.delay = 0.0  # of the request
        self.reply_delay = 0.0
        self.hang = False
        self.deaf = False  # notices do not come through
        self.batches: list[Batch] = []
        self.closed = False

    async def exchange(self, batch: Batch) -> Reply:
        self.batches.append(batch)
        if self.hang:
            await asyncio.Event().wait()
        if self.delay:
            await asyncio.sleep(self.delay)
        if self.error is not None:
            raise self.error
        reply = await self.store.exchange(batch)
        if self.reply_delay:
            await asyncio.sleep(self.reply_delay)
        return reply

    async def notices(self, project: str) -> AsyncIterator[frozenset[str]]:
        async for jobs in self.store.notices(project):
            if not self.deaf:
                yield jobs

    async def peek(self, project: str) -> tuple[JobView, ...]:
        return await self.store.peek(project)

    async def close(self) -> None:
        self.closed = True


class Replica:
    """One app, and its start, on the virtual loop: the heartbeat is a task here instead of a thread."""

    def __init__(self, app: SingletonJobs, clock: VirtualClock | None = None) -> None:
        self.app = app
        self.clock = clock or VirtualClock(the_loop())
        self.service: Service
        self.heartbeat: asyncio.Task[None]

    def start(self) -> Replica:
        self.app._clock = self.clock
        self.service = self.app._make(self._start_heartbeat)
        self.service.worker = turn_worker
        self.service.start()
        return self

    def _start_heartbeat(self, heartbeat: Heartbeat) -> None:
        self.heartbeat = heartbeat.start_here()
        self.heartbeat.add_done_callback(self._heartbeat_ended)

    def _heartbeat_ended(self, task: asyncio.Task[None]) -> None:
        self.service.heartbeat_ended(None if task.cancelled() else task.exception())

    async def stop(self) -> None:
        await self.service.stop()
        self.app._service = None

    def crash(self) -> None:
        """End at once, as a killed process does: nothing is released and nobody is told."""
        self.heartbeat.cancel()
        self.service._stop_task = asyncio.create_task(asyncio.sleep(0))
        for task in [*self.service._tasks.values(), *self.service._switch_tasks]:
            task.cancel()
        self.service._stamp_timer.cancel()
        self.service._timers.close()
        # What the tasks still say on their way out does not reach a heartbeat any more.
        self.service._heartbeat._loop = None


@asynccontextmanager
async def running(app: SingletonJobs, clock: VirtualClock | None = None) -> AsyncIterator[Replica]:
    replica = Replica(app, clock).start()
    try:
        yield replica
    finally:
        await replica.stop()


class Capture(logging.Handler):
    """Keeps the records of the logger `singletonjob`."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def events(self, job: str | None = None) -> list[str]:
        return [r.event for r in self.records if job is None or r.job == job]

    def of(self, event: str) -> list[Any]:
        return [r for r in self.records if r.event == event]

    def text(self, record: logging.LogRecord) -> str:
        """The line with its traceback, as a handler writes it."""
        return logging.Formatter().format(record)

    def __enter__(self) -> Self:
        logger = logging.getLogger("singletonjob")
        self._level = logger.level
        logger.setLevel(logging.DEBUG)
        logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logger = logging.getLogger("singletonjob")
        logger.removeHandler(self)
        logger.setLevel(self._level)
