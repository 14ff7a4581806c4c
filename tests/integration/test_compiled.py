"""Bodies that Cython compiled: each runs once per tick, async ones are awaited."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from singletonjob import SingletonJobs

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """
from singletonjob import Run

ran = {}

def note(name, run):
    ran.setdefault(name, []).append(run.tick)

async def plain(run: Run):
    note("plain", run)

def sync(run: Run):
    note("sync", run)

def returning(run: Run):
    return plain_of("returning", run)

async def plain_of(name, run):
    note(name, run)

class Held:
    async def __call__(self, run: Run):
        note("called", run)

    async def method(self, run: Run):
        note("method", run)
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Any:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    directory: Path = tmp_path_factory.mktemp("compiled")
    (directory / "bodies.py").write_text(SOURCE)
    library = directory / f"bodies{sysconfig.get_config_var('EXT_SUFFIX')}"
    subprocess.run([sys.executable, "-m", "cython", "-3", "bodies.py"], cwd=directory, check=True)
    include = f"-I{sysconfig.get_path('include')}"
    subprocess.run([compiler, "-O0", "-shared", "-fPIC", include, "bodies.c", "-o", library], cwd=directory, check=True)
    spec = importlib.util.spec_from_file_location("bodies", library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_c104_compiled_bodies_run_once_per_tick_and_are_awaited(compiled: Any) -> None:
    app = SingletonJobs("shop", store="memory")
    held = compiled.Held()
    bodies = {
        "plain": compiled.plain,
        "sync": compiled.sync,
        "returning": compiled.returning,
        "called": held,
        "method": held.method,
    }
    for name, body in bodies.items():
        app.fixed_rate("20ms", name=name)(body)
    done = threading.Event()
    with app.in_thread():
        deadline = time.monotonic() + 20
        while any(len(compiled.ran.get(name, [])) < 3 for name in bodies):
            assert time.monotonic() < deadline, compiled.ran
            done.wait(0.01)
    for name in bodies:
        ticks = compiled.ran[name]
        assert len(set(ticks)) == len(ticks)
