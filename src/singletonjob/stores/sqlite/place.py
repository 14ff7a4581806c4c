"""Where the database file of the SQLite store is, and whether leases may be kept there."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
from pathlib import Path

from ..._core.errors import ConfigError, StoreError
from ..._reporting.log_writer import write

__all__ = [
    "default_path",
    "file_system",
    "in_container",
    "is_default",
    "make_private",
    "mount_points",
    "path_from_url",
    "refuse_place",
    "refuse_rights",
]

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


def is_default(path: Path) -> bool:
    try:
        return path == default_path()
    except ConfigError:
        return False


def in_container() -> bool:
    """True if this process seems to run in a container, where each container has files of its own."""
    return bool({"KUBERNETES_SERVICE_HOST", "container"} & os.environ.keys()) or any(mark.exists() for mark in MARKS)


def file_system(device: int, mountinfo: str) -> str | None:
    """The type of the file system with this `st_dev`, if the text of /proc/self/mountinfo (proc(5)) tells."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in mountinfo.splitlines():
        mount, _, source = line.partition(" - ")
        if mount.split()[2:3] == [wanted]:
            return source.split()[0]
    return None


def refuse_place(database: Path) -> None:
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
        write(logging.WARNING, "store-warning", f"sqlite store: {text}; use a local disk")


_warned: set[Path] = set()


def mount_points(mountinfo: str) -> set[str]:
    """The mount points in the text of /proc/self/mountinfo (proc(5)), where some characters are octal numbers."""
    points = (line.split()[4] for line in mountinfo.splitlines())
    return {re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), point) for point in points}


def make_private(directory: Path) -> None:
    """Make the directory, and refuse one that others could change: they could change the leases."""
    directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise StoreError(
            f"sqlite store: {directory} must be a directory of this user alone (mode 0700);"
            " remove it, or name a file: sqlite:////path/to/leases.db"
        )


def refuse_rights(path: Path, cause: Exception | None = None) -> None:
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
