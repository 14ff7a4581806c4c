"""The database file of the SQLite store: how it is opened, and whether it is still the same one."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ..._core.errors import StoreError, StoreUnavailable
from .place import is_default, make_private, refuse_place, refuse_rights

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["OpenFile", "boot_offset", "columns", "open_file", "translated"]

VERSION = 1

LOG_PAGES = 16
"""So many pages of 4 KiB may be in the write-ahead log before they go into the database (sqlite.org/wal.html)."""

APPLICATION = 0x736A6F62
"""`sjob`, in the header's application id: tells our file from another program's (sqlite.org/fileformat.html)."""

SCHEMA = """
CREATE TABLE lease (
    project TEXT NOT NULL,
    job TEXT NOT NULL,
    holder TEXT,
    expires INTEGER,
    seq INTEGER NOT NULL,
    token INTEGER NOT NULL,
    since INTEGER NOT NULL,
    slot INTEGER,
    slot_token INTEGER,
    mark TEXT NOT NULL,
    done INTEGER,
    ended INTEGER,
    off INTEGER,
    boot TEXT,
    file TEXT,
    inode INTEGER,
    PRIMARY KEY (project, job)
) WITHOUT ROWID
"""

ADDED = {
    **dict.fromkeys(("paused", "resign", "trigger", "triggered", "run", "finished"), "TEXT NOT NULL DEFAULT ''"),
    "orders": "INTEGER NOT NULL DEFAULT 0",
    "released": "INTEGER NOT NULL DEFAULT 0",
}
"""Columns that came later. A file without them gets them when it is opened; older releases go on with it and leave
them as they are."""

Identity: TypeAlias = tuple[tuple[int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A connection, and what it is connected to: `path` as given, `database` with its symbolic links resolved."""

    connection: sqlite3.Connection
    path: Path
    database: Path
    identity: Identity

    def check(self) -> None:
        """Raise `StoreUnavailable` if a file of the database is not the one that was opened.

        SQLite goes on with a deleted or replaced file as if nothing were wrong, while others use the new one: two
        processes would each hold the lease, in files of their own.
        """
        if _identity(self.path, self.database) != self.identity:
            raise StoreUnavailable(
                f"sqlite store: {self.path} was deleted or replaced while it was in use; it will be opened anew"
            )


def open_file(path: Path, budget: float) -> OpenFile:
    """Open the database, and make it if it is not there, waiting for locks for at most `budget` seconds each.

    Raises `StoreUnavailable` if that does not work now, `StoreError` if it never will: on a network file system, in
    another user's directory, for a file that is not ours or that a newer version wrote.
    """
    with translated(path):
        if is_default(path):
            make_private(path.parent)
        refuse_rights(path)
        database = path.resolve()
        if not database.parent.is_dir():
            raise StoreUnavailable(f"sqlite store: the directory {database.parent} does not exist; create it")
        refuse_place(database)
        return _open_same(path, database, budget)


