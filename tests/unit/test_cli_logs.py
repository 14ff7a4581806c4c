"""`--log-format json`: whatever is logged, by whom and with what, stderr holds one JSON object per line."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from singletonjob.cli.logs import JsonFormatter

SRC = Path(__file__).parents[2] / "src"


class Unshowable:
    def __str__(self) -> str:
        raise OSError("gone")

    __repr__ = __str__


class BrokenError(Exception):
    def __str__(self) -> str:
        raise OSError("gone")

    __repr__ = __str__


def lines_of(message: object, *arguments: object, error: BaseException | None = None, **fields: object) -> Any:
    """What becomes of a record, read back."""
    made = logging.LogRecord("billing", logging.ERROR, "file.py", 1, message, arguments, None)
    made.exc_info = (type(error), error, error.__traceback__) if error is not None else None
    made.__dict__.update(fields)
    text = JsonFormatter().format(made)
    assert text.isascii()
    assert len(text.splitlines()) == 1
    return json.loads(text, parse_constant=pytest.fail)


ITSELF: list[object] = []
ITSELF.append(ITSELF)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("nachts \N{LINE SEPARATOR}\x85\n\udc80 é", "nachts \N{LINE SEPARATOR}\x85\n\udc80 é"),
        (7, 7),
        (float("nan"), "nan"),
        (b"\xff", "b'\\xff'"),
        ({(1, 2): object}, "{(1, 2): <class 'object'>}"),
        (ITSELF, "[[...]]"),
        (Unshowable(), "<Unshowable, whose text raised OSError>"),
        (None, None),
    ],
)
@pytest.mark.parametrize("field", ["event", "job", "node", "token", "reason"])
def test_a_field_of_an_odd_value_does_not_cost_the_line(field: str, value: object, shown: object) -> None:
    assert lines_of("text", error=None, **{field: value}).get(field) == shown


@pytest.mark.parametrize(
    ("message", "arguments", "shown"),
    [
        ("%s of %s", ("one", 2), "one of 2"),
        (ValueError("no text"), (), "no text"),
        ("%d rows", ("many",), r"%d rows \(its arguments do not fit: .*real number.*\)"),
        ("%s and %s", ("one",), r"%s and %s \(its arguments do not fit: not enough arguments.*\)"),
        ("%s", (Unshowable(),), r"%s \(its arguments do not fit: gone\)"),
        (Unshowable(), (), r"<Unshowable, whose text raised OSError> \(its arguments do not fit: gone\)"),
    ],
)
def test_a_message_that_cannot_be_made_is_told_as_it_was_written(
    message: object, arguments: tuple[object, ...], shown: str
) -> None:
    said = lines_of(message, *arguments)["message"]
    assert said == shown or re.fullmatch(shown, said)


@pytest.mark.parametrize("error", [ValueError("two\nlines \udc80"), BrokenError()])
def test_the_traceback_is_a_field_of_the_line_whatever_the_exception(error: Exception) -> None:
    try:
        raise error
    except Exception as caught:
        line = lines_of("run failed", error=caught)
    assert line["exc"].startswith("Traceback (most recent call last):\n")
    assert type(error).__name__ in line["exc"]


PROGRAM = """
import logging, os, sys, warnings
from singletonjob.cli import logs
logs.set_up("json", "info")
logging.getLogger("billing").warning("rate limit: %d", "none")
logging.getLogger("billing").debug("not shown")
warnings.warn("old driver é", DeprecationWarning, stacklevel=1)
try:
    raise OSError("gr\\u00fc\\u00dfe\\n\\udc80")
except OSError:
    logging.getLogger("singletonjob").exception("run failed", extra={"event": "run-failed", "job": "j\\u2028"})
os._exit(3)
"""


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_other_libraries_and_warnings_come_out_as_json_too_at_once_and_in_any_encoding(encoding: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SRC), "PYTHONIOENCODING": encoding, "PYTHONWARNINGS": "always"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, check=False, env=environment, timeout=30
    )
    assert done.returncode == 3, "it left without any clean-up: what it said was flushed"
    assert done.stdout == b""
    first, second, third = (json.loads(line) for line in done.stderr.decode("ascii").splitlines())
    assert (first["logger"], first["level"]) == ("billing", "WARNING")
    assert (second["logger"], second["level"]) == ("py.warnings", "WARNING")
    assert "DeprecationWarning: old driver é" in second["message"]
    assert (third["level"], third["event"], third["job"]) == ("ERROR", "run-failed", "j\N{LINE SEPARATOR}")
    assert third["exc"].endswith("OSError: grüße\n\udc80")
    for line in (first, second, third):
        assert list(line)[:4] == ["ts", "level", "logger", "message"]


def test_where_the_program_has_set_logging_up_nothing_is_changed() -> None:
    code = (
        "import logging, sys, warnings; from singletonjob.cli import logs\n"
        "logging.basicConfig(format='mine: %(message)s'); before = warnings.showwarning\n"
        "logs.set_up('json', 'info'); assert warnings.showwarning is before\n"
        "logging.warning('text')"
    )
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stderr == "mine: text\n"
