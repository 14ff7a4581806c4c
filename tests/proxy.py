"""A TCP proxy on a free loopback port, which can swallow what passes through it, keep it back, or hang up."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING

from servers import free_port

if TYPE_CHECKING:
    import ssl
    from typing import Self

__all__ = ["Proxy"]


class Proxy:
    """Passes connections on to `target`, a port on the loopback; an asynchronous context manager.

    `hold` keeps what would pass, until `let_through`; `delay` is for how long each piece is kept, in seconds; with
    `drip`, answers come byte by byte, so many seconds apart. `target` may be changed, for connections to come. While
    `resets`, each new connection is reset. `refusal`, a line of the protocol, is the answer to each script call instead
    of the server's. With `tls`, clients speak TLS to it; the server is spoken to without.
    """

    def __init__(self, target: int, tls: ssl.SSLContext | None = None) -> None:
        self.target = target
        self.delay = 0.0
        self.drip = 0.0
        self.resets = False
        self.refusal = b""
        self.refusals = 0  # so far
        self._tls = tls
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._arriving = 0  # connections whose other half is not there yet
        self._left = False
        self._gates = {"up": asyncio.Event(), "down": asyncio.Event()}
        self.port = free_port()

    async def __aenter__(self) -> Self:
        self.let_through()
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._left = True
        # Let what is arriving arrive. asyncio loses a socket that it has accepted but not handed over when the server
        # closes, and nobody would close the other half of a connection that is made after that.
        await asyncio.sleep(0.01)
        self._server.close()
        while self._arriving:
            await asyncio.sleep(0.001)
        self.hang_up()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def listen(self) -> None:
        """Accept connections, on the same port as before `refuse`."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, ssl=self._tls)

    def refuse(self) -> None:
        """Cut all connections, and refuse new ones until `listen`."""
        self._server.close()
        self.hang_up()

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
        if self.resets:
            at_once = struct.pack("ii", 1, 0)  # nothing lingers, so that the peer gets a RST: socket(7), SO_LINGER
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
            writer.transport.abort()
            return
        if self._left:  # it was accepted while `__aexit__` ran
            writer.transport.abort()
            return
        self._arriving += 1
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        finally:
            self._arriving -= 1
        self._writers |= {writer, far_writer}
        if self._left:
            return
        for way, source, sink, back in (("up", reader, far_writer, writer), ("down", far_reader, writer, None)):
            task = asyncio.create_task(self._pass_on(self._gates[way], source, sink, back))
            self._tasks.add(task)

    async def _pass_on(
        self,
        gate: asyncio.Event,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        back: asyncio.StreamWriter | None,
    ) -> None:
        """`back` is where requests came from; None for answers."""
        try:
            while data := await source.read(65536):
                await asyncio.sleep(self.delay)
                await gate.wait()
                if back is not None and self.refusal and b"EVALSHA" in data:
                    back.write(self.refusal)
                    self.refusals += 1
                    continue
                pieces = [data] if back is not None or not self.drip else [bytes([byte]) for byte in data]
                for piece in pieces:
                    if len(pieces) > 1:
                        await asyncio.sleep(self.drip)
                    sink.write(piece)
                    await sink.drain()
            await gate.wait()
        except OSError:
            pass
        finally:
            sink.close()
