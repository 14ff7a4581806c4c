"""`FailedCalls`: a new kind of failure in full, its repetitions in one line a minute."""

from __future__ import annotations

from typing import Any

import pytest

from singletonjob._reporting.failed_calls import EVERY, KINDS, FailedCalls


class Log:
    """What was said, each with the moment, and whether it had its traceback."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.lines: list[tuple[float, str, bool]] = []
        self.calls = FailedCalls(self._say, lambda: self.now)

    def _say(self, _level: int, _event: str, text: str, *, error: object = None, **_: Any) -> None:
        self.lines.append((self.now - 1000, text, error is not None))

    def fails(self, error: BaseException, job: str = "tick") -> None:
        try:
            raise error
        except BaseException as raised:
            self.calls.failed("run-failed", "run failed", raised, job=job)


@pytest.fixture
def log() -> Log:
    return Log()


def test_a_failure_that_is_repeated_is_told_in_full_once_and_then_once_a_minute_with_its_count(log: Log) -> None:
    for number in range(2401):
        log.now = 1000.0 + number / 20
        log.fails(OSError("no feed"))
    text = "run failed: OSError('no feed')"
    assert [line for _, line, _ in log.lines] == [text, *[f"{text} (1200 like this in 60 s)"] * 2]
    assert [in_full for _, _, in_full in log.lines] == [True, False, False]


def test_a_new_kind_of_failure_is_told_in_full_at_once(log: Log) -> None:
    def elsewhere() -> None:
        try:
            raise OSError("no feed")
        except OSError as error:
            log.calls.failed("run-failed", "run failed", error, job="tick")

    for _ in range(2):
        log.fails(OSError("no feed"))
        log.fails(ValueError("no price"))
        elsewhere()
        log.fails(OSError("no feed"), "tock")
    assert [in_full for _, _, in_full in log.lines] == [True] * 4


def test_a_failure_after_a_quiet_minute_is_told_in_full(log: Log) -> None:
    for _ in range(3):
        log.fails(OSError("no feed"))
        log.now += EVERY
    assert [in_full for _, _, in_full in log.lines] == [True] * 3


def test_what_is_held_back_is_told_when_its_minute_is_over_although_nothing_fails_any_more(log: Log) -> None:
    assert not log.calls.settle("tick")
    for _ in range(4):
        log.fails(OSError("no feed"))
    assert log.calls.settle("tick")
    assert len(log.lines) == 1
    log.now += EVERY
    assert not log.calls.settle("tick")
    assert log.lines[1] == (EVERY, "run failed: OSError('no feed') (3 like this in 60 s)", False)
    assert not log.calls.settle("tick")
    assert len(log.lines) == 2


def test_what_is_held_back_is_told_at_the_end_of_a_term(log: Log) -> None:
    for _ in range(2):
        log.fails(OSError("no feed"))
    log.now += 2
    assert not log.calls.settle("tick", at_once=True)
    assert log.lines[1] == (2, "run failed: OSError('no feed') (1 like this in 2 s)", False)


def test_kinds_without_end_are_not_remembered_without_end(log: Log) -> None:
    for number in range(3 * KINDS):
        log.fails(type(f"Error{number}", (Exception,), {})())
    assert len(log.lines) == KINDS + 1
