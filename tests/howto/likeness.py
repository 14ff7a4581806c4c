"""Whether what a page shows is what a command printed: the same words, whatever the times, names and numbers."""

from __future__ import annotations

import re

__all__ = ["missing"]

# In this order: a later one would take a part of what an earlier one stands for. A time that is not known yet, or a run
# that was not reported yet, is not printed, so they stand for nothing.
_VARIABLE = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00)?"), ""),
    (re.compile(r"\bok \d+ [smhd]( \d+ [smhd])? ago +\d+"), ""),
    (re.compile(r"\b\d+ [smhd]( \d+ [smhd])?\b"), "<span>"),
    (re.compile(r"[\w.-]+-[0-9a-f]{8}\b"), "<node>"),
    (re.compile(r"/\S+/leases\.db"), "<file>"),
    (re.compile(r"\S+@\S+"), "<somebody>"),
    (re.compile(r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b"), "<day>"),
    (re.compile(r"\d+(\.\d+)?"), "<number>"),
    (re.compile(r"\s+"), " "),
)


_LOG = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z [A-Z]+ |(?:DEBUG|INFO|WARNING|ERROR):singletonjob:"
_TORN = re.compile(rf"(?<=.)(?={_LOG})")
"""A log line that begins within another line: an unbuffered `print` writes its text and the line's end separately, and
another thread may log in between."""


def missing(shown: str, printed: str) -> str | None:
    """The first line of `shown` that is not in `printed` after the ones before it; None when all are there.

    A line `...` in `shown` stands for any lines, as does the space between two of its lines.
    """
    real = iter([_words(line) for line in _TORN.sub("\n", printed).splitlines()])
    for line in shown.splitlines():
        wanted = _words(line)
        if wanted and wanted != "..." and wanted not in real:  # `in` takes the iterator on to the line that it finds
            return line
    return None


def _words(line: str) -> str:
    for pattern, name in _VARIABLE:
        line = pattern.sub(name, line)
    return line.strip()
