"""The stores of leases, and the URLs that name them.

A store is thin. It carries out one batch of requests at a time, atomically per job, and returns the verdicts. The
elector decides when to send a request and what an answer means. `stores.rules` defines the rules of all stores; a store
in another language (Lua) is compared with them.
"""

from __future__ import annotations

from .._core.errors import ConfigError
from .._core.protocol import LeaseStore
from .._jobs.hidden_packages import refuse_hidden
from .._jobs.sources import told
from .siblings import may_have_siblings

__all__ = ["LeaseStore", "described", "from_url"]


def from_url(url: str) -> LeaseStore:
    """Return the store that `url` names, without opening or connecting anything.

    `memory` is one store per process, for tests. `sqlite` is a file in the user's home directory,
    `sqlite:///relative/path` or `sqlite:////absolute/path` a file of your choice, for the processes of one machine.
    `redis://user:password@host:6379/0` is a Redis or Valkey server, for any number of machines; `rediss://` is the
    same with TLS, `unix:///path/to/socket?db=0` a Unix socket, `valkey://` and `valkeys://` are other names for the
    first two. `redis+sentinel://user:password@host1:26379,host2:26379/service/0` is the server that a Sentinel names;
    with TLS it begins with `rediss+sentinel`. `redis+cluster://user:password@host1:6379,host2:6379` is a Cluster,
    some nodes of which are named.

    Raises `ConfigError` for an unknown scheme or a malformed URL.
    """
    scheme = url.partition(":")[0].strip().lower()
    if url.strip() == "memory":
        from .memory import shared

        return shared()
    if scheme == "sqlite":
        try:
            from .sqlite.store import SqliteStore, path_from_url
        except ModuleNotFoundError as error:
            if error.name != "fcntl":
                raise
            raise ConfigError(
                "store: SQLite needs flock, which this system has not; write redis://host:6379/0"
            ) from error

        return SqliteStore(path_from_url(url))
    if scheme.startswith(("redis", "valkey", "unix")):
        refuse_hidden("redis")
    if scheme in {"redis", "rediss", "unix", "valkey", "valkeys"}:
        from .redis.store import RedisStore, address_from_url

        return RedisStore(address_from_url(url))
    if scheme in {"redis+sentinel", "rediss+sentinel", "valkey+sentinel", "valkeys+sentinel"}:
        from .redis.sentinel import service_from_url
        from .redis.store import RedisStore

        return RedisStore(service_from_url(url))
    if scheme in {"redis+cluster", "rediss+cluster", "valkey+cluster", "valkeys+cluster"}:
        from .redis.cluster import cluster_from_url
        from .redis.store import RedisStore

        return RedisStore(cluster_from_url(url))
    from .other_tools import advice_on_url

    known = "write redis://host:6379/0, sqlite, sqlite:///path/to/file.db or memory"
    raise ConfigError(f"store: {_name(url)} is not a store that this version knows; {advice_on_url(url) or known}")


def described(store: str | LeaseStore) -> tuple[str, list[str]]:
    """Return a store's name without a password, and the warnings for an app that starts on it."""
    name = told("store", store) if isinstance(store, str) else type(store).__name__
    if name.lower() == "sqlite":
        from .sqlite.place import default_path, in_container

        text = "sqlite is a file of this container alone, so each container has a leader of its own; write"
        text = f"{text} redis://host:6379/0, or sqlite:////path/leases.db if this container is all there is"
        return f"{name} ({default_path()})", [text] if in_container() else []
    if name in {"memory", "MemoryStore"} and may_have_siblings():
        text = "memory is this process alone; each worker beside it leads and runs every job for itself; write"
        return name, [f"{text} sqlite (one machine) or redis://host:6379/0"]
    return name, []


def _name(url: str) -> str:
    """Return the part of an unreadable URL that can be shown: whatever follows the scheme may hold a password."""
    scheme, colon, _ = url.strip().partition(":")
    return repr(f"{scheme}:..." if colon else scheme)
