"""The end of a process that runs jobs: which signals stop it, how it exits, and what else is left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from waiting import wait_for
from web_servers import JOBS, WebServer

if TYPE_CHECKING:
    from pathlib import Path

RUN = (sys.executable, "-m", "singletonjob", "run", "jobs:jobs")

STUBBORN = (
    JOBS
    + """
@jobs.interval("1s")
async def stubborn() -> None:
    import asyncio
    open("stubborn", "w").close()
    while True:
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            pass
"""
)


def test_a_hang_up_stops_in_good_order(tmp_path: Path) -> None:
    with WebServer(tmp_path, "", *RUN) as process:
        process.until_it_ran(2)
        assert process.stop(signal.SIGHUP) == 0
        assert process.holder() is None


def test_a_hang_up_that_is_ignored_under_nohup_stays_ignored(tmp_path: Path) -> None:
    with WebServer(tmp_path, "", "sh", "-c", 'trap "" HUP; exec "$@"', "sh", *RUN) as process:
        process.until_it_ran(2)
        process.process.send_signal(signal.SIGHUP)
        process.until_it_ran(5)
        assert process.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_second_signal_exits_with_128_and_its_number_and_the_lease_is_left_to_expire(
    number: signal.Signals, tmp_path: Path
) -> None:
    with WebServer(tmp_path, "", *RUN, jobs=STUBBORN) as process:
        wait_for(lambda: (tmp_path / "stubborn").exists(), what="the stubborn run")
        process.process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.process.wait(0.5)
        assert process.stop(number, seconds=5) == 128 + number


def test_c95_a_run_that_swallows_its_cancellation_is_left_behind_with_exit_code_1(tmp_path: Path) -> None:
    environment = {
        "SINGLETONJOB_SHUTDOWN_GRACE": "300ms",
        "SINGLETONJOB_LOCK_EXPIRY": "2s",
        "SINGLETONJOB_HEARTBEAT_INTERVAL": "500ms",
    }
    with WebServer(tmp_path, "", *RUN, jobs=STUBBORN, environment=environment) as process:
        wait_for(lambda: (tmp_path / "stubborn").exists(), what="the stubborn run")
        signalled = time.monotonic()
        assert process.stop() == 1
        assert time.monotonic() - signalled < 2 * (0.3 + 0.2 + 1)  # grace, margin, 1 s; twice, on a busy machine
        assert "stubborn: run did not stop within its grace" in process.log


def test_c97_in_a_thread_the_app_runs_without_its_signals(tmp_path: Path) -> None:
    program = """
import signal, threading, time
from jobs import jobs
before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
threading.Thread(target=jobs.run, daemon=True).start()
while not jobs.is_leader("tick"):
    time.sleep(0.01)
assert before == [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
time.sleep(100)
"""
    with WebServer(tmp_path, program, sys.executable, "web.py") as process:
        process.until_it_ran(2)
        assert process.stop() == -signal.SIGTERM


def test_c114_an_app_that_was_started_and_forgotten_goes_on_until_the_program_ends(tmp_path: Path) -> None:
    program = """
import gc, time
def begin():
    import jobs, sys
    jobs.jobs.start()
    del sys.modules["jobs"], jobs.jobs
begin()
gc.collect()
time.sleep(1)
"""
    with WebServer(tmp_path, program, sys.executable, "web.py") as process:
        process.until_it_ran(5)
        assert process.process.wait(20) == 0
        assert process.holder() is None, "renewed or left behind at exit"


@pytest.mark.skipif(not os.path.exists("/proc/self/ns/pid"), reason="needs Linux")  # noqa: PTH110 - one look
def test_c93_as_process_1_behind_a_shell_a_signal_never_arrives_and_exec_makes_it_arrive(tmp_path: Path) -> None:
    namespace = ["unshare", "--pid", "--fork", "--kill-child"]
    with suppress(FileNotFoundError):
        if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode == 0:
            for script, code in (('exec "$@"', 0), ('"$@"; exit $?', None)):
                with WebServer(tmp_path, "", *namespace, "sh", "-c", script, "sh", *RUN) as outer:
                    outer.until_it_ran(2)
                    children = f"/proc/{outer.process.pid}/task/{outer.process.pid}/children"
                    with open(children) as file:  # noqa: PTH123 - a line of it
                        first = int(file.read().split()[0])
                    os.kill(first, signal.SIGTERM)
                    if code is None:
                        outer.until_it_ran(5)  # the shell is process 1, and takes no signal that it does not handle
                    else:
                        assert outer.process.wait(20) == code
                        assert outer.holder() is None
            return
    pytest.skip("no right to make a process namespace")
