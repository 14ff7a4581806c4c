"""How the kernel tells that a holder of leases is dead: an flock on a file of its own.

A started app locks a file beside the database before it first requests a lease, and each of its rows names that file
and its inode. The kernel drops the lock when the last descriptor of it is gone, however the process dies (flock(2)).
So the lock decides: a holder lives while its file is locked, and is dead if the file can be locked. Only where the file
is missing or was replaced, and there is nothing to lock, does the boot id in the row count. A holder of an earlier boot
is dead. One of this boot may live, because anybody may have deleted its file.

The boot id alone decides nothing: two processes of one kernel may see different ones, for example where a container
runtime mounts its own over the kernel's.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = ["Holder", "HolderFile", "boot_id", "count_living", "forget_dead", "is_dead", "prefix"]

FORGET_AFTER = 300_000_000
"""Microseconds. A dead holder's file stays this long, for those who still have to learn of the death from it."""


class Holder(NamedTuple):
    """What a row says of its holder: the boot id that it saw, the name and the inode of its file."""

    boot: str
    file: str
    inode: int


class HolderFile:
    """A locked file that lives as long as its process or until `remove`. Raises `OSError` if it cannot be made."""

    __slots__ = ("_descriptor", "inode", "path")

    def __init__(self, database: Path) -> None:
        while True:
            self.path: Path = database.parent / f"{prefix(database)}{secrets.token_hex(8)}"
            # Readable for all that may read the database: who cannot open it cannot see that its holder died.
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            self.inode: int = os.fstat(self._descriptor).st_ino
            _open_files.add(self)
            try:
                # Until it is locked, it looks like a dead holder's, so somebody may have locked or removed it.
                if _lock(self._descriptor, fcntl.LOCK_EX) and self.intact:
                    return
            except OSError:
                self.remove()
                raise
            self.remove()

    @property
    def intact(self) -> bool:
        """Whether this process has the lock, and the file is still where the rows say."""
        try:
            return self._descriptor >= 0 and self.path.stat().st_ino == self.inode
        except OSError:
            return False

    def remove(self) -> None:
        """Delete the file, then let the lock go: in this order, else the holder would look dead for a moment."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                if self.intact:
                    self.path.unlink()
            self.close()

    def close(self) -> None:
        """Let go of the descriptor: the lock goes with the last copy of it."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
        _open_files.discard(self)


# Held here as well, so that the lock of a store that is dropped lasts, and ends, with this very process.
_open_files: set[HolderFile] = set()


def _close_in_child() -> None:
    """A forked child shares the lock: its copy would keep a dead parent's leases alive."""
    for file in list(_open_files):
        file.close()


os.register_at_fork(after_in_child=_close_in_child)


def prefix(database: Path) -> str:
    """What the names of the holders' files of this database begin with."""
    return f"{database.name}-holder-"


def is_dead(directory: Path, holder: Holder, boot: str) -> bool:
    """True if the process behind a row has certainly ended; `boot` is this process's boot id."""
    try:
        with _opened(directory / holder.file) as descriptor:
            if os.fstat(descriptor).st_ino == holder.inode:
                return _lock(descriptor, fcntl.LOCK_SH)
    except FileNotFoundError:
        pass
    except OSError:
        return False  # it cannot be told
    return holder.boot != boot


def count_living(database: Path) -> int:
    """Return how many holder files of this database are locked, which is how many stores of processes use it."""
    living = 0
    with contextlib.suppress(OSError), os.scandir(database.parent) as entries:
        for entry in entries:
            if entry.name.startswith(prefix(database)):
                with contextlib.suppress(OSError), _opened(database.parent / entry.name) as descriptor:
                    living += not _lock(descriptor, fcntl.LOCK_SH)
    return living


def boot_id() -> str:
    """A text that differs between two boots of this machine.

    A fixed word where the system has no such name: then only the lock tells that a holder is dead.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unnamed"


def forget_dead(database: Path, named: Callable[[], set[str]], wall: int) -> None:
    """Delete files that dead processes left behind, unless one of the rows names them.

    `named` returns the file names in the rows; it is asked when a candidate is locked, from when on no row can come to
    name it. `wall` is the wall clock in microseconds. What cannot be deleted stays.
    """
    with contextlib.suppress(OSError), os.scandir(database.parent) as entries:
        for entry in entries:
            if not entry.name.startswith(prefix(database)):
                continue
            with contextlib.suppress(OSError), _opened(database.parent / entry.name) as descriptor:
                if (
                    os.fstat(descriptor).st_mtime_ns // 1000 < wall - FORGET_AFTER
                    and _lock(descriptor, fcntl.LOCK_EX)
                    and entry.name not in named()
                ):
                    (database.parent / entry.name).unlink()


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)


@contextlib.contextmanager
def _opened(path: Path) -> Generator[int, None, None]:
    descriptor = _open(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(descriptor: int, kind: int) -> bool:
    """Whether the lock was got. Raises `OSError` where files cannot be locked: then nobody is known to be dead."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
