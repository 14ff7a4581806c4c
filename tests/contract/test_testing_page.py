"""The page on testing: its examples run as they stand there, with pytest-asyncio in strict mode and without it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from code_blocks import blocks

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A directory with the page's examples as files, named by their titles."""
    examples = [block for block in blocks(PAGE.read_text(), PAGE.name) if block.language == "python"]
    assert all(block.title for block in examples)
    for block in examples:
        (tmp_path / block.title).write_text(block.text)
    return tmp_path


def run_pytest(page: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(page), str(PAGE.parents[1] / "src"), os.environ.get("PYTHONPATH", "")])
    plugins = ("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly")
    return subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-m",
            "pytest",
            "-q",
            "-W",
            "error",
            "--rootdir",
            str(page),
            *plugins,
            *arguments,
        ],
        cwd=page,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_the_examples_pass_without_any_other_plugin(page: Path) -> None:
    done = run_pytest(page, "-p", "no:asyncio", "-p", "no:anyio", "--ignore", "test_one_run_async.py")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert re.search(r"^12 passed", done.stdout, re.MULTILINE), done.stdout


def test_the_async_example_passes_with_pytest_asyncio_in_strict_mode(page: Path) -> None:
    scope = ("-o", "asyncio_default_fixture_loop_scope=function")
    done = run_pytest(page, "-o", "asyncio_mode=strict", *scope, "test_one_run_async.py")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr


def test_a_project_that_does_not_use_the_fixtures_loads_nothing_of_the_library(tmp_path: Path) -> None:
    """pytest imports the plugin in each project that has the library installed."""
    (tmp_path / "test_other.py").write_text(
        "import sys\n"
        "def test_other():\n"
        "    ours = {name for name in sys.modules if name.partition('.')[0] == 'singletonjob'}\n"
        "    light = {'', '._core', '._core.errors', '.testing', '.testing.plugin'}\n"
        "    assert ours == {f'singletonjob{name}' for name in light}\n"
    )
    done = run_pytest(tmp_path, "-p", "no:asyncio", "-p", "no:anyio", "-p", "no:hypothesispytest")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
