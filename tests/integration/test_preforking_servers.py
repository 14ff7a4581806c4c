"""gunicorn and uWSGI around a Flask app: one worker runs the job, the master never does, and another takes over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from waiting import wait_for
from web_servers import JOBS, Ran, WebServer

if TYPE_CHECKING:
    from pathlib import Path

FLASK = """
import os, sys, threading
from contextlib import suppress
from flask import Flask
from jobs import jobs

app = Flask(__name__)
jobs.start()
with open("starts", "a") as file:
    threads = sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("singletonjob"))
    files = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the app's threads open and close files meanwhile
            files.append(os.readlink(f"/proc/self/fd/{number}"))
    file.write(f"{os.getpid()} {len(threads)} {sum('leases' in name for name in files)}\\n")

@app.get("/")
def index():
    return f"{os.getpid()} {jobs.is_leader('tick')} {jobs.health().ready}"
"""

GUNICORN = ("gunicorn", "--bind", "127.0.0.1:{port}", "--no-control-socket", "web:app")
UWSGI = ("uwsgi", "--http-socket", "127.0.0.1:{port}", "--module", "web:app", "--die-on-term", "--processes", "3")


def starts(directory: Path) -> dict[int, tuple[int, int]]:
    """Per process that imported the application: its threads of ours then, and its open files of the store."""
    rows = [line.split() for line in (directory / "starts").read_text().splitlines()]
    return {int(pid): (int(threads), int(files)) for pid, threads, files in rows}


def check(runs: list[Ran]) -> None:
    assert len({run.tick for run in runs}) == len(runs), "a tick ran twice"


def take_over(server: WebServer, *, within: float) -> list[Ran]:
    """Kill the worker that runs the job; all runs, when another one has run it."""
    before = server.until_it_ran()
    leader = before[-1].pid
    assert {run.pid for run in before} == {leader}
    assert leader != server.process.pid, "the master ran it"
    os.kill(leader, signal.SIGKILL)
    runs = server.until_another_ran(leader)
    last = [run.at for run in runs if run.pid == leader][-1]
    first = next(run for run in runs if run.pid != leader)
    assert first.at - last < within
    assert first.pid != server.process.pid
    check(server.until_it_ran())
    return server.runs()


@pytest.mark.parametrize("preload", [False, True], ids=["each worker imports", "preload"])
def test_c13_under_gunicorn_one_worker_runs_the_job_and_another_takes_over(preload: bool, tmp_path: Path) -> None:
    with WebServer(tmp_path, FLASK, *GUNICORN, "--workers", "3", *["--preload"] * preload) as server:
        take_over(server, within=5)
        if preload:
            assert starts(tmp_path) == {server.process.pid: (0, 0)}, "a thread or a file in the master"
        else:
            assert server.process.pid not in starts(tmp_path)
        assert server.stop() == 0
        assert server.holder() is None, "not released at the end of the worker"


def test_workers_that_gunicorn_starts_anew_take_part_too(tmp_path: Path) -> None:
    with WebServer(tmp_path, FLASK, *GUNICORN, "--workers", "1", "--preload") as server:
        first = take_over(server, within=15)[0].pid
        second = server.runs()[-1].pid
        server.process.send_signal(signal.SIGHUP)  # settings are read again, all workers replaced
        runs = server.until_another_ran(second)
        assert len({run.node for run in runs}) == len({run.pid for run in runs}) == 3
        assert first != second
        check(runs)


def test_a_conf_file_of_gunicorn_that_starts_the_app_starts_it_in_the_workers(tmp_path: Path) -> None:
    (tmp_path / "conf.py").write_text("""
from jobs import jobs
jobs.start()

def post_worker_init(worker):
    open("own-hook", "a").write("called ")
""")
    web = FLASK.replace("jobs.start()\n", "")
    with WebServer(tmp_path, web, *GUNICORN, "--workers", "2", "--config", "conf.py", "--preload") as server:
        assert {run.pid for run in server.until_it_ran()} != {server.process.pid}
        wait_for(lambda: (tmp_path / "own-hook").read_text() == "called called ", what="the conf file's own hook")


@pytest.mark.parametrize("preload", [False, True], ids=["each worker imports", "preload"])
def test_c101_under_gevent_the_start_is_refused_with_what_to_write_instead(preload: bool, tmp_path: Path) -> None:
    words = [*GUNICORN, "--worker-class", "gevent", *["--preload"] * preload]
    with WebServer(tmp_path, FLASK, *words) as server:
        assert server.process.wait(20) != 0
    said = [line for line in server.log.splitlines() if "gevent has monkey-patched" in line]
    assert said, server.log
    assert all("gunicorn --worker-class gthread" in line for line in said)
    assert server.runs() == []


PATCHED = """
import asyncio
from jobs import jobs

def refused(call):
    try:
        call()
    except ValueError as error:
        return str(error)

