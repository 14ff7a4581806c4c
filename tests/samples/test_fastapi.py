"""samples/fastapi under its real server: of all workers one runs the jobs, and each shows what it wrote."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

from sample_image import ROOT
from waiting import wait_for
from web_servers import WebServer

if TYPE_CHECKING:
    from pathlib import Path

SAMPLE = ROOT / "samples" / "fastapi"


def asked(server: WebServer, path: str) -> Any:
    return json.loads(server.get(path))


def leaders(server: WebServer) -> set[int]:
    """The processes that lead, of those that answer. Which worker answers is chance, so there are some tries."""
    for _ in range(10):
        workers = [asked(server, "/worker") for _ in range(10)]
        if pids := {worker["pid"] for worker in workers if worker["leads"]}:
            return pids
    return set()


def symbols(server: WebServer) -> list[str]:
    """What has a price. The job writes one after the other."""
    return [price["symbol"] for price in asked(server, "/prices")]


def token(server: WebServer) -> int:
    """Of the term in which the newest prices were written; 0 before the first."""
    tokens = {price["token"] for price in asked(server, "/prices")}
    return max(tokens, default=0)


def test_one_worker_of_the_sample_runs_the_jobs_each_shows_the_prices_and_another_takes_over(tmp_path: Path) -> None:
    site = shutil.copytree(SAMPLE, tmp_path / "site", ignore=shutil.ignore_patterns("__pycache__", "*.db"))
    words = ("uvicorn", "--workers", "2", "--port", "{port}", "prices_web:api")
    with WebServer(site, "", *words, jobs="") as server:
        wait_for(lambda: symbols(server) == ["GOLD", "SILVER"], what="a price of each", alive=server.process)
        assert asked(server, "/health/livez")["live"]
        wait_for(lambda: asked(server, "/health/readyz")["ready"], what="readiness", alive=server.process)
        (first,) = leaders(server)
        before = token(server)
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: token(server) > before, what="prices of a later term", alive=server.process)
        wait_for(lambda: leaders(server), what="a worker that says that it leads", alive=server.process)
        (second,) = leaders(server)
        assert second != first
        server.stop()
        with closing(sqlite3.connect(site / "leases.db")) as leases:
            assert {holder for (holder,) in leases.execute("SELECT holder FROM lease")} == {None}, "not released"
