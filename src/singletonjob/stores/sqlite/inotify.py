"""Linux's inotify(7), as little of it as is needed: what happens to the files of one directory."""

from __future__ import annotations

import ctypes
import os
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["CLOSE_WRITE", "MODIFY", "OVERFLOW", "Inotify"]

MODIFY = 0x2
CLOSE_WRITE = 0x8
OVERFLOW = 0x4000

HEADER = struct.Struct("iIII")


class Inotify:
    """The writes to, and closes after writing of, the files in `directory`.

    Raises `OSError` where the system has no inotify, or none left to give.
    """

    __slots__ = ("descriptor",)

    def __init__(self, directory: Path) -> None:
        # The names are looked up in the program itself: every libc of Linux has them, no other system's has.
        libc = ctypes.CDLL(None, use_errno=True)
        try:
            init, add = libc.inotify_init1, libc.inotify_add_watch
        except AttributeError as error:
            raise OSError("this system has no inotify") from error
        self.descriptor: int = init(os.O_CLOEXEC | os.O_NONBLOCK)
        if self.descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        if add(self.descriptor, os.fsencode(directory), MODIFY | CLOSE_WRITE) < 0:
            code = ctypes.get_errno()
            self.close()
            raise OSError(code, "inotify_add_watch", str(directory))

    def read(self) -> list[tuple[int, str]]:
        """What happened since the last call, as (event bits, file name). Never waits."""
        try:
            data = os.read(self.descriptor, 65536)
        except BlockingIOError:
            return []
        events: list[tuple[int, str]] = []
        at = 0
        while at < len(data):
            _, mask, _, length = HEADER.unpack_from(data, at)
            at += HEADER.size
            events.append((mask, os.fsdecode(data[at : at + length].rstrip(b"\0"))))
            at += length
        return events

    def close(self) -> None:
        os.close(self.descriptor)
