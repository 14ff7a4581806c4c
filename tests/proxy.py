"""A TCP proxy on a free loopback port, which can swallow what passes through it, keep it back, or hang up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from types import TracebackType
    from typing import Self

__all__ = ["Proxy"]


class Proxy:
    """Passes connections on to `target`, a port on the loopback; an asynchronous context manager.

    `hold` keeps what would pass, until `let_through`. `target` may be changed, for connections to come. With `tls`,
    clients speak TLS to it; the server is spoken to without.
    """

    def __init__(self, target: int, tls: ssl.SSLContext | None = None) -> None:
        self.target = target
        self._tls = tls
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._gates = {"up": asyncio.Event(), "down": asyncio.Event()}
        self.port = 0

    async def __aenter__(self) -> Self:
        self.let_through()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.hang_up()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def let_through(self) -> None:
        for gate in self._gates.values():
            gate.set()

    def hold(self, *ways: str) -> None:
        """Let nothing pass that way (`up`, `down`; both if none is given), on old connections and on new ones."""
        for way in ways or self._gates:
            self._gates[way].clear()

    def hang_up(self) -> None:
        """Cut all connections; new ones are accepted."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, far_writer}
        for way, source, sink in (("up", reader, far_writer), ("down", far_reader, writer)):
            task = asyncio.create_task(self._pass_on(self._gates[way], source, sink))
            self._tasks.add(task)

    async def _pass_on(self, gate: asyncio.Event, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                await gate.wait()
                sink.write(data)
                await sink.drain()
            await gate.wait()
        except OSError:
            pass
        finally:
            sink.close()
