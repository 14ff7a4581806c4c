"""A fake exchange: a real WebSocket server on loopback, whose prices wander at random."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from websockets.asyncio.server import broadcast, serve

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from websockets.asyncio.server import Server, ServerConnection

__all__ = ["Market"]

PERIOD = 0.05
"""Seconds between two messages."""

OPENING = {"BTC-USD": 64_200.0, "ETH-USD": 3_120.0, "SOL-USD": 142.0}


class Market:
    """Sends all prices to everybody who is connected. With `silent` set it sends nothing, and nobody is told why."""

    def __init__(self) -> None:
        self.silent = False
        self.connections = 0
        self.most_connections = 0
        self._prices = dict(OPENING)

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[str]:
        """Open the exchange, on a free port; yields its URL."""
        async with serve(self._client, "127.0.0.1", 0) as server:
            ticking = asyncio.create_task(self._tick(server))
            try:
                yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            finally:
                ticking.cancel()

    async def _client(self, connection: ServerConnection) -> None:
        self.connections += 1
        self.most_connections = max(self.most_connections, self.connections)
        try:
            await connection.wait_closed()
        finally:
            self.connections -= 1

    async def _tick(self, server: Server) -> None:
        while True:
            for symbol, price in self._prices.items():
                self._prices[symbol] = round(price * (1 + random.gauss(0, 2e-4)), 2)
            if not self.silent:
                broadcast(server.connections, json.dumps(self._prices))
            await asyncio.sleep(PERIOD)
