"""The server of a Sentinel service, checked to be the primary.

This follows redis.io, "Guidelines for Redis clients with support for Redis Sentinel". After a `SENTINEL FAILOVER`, or
if the old primary was only cut off or frozen, the old primary goes on serving its connections until the sentinels make
it a replica. That takes about ten seconds (sentinel.c: eight seconds of a wrong role, seen by an INFO every ten
seconds).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import unquote

from ..._core.errors import ConfigError, StoreError, StoreUnavailable
from .address import Address
from .errors import refusal, translated
from .link import Link
from .moving import MovingPlace, asked
from .url import database_of, malformed, url_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Service", "service_from_url"]

EXAMPLE = "redis+sentinel://user:password@host1:26379,host2:26379/service/0"

PORT = 26379

LOGIN = ("sentinel_username", "sentinel_password")


def service_from_url(url: str) -> Service:
    """Read `redis+sentinel://user:password@host1:26379,host2:26379/service/0`.

    `rediss+sentinel`, `valkey+sentinel` and `valkeys+sentinel` are allowed, too. Ports and database may be left out.
    User and password are those of the server. The query may set `sentinel_username` and `sentinel_password`, and with
    TLS, which is used for sentinels and server, the keys of `address_from_url`. Raises `ConfigError`; its text never
    shows what may be a password.
    """
    parts = url_parts(url, known=LOGIN, example=EXAMPLE)
    service, _, database = parts.path.removeprefix("/").partition("/")
    if not service or not all(host for host, _ in parts.hosts):
        raise malformed("a Sentinel URL names at least one sentinel, and the service", EXAMPLE)
    username, password = (parts.query.get(key) or None for key in LOGIN)
    if username is not None and password is None:
        raise ConfigError("store: there is a sentinel_username without a sentinel_password; write both or neither")
    return Service(
        name=unquote(service),
        sentinels=[
            _Sentinel(host=host, port=port or PORT, username=username, password=password, tls=parts.tls)
            for host, port in parts.hosts
        ],
        server=Address(
            db=database_of(database, example="redis+sentinel://host:26379/service/0"),
            username=parts.username,
            password=parts.password,
            tls=parts.tls,
        ),
    )


class _Sentinel(Address):
    """A sentinel, with user and password."""

    __slots__ = ()

    login: ClassVar[str] = "write ?sentinel_password=... at the end of the URL"

    def __str__(self) -> str:
        return f"sentinel {self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named(Address):
    """The server that a sentinel names."""

    login: ClassVar[str] = f"write {EXAMPLE}"
    primary: ClassVar[str] = "the sentinels are asked again for each new connection"

    service: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}, database {self.db} (named by a sentinel of {self.service})"


class Service(MovingPlace):
    """A `Place`: the primary of the service `name`, as the first reachable one of the `sentinels` names it.

    `server` holds everything but host and port.
    """

    login: ClassVar[str] = _Named.login
    primary: ClassVar[str] = _Named.primary
    cluster: ClassVar[bool] = False

    def __init__(self, *, name: str, sentinels: Sequence[Address], server: Address) -> None:
        super().__init__(sentinels, server)
        self.name = name
        self.sentinels: tuple[Address, ...] = tuple(sentinels)
        self.unnamed: str = f"no sentinel names the primary of {name}"

    def __str__(self) -> str:
        sentinels = ", ".join(f"{sentinel.host}:{sentinel.port}" for sentinel in self.sentinels)
        return f"service {self.name} (sentinels {sentinels}), database {self.server.db}"

    def __repr__(self) -> str:
        return f"Service(name={self.name!r}, sentinels={self.sentinels!r}, server={self.server!r})"

    async def _named_by(self, guide: Address, project: str, seconds: float) -> Address:  # noqa: ARG002 - the same for all
        said = await asked(guide, (b"SENTINEL", b"get-master-addr-by-name", self.name.encode()), "SENTINEL", seconds)
        if isinstance(said, Exception):
            if "unknown command" in str(said):
                raise StoreError(f"redis store: {guide} is none; name sentinels, whose port mostly is {PORT}")
            raise refusal(guide, said, "SENTINEL")
        if said is None:
            raise StoreError(f"redis store: {guide} knows no service {self.name!r}; correct the name in the URL")
        host, port = said
        server = self.server
        return _Named(
            host=host.decode(),
            port=int(port),
            db=server.db,
            username=server.username,
            password=server.password,
            tls=server.tls,
            service=self.name,
        )

    def _trust(self, guide: Address) -> None:
        # Not earlier, because a sentinel that is cut off from the others goes on naming a former primary.
        self._guides.remove(guide)
        self._guides.insert(0, guide)

    async def _opened(self, found: Address, seconds: float) -> Link:
        """Return a connection to a server that reports itself as a primary.

        Without the right to INFO, the first write shows whether it is one.
        """
        with translated(found, "INFO"):
            link = await Link.open(found, seconds)
            try:
                (info,) = await link.call([(b"INFO", b"replication")])
                if isinstance(info, bytes) and b"role:slave" in info:
                    raise StoreUnavailable(f"redis store: {found} is a replica; {self.primary}")
            except BaseException:
                link.abort()
                raise
        return link
