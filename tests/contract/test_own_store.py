"""The page on writing a store: its example runs, in an app and in the contract, as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from code_blocks import blocks

PAGE = Path(__file__).parents[2] / "docs" / "stores.md"

APP = """
import asyncio
from filestore import FileStore
from singletonjob import SingletonJobs

app = SingletonJobs("p", store=FileStore("leases"))
ran = []

@app.interval("20ms")
async def job(run):
    ran.append(run.token)

async def main():
    async with app, asyncio.timeout(20):
        while len(ran) < 3:
            await asyncio.sleep(0.01)

asyncio.run(main())
print(len(set(ran)))
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A directory with the page's examples as files, named by their titles."""
    for block in blocks(PAGE.read_text(), PAGE.name):
        if block.title:
            (tmp_path / block.title).write_text(block.text)
    return tmp_path


def python(page: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    source = str(PAGE.parents[1] / "src")
    path = os.pathsep.join([str(page), os.environ.get("PYTHONPATH", ""), source])
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=page,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_the_example_passes_the_contract_without_a_plugin(page: Path) -> None:
    plugins = ("-p", "no:asyncio", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist")
    done = python(page, "-m", "pytest", "-q", "--rootdir", str(page), *plugins, "test_filestore.py")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert re.search(r"^\d\d passed", done.stdout, re.MULTILINE), done.stdout


def test_an_app_takes_the_example_as_its_store(page: Path) -> None:
    done = python(page, "-c", APP)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


@pytest.mark.parametrize(
    ("right", "wrong", "caught_by"),
    [
        ("fcntl.flock(file, fcntl.LOCK_EX)", "pass", "contend"),
        ("now > batch.void_at", "False", "comes_too_late"),
        ("(batch.project, request.job)", "('p', request.job)", "do_not_meet"),
        ("owner == project", "owner != project", "a_look_shows"),
    ],
)
def test_a_fault_in_a_store_is_caught(page: Path, right: str, wrong: str, caught_by: str) -> None:
    file = page / "filestore.py"
    text = file.read_text()
    assert text.count(right) == 1
    file.write_text(text.replace(right, wrong))
    options = ("-q", "-x", "--rootdir", str(page), "-p", "no:cacheprovider", "-k", caught_by)
    done = python(page, "-m", "pytest", *options, "test_filestore.py")
    assert done.returncode == 1, done.stdout[-3000:]
    assert re.search(rf"^FAILED .*{caught_by}", done.stdout, re.MULTILINE), done.stdout[-3000:]
