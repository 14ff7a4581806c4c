"""A web application whose workers share three jobs: uvicorn --workers 4 prices_web:api"""

from __future__ import annotations

import asyncio
import logging
import os

from fastapi import FastAPI

from prices_jobs import jobs, lifespan, table
from singletonjob.probes import HealthASGI

__all__ = ["api"]

logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(process)d %(message)s")  # who leads, and since when

api = FastAPI(lifespan=lifespan)
api.mount("/health", HealthASGI(jobs))  # /health/livez, /health/readyz, /health/healthz, /health/metrics


@api.get("/prices")
async def prices() -> list[dict[str, str | float]]:
    """The same from each worker: all read the table, whoever leads writes it."""
    return [price._asdict() for price in await asyncio.to_thread(table.all)]


@api.get("/worker")
async def worker() -> dict[str, int | list[str]]:
    """Which process answers, and what it leads; ask a few times to meet each."""
    return {"pid": os.getpid(), "leads": [name for name, state in jobs.health().jobs.items() if state == "leading"]}
