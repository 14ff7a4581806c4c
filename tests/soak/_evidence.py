"""Where the results of the full-length checks go: to stdout and, with --record, into docs/evidence.md."""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["arguments", "conclude", "say", "spread"]

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs" / "evidence.md"

TOP = """# Evidence

The last result of each full-length check. `sh scripts/soak NAME --record` runs one and replaces its section here.
All run at the default settings unless a line says otherwise.
"""


def arguments(what: str) -> argparse.ArgumentParser:
    """What every check understands; it may add more."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--record", action="store_true", help="put the result into docs/evidence.md")
    return parser


def say(line: str) -> None:
    """Tell how it goes, on stderr: stdout is for the result."""
    sys.stderr.write(line + "\n")


def spread(seconds: Sequence[float]) -> str:
    """A list of times in words, in milliseconds."""
    low, middle, high = (f"{value * 1000:.1f}" for value in (min(seconds), median(seconds), max(seconds)))
    return f"{len(seconds)} times, {low} to {high} ms, median {middle} ms"


def conclude(name: str, lines: Sequence[str], *, good: bool, record: bool) -> NoReturn:
    """Print the section of this check, record it if asked, and exit: 0 if all was as promised, else 1."""
    section = "\n".join(
        [
            f"## {name}",
            "",
            (
                f"{datetime.now(UTC).date()}, {_commit()}, Python {platform.python_version()}, {os.cpu_count()} cores:"
                f" {'as promised' if good else 'NOT as promised'}."
            ),
            "",
            *(f"- {line}" for line in lines),
            "",
        ]
    )
    sys.stdout.write(section)
    if record:
        FILE.parent.mkdir(exist_ok=True)
        before = FILE.read_text() if FILE.exists() else ""
        kept = re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", before, re.DOTALL | re.MULTILINE)
        sections = {title: f"## {title}\n{text.rstrip()}\n" for title, text in kept} | {name: section}
        FILE.write_text("\n".join([TOP, *(sections[title] for title in sorted(sections))]))
    sys.exit(0 if good else 1)


def _commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    commit = git("rev-parse", "--short", "HEAD") or "unknown"
    return f"commit {commit}{' and changes to src' if git('status', '--porcelain', 'src') else ''}"
