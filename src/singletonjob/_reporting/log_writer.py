"""Writes all records of the logger `singletonjob`, so that no log handler can harm the thread that logs.

A handler is the user's code: it may raise, and it may block, for example on a full pipe. `write` never raises because
of a handler. It calls the handlers directly, except on a thread inside `in_background`, where it does not block
either: the record waits in a bounded queue for a thread that calls the handlers.
"""

from __future__ import annotations

import logging
import threading
import warnings
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from .._system.worker_threads import DaemonWorker

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["in_background", "is_blocked", "logger", "shown", "wanted", "warn_if_disabled", "write"]

logger: logging.Logger = logging.getLogger("singletonjob")

KEPT = 1000
"""Records that wait for a slow handler; newer ones are dropped and counted."""

DRAIN = 0.5
"""Seconds to wait, at the end of `in_background`, for the handlers to take what waits."""

MOMENT = ("created", "msecs", "relativeCreated", "thread", "threadName", "taskName")
"""Attributes of a record that belong to the moment and the thread where it was made."""

_ending: set[DaemonWorker] = set()
"""Threads that have been asked to end, and may not because of a handler."""

_of_thread = threading.local()


def wanted(level: int) -> bool:
    """Return True if a record of this level goes to the handlers."""
    # `isEnabledFor` takes the lock of the logging module, and a configuration may hold that for long.
    return not logger.disabled and logger.manager.disable < level and logger.getEffectiveLevel() <= level


def write(
    level: int,
    event: str,
    text: str,
    *,
    job: str | None = None,
    node: str | None = None,
    token: int | None = None,
    reason: str | None = None,
    error: BaseException | None = None,
) -> None:
    """Write one record, with the traceback of `error` if there is one. Never raises because of a handler."""
    if not wanted(level):
        return
    line = _Line(level, text, {"event": event, "job": job, "node": node, "token": token, "reason": reason}, error)
    background: _Background | None = getattr(_of_thread, "background", None)
    if background is None:
        line.deliver()
    else:
        background.put(line)


@contextmanager
def in_background() -> Generator[None]:
    """Have `write` not block on this thread inside the block. The end of the block waits for the handlers briefly."""
    background = _of_thread.background = _Background()
    try:
        yield
    finally:
        _of_thread.background = None
        background.close()


def is_blocked() -> bool:
    """Return True if a handler holds up a thread that was asked to end, with what it still has to write."""
    return any(worker.alive for worker in tuple(_ending))


def warn_if_disabled() -> None:
    """Say by `warnings` that nothing will be logged, if `dictConfig` or `fileConfig` has disabled the logger.

    That is their default for each logger that exists when they are called.
    """
    if logger.disabled:
        text = "the logger 'singletonjob' is disabled, so nothing is logged; write 'disable_existing_loggers': False in"
        warnings.warn(
            f"{text} the dictionary of logging.config.dictConfig, or pass it to fileConfig",
            RuntimeWarning,
            stacklevel=2,
        )


def shown(error: BaseException) -> str:
    """The `repr` of an exception out of the user's code, or its type if the `repr` raises."""
    try:
        return repr(error)
    except Exception:
        return type(error).__qualname__


class _Line:
    """One record to be. `moment` is a record with the time and the thread of its making, if others write it later."""

    __slots__ = ("_error", "_fields", "_level", "_text", "moment")

    def __init__(self, level: int, text: str, fields: dict[str, object], error: BaseException | None = None) -> None:
        self._level = level
        self._text = text
        self._fields = fields
        self._error = error
        self.moment: logging.LogRecord | None = None

    def now(self) -> None:
        """Note the time and the thread of this moment for the record."""
        self.moment = logging.LogRecord(logger.name, self._level, "", 0, "", None, None)

    def deliver(self) -> None:
        """Have the handlers take it. If they do, report what was lost before."""
        if self._emit():
            _lost.report()

    def _emit(self) -> bool:
        error = self._error
        trace = None if error is None else (type(error), error, error.__traceback__)
        try:
            # The factory of records and the filters are the user's code, too.
            record = logger.makeRecord(
                logger.name, self._level, __file__, 0, self._text, (), trace, "write", self._fields
            )
            for name in MOMENT:
                if hasattr(self.moment, name):
                    setattr(record, name, getattr(self.moment, name))
            logger.handle(record)
        except BaseException as raised:
            if not isinstance(raised, Exception) and threading.current_thread() is threading.main_thread():
                raise  # Ctrl-C, or `sys.exit` in a handler of a signal: it only arrived here
            _lost.add(f"a log handler raised {shown(raised)}")
            return False
        return True


class _Lost:
    """Counts the records that some handler did not get. Two threads at once may count one too few, but never none."""

    def __init__(self) -> None:
        self._count = self._reported = 0
        self._why = ""

    def add(self, why: str) -> None:
        self._why = why
        self._count += 1

    def report(self) -> None:
        """Write one record that says how many were lost since the last report, if any were."""
        lost, failures = self._count - self._reported, self._count
        if lost and wanted(logging.WARNING):
            self._reported += lost
            text = f"{lost} log line{' is' if lost == 1 else 's are'} missing; the last reason: {self._why}"
            write(logging.WARNING, "log-lines-lost", text)
            if self._count > failures:  # that one is lost, too
                self._reported -= lost


_lost = _Lost()


class _Background:
    """The queue of one thread, and the thread that empties it."""

    def __init__(self) -> None:
        self._worker = DaemonWorker("singletonjob-log")
        self._put = 0  # written by the thread that logs
        self._taken = 0  # written by the worker

    def put(self, line: _Line) -> None:
        if self._put - self._taken >= KEPT:
            _lost.add("a log handler is too slow")
            return
        line.now()
        try:
            self._worker.post(partial(self._take, line))
        except RuntimeError as refused:  # no thread can be started; the next record tries again
            _lost.add(f"no thread for them: {refused}")
        else:
            self._put += 1

    def _take(self, line: _Line) -> None:
        line.deliver()
        self._taken += 1

    def close(self) -> None:
        """Wait a moment for the handlers to take what waits."""
        if not self._worker.alive:
            return
        done = threading.Event()
        _ending.add(self._worker)
        self._worker.post(_lost.report)
        self._worker.stop(done.set)
        if done.wait(DRAIN):
            _ending.discard(self._worker)
