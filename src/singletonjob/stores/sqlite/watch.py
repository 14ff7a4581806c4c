"""Hears, in one process, what others do to the SQLite file: leases that were released, and holders that died.

A thread reads SQLite's count of changes each 70 ms, and now and then tries the locks of the holders' files. It has its
own connection, because only reads of one connection tell what changed since its last one.
"""

from __future__ import annotations

import contextlib
import threading
from itertools import count
from typing import TYPE_CHECKING

from ..._core.errors import StoreError
from .file import open_file, translated
from .holder import Holder, boot_id, is_dead

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .file import OpenFile

__all__ = ["Watch"]

OPEN_BUDGET = 2.0
POLL = 0.07
"""Seconds between two looks: a release is heard within 100 ms (L1)."""

DEATHS_EACH = 2
"""So many looks apart the locks of the holders are tried: a death is heard within 250 ms (L2)."""

CHECK_EACH = 14
"""So many looks apart it is checked that the file was not replaced."""


class Watch:
    """Calls `tell` on a thread of its own, from `start` to `stop`.

    First with an empty set, when it hears from then on; then with the names of jobs of `project` that somebody should
    look at; last, if it cannot go on, with the `StoreError` that says why. It ends when `tell` returns False, too.
    """

    __slots__ = ("_boot", "_dead", "_going", "_held", "_orders", "_path", "_project", "_tokens", "_version", "tell")

    def __init__(self, path: Path, project: str, tell: Callable[[frozenset[str] | StoreError], bool]) -> None:
        self.tell: Callable[[frozenset[str] | StoreError], bool] = tell
        self._path = path
        self._project = project
        self._going = threading.Lock()  # held until the end; an event's wait would cost twice as much
        self._going.acquire()
        self._boot = boot_id()
        self._version = -1
        self._tokens: dict[str, int] = {}
        self._orders: dict[str, int] = {}
        self._held: dict[str, Holder] = {}
        self._dead: set[Holder] = set()

    def start(self) -> None:
        """Begin to watch. Raises `RuntimeError` if no more threads are to be had."""
        threading.Thread(target=self._run, name="singletonjob-notices", daemon=True).start()

    def stop(self) -> None:
        """End the thread soon; `tell` may be called once more. May be called again."""
        with contextlib.suppress(RuntimeError):  # it was released before
            self._going.release()

    def _run(self) -> None:
        try:
            with translated(self._path):
                file = open_file(self._path, OPEN_BUDGET)
                with contextlib.closing(file.connection):
                    self._look(file)
                    if self.tell(frozenset()):
                        self._watch(file)
        except StoreError as error:
            self.tell(error)

    def _watch(self, file: OpenFile) -> None:
        for look in count(1):
            if self._going.acquire(timeout=POLL):
                return
            if look % CHECK_EACH == 0:
                file.check()
            jobs = self._look(file)
            if look % DEATHS_EACH == 0:
                jobs |= self._orphans(file)
            if jobs and not self.tell(frozenset(jobs)):
                return

    def _look(self, file: OpenFile) -> set[str]:
        """The jobs that nobody holds and somebody did, at the last look or in a term that began since and is over; and
        those for which an operator gave an order since."""
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
