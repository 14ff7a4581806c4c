"""A look into the SQLite store from outside: who leads. Nothing is written, and no replica is held up."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import quote

from ..._core.errors import StoreError, StoreUnavailable
from ..rules import Record, view
from .file import APPLICATION, VERSION, boot_offset, columns, translated
from .holder import Holder, boot_id, count_living, is_dead

if TYPE_CHECKING:
    from pathlib import Path

    from ..._core.protocol import JobView
    from ..._system.clock import Clock

__all__ = ["look"]

NAMES = ("holder", "expires", "token", "since", "ended", "paused", "orders", "run")

BUSY = 2.0
"""Seconds to wait for a lock; readers of a write-ahead log hardly ever meet one."""


def look(path: Path, project: str, clock: Clock) -> tuple[JobView, ...]:
    """How the project's jobs stand in the file at `path`. Raises `StoreError` for a file that cannot be read, and
    `StoreUnavailable` where there is none."""
    with translated(path):
        if not path.is_file():
            raise StoreUnavailable(
                f"sqlite store: there is no file {path}; no replica on this machine has used this store yet"
            )
        database = path.resolve()
        uri = f"file:{quote(str(database))}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=BUSY, isolation_level=None)) as connection:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if application != APPLICATION or version > VERSION:
                raise StoreError(f"sqlite store: {path} holds no leases that this version of singletonjob can read")
            there = columns(connection)  # nobody who writes has opened it since it was an older release's, perhaps
            names = [name for name in NAMES if name in there]
            rows = connection.execute(
                f"SELECT job, boot, file, inode, {', '.join(names)} FROM lease WHERE project = ? ORDER BY job",  # noqa: S608 - constants
                (project,),
            ).fetchall()
    now, boot, listeners = clock.now(), boot_id(), count_living(database)
    views: list[JobView] = []
    for job, row_boot, file, inode, *values in rows:
        record = Record(**dict(zip(names, values, strict=True)))
        if file is not None and is_dead(database.parent, Holder(row_boot, file, inode), boot):
            record.holder = None
        one = view(job, record, clock=int(now.boot * 1e6) - boot_offset(), wall=now.wall, listeners=listeners)
        if one is not None:
            views.append(one)
    return tuple(views)
