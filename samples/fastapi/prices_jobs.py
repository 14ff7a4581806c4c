"""One job of each shape. All workers have them, one worker runs them."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from prices_table import Price, PriceTable
from singletonjob import SingletonJobs

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from singletonjob import Run

__all__ = ["jobs", "lifespan", "table"]

log = logging.getLogger("prices")

table = PriceTable()

jobs = SingletonJobs()  # project and store: singletonjob.toml


@asynccontextmanager
async def lifespan(_api: object) -> AsyncGenerator[None]:
    """What the jobs need comes first, and goes after they have stopped."""
    await asyncio.to_thread(table.create)
    async with jobs:
        yield


@jobs.fixed_rate("500ms")
async def price_tick(run: Run) -> None:
    """On the event loop that serves the requests, so what would block it goes to a thread."""
    for symbol, base in (("GOLD", 4000.0), ("SILVER", 50.0)):
        price = round(base * random.uniform(0.99, 1.01), 2)  # noqa: S311 - a made-up price
        if not await run.to_thread(table.put, Price(symbol, price, run.token)):
            log.warning("a newer leader than token %d has written %s", run.token, symbol)


@jobs.interval("1m")
def tidy_up() -> None:
    """A plain function has a thread of its own, and no request waits for it."""
    table.forget(keep=1000)


@jobs.cron("* * * * *", tz="Asia/Singapore")
def minute_close(run: Run) -> None:
    """A slot runs once, however many workers there are."""
    table.close_minute(run.scheduled_at.isoformat())