print(refused(jobs.start), refused(jobs.run), refused(lambda: asyncio.run(jobs.serve())), sep="\\n")
"""


@pytest.mark.parametrize(
    ("library", "patch"),
    [
        ("gevent", "from gevent.monkey import patch_all; patch_all()"),
        ("eventlet", "from eventlet import monkey_patch; monkey_patch()"),
    ],
)
def test_c101_a_program_that_patched_itself_is_refused_by_every_entry(library: str, patch: str, tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(JOBS)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", patch + PATCHED],
        cwd=tmp_path,
        env={**os.environ, "SINGLETONJOB_STORE": "memory", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    said = done.stdout.splitlines()
    assert len(said) == 3, done.stderr
    assert all(line.startswith(f"{library} has monkey-patched ") for line in said)


@pytest.mark.parametrize("options", [(), ("--lazy-apps",)], ids=["in the master", "lazy-apps"])
def test_c102_under_uwsgi_one_worker_runs_the_job_and_another_takes_over(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    with WebServer(tmp_path, FLASK, *UWSGI, "--master", "--enable-threads", *options) as server:
        take_over(server, within=5)
        if "--lazy-apps" in options:
            # uWSGI waits a minute for a worker that was told to end while it still imported the application.
            wait_for(lambda: server.log.count("WSGI app 0 ") == 4, what="the worker in the place of the killed one")
            time.sleep(0.5)
        else:
            assert starts(tmp_path) == {server.process.pid: (0, 0)}, "a thread or a file in the master"
        server.stop()
        assert server.holder() is None, "not released at the end of the worker"


def test_c102_uwsgi_without_a_master_and_with_its_own_hooks(tmp_path: Path) -> None:
    web = "import uwsgi\nuwsgi.post_fork_hook = lambda: open('own-hook', 'a').write('x')\n" + FLASK
    with WebServer(tmp_path, web, *UWSGI, "--threads", "2") as server:
        server.until_it_ran()
        check(server.runs())
        wait_for(lambda: (tmp_path / "own-hook").read_text() == "xxx", what="the own hook of each worker")


def test_c102_uwsgi_with_the_decorators_of_its_own_calls_both(tmp_path: Path) -> None:
    web = FLASK + "from uwsgidecorators import postfork\npostfork(lambda: open('own-hook', 'a').write('x'))\n"
    with WebServer(tmp_path, web, *UWSGI, "--master", "--enable-threads") as server:
        server.until_it_ran()
        wait_for(lambda: (tmp_path / "own-hook").read_text() == "xxx", what="the own hook of each worker")


def test_c102_uwsgi_with_its_threads_off_is_refused_with_what_to_write(tmp_path: Path) -> None:
    with WebServer(tmp_path, FLASK, *UWSGI, "--master", "--need-app") as server:
        assert server.process.wait(20) != 0
        assert "write enable-threads = true into its options" in server.log
    assert server.runs() == []


def test_c16_with_flasks_reloader_no_tick_runs_twice_and_a_reload_hands_over_at_once(tmp_path: Path) -> None:
    # As docs/flask-gunicorn.md has it: the reloader's parent takes no part, so what runs is never older than the file.
    web = FLASK.replace("jobs.start()", 'if os.environ.get("WERKZEUG_RUN_MAIN"):\n    jobs.start()')
    # The mere presence of watchdog, which the documentation's builder brings, makes the reloader watch all of sys.path.
    (tmp_path / "watchdog.py").write_text("raise ImportError\n")
    words = ("flask", "--app", "web", "run", "--debug", "--port", "{port}")
    # The reloader that looks at the files each second, also where the package is installed that listens for each event
    # below all directories that are imported from: a busy machine has too many of them.
    (tmp_path / "watchdog.py").write_text('raise ImportError("not wanted here")\n')
    with WebServer(tmp_path, web, *words) as server:
        for _ in range(2):
            pid = server.until_it_ran(3)[-1].pid
            (tmp_path / "web.py").write_text(f"{web}\n# {time.time_ns()}\n")
            runs = server.until_another_ran(pid)
            last = [run.at for run in runs if run.pid == pid][-1]
            assert next(run.at for run in runs if run.at > last) - last < 8  # not the 10 s of a lease left to expire
        check(server.runs())
        assert {run.pid for run in server.runs()}.isdisjoint({server.process.pid})


def test_a_start_in_the_master_that_is_stopped_before_the_fork_starts_nothing_in_the_workers(tmp_path: Path) -> None:
    web = FLASK.replace("jobs.start()", "with jobs.in_thread():\n    pass")
    with WebServer(tmp_path, web, *GUNICORN, "--workers", "1", "--preload") as server:
        pid, leads, ready = server.get().split()
        assert int(pid) != server.process.pid
        assert (leads, ready) == ("False", "False")
        assert not (tmp_path / "leases.db").exists()
