"""One connection to a Redis server. The client library must not reconnect it, and it is aborted instead of closed.

A connection in doubt is aborted, so that nothing waits for the other side.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, cast

from ..._core.errors import StoreError
from .wire import pack

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence


__all__ = ["Command", "Link"]

Command: TypeAlias = "bytes | Sequence[bytes]"
"""A packed command, or the parts for `pack`."""

FILES = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"})


class _Connection(Protocol):
    """The used part of `redis.asyncio.Connection`, whose own annotations are incomplete."""

    _writer: asyncio.StreamWriter | None

    @property
    def is_connected(self) -> bool: ...
    async def connect(self) -> None: ...
    async def on_connect(self) -> None: ...
    async def send_packed_command(self, command: bytes, check_health: bool) -> None: ...
    async def read_response(self, *, timeout: float | None = None) -> Any: ...  # noqa: ASYNC109 - the client's name
    def _close(self) -> None: ...


EXAMPLE = "redis://user:password@host:6379/0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A server, with user and password. `path`: of a Unix socket. `tls`: redis-py's `ssl_` options, or None."""

    login: ClassVar[str] = f"write {EXAMPLE}"
    primary: ClassVar[str] = "name the primary in the URL"
    cluster: ClassVar[bool] = False

    host: str = "localhost"
    port: int = 6379
    path: str = ""
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: Mapping[str, str | bool] | None = None

    def __str__(self) -> str:
        return f"{self.path or f'{self.host}:{self.port}'}, database {self.db}"

    @property
    def where(self) -> tuple[str, int]:
        return self.host, self.port

    async def connect(self, project: str, seconds: float) -> Link:  # noqa: ARG002 - see `Place`
        """See `Place.connect`."""
        return await Link.open(self, seconds)

    async def moved(self, link: Link, project: str, seconds: float) -> bool:  # noqa: ARG002 - see `Place`
        """See `Place.moved`."""
        return False


class Link:
    """A connection, logged in, to the server at `address`. `open` creates it."""

    __slots__ = ("_connection", "address")

    def __init__(self, connection: _Connection, address: Address) -> None:
        self._connection = connection
        self.address: Address = address

    @classmethod
    async def open(cls, address: Address, seconds: float) -> Link:
        """Connect within `seconds`, and log in. The caller limits both together, and each later call.

        Raises the client's errors and `OSError`; for a file of the TLS options that cannot be read, `StoreError`.
        """
        link = cls(_connection(address, seconds), address)
        try:
            await link._connection.connect()
        except BaseException:
            link.abort()
            raise
        return link

    @property
    def usable(self) -> bool:
        return self._connection.is_connected

    async def call(self, commands: Sequence[Command]) -> list[Any]:
        """Send all commands at once, and return their replies in order; an error of the server is a reply, too.

        Raises the client's errors and `OSError` when the connection is lost.
        """
        from redis.exceptions import ConnectionError as RedisConnectionError
        from redis.exceptions import ResponseError

        await self.send(b"".join([command if isinstance(command, bytes) else pack(command) for command in commands]))
        replies: list[Any] = []
        for _ in commands:
            try:
                replies.append(await self._connection.read_response())
            except ResponseError as error:
                replies.append(error)
            except RedisConnectionError:
                for reply in replies:
                    if isinstance(reply, ResponseError):  # the reason for which the server closed the connection
                        raise reply from None
                raise
        return replies

    async def send(self, packed: bytes) -> None:
        """Send a packed command; `read` fetches the answer."""
        from redis.exceptions import ConnectionError as RedisConnectionError

        if not self.usable:  # otherwise the client would reconnect, perhaps to another server
            raise RedisConnectionError("the connection is lost")
        await self._connection.send_packed_command(packed, check_health=False)

    async def read(self, seconds: float) -> Any:
        """Return the server's next message; None if there is none within `seconds`."""
        return await self._connection.read_response(timeout=seconds)

    def abort(self) -> None:
        """Drop the connection and the unsent data at once."""
        # The client's `disconnect` may wait for the other side, and a plain close tries to send buffered data. There is
        # no public way to abort. Without `_close` the connection warns when it is collected.
        writer = self._connection._writer  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        if writer is not None:
            writer.transport.abort()
        self._connection._close()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _connection(address: Address, seconds: float) -> _Connection:
    from redis.asyncio import Connection, SSLConnection, UnixDomainSocketConnection
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    async def log_in(connection: _Connection) -> None:
        try:
            await connection.on_connect()
        except BaseException:
            Link(connection, address).abort()  # otherwise the client waits for the other side to close
            raise

    # All options, because the defaults differ between versions: one of them turns retries into a call of a minute.
    options: dict[str, Any] = {
        "db": address.db,
        "username": address.username,
        "password": address.password,
        # Not `seconds`: the client would send under `asyncio.wait_for`, which may swallow a cancellation before Python
        # 3.12, so that an abandoned call would go on. The caller's limit covers sending and reading.
        "socket_timeout": None,
        "socket_connect_timeout": seconds,
        "retry": Retry(NoBackoff(), 0),
        "health_check_interval": 0,
        "protocol": 2,
        "redis_connect_func": log_in,
        **_anonymous(),
    }
    if address.path:
        return cast("_Connection", UnixDomainSocketConnection(path=address.path, **options))
    options |= {"host": address.host, "port": address.port}
    if address.tls is None:
        return cast("_Connection", Connection(**options))
    options |= address.tls
    for name in FILES & address.tls.keys():
        if not os.access(str(options[name]), os.R_OK):  # the client's error would not name the file
            raise StoreError(f"redis store: {address}: {name}: {options[name]} cannot be read")
    return cast("_Connection", SSLConnection(**options))


def _anonymous() -> dict[str, None]:
    """Return options that save the round trips in which the client tells the server its name."""
    import redis

    # Newer versions warn about the older options.
    return {"driver_info": None} if hasattr(redis, "DriverInfo") else {"lib_name": None, "lib_version": None}
