from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CHECK = ROOT / "tests" / "typing" / "api_check.py"


def errors(file: Path, cache: Path) -> list[str]:
    """What mypy finds wrong in `file`, with the project's own settings."""
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(cache)]
    done = subprocess.run([*command, str(file)], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.stdout.splitlines()[-1].startswith(("Found", "Success")), done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if f"{file.name}:" in line and ": error: " in line]


def pyright(directory: Path, *arguments: str) -> Any:
    """What pyright, called in `directory`, says as JSON."""
    # The bundled release, and no look for a newer one: nothing here asks the network.
    environ = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1", "PYRIGHT_PYTHON_USE_BUNDLED_PYRIGHT": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", *arguments],
        cwd=directory,
        env=environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return json.loads(done.stdout)


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
    said = pyright(tmp_path, "--project", str(tmp_path))["generalDiagnostics"]
    assert {error["range"]["start"]["line"] + 1 for error in said} == wrong_lines(), said


def test_every_public_name_has_a_type_that_all_checkers_agree_on(tmp_path: Path) -> None:
    """What pyright finds of the package as it is installed: an inferred type may differ from checker to checker."""
    said = pyright(tmp_path, "--verifytypes", "singletonjob", "--ignoreexternal")
    symbols = said["typeCompleteness"]["symbols"]
    assert len(symbols) > 1000, said
    unclear = {one["name"] for one in symbols if not one["isTypeKnown"] or one["isTypeAmbiguous"]}
    # Django comes without types, and what is derived from its classes is as unknown as they are.
    assert {name for name in unclear if not name.startswith("singletonjob.integrations.django.")} == set()
