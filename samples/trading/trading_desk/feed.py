"""The price feed: one WebSocket connection, open only while this replica leads the snapshots."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TypeAlias

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

__all__ = ["Feed", "Prices", "SilentFeed"]

Prices: TypeAlias = dict[str, float]
"""The last price of each symbol."""

MOST_SILENCE = 0.5
"""Seconds without a message after which the prices at hand are no longer the market's."""


class SilentFeed(Exception):
    """The feed has said nothing for too long: its connection is gone, or it is open and nothing comes."""


class Feed:
    """The newest prices, from `open` to `close`. A lost connection is made again in between."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._prices: Prices = {}
        self._heard_at = 0.0
        self._heard = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect, and return when the first prices are there. Raises `TimeoutError` when none came within 2 s."""
        self._heard.clear()
        self._reader = asyncio.create_task(self._read())
        try:
            await asyncio.wait_for(self._heard.wait(), timeout=2)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the connection."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])
            self._reader = None

    def newest(self) -> Prices:
        """The prices of this moment. Raises `SilentFeed` rather than give old ones."""
        silence = time.monotonic() - self._heard_at
        if silence > MOST_SILENCE:
            raise SilentFeed(f"no price for {silence:.1f} s")
        return self._prices

    async def _read(self) -> None:
        while True:
            try:
                # A feed that hangs must not hold up its closing: the lease is released after that.
                async with connect(self._url, open_timeout=1, close_timeout=0.5) as connection:
                    async for message in connection:
                        self._prices = json.loads(message)
                        self._heard_at = time.monotonic()
                        self._heard.set()
            except (OSError, WebSocketException):
                pass
            await asyncio.sleep(0.2)
