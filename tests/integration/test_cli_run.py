"""`singletonjob run` as a real process: signals, exit codes, log lines, and one line for what is wrong."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Generator

JOBS = """
import asyncio, os, time
from singletonjob import Run, SingletonJobs

app = SingletonJobs("pricing", node_id="same-name")

@app.fixed_rate("100ms")
async def price_tick(run: Run) -> None:
    with open("runs", "a") as file:
        file.write(f"{os.getpid()} {run.tick}\\n")
"""

STUBBORN = """
import time
from singletonjob import SingletonJobs

app = SingletonJobs("pricing", lock_expiry="3s", heartbeat_interval="1s", shutdown_grace="500ms")

@app.interval("1s")
def forever() -> None:
    open("runs", "a").write("1 1\\n")
    time.sleep(1000)
"""

FORKED = (
    JOBS
    + """
app.configure(store="sqlite:///leases.db")
os.fork()
app.run()
"""
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory with the apps."""
    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    return tmp_path


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "singletonjob", "run", *arguments]


@contextmanager
def running(
    words: list[str], directory: Path, environ: dict[str, str] | None = None
) -> Generator[subprocess.Popen[str]]:
    """A process in the directory; it is killed at the end if it still runs."""
    process = subprocess.Popen(
        words, cwd=directory, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def runs(directory: Path) -> list[tuple[int, int]]:
    """(process id, tick) of all runs so far."""
    path = directory / "runs"
    if not path.exists():
        return []
    lines = path.read_text().rpartition("\n")[0].splitlines()
    return [(int(line.split()[0]), int(line.split()[1])) for line in lines]


def failed(words: list[str], directory: Path) -> str:
    """What a command that must exit with 2 says on stderr: one line, no traceback."""
    done = subprocess.run(words, cwd=directory, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


# -- signals and exit codes ----------------------------------------------------------------------------------------


def test_a_program_under_systemd_says_ready_and_that_it_lives_and_stopping_and_what_a_body_starts_cannot(
    project: Path,
) -> None:
    (project / "jobs.py").write_text(
        JOBS.replace("as file:", "as file:\n        assert 'NOTIFY_SOCKET' not in os.environ")
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(project / "notify"))
        manager.settimeout(20)
        environ = os.environ | {"NOTIFY_SOCKET": str(project / "notify"), "WATCHDOG_USEC": "200000"}
        with running(command("jobs:app", "--store", "memory"), project, environ) as process:
            told = [manager.recv(100) for _ in range(3)]
            wait_for(lambda: runs(project))
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=20)
            while told[-1] != b"STOPPING=1":
                told.append(manager.recv(100))
    assert told[:3] == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]
    assert process.returncode == 0
    assert "ERROR" not in errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_app_with_exit_code_0_and_its_leases_are_released(number: int, project: Path) -> None:
    with running(command("jobs:app", "--store", "sqlite:///leases.db", "--log-format", "json"), project) as process:
        wait_for(lambda: len(runs(project)) > 2)
        process.send_signal(number)
        output, errors = process.communicate(timeout=20)
    assert process.returncode == 0
    assert output == ""
    lines = [json.loads(line) for line in errors.splitlines()]
    assert all(line["ts"] and line["level"] and line["logger"] and line["message"] for line in lines)
    assert any("became LEADER for pricing:price-tick:lock" in line["message"] and line["token"] for line in lines)
    assert any("released" in line["message"] and line["job"] == "price-tick" for line in lines)


def test_log_lines_are_text_unless_asked_otherwise_and_the_level_can_be_set(project: Path) -> None:
    words = command("jobs:app", "--store", "sqlite:///leases.db")
    with running(words, project) as process:
        wait_for(lambda: len(runs(project)) > 2)
        process.terminate()
        errors = process.communicate(timeout=20)[1]
    assert "Z INFO    price-tick: became LEADER for pricing:price-tick:lock" in errors
    assert "DEBUG" not in errors
    (project / "runs").unlink()
    with running([*words, "--log-level", "error"], project) as process:
        wait_for(lambda: len(runs(project)) > 2)
        process.terminate()
        assert process.communicate(timeout=20)[1] == ""


def test_project_and_store_of_the_command_line_win_over_the_code(project: Path) -> None:
    words = command("jobs:app", "--project", "other", "--store", "sqlite:///elsewhere.db")
    with running(words, project) as process:
        wait_for(lambda: len(runs(project)) > 2)
        process.terminate()
        errors = process.communicate(timeout=20)[1]
    assert "became LEADER for other:price-tick:lock" in errors
    assert (project / "elsewhere.db").exists()


