"""Async web applications under their real servers: the lifespan starts and stops the jobs, and signals stay theirs."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from waiting import wait_for
from web_servers import JOBS, Ran, WebServer

if TYPE_CHECKING:
    from pathlib import Path

FASTAPI = """
import os, signal
from fastapi import FastAPI
from jobs import jobs

app = FastAPI(lifespan=jobs.lifespan)

@app.get("/")
def index() -> str:
    return f"{os.getpid()} {signal.getsignal(signal.SIGTERM)} {signal.getsignal(signal.SIGINT)}"
"""

PLAIN = FASTAPI.replace("lifespan=jobs.lifespan", "")

STARLETTE = """
from contextlib import asynccontextmanager
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from jobs import jobs

@asynccontextmanager
async def lifespan(app):
    async with jobs:
        yield {"mine": "here"}
    open("closed", "w").write(str(jobs.is_leader("tick")))

async def index(request):
    return PlainTextResponse(request.state.mine)

app = Starlette(lifespan=lifespan, routes=[Route("/", index)])
"""

LITESTAR = """
from litestar import Litestar, get
from jobs import jobs

@get("/")
async def index() -> str:
    return "here"

app = Litestar([index], lifespan=[jobs.lifespan])
"""

QUART = """
from quart import Quart
from jobs import jobs

app = Quart(__name__)

@app.while_serving
async def run_jobs():
    async with jobs:
        yield

@app.get("/")
async def index():
    return "here"
"""

UVICORN = ("uvicorn", "--port", "{port}", "web:app")
HYPERCORN = ("hypercorn", "--bind", "127.0.0.1:{port}", "web:app")


def one_process(runs: list[Ran]) -> int:
    (pid,) = {run.pid for run in runs}
    return pid


def no_tick_twice(runs: list[Ran]) -> None:
    assert len({run.tick for run in runs}) == len(runs)


def test_c14_of_all_workers_of_two_servers_one_process_runs_each_tick_once_and_another_takes_over(
    tmp_path: Path,
) -> None:
    words = (*UVICORN, "--workers", "2")
    with WebServer(tmp_path, FASTAPI, *words) as one, WebServer(tmp_path, FASTAPI, *words) as two:
        one.get()
        two.get()
        leader = one_process(one.until_it_ran(15))
        os.kill(leader, signal.SIGKILL)
        wait_for(lambda: len([run for run in one.runs() if run.pid != leader]) > 5, what="the job elsewhere")
        runs = one.runs()
        no_tick_twice(runs)
        assert len({run.pid for run in runs}) == 2
        last = max(run.at for run in runs if run.pid == leader)
        assert min(run.at for run in runs if run.pid != leader) - last < 5  # 250 ms and one period on SQLite
        # The second server goes first, so that the other still has somebody to run the job.
        two.stop()
        one.stop()
        assert one.holder() is None, "not released"


@pytest.mark.parametrize(
    ("server", "web"),
    [(UVICORN, STARLETTE), (HYPERCORN, LITESTAR), (HYPERCORN, QUART)],
    ids=["starlette on uvicorn", "litestar on hypercorn", "quart on hypercorn"],
)
def test_each_framework_runs_the_jobs_while_it_serves_and_releases_at_its_end(
    server: tuple[str, ...], web: str, tmp_path: Path
) -> None:
    with WebServer(tmp_path, web, *server) as running:
        assert running.get() == "here"
        running.until_it_ran(2)
        running.stop()
        assert running.holder() is None
    if web == STARLETTE:
        assert (tmp_path / "closed").read_text() == "False", "the application's own lifespan goes on after the jobs"


def test_c92_inside_a_server_the_signals_are_its_own_and_so_is_the_exit_code(tmp_path: Path) -> None:
    codes: dict[str, int] = {}
    handlers: dict[str, str] = {}
    for name, web in (("plain", PLAIN), ("jobs", FASTAPI)):
        with WebServer(tmp_path, web, *UVICORN) as server:
            handlers[name] = server.get().split(" ", 1)[1].partition(" at 0x")[0]
            if name == "jobs":
                server.until_it_ran(2)
            signalled = time.monotonic()
            codes[name] = server.stop()
            took = time.monotonic() - signalled
    assert codes["jobs"] == codes["plain"]
    assert handlers["jobs"] == handlers["plain"]
    assert server.holder() is None
    assert took < 5  # the case says 500 ms until the key is gone


LONG = (
    JOBS
    + """
@jobs.interval("1s")
async def long() -> None:
    open("long", "w").write("runs")
    import asyncio
    await asyncio.sleep(1000)
"""
)


def test_c92_a_long_run_holds_the_end_of_a_server_up_by_its_grace_at_most(tmp_path: Path) -> None:
    with WebServer(tmp_path, FASTAPI, *UVICORN, jobs=LONG, environment={"SINGLETONJOB_SHUTDOWN_GRACE": "1s"}) as server:
        wait_for(lambda: (tmp_path / "long").exists(), what="the long run")
        signalled = time.monotonic()
        server.stop()
        assert 0.9 < time.monotonic() - signalled < 6
        assert server.holder() is None


def test_c16_with_uvicorns_reloader_no_tick_runs_twice_and_a_reload_hands_over_at_once(tmp_path: Path) -> None:
    with WebServer(tmp_path, FASTAPI, *UVICORN, "--reload", "--reload-dir", str(tmp_path)) as server:
        for _ in range(2):
            pid = server.until_it_ran(3)[-1].pid
            (tmp_path / "web.py").write_text(FASTAPI + f"# {time.time_ns()}\n")
            runs = server.until_another_ran(pid)
            last = [run.at for run in runs if run.pid == pid][-1]
            assert next(run.at for run in runs if run.at > last) - last < 8  # not the 10 s of a lease left to expire
        no_tick_twice(server.runs())
        assert {run.pid for run in server.runs()}.isdisjoint({server.process.pid})
