"""The database file of the SQLite store: where it is, how it is opened, and whether it is still the same one."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sqlite3
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from .._errors import ConfigError, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = [
    "OpenFile",
    "boot_offset",
    "columns",
    "default_path",
    "file_system",
    "in_container",
    "mount_points",
    "open_file",
    "path_from_url",
    "translated",
]

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
    **dict.fromkeys(("paused", "resign", "trigger", "triggered"), "TEXT NOT NULL DEFAULT ''"),
    "orders": "INTEGER NOT NULL DEFAULT 0",
    "released": "INTEGER NOT NULL DEFAULT 0",
}
"""Columns that came later. A file without them gets them when it is opened; older releases go on with it and leave
them as they are."""

# fmt: off
LOCAL = frozenset({
    "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "jfs", "nilfs2", "reiserfs", "overlay", "tmpfs",
    "ramfs", "vfat", "exfat", "ntfs3", "fuseblk",
})
"""Types in mountinfo (proc(5)) of file systems that belong to one machine."""

NETWORK = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "afs", "ceph", "lustre", "beegfs", "gfs2", "ocfs2", "fuse.sshfs", "fuse.glusterfs",
})
"""Types that machines share for certain: their clocks differ, and a write-ahead log does not work there."""
# fmt: on

MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"), Path("/run/systemd/container"))
"""Files by which Docker, Podman and systemd-nspawn (and whoever does as they do) mark a container."""

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
        if _is_default(path):
            _make_private(path.parent)
        _refuse_rights(path)
        database = path.resolve()
        if not database.parent.is_dir():
            raise StoreUnavailable(f"sqlite store: the directory {database.parent} does not exist; create it")
        _refuse_place(database)
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
            _refuse_rights(path, error)
        raise StoreUnavailable(f"sqlite store: {path}: {error}") from error
    except OSError as error:
        if isinstance(error, PermissionError):
            _refuse_rights(path, error)
        raise StoreUnavailable(f"sqlite store: {path}: {error}") from error


def _refuse_rights(path: Path, cause: Exception | None = None) -> None:
    """Raise `StoreError` if this user may not enter or write what the path names."""
    for place in (*reversed(path.parents), path):
        needs = os.W_OK if place == path else os.W_OK | os.X_OK if place == path.parent else os.X_OK
        with contextlib.suppress(FileNotFoundError, PermissionError):
            found = place.stat()
            if not os.access(place, needs):
                act = "enter" if needs == os.X_OK else "write"
                owner, mode = _user(found.st_uid), stat.S_IMODE(found.st_mode)
                raise StoreError(
                    f"sqlite store: user {_user(os.geteuid())} may not {act} {place} (owner {owner}, mode {mode:04o});"
                    " grant the right, or name another file: sqlite:////path/to/leases.db"
                ) from cause


def _user(number: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


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
    """The file that the URL `sqlite` means: one for all processes of this user, whatever their environment.

    Variables such as XDG_RUNTIME_DIR, TMPDIR or HOME differ between a login, cron and a service, and two processes with
    two files would both lead. So the directory comes from the user database alone. Raises `ConfigError` for a user who
    is not in it.
    """
    import pwd

    try:
        home = pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        raise ConfigError(
            f"store: user {os.geteuid()} has no home directory for the file of sqlite; name a file:"
            " sqlite:////path/to/leases.db"
        ) from None
    return Path(home) / ".local" / "state" / "singletonjob" / "leases.db"


def _is_default(path: Path) -> bool:
    try:
        return path == default_path()
    except ConfigError:
        return False


def in_container() -> bool:
    """True if this process seems to run in a container, where each container has files of its own."""
    return bool({"KUBERNETES_SERVICE_HOST", "container"} & os.environ.keys()) or any(mark.exists() for mark in MARKS)


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


def file_system(device: int, mountinfo: str) -> str | None:
    """The type of the file system with this `st_dev`, if the text of /proc/self/mountinfo (proc(5)) tells."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in mountinfo.splitlines():
        mount, _, source = line.partition(" - ")
        if mount.split()[2:3] == [wanted]:
            return source.split()[0]
    return None


def _refuse_place(database: Path) -> None:
    """Raise `StoreError` where others may have the same file under another name, or see it with another clock.

    SQLite finds the log of a file by the file's name. So processes that open one file under two names have two logs,
    and each would lead without the others (sqlite.org/howtocorrupt.html, "Multiple links to the same file").
    """
    with contextlib.suppress(FileNotFoundError):
        if (links := database.stat().st_nlink) > 1:
            raise StoreError(
                f"sqlite store: {database} has {links} hard links; delete the others, or name a file of its own"
            )
    try:
        mountinfo = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return
    if str(database) in mount_points(mountinfo):
        raise StoreError(
            f"sqlite store: {database} is mounted as a single file; mount the directory that it is in, so that its log"
            " is shared as well"
        )
    directory = database.parent
    kind = file_system(directory.stat().st_dev, mountinfo)
    if kind in NETWORK:
        raise StoreError(
            f"sqlite store: {directory} is on a network file system ({kind}), where locks and clocks are not shared;"
            " use a local disk, or a redis store for several machines"
        )
    if kind is not None and kind not in LOCAL and directory not in _warned:
        _warned.add(directory)
        text = f"{directory} is on a file system of the type {kind}. If other machines or a host share it, two may lead"
        fields = {"event": "store-warning", "job": None, "node": None, "token": None, "reason": None}
        logging.getLogger("singletonjob").warning("sqlite store: %s; use a local disk", text, extra=fields)


_warned: set[Path] = set()


def mount_points(mountinfo: str) -> set[str]:
    """The mount points in the text of /proc/self/mountinfo (proc(5)), where some characters are octal numbers."""
    points = (line.split()[4] for line in mountinfo.splitlines())
    return {re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), point) for point in points}


def _make_private(directory: Path) -> None:
    """Make the directory, and refuse one that others could change: they could change the leases."""
    directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
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
