"""Runs pytest for one mutant after the other, each in a fork of this process, which has imported all but the library.

To start Python, pytest and the clients of the stores anew for each mutant takes longer than to try it. Each line on
stdin is one trial, `{"source": directory, "arguments": [...], "seconds": ...}`, and has one line on stdout as its
answer: `{"code": pytest's exit code or null, if it took longer than those seconds, "output": ...}`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["BROKEN", "OTHER_SOURCE"]

OTHER_SOURCE, BROKEN = 98, 99
"""The exit codes of a trial that tested some other library than the mutant, and of one whose end pytest
did not survive, what a test leaves behind being an error."""


class _TimeIsUp(Exception):
    pass


def _time_is_up(_number: int, _frame: FrameType | None) -> None:
    raise _TimeIsUp


def _import_all_else() -> None:
    # Collected by pytest, so that it finds its plugins imported in its own way the next time.
    pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:singletonjob", __file__])
    import hypothesis.strategies  # noqa: F401 - to have it loaded
    import redis.asyncio  # noqa: F401 - to have it loaded

    import servers  # noqa: F401 - to have it loaded

    with suppress(ImportError):
        import uvloop  # noqa: F401 - to have it loaded
    if any(name.partition(".")[0] == "singletonjob" for name in sys.modules):
        raise RuntimeError("the library was imported before there is a mutant of it")


def _try(source: str, arguments: list[str]) -> int:
    """The trial, in the process that was made for it."""
    os.environ["PYTHONPATH"] = os.pathsep.join([source, os.environ["PYTHONPATH"]])
    sys.path.insert(0, source)
    code = int(pytest.main(arguments))
    library = sys.modules.get("singletonjob")
    if library is not None and not Path(library.__file__ or "").is_relative_to(source):
        return OTHER_SOURCE
    return code


def _in_a_fork(source: str, arguments: list[str], seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            code = BROKEN
            try:
                os.setsid()  # what it starts can be ended with it
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
                code = _try(source, arguments)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        ended: int | None = None
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        except _TimeIsUp:
            pass
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        if ended is None:
            os.waitpid(child, 0)
        output.seek(0)
        return {"code": ended, "output": output.read().decode(errors="replace")}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)
    trials = os.fdopen(os.dup(0))
    os.dup2(nothing, 0)
    signal.signal(signal.SIGALRM, _time_is_up)
    _import_all_else()
    for line in trials:
        answers.write(json.dumps(_in_a_fork(**json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
