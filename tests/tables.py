"""Tables of the pages whose lines name the tests and pages that show something, and whether all of that is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

__all__ = ["TEST", "Line", "lines", "missing"]

ROOT = Path(__file__).parents[1]

TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
PAGE = re.compile(r"\]\(([\w-]+\.md)(#[\w-]+)?\)")
FILE = re.compile(r"`((?:samples|scripts)/[\w./-]+)`")


class Line(NamedTuple):
    """One line: its number, as `P7` or `C07`, and the text of its last column."""

    number: str
    shown_by: str


def lines(page: str, label: str) -> list[Line]:
    """The lines of all tables of a page under `docs` whose first cell is `label` and a number."""
    found = re.findall(rf"^\| ({label}\d+) \|.*\| ([^|]*) \|$", (ROOT / "docs" / page).read_text(), re.MULTILINE)
    return [Line(*line) for line in found]


def missing(line: Line) -> list[str]:
    """What the line names and is not there; and the line itself, if it names nothing at all."""
    tests, pages, files = TEST.findall(line.shown_by), PAGE.findall(line.shown_by), FILE.findall(line.shown_by)
    gone = [f"{file}::{name}" for file, name in tests if not _has_test(file, name)]
    gone += [page for page, _ in pages if not (ROOT / "docs" / page).is_file()]
    gone += [file for file in files if not (ROOT / file).exists()]
    if not (tests or pages or files):
        gone.append(f"{line.number} names nothing")
    return gone


def _has_test(file: str, name: str) -> bool:
    path = ROOT / file
    return path.is_file() and re.search(rf"^\s*(async )?def {name}\(", path.read_text(), re.MULTILINE) is not None
