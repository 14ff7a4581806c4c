"""Earlier releases of the library, from this repository's history, to run workers on."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

__all__ = ["NoHistory", "commit_of", "export", "previous"]

ROOT = Path(__file__).parents[2]

BEFORE_THE_FIRST = "5050090"
"""What stands for the release before the first, as long as there is none: a commit of the day before it."""


class NoHistory(Exception):
    """The release is not in the history that is here; the text says what is missing."""


def previous() -> str:
    """The newest release before this tree: the nearest tag `v...` that is not on the commit itself.

    Raises `NoHistory` outside a clone, or in one that is too shallow.
    """
    if (tag := _git("describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD~1")) is not None:
        return tag
    commit_of(BEFORE_THE_FIRST)
    return BEFORE_THE_FIRST


def commit_of(ref: str) -> str:
    """The short name of its commit. Raises `NoHistory` if it is not here."""
    commit = _git("rev-parse", "--short", "--verify", "--quiet", f"{ref}^{{commit}}")
    if commit is None:
        raise NoHistory(f"{ref} is not in the git history here (a source distribution, or a shallow clone)")
    return commit


def export(ref: str, directory: Path) -> Path:
    """Put the library of that release below `directory`; returns what to put on Python's path."""
    done = subprocess.run(["git", "archive", commit_of(ref), "src"], cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(directory, filter="data")
    return directory / "src"


def _git(*words: str) -> str | None:
    """What it says; None if it fails, or is not installed."""
    try:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
