"""What the sdist and the wheel hold, against the tree that they were built from; `scripts/dist` runs it on both.

    python -m distribution SDIST WHEEL WHEEL_BUILT_FROM_THE_TREE

Prints each fault in a line of its own; exit code 1 if there is one.
"""

from __future__ import annotations

import hashlib
import sys
import tarfile
import zipfile
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["check", "contents", "sdist_faults", "wheel_faults"]

ROOT = Path(__file__).parents[1]

PACKAGED = ("*.py", "*.lua", "py.typed", "README.md")
"""Of the package nothing else is there; what a wheel holds is exactly these, and its metadata."""

METADATA = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}

SOURCES = {
    "src": PACKAGED,
    "tests": ("*.py",),
    "benchmarks": ("*.py", "*.md", "*.txt"),
    "docs": ("*.md", "*.svg", "*.css"),
    "samples": ("*.py", "*.md", "*.yaml", "*.yml", "Dockerfile"),
    "scripts": ("*",),
    ".ci": ("*",),
}
"""What an sdist must hold of each directory: enough to run the tests and to build all that is built."""

SINGLE = {
    *("LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "pyproject.toml", "PKG-INFO"),
    *(".pre-commit-config.yaml", ".pre-commit-hooks.yaml", "mkdocs.yml"),
}

CACHES = {"__pycache__", ".git", ".venv", ".venv-bench", ".hypothesis", "dist", "build", "site"}


def check(sdist: Path, wheel: Path, direct: Path, root: Path = ROOT) -> list[str]:
    """All that is wrong with the three, a line each; `wheel` was built from the sdist, `direct` from the tree."""
    faults = sdist_faults(contents(sdist), root) + wheel_faults(contents(wheel), root)
    if _digest(wheel) != _digest(direct) or wheel.name != direct.name:
        faults.append(f"{wheel.name}: the wheel from the sdist is not the one from the tree")
    return faults


def contents(archive: Path) -> set[str]:
    """The names of the files in an archive; of an sdist without the directory that holds all of them."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return {name for name in wheel.namelist() if not name.endswith("/")}
    with tarfile.open(archive) as sdist:
        return {member.name.partition("/")[2] for member in sdist if not member.isdir()}


def wheel_faults(names: set[str], root: Path) -> list[str]:
    """What a wheel of these names lacks, or has too much."""
    home = next((name.partition("/")[0] for name in names if name.endswith(".dist-info/METADATA")), "no metadata")
    wanted = _files(root / "src", PACKAGED) | {f"{home}/{name}" for name in METADATA}
    return [f"wheel: {name} is missing" for name in sorted(wanted - names)] + [
        f"wheel: {name} does not belong there" for name in sorted(names - wanted)
    ]


def sdist_faults(names: set[str], root: Path) -> list[str]:
    """What an sdist of these names lacks, or has although it was made by a run."""
    wanted = SINGLE | {
        f"{directory}/{name}" for directory, kinds in SOURCES.items() for name in _files(root / directory, kinds)
    }
    return [f"sdist: {name} is missing" for name in sorted(wanted - names)] + [
        f"sdist: {name} does not belong there" for name in sorted(names) if _is_made(PurePosixPath(name))
    ]


def _files(directory: Path, kinds: Iterable[str]) -> set[str]:
    files = {path.relative_to(directory) for path in directory.rglob("*") if path.is_file()}
    return {path.as_posix() for path in files if not _is_made(path) and any(fnmatch(path.name, kind) for kind in kinds)}


def _is_made(path: Path | PurePosixPath) -> bool:
    """Whether it is a cache, or the product of a build."""
    return bool(CACHES & set(path.parts[:-1])) or path.suffix == ".pyc" or any("_cache" in part for part in path.parts)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    faults = check(*map(Path, sys.argv[1:4]))
    print(*faults, sep="\n", end="\n" if faults else "")  # noqa: T201 - what the command says
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
