"""A server whose clock is set wrong, alone or in a Cluster: nobody can move a real one's. It keeps no leases."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from singletonjob._system.clock import SystemClock

if TYPE_CHECKING:
    from typing import Self

__all__ = ["FakeNode"]


class FakeNode:
    """Renews whatever it is asked to, unless that comes too late on its clock, which is `ahead` seconds off.

    `step` is added to the clock from now on; `void_at` is what the calls said in order, `voids` how many were late.
    `serves` is its range of slots, `peers` are all nodes of the Cluster, `up_for` its up-time in seconds.
    """

    def __init__(self, ahead: float) -> None:
        self.ahead = ahead
        self.step = 0.0
        self.void_at: list[int] = []
        self.voids = 0
        self.port = 0
        self.up_for = 1000
        self.serves = (0, 16383)
        self.peers: tuple[FakeNode, ...] = (self,)
        self._clock = SystemClock()
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

    def clock_at(self, boot: float) -> int:
        """What its clock shows at a moment of the boot clock, in microseconds."""
        return int((boot + self.ahead + self.step + 1e9) * 1e6)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                writer.write(self._answer(await _command(reader)))
        self._writers.discard(writer)
        writer.close()

    def _answer(self, command: list[bytes]) -> bytes:
        now = self.clock_at(self._clock.boot())
        match [part.upper() for part in command[:2]]:
            case [b"TIME"]:
                return _packed([b"%d" % (now // 1_000_000), b"%d" % (now % 1_000_000)])
            case [b"INFO"]:
                return _packed(b"uptime_in_seconds:%d\r\n" % self.up_for)
            case [b"CLUSTER", b"SLOTS"]:
                return _packed([[*node.serves, [b"127.0.0.1", node.port, b"id"]] for node in self.peers])
            case [b"EVALSHA", _]:
                void_at = int(command[3 + int(command[2]) + 1])
                self.void_at.append(void_at)
                if now > void_at:
                    self.voids += 1
                    return _packed([b"%d" % now])
                return _packed([b"%d" % now, b"", b"", b"N"])
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
