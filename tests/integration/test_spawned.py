"""A child of `multiprocessing` that imports its parent's script again, and with it the line that starts the app."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from singletonjob import SingletonJobError, SingletonJobs

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import asyncio, multiprocessing, os
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from singletonjob import SingletonJobs

app = SingletonJobs("shop", store="sqlite:///leases.db")

def double(number):
    return 2 * number

@app.interval("10ms")
def job():
    try:
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("METHOD")) as pool:
            print("got", pool.submit(double, 21).result(), flush=True)
    except BrokenProcessPool:
        print("broken", flush=True)
    print("children left:", multiprocessing.active_children(), flush=True)
    app.stop()

async def block():
    async with app:
        while not app._service._stop_requested.is_set():
            await asyncio.sleep(0.01)

async def pair():
    await app.astart()
    while not app._service._stop_requested.is_set():
        await asyncio.sleep(0.01)
    await app.astop()

def start():
    app.start()
    while (service := app._service) is not None:
        service.stopped.wait(1)

"""

STARTS = {
    "run": "app.run()",
    "serve": "asyncio.run(app.serve(signals=False))",
    "async with": "asyncio.run(block())",
    "astart": "asyncio.run(pair())",
    "start": "start()",
}


def play(directory: Path, method: str, start: str) -> subprocess.CompletedProcess[str]:
    (directory / "program.py").write_text(PROGRAM.replace("METHOD", method) + start)
    done = subprocess.run(
        [sys.executable, "-W", "error", "program.py"],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize(("method", "way"), [("spawn", "run"), ("forkserver", "start"), ("spawn", "async with")])
def test_a_child_that_imports_an_unguarded_script_does_not_start_the_app_and_says_what_to_write(
    tmp_path: Path, method: str, way: str
) -> None:
    done = play(tmp_path, method, STARTS[way])
    assert done.stdout.splitlines() == ["broken", "children left: []"]
    assert done.stderr.count("SingletonJobError: ") == 1
    assert 'write `if __name__ == "__main__":` above the line that starts it, or start' in done.stderr


def test_with_the_guard_the_child_does_its_work(tmp_path: Path) -> None:
    done = play(tmp_path, "spawn", f'if __name__ == "__main__":\n    {STARTS["run"]}\n')
    assert done.stdout.splitlines() == ["got 42", "children left: []"]
    assert done.stderr == ""


@pytest.mark.parametrize("way", STARTS)
def test_each_way_to_start_refuses_while_multiprocessing_imports_the_script(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    app = SingletonJobs("shop", store="memory")
    app.interval(1, name="job")(lambda: None)
    starts = {
        "run": app.run,
        "serve": lambda: asyncio.run(app.serve()),
        "async with": lambda: asyncio.run(app.__aenter__()),
        "astart": lambda: asyncio.run(app.astart()),
        "start": app.start,
    }
    with pytest.raises(SingletonJobError, match=r'write `if __name__ == "__main__":` above'):
        starts[way]()
    assert app._service is None