def test_c94_a_body_that_will_not_stop_does_not_hold_the_exit(project: Path) -> None:
    with running(command("stubborn:app", "--store", "sqlite:///leases.db"), project) as process:
        wait_for(lambda: len(runs(project)) > 0)
        process.terminate()
        signalled = time.monotonic()
        errors = process.communicate(timeout=60)[1]
        took = time.monotonic() - signalled
    assert process.returncode == 1
    # grace 0.5 s + margin 0.3 s + 1 s, and as much again for a busy machine
    assert took < 2 * (0.5 + 0.3 + 1)
    assert "ERROR" in errors
    assert "forever" in errors


def test_a_second_signal_ends_the_process_at_once(project: Path) -> None:
    text = (project / "stubborn.py").read_text()
    (project / "stubborn.py").write_text(text.replace('shutdown_grace="500ms"', 'shutdown_grace="100s"'))
    with running(command("stubborn:app", "--store", "sqlite:///leases.db"), project) as process:
        wait_for(lambda: len(runs(project)) > 0)
        process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=1)
        process.terminate()
        process.communicate(timeout=5)
    assert process.returncode != 0


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
def test_c93_sigterm_stops_the_app_also_as_process_1(project: Path) -> None:
    namespace = ["unshare", "--pid", "--fork", "--kill-child"]
    if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no right to make a process namespace")
    with running([*namespace, *command("jobs:app", "--store", "sqlite:///leases.db")], project) as outer:
        wait_for(lambda: len(runs(project)) > 2)
        assert {process for process, _ in runs(project)} == {1}
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGTERM)
        signalled = time.monotonic()
        errors = outer.communicate(timeout=20)[1]
        took = time.monotonic() - signalled
    assert outer.returncode == 0
    assert "released" in errors
    assert took < 4  # the case says 1 s


# -- one leader, whatever the processes are called -----------------------------------------------------------------


def test_c01_of_two_processes_with_one_host_name_and_node_name_only_one_runs_the_job(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTNAME", "same-host")
    monkeypatch.setenv("POD_NAME", "same-pod")
    words = command("jobs:app", "--store", "sqlite:///leases.db")
    with running(words, project) as one, running(words, project) as two:
        wait_for(lambda: len(runs(project)) > 40)
        assert one.poll() is None
        assert two.poll() is None
        seen = runs(project)
    assert len({process for process, _ in seen}) == 1
    assert len({tick for _, tick in seen}) == len(seen)


def test_c01_a_process_forked_after_the_app_was_made_is_another_node(project: Path) -> None:
    (project / "forked.py").write_text(FORKED)
    process = subprocess.Popen([sys.executable, "forked.py"], cwd=project, stderr=subprocess.DEVNULL, process_group=0)
    try:
        wait_for(lambda: len(runs(project)) > 40)
        seen = runs(project)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert len({one for one, _ in seen}) == 1
    assert len({tick for _, tick in seen}) == len(seen)


# -- what is wrong, in one line ------------------------------------------------------------------------------------


def test_c107_a_typo_in_the_attribute_is_one_line_and_no_lease_was_touched(project: Path) -> None:
    assert "jobs has no 'ap'; did you mean 'app'?" in failed(
        command("jobs:ap", "--store", "sqlite:///leases.db"), project
    )
    assert not (project / "leases.db").exists()


def test_c107_an_import_error_inside_the_module_is_one_line_with_its_place(project: Path) -> None:
    (project / "broken.py").write_text("import os\nimport no_such_library\n")
    said = failed(command("broken:app", "--store", "sqlite:///leases.db"), project)
    assert "No module named 'no_such_library' (broken.py:2)" in said
    assert not (project / "leases.db").exists()


def test_c107_the_app_is_found_from_the_parent_with_app_dir(project: Path) -> None:
    words = command("jobs:app", "--app-dir", project.name, "--store", f"sqlite:///{project / 'leases.db'}")
    with running(words, project.parent) as process:
        wait_for(lambda: len(runs(project.parent)) > 2)
        process.terminate()
        process.communicate(timeout=20)
    (project.parent / "runs").unlink()
    assert process.returncode == 0


def test_a_missing_store_is_one_line_that_tells_how_to_give_one(project: Path) -> None:
    said = failed(command("jobs:app"), project)
    assert "SINGLETONJOB_STORE" in said
    assert "--store" in said


def test_an_unknown_store_is_one_line(project: Path) -> None:
    assert "carrier-pigeon" in failed(command("jobs:app", "--store", "carrier-pigeon://loft"), project)


def test_a_bad_project_name_is_one_line(project: Path) -> None:
    said = failed(command("jobs:app", "--store", "sqlite:///leases.db", "--project", "no good"), project)
    assert "no good" in said
    assert not (project / "leases.db").exists()


def test_a_bad_schedule_is_one_line_that_names_job_option_and_place(project: Path) -> None:
    (project / "bad.py").write_text(JOBS.replace("100ms", "-1s"))
    said = failed(command("bad:app", "--store", "sqlite:///leases.db"), project)
    assert "price-tick" in said
    assert "-1s" in said
    assert "bad.py:7" in said
