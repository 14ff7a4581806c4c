"""The address of a Redis server, with user and password."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol
from urllib.parse import unquote

from ..._core.errors import ConfigError
from .link import EXAMPLE, Address
from .url import database_of, url_parts

if TYPE_CHECKING:
    from .link import Link

__all__ = ["Address", "Place", "address_from_url"]


class Place(Protocol):
    """An address, or a way to find one, with user and password. Error texts show its `str`."""

    login: ClassVar[str]
    """The advice for a server that requires a password."""

    primary: ClassVar[str]
    """The advice for a server that is a replica."""

    cluster: ClassVar[bool]
    """True on a Cluster, where all keys of a project begin with a hash tag (`wire.prefix`)."""

    @property
    def username(self) -> str | None: ...
    @property
    def password(self) -> str | None: ...

    async def connect(self, project: str, seconds: float) -> Link:
        """Return a new connection, logged in, to the server of the project whose keys begin with `project`.

        Connecting may take `seconds`; the caller limits everything together.

        Raises `StoreError`, the client's errors and `OSError`.
        """
        ...

    async def moved(self, link: Link, project: str, seconds: float) -> bool:
        """Return True if the project is now on another server than `link`; False if no server answers in time."""
        ...


def address_from_url(url: str) -> Address:
    """Read `redis://user:password@host:6379/0`, or the same with `rediss`, `valkey` or `valkeys` in front, or
    `unix://user:password@/path/to/socket?db=0`. Each part but the scheme may be left out; user and password are
    percent-decoded once. The query may set `db` and, with TLS, redis-py's `ssl_ca_certs`, `ssl_certfile`,
    `ssl_keyfile`, `ssl_cert_reqs` and `ssl_check_hostname`.

    Raises `ConfigError`; its text never shows what may be a password.
    """
    parts = url_parts(url, known={"db"}, example=EXAMPLE)
    host, port = parts.hosts[0]
    if len(parts.hosts) > 1:
        raise ConfigError(
            "store: a plain Redis URL names one server; write redis+sentinel://host1:26379,host2:26379/service/0"
            " for those of a Sentinel"
        )
    database = parts.query.get("db", "")
    path = ""
    if parts.scheme == "unix":
        path = unquote(parts.path)
        if host or not path:
            raise ConfigError("store: a unix URL needs an absolute path; write unix:///path/to/socket?db=0")
    else:
        database = database or parts.path.removeprefix("/")
    return Address(
        host=host or "localhost",
        port=port or 6379,
        path=path,
        db=database_of(database, example="redis://host:6379/0"),
        username=parts.username,
        password=parts.password,
        tls=parts.tls,
    )
