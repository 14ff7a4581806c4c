"""Test programs of users under pytest-xdist, and the store that each of its workers has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"

BOTH_LEAD = """
import time
from pathlib import Path
import pytest
from singletonjob import SingletonJobs

def wait_for(condition):
    end = time.monotonic() + {patience}
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)

@pytest.mark.parametrize("mine, other", [("a", "b"), ("b", "a")])
def test_a_job_runs(mine, other):
    app = SingletonJobs("pricing")

    @app.interval("1h")
    def job():
        Path(mine).touch()

    with app.in_thread():
        wait_for(Path(mine).exists)
        wait_for(Path(other).exists)  # so that both lead at one time, each in a worker
"""

STORES = """
import os, time
from pathlib import Path
import pytest

@pytest.mark.parametrize("mine, other", [("a", "b"), ("b", "a")])
def test_it(mine, other):
    Path(mine).write_text(os.environ.get("SINGLETONJOB_STORE", "not set"))
    end = time.monotonic() + 20
    while not Path(other).exists() and time.monotonic() < end:
        time.sleep(0.01)
"""


def two_workers(
    directory: Path, program: str, *arguments: str, store: str | None = None
) -> subprocess.CompletedProcess[str]:
    (directory / "test_program.py").write_text(program)
    variables = {"PYTHONPATH": os.pathsep.join([str(SRC), os.environ.get("PYTHONPATH", "")])}
    variables |= {} if store is None else {"SINGLETONJOB_STORE": store}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    others = ("cacheprovider", "randomly", "asyncio", "anyio", "hypothesispytest")
    off = [f"-pno:{name}" for name in others]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "xdist", "-n", "2", "--rootdir", ".", *off, *arguments],
        cwd=directory,
        env=inherited | variables,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "2 workers" in done.stdout, done.stdout + done.stderr
    return done


def test_an_app_leads_in_each_worker_although_the_environment_names_one_sqlite_file(tmp_path: Path) -> None:
    done = two_workers(tmp_path, BOTH_LEAD.format(patience=8), store="sqlite:///leases.db")
    assert done.returncode == 0, done.stdout
    assert "each worker has a SQLite file of its own" in done.stdout
    assert not (tmp_path / "leases.db").exists()


def test_the_files_of_the_workers_are_gone_afterwards_also_where_the_store_is_in_the_options_file(
    tmp_path: Path,
) -> None:
    (tmp_path / "singletonjob.toml").write_text('store = "sqlite"\n')
    assert two_workers(tmp_path, STORES).returncode == 0
    stores = {(tmp_path / name).read_text() for name in ("a", "b")}
    assert len(stores) == 2
    for store in stores:
        assert store.startswith("sqlite:////")
        assert not Path(store.removeprefix("sqlite:///")).parent.exists()


def test_the_workers_share_the_file_if_the_ini_option_says_so(tmp_path: Path) -> None:
    done = two_workers(tmp_path, STORES, "-o", "singletonjob_shared_store=true", store="sqlite:///leases.db")
    assert {(tmp_path / name).read_text() for name in ("a", "b")} == {"sqlite:///leases.db"}
    assert "all workers share" in done.stdout


def test_the_head_of_the_report_says_that_workers_share_a_redis_and_what_to_do_but_no_password(tmp_path: Path) -> None:
    store = "redis://:secret@127.0.0.1:1/0"
    done = two_workers(tmp_path, STORES, store=store)
    assert {(tmp_path / name).read_text() for name in ("a", "b")} == {store}
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("singletonjob:")]
    assert line == (
        "singletonjob: all workers share the store redis://..., so a job runs in one of them alone;"
        " call app.configure(project=...) with the worker's name in conftest.py"
    )
    assert "secret" not in done.stdout


def test_nothing_is_said_where_each_worker_has_a_store_in_memory(tmp_path: Path) -> None:
    done = two_workers(tmp_path, STORES, store="memory")
    assert "singletonjob:" not in done.stdout
    assert {(tmp_path / name).read_text() for name in ("a", "b")} == {"memory"}
