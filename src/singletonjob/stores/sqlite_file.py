"""The database file of the SQLite store: where it is, how it is opened, and whether it is still the same one."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from .._errors import ConfigError, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["OpenFile", "boot_id", "columns", "file_system", "open_file", "path_from_url", "translated"]

VERSION = 1
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
    **dict.fromkeys(("paused", "resign", "trigger", "triggered"), "TEXT NOT NULL DEFAULT ''"),
    "orders": "INTEGER NOT NULL DEFAULT 0",
    "released": "INTEGER NOT NULL DEFAULT 0",
}
"""Columns that came later. A file without them gets them when it is opened; older releases go on with it and leave
them as they are."""

# fmt: off
NETWORK = frozenset({
    "nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "ncpfs", "afs", "coda", "ceph", "glusterfs", "lustre",
    "beegfs", "gpfs", "orangefs", "pvfs2", "gfs2", "ocfs2", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph",
    "fuse.ceph-fuse", "fuse.s3fs", "fuse.juicefs", "fuse.rclone", "fuse.mfs",
})
# fmt: on
"""Types in mountinfo (proc(5)) of file systems that machines share: their clocks differ and WAL does not work there."""

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
        if path == default_path():
            _make_private(path.parent)
        database = path.resolve()
        if not database.parent.is_dir():
            raise StoreUnavailable(f"sqlite store: the directory {database.parent} does not exist; create it")
        _refuse_network(database.parent)
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
        raise StoreUnavailable(f"sqlite store: {path}: {error}") from error
    except OSError as error:
        raise StoreUnavailable(f"sqlite store: {path}: {error}") from error


def path_from_url(url: str) -> Path:
    """The absolute path that a store URL of the scheme `sqlite` names. Raises `ConfigError` for any other text."""
    scheme, _, rest = url.strip().partition(":")
    if scheme.lower() == "sqlite":
        if not rest and not url.strip().endswith(":"):
            return default_path()
        name = rest.removeprefix("///")
        if rest.startswith("///") and name.strip() and not name.endswith("/") and not set(name) & set("?#\0"):
            if name != ":memory:":
                return Path(name).absolute()
            raise ConfigError("store: no other process sees sqlite:///:memory:; write memory, or sqlite")
    raise ConfigError(
        f"store: {url!r} does not name a file; write sqlite, sqlite:///relative/path.db or sqlite:////absolute/path.db"
    )


def default_path() -> Path:
    """The file that the URL `sqlite` means: in this user's runtime directory, else in one below the temporary one."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if Path(runtime).is_absolute():
        return Path(runtime) / "singletonjob" / "leases.db"
    return Path(tempfile.gettempdir()).absolute() / f"singletonjob-{os.geteuid()}" / "leases.db"


def boot_id() -> str:
    """What differs between two boots of this machine, whose boot clocks cannot be compared.

    A fixed word where the system has no such name: then a lease from before a reboot is freed by its holder's file,
    whose lock ended with the machine.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unnamed"


def file_system(device: int, mountinfo: str) -> str | None:
    """The type of the file system with this `st_dev`, if the text of /proc/self/mountinfo (proc(5)) tells."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in mountinfo.splitlines():
        mount, _, source = line.partition(" - ")
        if mount.split()[2:3] == [wanted]:
            return source.split()[0]
    return None


def _refuse_network(directory: Path) -> None:
    try:
        mountinfo = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return
    kind = file_system(directory.stat().st_dev, mountinfo)
    if kind in NETWORK:
        raise StoreError(
            f"sqlite store: {directory} is on a network file system ({kind}), where locks and clocks are not shared;"
            " use a local disk, or a redis store for several machines"
        )


def _make_private(directory: Path) -> None:
    """In a shared temporary directory anybody may have made ours first; then its owner could change the leases."""
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise StoreError(
            f"sqlite store: {directory} must be a directory of this user alone (mode 0700);"
            " remove it, or name a file: sqlite:////path/to/leases.db"
        )


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
    connection.execute("PRAGMA synchronous=NORMAL")
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
