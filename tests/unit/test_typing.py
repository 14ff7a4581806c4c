from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECK = ROOT / "tests" / "typing" / "api_check.py"


def errors(file: Path, cache: Path) -> list[str]:
    """What mypy finds wrong in `file`, with the project's own settings."""
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(cache)]
    done = subprocess.run([*command, str(file)], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.stdout.splitlines()[-1].startswith(("Found", "Success")), done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if f"{file.name}:" in line and ": error: " in line]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mypy")


def test_right_bodies_and_options_type_check_and_wrong_ones_are_errors(cache: Path) -> None:
    """A wrong use that mypy accepts leaves its ignore unused, which strict mode reports."""
    assert errors(CHECK, cache) == []


def wrong_lines() -> set[int]:
    return {number for number, line in enumerate(CHECK.read_text().splitlines(), 1) if "# type: ignore[" in line}


def test_mypy_finds_the_wrong_uses_without_their_ignores(cache: Path, tmp_path: Path) -> None:
    text = CHECK.read_text()
    bare = tmp_path / "bare.py"
    bare.write_text("\n".join(line.partition("  # type: ignore[")[0] for line in text.splitlines()) + "\n")
    assert {int(line.split(":")[1]) for line in errors(bare, cache)} == wrong_lines()


def test_pyright_finds_the_same_wrong_uses(tmp_path: Path) -> None:
    settings = {
        "include": ["api_check.py"],
        "extraPaths": [str(ROOT / "src")],
        "typeCheckingMode": "strict",
        "enableTypeIgnoreComments": False,
        "pythonVersion": "3.11",
    }
    (tmp_path / "api_check.py").write_text(CHECK.read_text())
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--project", str(tmp_path), "--pythonpath", sys.executable]
    # The bundled release, and no look for a newer one: nothing here asks the network.
    environ = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1", "PYRIGHT_PYTHON_USE_BUNDLED_PYRIGHT": "1"}
    done = subprocess.run([*command, "--outputjson"], env=environ, capture_output=True, text=True, timeout=100)
    said = json.loads(done.stdout)["generalDiagnostics"]
    assert {error["range"]["start"]["line"] + 1 for error in said} == wrong_lines(), done.stdout
