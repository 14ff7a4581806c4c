"""Hears, in one process, what others do to the SQLite file: leases given back, and holders that died.

A thread sleeps in poll(2) until inotify reports a write to the log or the close of a holder's file, then looks. It has
its own connection, because only reads of one connection tell what changed since its last one. Both events come a
little early: the log is written before the commit shows in its index, and a file is closed before its lock goes. So
each event is followed by a few more looks. Where inotify does not work (another system, none left for this user, a
file system that does not report), the thread looks each 40 ms instead.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import threading
from collections import deque
from typing import TYPE_CHECKING

from ..._core.errors import StoreError
from .file import open_file, translated
from .holder import Holder, boot_id, is_dead, prefix
from .inotify import CLOSE_WRITE, MODIFY, OVERFLOW, Inotify

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .file import OpenFile

__all__ = ["Watch"]

OPEN_BUDGET = 2.0
POLL = 0.04
IDLE = 1.0
"""Seconds between looks without an event: finds a replaced file, and what an event might have missed."""

AGAIN = (0.001, 0.004, 0.015, 0.03, 0.1)
"""Seconds between the looks that follow an event: 1, 5, 20, 50 and 150 ms after it."""


class Watch:
    """Calls `tell` on a thread of its own, from `start` to `stop`.

    First with an empty set, when it hears from then on; then with the names of jobs of `project` that somebody should
    look at; last, if it cannot go on, with the `StoreError` that says why. It ends when `tell` returns False, too.
    """

    __slots__ = ("_boot", "_dead", "_held", "_orders", "_path", "_project", "_stop", "_tokens", "_version", "tell")

    def __init__(self, path: Path, project: str, tell: Callable[[frozenset[str] | StoreError], bool]) -> None:
        self.tell: Callable[[frozenset[str] | StoreError], bool] = tell
        self._path = path
        self._project = project
        self._stop: int | None = None
        self._boot = boot_id()
        self._version = -1
        self._tokens: dict[str, int] = {}
        self._orders: dict[str, int] = {}
        self._held: dict[str, Holder] = {}
        self._dead: set[Holder] = set()

    def start(self) -> None:
        """Begin to watch. Raises `OSError` or `RuntimeError` if no more descriptors or threads are to be had."""
        stopped, self._stop = os.pipe()
        thread = threading.Thread(target=self._run, args=(stopped,), name="singletonjob-notices", daemon=True)
        try:
            thread.start()
        except BaseException:
            os.close(stopped)
            self.stop()
            raise

    def stop(self) -> None:
        """End the thread soon; `tell` may be called once more. May be called again."""
        descriptor, self._stop = self._stop, None
        if descriptor is not None:
            # A byte, not the close alone: a forked child has a copy of this end.
            with contextlib.suppress(OSError):
                os.write(descriptor, b"\0")
            os.close(descriptor)

    def _run(self, stopped: int) -> None:
        try:
            with contextlib.ExitStack() as stack:
                stack.callback(os.close, stopped)
                with translated(self._path):
                    file = open_file(self._path, OPEN_BUDGET)
                    stack.callback(file.connection.close)
                    inotify = _working_inotify(file.database)
                    if inotify is not None:
                        stack.callback(inotify.close)
                    self._look(file)
                    if self.tell(frozenset()):
                        self._watch(file, inotify, stopped)
        except StoreError as error:
            self.tell(error)

    def _watch(self, file: OpenFile, inotify: Inotify | None, stopped: int) -> None:
        poll = select.poll()
        poll.register(stopped, select.POLLIN)
        if inotify is not None:
            poll.register(inotify.descriptor, select.POLLIN)
        idle = POLL if inotify is None else IDLE
        log = f"{file.database.name}-wal"
        ahead: deque[float] = deque()
        while True:
            ready = [descriptor for descriptor, _ in poll.poll((ahead[0] if ahead else idle) * 1000)]
            if stopped in ready:
                return
            if ahead and not ready:
                ahead.popleft()
            jobs = self._look(file)
            if inotify is None or inotify.descriptor not in ready:
                jobs |= self._orphans(file)
            elif any(_matters(event, name, log, file.database) for event, name in inotify.read()):
                ahead = deque(AGAIN)
                jobs |= self._orphans(file)
            if jobs and not self.tell(frozenset(jobs)):
                return

    def _look(self, file: OpenFile) -> set[str]:
        """The jobs that nobody holds and somebody did, at the last look or in a term that began since and is over; and
        those for which an operator gave an order since."""
        file.check()
        (version,) = file.connection.execute("PRAGMA data_version").fetchone()
        if version == self._version:
            return set()
        self._version = version
        before, held, orders = self._tokens, self._held, self._orders
        self._tokens, self._held, self._orders = {}, {}, {}
        for job, token, given, name, inode, boot in file.connection.execute(
            "SELECT job, token, orders, file, inode, boot FROM lease WHERE project = ?", (self._project,)
        ):
            self._tokens[job] = token
            self._orders[job] = given
            if name is not None:
                self._held[job] = Holder(boot, name, inode)
        free = (before.keys() | self._tokens.keys()) - self._held.keys()
        news = {job for job in free if job in held or before.get(job) != self._tokens.get(job)}
        return news | {job for job, given in self._orders.items() if given != orders.get(job, 0)}

    def _orphans(self, file: OpenFile) -> set[str]:
        """The jobs whose holder died since the last time."""
        holders = set(self._held.values())
        self._dead &= holders
        directory = file.database.parent
        died = {holder for holder in holders - self._dead if is_dead(directory, holder, self._boot)}
        self._dead |= died
        return {job for job, holder in self._held.items() if holder in died}


def _matters(event: int, name: str, log: str, database: Path) -> bool:
    if event & OVERFLOW:
        return True
    return bool(event & MODIFY and name == log) or bool(event & CLOSE_WRITE and name.startswith(prefix(database)))


def _working_inotify(database: Path) -> Inotify | None:
    """One that was seen to report, or None."""
    try:
        inotify = Inotify(database.parent)
    except OSError:
        return None
    # Named as a dead holder's, so that it is cleaned up like one if this process dies here.
    scratch = database.parent / f"{prefix(database)}{secrets.token_hex(8)}"
    poll = select.poll()
    poll.register(inotify.descriptor, select.POLLIN)
    try:
        os.close(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        scratch.unlink()
        while poll.poll(200):
            if any(name == scratch.name for _, name in inotify.read()):
                return inotify
    except OSError:
        pass
    inotify.close()
    return None