@contextlib.contextmanager
def translated(path: Path) -> Generator[None, None, None]:
    """Turn the errors of SQLite and of the operating system into `StoreError`, with the cause chained."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # the low byte is the primary code
        if code == sqlite3.SQLITE_NOTADB:
            raise StoreError(
                f"sqlite store: {path} is not an SQLite database; name another file, or delete it"
            ) from error
        if code == sqlite3.SQLITE_CORRUPT:
            raise StoreError(
                f"sqlite store: {path} is damaged ({error}); delete it, it holds nothing that lasts"
            ) from error
        if code in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}:
            refuse_rights(path, error)
        raise StoreUnavailable(f"sqlite store: {path}: {error}") from error
    except OSError as error:
        if isinstance(error, PermissionError):
            refuse_rights(path, error)
        raise StoreUnavailable(f"sqlite store: {path}: {error}") from error


def boot_offset() -> int:
    """How far this process's boot clock is ahead of the machine's, in microseconds: not 0 in a time namespace.

    See time_namespaces(7).
    """
    try:
        offsets = Path("/proc/self/timens_offsets").read_text(encoding="ascii")
        # The offsets are those for new children. A process that has just left its own namespace keeps its old clock.
        if os.readlink("/proc/self/ns/time") != os.readlink("/proc/self/ns/time_for_children"):  # noqa: PTH115
            return 0
    except OSError:
        return 0
    for name, seconds, nanoseconds in (line.split() for line in offsets.splitlines()):
        if name in {"boottime", "7"}:
            return int(seconds) * 1_000_000 + int(nanoseconds) // 1000
    return 0


def _open_same(path: Path, database: Path, budget: float) -> OpenFile:
    for _ in range(5):
        before = _inode(path)
        # A descriptor of our own to ask for the inode is no way: its close would drop SQLite's locks on the file, which
        # belong to the process (fcntl(2)). What was there before and is there after is what was opened.
        connection = sqlite3.connect(path, timeout=budget, isolation_level=None, check_same_thread=False)
        try:
            if before is not None:
                _prepare(connection, path)
                identity = _identity(path, database)
                if identity[0] == before:
                    return OpenFile(connection, path, database, identity)
        except BaseException:
            connection.close()
            raise
        connection.close()  # the first time round it made the file
    raise StoreUnavailable(f"sqlite store: {path} is being replaced while it is opened")


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    mode = _use_log(connection)
    if mode != "wal":
        raise StoreError(f"sqlite store: {path} cannot use a write-ahead log (mode is {mode}); use a local disk")
    # The log stays small, and is used again and again: a store that works needs no more room on a disk that is full.
    connection.execute(f"PRAGMA wal_autocheckpoint={LOG_PAGES}")
    if _version(connection) == (0, 0, 0):
        connection.execute("BEGIN IMMEDIATE")
        with connection:
            if _version(connection) == (0, 0, 0):  # else another process was first
                connection.execute(SCHEMA)
                _add_columns(connection)
                connection.execute(f"PRAGMA application_id={APPLICATION}")
                connection.execute(f"PRAGMA user_version={VERSION}")
    application, version, _ = _version(connection)
    if application != APPLICATION:
        raise StoreError(f"sqlite store: {path} belongs to another program; name a file of its own for the leases")
    if version > VERSION:
        raise StoreError(
            f"sqlite store: {path} has format {version}, this version of singletonjob knows {VERSION}; upgrade it"
        )
    if ADDED.keys() - columns(connection):
        connection.execute("BEGIN IMMEDIATE")
        with connection:
            _add_columns(connection)  # unless another process was first


def _add_columns(connection: sqlite3.Connection) -> None:
    known = columns(connection)
    for name, declaration in ADDED.items():
        if name not in known:
            connection.execute(f"ALTER TABLE lease ADD COLUMN {name} {declaration}")


def columns(connection: sqlite3.Connection) -> set[str]:
    """The names of those that the file has."""
    return {name for (name,) in connection.execute("SELECT name FROM pragma_table_info('lease')")}


def _use_log(connection: sqlite3.Connection) -> str:
    """Switch a new file to WAL; the mode that it is in then.

    That needs the file alone for a moment. SQLite waits for it, for as long as `connect` was told, but not when two
    connections each hold what the other one waits for: then one of them fails at once and has to begin again.
    """
    for pause in (0.005, 0.01, 0.02, 0.04):
        try:
            return str(connection.execute("PRAGMA journal_mode=WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            time.sleep(pause)
    return str(connection.execute("PRAGMA journal_mode=WAL").fetchone()[0])


def _version(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """Application id, format version, number of tables: all zero for a new file."""
    row: tuple[int, int, int] = connection.execute(
        "SELECT (SELECT application_id FROM pragma_application_id),"
        " (SELECT user_version FROM pragma_user_version), (SELECT count(*) FROM sqlite_master)"
    ).fetchone()
    return row


def _identity(path: Path, database: Path) -> Identity:
    """The inodes of the database, of its log and of the log's index: who loses one of them is alone."""
    return (_inode(path), _inode(f"{database}-wal"), _inode(f"{database}-shm"))


def _inode(path: Path | str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - three of these per beat: no Path is made for a suffix
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
