"""The store's side of a lease: what it must do, and where a URL leads.

A store is thin. It carries out one batch of requests at a time, atomically per job, and says what came of it; who
asks when, and what an answer means, is decided by the elector. The rules that every store follows are written once,
in `stores.rules`; a store in another language (Lua, SQL) is checked against them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from .._errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .._model import Batch, Reply

__all__ = ["LeaseStore", "from_url"]


class LeaseStore(Protocol):
    """What keeps the leases.

    All methods are called on one event loop, the heartbeat's. Every error is a `StoreError`; a call without a usable
    answer is a `StoreUnavailable`, and after it the store starts with a new connection: nothing is sent twice.
    """

    async def exchange(self, batch: Batch) -> Reply:
        """Carry out the requests in order and return one verdict for each.

        Without requests: connect if need be, and read the store's clock and up-time. With requests, the connection
        must be the one that the last reading was made on, else `StoreUnavailable`. Cancellation must end the call at
        once and without a trace on later calls; the store may still run it, until `batch.void_at`.
        """
        ...

    def notices(self, project: str) -> AsyncIterator[frozenset[str]]:
        """The names of jobs that somebody should look at: released, or their holder gone.

        The first item, and each one after a renewed subscription, is empty: it says that notices are heard from now
        on. Raises `StoreUnavailable` when they are not heard any more.
        """
        ...

    async def close(self) -> None:
        """Let go of connections, files and threads. Waits for no peer."""
        ...


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
