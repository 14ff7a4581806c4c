"""The store's side of a lease: what it must do, and where a URL leads.

A store is thin. It carries out one batch of requests at a time, atomically per job, and says what came of it; who
asks when, and what an answer means, is decided by the elector. The rules that every store follows are written once,
in `stores.rules`; a store in another language (Lua, SQL) is checked against them.
"""

from __future__ import annotations

from .._errors import ConfigError
from .protocol import LeaseStore

__all__ = ["LeaseStore", "from_url"]


def from_url(url: str) -> LeaseStore:
    """The store that `url` names; nothing is opened or connected yet.

    `memory` is one store per process, for tests. `sqlite` is a file in the user's runtime directory,
    `sqlite:///relative/path` or `sqlite:////absolute/path` a file of your choice, for the processes of one machine.

    Raises `ConfigError` for an unknown scheme or a malformed URL.
    """
    scheme = url.partition(":")[0].strip().lower()
    if url.strip() == "memory":
        from .memory import shared

        return shared()
    if scheme == "sqlite":
        from .sqlite import SqliteStore, path_from_url

        return SqliteStore(path_from_url(url))
    raise ConfigError(
        f"store: {scheme or url!r} is not a store that this version knows;"
        " write sqlite, sqlite:///path/to/file.db or memory"
    )
