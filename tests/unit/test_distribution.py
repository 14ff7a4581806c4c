"""What the check of `scripts/dist` sees in a wheel and in an sdist."""

from __future__ import annotations

import io
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest

from distribution import METADATA, SINGLE, check, sdist_faults, wheel_faults

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = (
    *("src/singletonjob/__init__.py", "src/singletonjob/py.typed", "src/singletonjob/stores/redis/exchange.lua"),
    *("src/singletonjob/integrations/pyinstaller/hook-singletonjob.py", "src/singletonjob/__pycache__/x.pyc"),
    *("tests/unit/test_one.py", "docs/one.md", "samples/one/main.py", "scripts/dist", ".ci/run"),
)
PACKAGE = {name.removeprefix("src/") for name in SOURCE if name.startswith("src/") and not name.endswith(".pyc")}
WHEEL = PACKAGE | {f"singletonjob-1.0.dist-info/{name}" for name in METADATA}
SDIST = {name for name in SOURCE if not name.endswith(".pyc")} | SINGLE


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in SOURCE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


def test_a_wheel_with_all_of_the_package_and_nothing_else_is_right(root: Path) -> None:
    assert wheel_faults(WHEEL, root) == []


@pytest.mark.parametrize("name", sorted(WHEEL))
def test_a_wheel_that_lacks_a_file_is_found(root: Path, name: str) -> None:
    assert wheel_faults(WHEEL - {name}, root) != []


@pytest.mark.parametrize(
    "name", ["tests/unit/test_one.py", "singletonjob/_version.py", "singletonjob/__pycache__/x.pyc"]
)
def test_a_wheel_with_what_is_not_of_the_package_is_found(root: Path, name: str) -> None:
    assert wheel_faults(WHEEL | {name}, root) == [f"wheel: {name} does not belong there"]


def test_an_sdist_with_all_sources_is_right(root: Path) -> None:
    assert sdist_faults(SDIST, root) == []


@pytest.mark.parametrize("name", sorted(SDIST))
def test_an_sdist_that_lacks_a_file_is_found(root: Path, name: str) -> None:
    assert sdist_faults(SDIST - {name}, root) == [f"sdist: {name} is missing"]


@pytest.mark.parametrize(
    "name", ["tests/__pycache__/x.pyc", ".pytest_cache/README.md", "site/index.html", "dist/a.whl"]
)
def test_an_sdist_with_what_a_run_left_behind_is_found(root: Path, name: str) -> None:
    assert sdist_faults(SDIST | {name}, root) == [f"sdist: {name} does not belong there"]


def test_two_wheels_that_differ_are_found(root: Path) -> None:
    one, other = root / "a" / "one.whl", root / "b" / "one.whl"
    for text, wheel in enumerate((one, other)):
        wheel.parent.mkdir()
        with zipfile.ZipFile(wheel, "w") as archive:
            for name in WHEEL:
                archive.writestr(name, str(text))
    sdist = root / "one.tar.gz"
    with tarfile.open(sdist, "w:gz") as source:
        for name in SDIST:
            source.addfile(tarfile.TarInfo(f"singletonjob-1.0/{name}"), io.BytesIO())
    assert check(sdist, one, one, root) == []
    assert check(sdist, one, other, root) == ["one.whl: the wheel from the sdist is not the one from the tree"]
