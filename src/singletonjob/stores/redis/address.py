"""Where a Redis server is, and who to be there."""

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
    """Where a server is, or how it is found, and who to be there. Error texts name it by its `str`."""

    login: ClassVar[str]
    """What to write where the server wants a password and there is none."""

    primary: ClassVar[str]
    """What to do when it turns out to be a replica."""

    cluster: ClassVar[bool]
    """Whether it is on a Cluster, where all keys of a project begin with a hash tag (`wire.prefix`)."""

    @property
    def username(self) -> str | None: ...
    @property
    def password(self) -> str | None: ...

    async def connect(self, project: str, seconds: float) -> Link:
        """A new connection to the server whose keys begin with `project`, logged in, within `seconds`; the caller
        bounds the whole.

        Raises `StoreError`, the client's errors and `OSError`.
        """
        ...

    async def moved(self, link: Link, project: str, seconds: float) -> bool:
        """Whether the project's server is now another one than that of `link`; False if nobody tells in time."""
        ...


def address_from_url(url: str) -> Address:
    """Read `redis://user:password@host:6379/0`, or the same with `rediss`, `valkey` or `valkeys` in front, or
    `unix://user:password@/path/to/socket?db=0`. Each part but the scheme may be left out; user and password are
    percent-decoded once. The query may set `db` and, with TLS, redis-py's `ssl_ca_certs`, `ssl_certfile`,
    `ssl_keyfile`, `ssl_cert_reqs` and `ssl_check_hostname`.

    Raises `ConfigError`; its text never holds what might be a password.
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
