"""The Redis that contestants share in a run: a real server on a loopback port, found as the tests find theirs."""

from __future__ import annotations

import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from servers import OLDEST, Server

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["RedisServer", "redis_server"]

OLD_ENOUGH = 12.0
"""A lease of 10 s is not given by a store that has been up for less than 11 s (the amnesia guard)."""


class RedisServer:
    """A server that is started when it is first wanted."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._since: float | None = None

    def start(self) -> None:
        if self._since is None:
            self._server.start()
            self._since = time.monotonic()

    def emptied(self) -> str:
        """The URL of the server, once it is old enough, with nothing in it."""
        self.start()
        assert self._since is not None
        time.sleep(max(0.0, self._since + OLD_ENOUGH - time.monotonic()))
        client = self._server.client()
        client.flushall()
        client.close()
        return self._server.url

    def fresh(self) -> Server:
        """The same, for those that look at the server itself."""
        self.emptied()
        return self._server


@contextmanager
def redis_server() -> Generator[RedisServer]:
    """A server for the length of a run."""
    with tempfile.TemporaryDirectory() as directory:
        server = Server(OLDEST, Path(directory))
        try:
            yield RedisServer(server)
        finally:
            server.kill()
