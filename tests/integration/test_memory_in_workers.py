"""`memory` in a process that is one of several: each of them leads, and says so once."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from waiting import wait_for
from web_servers import WebServer

if TYPE_CHECKING:
    from pathlib import Path

SAID = "memory is this process alone"

JOBS = """
import logging, sys
logging.basicConfig(level="WARNING", stream=sys.stderr)
from singletonjob import SingletonJobs

def start():
    app = SingletonJobs("p", "memory")
    app.interval("1h", name="job")(lambda: None)
    with app.in_thread():
        pass
"""

ALONE = "start()"
FORKED = """
import os
for _ in range(2):
    if os.fork() == 0:
        start()
        os._exit(0)
for _ in range(2):
    os.wait()
"""
SPAWNED = """
if __name__ == "__main__":
    import multiprocessing
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=start) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
"""

WSGI = """
import logging
logging.basicConfig(level="WARNING")
from singletonjob import SingletonJobs

jobs = SingletonJobs("p", "memory")
jobs.interval("1h", name="job")(lambda: None)
jobs.start()

def app(environ, respond):
    respond("200 OK", [])
    return [b"ok"]
"""


@pytest.mark.parametrize(("program", "times"), [(ALONE, 0), (FORKED, 2), (SPAWNED, 2)])
def test_each_of_several_processes_on_memory_warns_once_that_it_leads_alone(
    program: str, times: int, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(JOBS + program)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr.count(SAID) == times, done.stderr


def test_each_worker_of_gunicorn_on_memory_warns_once(tmp_path: Path) -> None:
    words = ("gunicorn", "--bind", "127.0.0.1:{port}", "--no-control-socket", "--workers", "2", "web:app")
    with WebServer(tmp_path, WSGI, *words) as server:
        wait_for(lambda: server.log.count(SAID) >= 2, what="the warnings", alive=server.process)
        server.stop()
    assert server.log.count(SAID) == 2
