"""Leases in one SQLite file, for the processes of one machine."""

from __future__ import annotations

from .store import SqliteStore, path_from_url

__all__ = ["SqliteStore", "path_from_url"]
