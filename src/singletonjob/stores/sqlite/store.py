"""Leases in one SQLite file, for the processes of one machine: no server, and a holder's death is known at once.

One exchange is one IMMEDIATE transaction on a thread of its own, so a slow disk or a locked file never holds up the
caller's loop. Leases end on the machine's boot clock, which all its processes share; a row whose holder is dead is
free. `place` says where the file may be, `file` opens and guards it, `holder` tells who is dead,
and `watch` hears of releases and deaths.
"""

from __future__ import annotations

import asyncio
import math
import threading
from dataclasses import fields
from typing import TYPE_CHECKING

from ..._core.errors import StoreError, StoreUnavailable
from ..._core.protocol import Acquire, Barred, ClaimSlot, Refused, Release, Renew, Reply, TakeTrigger
from ..._system.clock import SystemClock
from ..._system.worker_threads import DaemonWorker
from ..rules import Record, apply, changes
from .file import boot_offset, open_file, translated
from .holder import Holder, HolderFile, boot_id, forget_dead, is_dead
from .inspect import inspect
from .peek import look
from .place import path_from_url
from .watch import Watch

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from ..._core.protocol import Batch, Finding, JobView, Request, Verdict
    from ..._core.values import Now
    from ..._system.clock import Clock
    from .file import OpenFile

__all__ = ["SqliteStore", "path_from_url"]

MAX_STUCK = 8
"""So many threads may hang in calls that do not come back (a dead disk) before no more are started."""

FIELDS = tuple(field.name for field in fields(Record))
COLUMNS = (*FIELDS, "boot", "file", "inode")
READ = f"SELECT {', '.join(COLUMNS)} FROM lease WHERE project = ? AND job = ?"  # noqa: S608 - constants
DELETE = "DELETE FROM lease WHERE project = ? AND job = ?"
# Not INSERT OR REPLACE: columns that a newer version added must keep their values.
WRITE = (
    f"INSERT INTO lease (project, job, {', '.join(COLUMNS)}) VALUES ({', '.join('?' * (len(COLUMNS) + 2))})"  # noqa: S608 - constants
    f" ON CONFLICT (project, job) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in COLUMNS)}"
)


class SqliteStore:
    """The store in the file at `path`, which is made when it is first used; its directory must exist.

    Processes of one user on one machine share it. `clock` is for tests: all processes of a file must share one.
    """

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self._path = path.absolute()
        self._clock: Clock = SystemClock() if clock is None else clock
        self._holders = _Holders()
        self._session: _Session | None = None
        self._stuck: list[DaemonWorker] = []
        self._watches: set[Watch] = set()
        self._held: set[tuple[str, str]] = set()
        self._closed = False

    async def exchange(self, batch: Batch) -> Reply:
        """See `LeaseStore.exchange`. A file that stays locked for `batch.bound` is a `StoreUnavailable`."""
        if self._closed:
            raise StoreUnavailable(f"sqlite store: {self._path} is closed")
        session = self._session
        if session is None:
            if batch.requests:
                raise StoreUnavailable(f"sqlite store: {self._path} is not open; a reading comes first")
            self._stuck = [worker for worker in self._stuck if worker.alive]
            if len(self._stuck) >= MAX_STUCK:
                raise StoreUnavailable(f"sqlite store: {self._path}: {MAX_STUCK} calls hang; is the disk alive?")
            session = self._session = _Session(self._path, self._clock, self._holders)
        for request in batch.requests:
            if isinstance(request, Acquire):
                self._held.add((batch.project, request.job))  # until it is known not to be: the answer may get lost
        try:
            reply = await session.worker.run(session.exchange, batch, self._clock.boot() + batch.bound)
        except BaseException:
            # An exception or a cancellation leaves the connection in doubt: the thread may still be at work on it.
            if self._session is session:
                self._session = None
            session.abandoned = True
            session.worker.stop(session.close)
            self._stuck.append(session.worker)
            raise
        for request, verdict in zip(batch.requests, reply.verdicts, strict=False):
            if _is_over(request, verdict, batch.node):
                self._held.discard((batch.project, request.job))
        return reply

    async def notices(self, project: str) -> AsyncGenerator[frozenset[str], None]:
        """See `LeaseStore.notices`. Releases by any process, and jobs whose holder died without one."""
        loop = asyncio.get_running_loop()
        heard: asyncio.Queue[frozenset[str] | StoreError] = asyncio.Queue()

        def tell(item: frozenset[str] | StoreError) -> bool:
            try:
                loop.call_soon_threadsafe(heard.put_nowait, item)
            except RuntimeError:  # the loop is closed: nobody listens any more
                return False
            return True

        watch = Watch(self._path, project, tell)
        with translated(self._path):
            watch.start()
        self._watches.add(watch)
        try:
            while True:
                item = await heard.get()
                if isinstance(item, StoreError):
                    raise item
                yield item
        finally:
            self._watches.discard(watch)
            watch.stop()

    async def peek(self, project: str) -> tuple[JobView, ...]:
        """See `LeaseStore.peek`. A file that is not there is a `StoreUnavailable`: looking makes none."""
        worker = DaemonWorker("singletonjob-sqlite-peek")
        try:
            return await worker.run(look, self._path, project, self._clock)
        finally:
            worker.stop()

    async def inspect(self, project: str) -> tuple[Finding, ...]:  # noqa: ARG002 - one file serves all projects
        """See `Inspectable.inspect`. Opens the file, locks one beside it and writes a row, as a replica does."""
        worker = DaemonWorker("singletonjob-sqlite-check")
        try:
            return await worker.run(inspect, self._path)
        finally:
            worker.stop()

    async def close(self) -> None:
        """See `LeaseStore.close`. The holder's lock lasts with the process if a lease may not have been given back."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            session.abandoned = True
            session.worker.stop(session.close)
        for watch in self._watches:
            watch.stop()
            watch.tell(StoreUnavailable(f"sqlite store: {self._path} is closed"))
        if not self._held:
            self._holders.remove_all()


class _Holders:
    """The holder's files of one store, the newest last.

    One is enough, unless somebody deletes it or moves the database. The old one is kept: rows may name it, and it may
    come back. Threads of two sessions may meet here, so the lock is held for no call that could hang.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: list[HolderFile] = []

    def current(self, database: Path) -> HolderFile:
        """One that lies beside `database`, made now if need be. Raises `OSError`."""
        with self._lock:
            newest = self._files[-1] if self._files else None
        if newest is not None and newest.path.parent == database.parent and newest.intact:
            return newest
        made = HolderFile(database)
        with self._lock:
            self._files.append(made)
        return made

    def remove_all(self) -> None:
        with self._lock:
            files, self._files = self._files, []
        for file in files:
            file.remove()


