"""Systems other than Linux, as far as they can be had here: a process from which what those have not was taken away."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from servers import OLDEST, Server

if TYPE_CHECKING:
    from pathlib import Path

MACOS = """
import ctypes, sys, time
sys.platform = "darwin"
del time.CLOCK_BOOTTIME

class NoLinux:
    def __init__(self, *arguments, **options): pass
    def __getattr__(self, name): raise AttributeError(name)  # no timerfd
ctypes.CDLL = NoLinux
"""

WINDOWS = (
    """
import asyncio, os, signal
import redis.asyncio  # it would ask for Windows' own modules
"""
    + MACOS
    + """
sys.platform = "win32"
for module in ("fcntl", "resource", "pwd", "grp"):
    sys.modules[module] = None
for name in ("register_at_fork", "fork", "getuid", "geteuid", "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "uname"):
    delattr(os, name)
for name in ("SIGHUP", "SIGKILL", "pthread_sigmask"):
    delattr(signal, name)
for name in [name for name in vars(time) if name.startswith(("CLOCK_", "clock_gettime"))]:
    delattr(time, name)
signal.SIGBREAK = signal.SIGUSR1

def refuse(*arguments, **options):
    raise NotImplementedError
asyncio.SelectorEventLoop.add_signal_handler = refuse
"""
)

PROGRAM = """
import logging, signal, threading
from singletonjob import SingletonJobs

logging.basicConfig(level="INFO", format="%(levelname)s %(event)s %(message)s")
app = SingletonJobs("shop", lock_expiry=2.0, heartbeat_interval=0.5, amnesia_guard=False)
ran = threading.Event()

@app.fixed_rate("20ms")
def tick() -> None:
    ran.set()

@app.cron("* * * * * *")
async def each_second() -> None:
    if ran.is_set():
        signal.raise_signal({signal})

app.run()
print("returned")
"""


def play(platform: str, store: str, number: str, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", platform + PROGRAM.replace("{signal}", number)],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "SINGLETONJOB_STORE": store},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("store", ["sqlite:///leases.db", "redis"])
@pytest.mark.parametrize(
    ("platform", "number"),
    [(MACOS, "signal.SIGTERM"), (WINDOWS, "signal.SIGINT"), (WINDOWS, "signal.SIGBREAK")],
    ids=["macOS", "Windows Ctrl-C", "Windows Ctrl-Break"],
)
def test_c97_jobs_run_and_a_signal_releases_where_there_is_no_linux(
    platform: str, number: str, store: str, tmp_path: Path
) -> None:
    if store != "redis":
        done = play(platform, store, number, tmp_path)
        if platform is WINDOWS:
            assert done.returncode == 1
            assert "SQLite needs flock, which this system has not; write redis://" in done.stderr.splitlines()[-1]
            return
    else:
        with Server(OLDEST, tmp_path) as server:
            done = play(platform, server.url, number, tmp_path)
            with server.client() as client:
                assert client.keys("*:lock") == []
    assert done.returncode == 0, done.stderr
    assert done.stdout == "returned\n"
    events = [line.split()[1] for line in done.stderr.splitlines()]
    assert events.count("elected") == events.count("released") == 2
