"""Where snapshots go: a table that refuses what an older leader sends. Stands for your database."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from .feed import Prices

__all__ = ["Sink", "StaleWrite"]

TABLE = """
CREATE TABLE IF NOT EXISTS snapshots (
    number INTEGER PRIMARY KEY,
    token INTEGER NOT NULL,
    taken REAL NOT NULL,
    prices TEXT NOT NULL
)"""

PUBLISH = """
INSERT INTO snapshots (token, taken, prices)
SELECT :token, julianday('now'), :prices
WHERE :token >= (SELECT coalesce(max(token), 0) FROM snapshots)"""

AGE = "SELECT (julianday('now') - max(taken)) * 86400.0 FROM snapshots"
"""The sink's clock stamps, and it tells the age: no replica's clock matters."""


class StaleWrite(Exception):
    """The write carries the token of a term that another one has followed. Nothing was written."""


class Sink:
    """The desk's snapshots, newest last. May be used from one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode = wal")
        self._database.execute("PRAGMA synchronous = normal")
        self._database.execute(TABLE)

    def publish(self, prices: Prices, *, token: int) -> None:
        """Add a snapshot; the check and the write are one statement. Raises `StaleWrite`."""
        done = self._database.execute(PUBLISH, {"token": token, "prices": json.dumps(prices)})
        if done.rowcount == 0:
            raise StaleWrite(f"token {token} is older than that of the newest snapshot")

    def newest(self, count: int) -> list[Prices]:
        """The last `count` snapshots, the newest first; fewer if there are not so many."""
        rows = self._database.execute("SELECT prices FROM snapshots ORDER BY number DESC LIMIT ?", (count,))
        return [json.loads(prices) for (prices,) in rows]

    def age(self) -> float | None:
        """Seconds since the newest snapshot, whichever replica took it. None: there is none yet."""
        (age,) = self._database.execute(AGE).fetchone()
        return None if age is None else float(age)

    def close(self) -> None:
        """Close the file."""
        self._database.close()