class _Session:
    """One connection and the thread that it belongs to: all methods run there. `abandoned` is set by the loop."""

    __slots__ = ("_ahead", "_boot", "_clock", "_holders", "_open", "_path", "abandoned", "worker")

    def __init__(self, path: Path, clock: Clock, holders: _Holders) -> None:
        self.worker = DaemonWorker("singletonjob-sqlite")
        self.abandoned = False
        self._path = path
        self._clock = clock
        self._holders = holders
        self._boot = boot_id()
        self._ahead = boot_offset()
        self._open: tuple[OpenFile, HolderFile] | None = None

    def exchange(self, batch: Batch, deadline: float) -> Reply:
        """Carry out a batch; `deadline` is on the boot clock."""
        with translated(self._path):
            if self._open is None:
                self._open = self._opened(self._remaining(deadline))
            file, holder = self._open
            file.check()
            connection = file.connection
            # SQLite's wait for a lock cannot be interrupted, so it ends by itself, a little before the caller's does.
            connection.execute(f"PRAGMA busy_timeout={max(1, int(self._remaining(deadline) * 900))}")
            if not batch.requests:
                connection.execute("SELECT 1 FROM lease LIMIT 1").fetchone()
                return Reply(clock=self._lease_clock(self._clock.now()), up_for=math.inf)
            # A claim must outlast a power cut, or its slot runs twice. All else may be lost with the machine.
            claims = any(isinstance(request, ClaimSlot | TakeTrigger) for request in batch.requests)
            connection.execute(f"PRAGMA synchronous={'FULL' if claims else 'NORMAL'}")
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                now = self._clock.now()
                clock = self._lease_clock(now)
                if self.abandoned or (batch.void_at is not None and clock > batch.void_at):
                    return Reply(clock=clock, void=True)
                verdicts = [self._apply(connection, file, holder, batch, request, now) for request in batch.requests]
            return Reply(clock=clock, verdicts=tuple(verdicts))

    def close(self) -> None:
        if self._open is not None:
            self._open[0].connection.close()
            self._open = None

    def _opened(self, budget: float) -> tuple[OpenFile, HolderFile]:
        file = open_file(self._path, budget)

        def named() -> set[str]:
            return {name for (name,) in file.connection.execute("SELECT file FROM lease WHERE file IS NOT NULL")}

        try:
            holder = self._holders.current(file.database)
            forget_dead(file.database, named, self._clock.wall())
        except BaseException:
            file.connection.close()
            raise
        return file, holder

    def _remaining(self, deadline: float) -> float:
        remaining = deadline - self._clock.boot()
        if remaining <= 0:
            raise StoreUnavailable(f"sqlite store: {self._path}: no time is left for the call")
        return remaining

    def _apply(
        self,
        connection: sqlite3.Connection,
        file: OpenFile,
        holder: HolderFile,
        batch: Batch,
        request: Request,
        now: Now,
    ) -> Verdict:
        row = connection.execute(READ, (batch.project, request.job)).fetchone()
        record = Record()
        where: Holder | tuple[None, None, None] = None, None, None
        if row is not None:
            *stored, boot, name, inode = row
            record = Record(*stored)
            if record.holder is not None:
                where = Holder(boot, name, inode)
                if record.holder != batch.node and is_dead(file.database.parent, where, self._boot):
                    record.holder = record.expires = None
                    record.released = record.token  # nothing of that term can run any more
        clock = self._lease_clock(now)
        verdict = apply(record, request, node=batch.node, clock=clock, wall=now.wall)
        if changes(verdict):
            if record == Record():
                connection.execute(DELETE, (batch.project, request.job))
                return verdict
            if record.holder is None:
                where = None, None, None
            elif record.holder == batch.node:  # else an operator's order: the holder lives as long as its own file
                where = Holder(self._boot, holder.path.name, holder.inode)
            values = (getattr(record, name) for name in FIELDS)
            connection.execute(WRITE, (batch.project, request.job, *values, *where))
        return verdict

    def _lease_clock(self, now: Now) -> int:
        """The machine's boot clock in microseconds, which all processes of the file share."""
        return int(now.boot * 1e6) - self._ahead


def _is_over(request: Request, verdict: Verdict, node: str) -> bool:
    """Whether this process certainly does not hold the job's lease after this answer."""
    match request, verdict:
        case (Acquire() | Renew(), Refused()):
            return verdict.holder != node
        case (Acquire(), Barred()):
            return not verdict.mine
        case (Release(), _):
            return True
        case _:
            return False
