"""Where prices are kept: an SQLite file, so that each worker can show what the leading one wrote."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["Price", "PriceTable"]


class Price(NamedTuple):
    """`token` is that of the term in which it was written."""

    symbol: str
    price: float
    token: int


class PriceTable:
    """Safe from any thread and process: each call opens the file anew."""

    def __init__(self, path: Path = Path("prices.db")) -> None:
        self._path = path

    def create(self) -> None:
        with self._open() as database:
            database.execute("CREATE TABLE IF NOT EXISTS price (symbol TEXT PRIMARY KEY, price REAL, token INTEGER)")
            database.execute("CREATE TABLE IF NOT EXISTS close (at TEXT, symbol TEXT, price REAL, UNIQUE (at, symbol))")

    def put(self, price: Price) -> bool:
        """Keep it; False for one of an older term, which came too late: another replica leads by now."""
        with self._open() as database:
            written = database.execute(
                "INSERT INTO price VALUES (?, ?, ?) ON CONFLICT (symbol) DO UPDATE"
                " SET price = excluded.price, token = excluded.token WHERE excluded.token >= token",
                price,
            )
            return written.rowcount == 1

    def all(self) -> list[Price]:
        """The last price of each symbol."""
        with self._open() as database:
            return [Price(*row) for row in database.execute("SELECT symbol, price, token FROM price ORDER BY symbol")]

    def close_minute(self, at: str) -> None:
        """Copy the last prices to the closing prices of that minute."""
        with self._open() as database:
            database.execute("INSERT OR IGNORE INTO close SELECT ?, symbol, price FROM price", (at,))

    def forget(self, keep: int) -> int:
        """Drop all closing prices but the newest `keep` rows; how many went."""
        with self._open() as database:
            gone = "DELETE FROM close WHERE rowid NOT IN (SELECT rowid FROM close ORDER BY rowid DESC LIMIT ?)"
            return database.execute(gone, (keep,)).rowcount

    @contextmanager
    def _open(self) -> Generator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=5)) as connection, connection:
            yield connection
