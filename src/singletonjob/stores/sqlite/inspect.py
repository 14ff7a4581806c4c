"""Whether the file of the SQLite store can be used: opened, locked and written."""

from __future__ import annotations

import secrets
from contextlib import closing
from typing import TYPE_CHECKING

from ..._core.protocol import Finding
from .file import open_file, translated
from .holder import HolderFile

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["inspect"]

SECONDS = 2.0
"""Seconds to wait for a lock."""


def inspect(path: Path) -> tuple[Finding, ...]:
    """Where the leases are. Leaves nothing behind, and raises `StoreError` where a replica could not write."""
    with translated(path):
        file = open_file(path, SECONDS)
        with closing(file.connection) as connection:
            HolderFile(file.database).remove()
            # No project has an empty name. Committed, because only a commit needs room on the disk.
            row = ("", f"check.{secrets.token_hex(4)}")
            connection.execute(
                "INSERT INTO lease (project, job, seq, token, since, mark) VALUES (?, ?, 0, 0, 0, '')", row
            )
            connection.execute("DELETE FROM lease WHERE project = ? AND job = ?", row)
    return (Finding("ok", f"the leases are in {file.database}, which can be written"),)
