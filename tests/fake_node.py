"""A server that says what a test wants: of its up-time, or of the nodes of a Cluster. It keeps no leases."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

__all__ = ["FakeNode"]


class FakeNode:
    """Grants nothing and renews whatever it is asked to.

    `up_for` is its up-time in seconds; `masters` are those of its Cluster, as it says, the first of which serves all
    slots; `served` counts the calls of the script.
    """

    def __init__(self) -> None:
        self.port = 0
        self.up_for = 1000
        self.masters: tuple[FakeNode, ...] = (self,)
        self.served = 0
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        while self._writers:
            await asyncio.sleep(0)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                writer.write(self._answer(await _command(reader)))
        self._writers.discard(writer)
        writer.close()

    def _answer(self, command: list[bytes]) -> bytes:
        match [part.upper() for part in command[:2]]:
            case [b"TIME"]:
                return _packed([b"1000000000", b"0"])
            case [b"INFO"]:
                return _packed(b"uptime_in_seconds:%d\r\n" % self.up_for)
            case [b"CLUSTER", b"SLOTS"]:
                ends = [16383, *([-1] * (len(self.masters) - 1))]
                nodes = zip(ends, self.masters, strict=True)
                return _packed([[0, end, [b"127.0.0.1", master.port, b"id"]] for end, master in nodes])
            case [b"EVALSHA", _]:
                self.served += 1
                return _packed([b"1000000000000000", b"", b"", b"N"])
            case _:
                return b"-ERR unknown command\r\n"


async def _command(reader: asyncio.StreamReader) -> list[bytes]:
    count = int((await reader.readuntil(b"\r\n"))[1:])
    parts: list[bytes] = []
    for _ in range(count):
        length = int((await reader.readuntil(b"\r\n"))[1:])
        parts.append((await reader.readexactly(length + 2))[:-2])
    return parts


def _packed(value: object) -> bytes:
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, bytes):
        return b"$%d\r\n%b\r\n" % (len(value), value)
    assert isinstance(value, list)
    return b"*%d\r\n" % len(value) + b"".join(map(_packed, value))
