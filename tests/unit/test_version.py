"""Where the version comes from: the nearest tag, else the fallback, and what the changelog says of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import singletonjob
from singletonjob.cli import main

ROOT = Path(__file__).parents[2]
HEADING = re.compile(r"^## (?:Unreleased: (\d+\.\d+\.\d+)|(\d+\.\d+\.\d+) - \d{4}-\d{2}-\d{2})$")

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")


def git(directory: Path, *words: str) -> str:
    config = ("-c", "user.name=Nobody", "-c", "user.email=nobody@example.com", "-c", "tag.gpgSign=false")
    command = ["git", *config, "-c", "commit.gpgSign=false", *words]
    return subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True).stdout.strip()


def reckoned(directory: Path) -> str:
    """The version that a build there would give."""
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "version"], cwd=directory, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with this project's build rules, and no git."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.fixture
def clone(tree: Path) -> Path:
    """The same, with one commit and no tag."""
    git(tree, "init", "--quiet")
    git(tree, "add", ".")
    git(tree, "commit", "--quiet", "--message", "Begin")
    return tree


def fallback() -> str:
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]
    return str(hatch["version"]["fallback-version"])


def headings() -> list[str]:
    return [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")]


def number(heading: str) -> tuple[int, ...]:
    found = HEADING.match(heading)
    assert found is not None, f"write '## Unreleased: X.Y.Z' or '## X.Y.Z - YYYY-MM-DD', not {heading!r}"
    return tuple(int(part) for part in (found[1] or found[2]).split("."))


def tags(*words: str) -> list[tuple[int, ...]]:
    """The versions that are tagged, of the commits that the words choose; none where git knows nothing of this tree."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        return []
    done = subprocess.run(["git", "tag", "--list", *words], cwd=ROOT, check=False, capture_output=True, text=True)
    found = [re.fullmatch(r"v(\d+)\.(\d+)\.(\d+)", tag) for tag in done.stdout.split()]
    return [tuple(int(part) for part in tag.groups()) for tag in found if tag is not None]


# -- at run time ----------------------------------------------------------------------------------------------------


def test_the_version_is_the_one_of_the_installed_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    assert singletonjob.__version__ == version("singletonjob")
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"singletonjob {version('singletonjob')}\n"


def test_metadata_are_read_when_somebody_asks_and_not_before() -> None:
    code = (
        "import sys, singletonjob; singletonjob.SingletonJobs; before = 'importlib.metadata' in sys.modules;"
        "print(before, singletonjob.__version__)"
    )
    # Without site, so without any distribution: also what a zip application sees.
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, check=True, capture_output=True, text=True
    )
    assert done.stdout == "False 0+unknown\n"


# -- at build time --------------------------------------------------------------------------------------------------


def test_without_git_the_version_is_the_fallback(tree: Path) -> None:
    assert reckoned(tree) == fallback()


def test_in_a_source_distribution_the_version_is_the_one_that_it_was_built_with(tree: Path) -> None:
    (tree / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: singletonjob\nVersion: 7.8.9\n")
    assert reckoned(tree) == "7.8.9"


@needs_git
def test_in_a_clone_without_tags_the_version_counts_the_commits_from_the_fallback(clone: Path) -> None:
    base = fallback().removesuffix("0")
    assert re.fullmatch(re.escape(base) + r"1\+g[0-9a-f]+", reckoned(clone))


@needs_git
def test_a_tag_is_the_version_and_what_comes_after_it_is_on_the_way_to_the_next(clone: Path) -> None:
    git(clone, "tag", "v7.8.9")
    assert reckoned(clone) == "7.8.9"
    git(clone, "commit", "--quiet", "--allow-empty", "--message", "Go on")
    assert reckoned(clone).startswith("7.8.10.dev1+g")


# -- the changelog --------------------------------------------------------------------------------------------------


def test_the_changelog_begins_with_the_version_that_is_the_fallback() -> None:
    top = ".".join(str(part) for part in number(headings()[0]))
    assert fallback() == f"{top}.dev0", "CHANGELOG.md's first heading and fallback-version in pyproject.toml"


def test_the_changelog_names_its_versions_from_the_newest_to_the_oldest() -> None:
    numbers = [number(heading) for heading in headings()]
    assert numbers == sorted(set(numbers), reverse=True)


def test_only_the_first_entry_of_the_changelog_may_be_unreleased() -> None:
    assert [heading for heading in headings()[1:] if "Unreleased" in heading] == []


def test_each_tag_has_its_entry_in_the_changelog_and_the_tagged_commit_has_it_first() -> None:
    released = [number(heading) for heading in headings() if "Unreleased" not in heading]
    assert set(tags("--merged", "HEAD")) <= set(released)
    assert all(released[0] == tag and "Unreleased" not in headings()[0] for tag in tags("--points-at", "HEAD"))
