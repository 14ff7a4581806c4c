"""Runs pytest for one mutant after the other, each in a fork of this process, which has imported all but the library.

To start Python, pytest and the clients of the stores anew for each mutant takes longer than to try it. Each line on
stdin is one trial, `{"source": directory, "arguments": [...], "seconds": ...}`, and has one line on stdout as its
answer: `{"code": pytest's exit code or null, if it took longer than those seconds, "output": ..., "failed": the first
test that failed or null, "fault": the programming error that it failed with or null}`.
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

from soak._mutant_faults import fault

if TYPE_CHECKING:
    from types import FrameType
    from typing import IO

__all__ = ["DIED", "OTHER_SOURCE"]

OTHER_SOURCE, DIED = 98, 99
"""Exit codes of a trial that tested another library than the mutant, and of one in which pytest itself died: it may do
so at its end, because of what a failed test left behind."""


class _TimeIsUp(Exception):
    pass


def _time_is_up(_number: int, _frame: FrameType | None) -> None:
    raise _TimeIsUp


class _FirstFailure:
    """A plugin of pytest, which writes down the first failure: the test, and the programming error if there is one.

    A failure outside a test, for example of a server that does not start, says nothing about the mutant.
    """

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def pytest_exception_interact(self, node: pytest.Item | pytest.Collector, call: pytest.CallInfo[object]) -> None:
        if call.excinfo is not None:
            self.write(node.nodeid if call.when == "call" else None, call.excinfo.value, node.nodeid)

    def write(self, failed: str | None, error: BaseException, where: str) -> None:
        if self._file.tell() == 0:
            found = fault(error)
            json.dump({"failed": failed, "fault": None if found is None else f"{found}, in {where}"}, self._file)
            self._file.flush()  # pytest may not survive the test


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


def _try(source: str, arguments: list[str], failure: _FirstFailure) -> int:
    """Run the trial, in the process that was made for it."""
    os.environ["PYTHONPATH"] = os.pathsep.join([source, os.environ["PYTHONPATH"]])
    sys.path.insert(0, source)
    try:
        code = int(pytest.main(arguments, plugins=[failure]))
    except Exception as error:  # the library has a plugin for pytest, so pytest imports it before any test
        failure.write(None, error, "the import of the library")
        raise
    library = sys.modules.get("singletonjob")
    if library is not None and not Path(library.__file__ or "").is_relative_to(source):
        return OTHER_SOURCE
    return code


def _in_a_fork(source: str, arguments: list[str], seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile("w+") as failure:
        child = os.fork()
        if child == 0:
            code = DIED
            try:
                os.setsid()  # what it starts can be ended with it
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
                code = _try(source, arguments, _FirstFailure(failure))
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
        failure.seek(0)
        found = json.loads(failure.read() or '{"failed": null, "fault": null}')
        return {"code": ended, "output": output.read().decode(errors="replace"), **found}


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
