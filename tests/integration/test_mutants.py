"""A rotating third of the mutants, each day another one; `sh scripts/soak mutants` tries them all."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from soak._mutant_faults import fault, misfits
from soak._mutant_table import MUTANTS, Mutant
from soak.mutants import Bench, try_all

if TYPE_CHECKING:
    from collections.abc import Iterator

PROMISES = {*(f"S{number}" for number in range(1, 9)), *(f"L{number}" for number in range(1, 5))}


def of(name: str) -> Mutant:
    return next(mutant for mutant in MUTANTS if mutant.name == name)


UNKNOWN = of("unknown read as refused")
LUA = of("redis: a held lease is granted")
GONE = "            if job.alive:\n                job.gone()\n"
HIDDEN = GONE.replace("job.gone()", 'getattr(job, "gone")()')


UNFIT = (
    replace(UNKNOWN, name="an old text", old="what is not there"),
    replace(UNKNOWN, name="a syntax error", new="            if job.errors >"),
    replace(UNKNOWN, name="an attribute that is gone", new=GONE),
    replace(UNKNOWN, name="a name that is gone", new="            nothing(job)"),
    replace(LUA, name="a name in Lua that is gone", new="if holder == nothing then"),
)


@pytest.fixture(scope="module")
def reasons() -> dict[str, str]:
    """Check those that do not fit beside the others in one run of mypy, which takes some seconds."""
    return {mutant.name: reason for mutant, reason in misfits([*MUTANTS, *UNFIT]).items()}


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Bench() as bench:
        yield bench


def test_each_mutant_fits_the_library(reasons: dict[str, str]) -> None:
    unfit = {mutant.name for mutant in UNFIT}
    assert {name: reason for name, reason in reasons.items() if name not in unfit} == {}


def test_all_mutants_that_do_not_fit_the_library_are_named_with_the_reason(reasons: dict[str, str]) -> None:
    assert [reasons.get(mutant.name) for mutant in UNFIT] == [
        "its text occurs 0 times in _core/elector.py; write one that occurs there once",
        "_core/elector.py: invalid syntax",
        'mypy: "_Job" has no attribute "gone"  [attr-defined]',
        'mypy: Name "nothing" is not defined  [name-defined]',
        "stores/redis/exchange.lua does not contain the name nothing",
    ]


def test_each_promise_has_mutants_which_have_names_of_their_own() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert sorted(set(names)) == sorted(names)
    assert {mutant.promise for mutant in MUTANTS} == PROMISES


def test_a_programming_error_is_found_inside_what_it_became() -> None:
    outer = RuntimeError("the heartbeat ended")
    outer.__cause__ = ExceptionGroup("tasks", [ValueError("other"), AttributeError("gone")])
    assert fault(outer) == "AttributeError: gone"
    assert fault(AssertionError("assert 1 == 2")) is None
    answer = "assert Failed(error='ERR user_script:31: attempt to index field 'gone' (a nil value)') == Renewed()"
    assert fault(AssertionError(answer)) == f"AssertionError: {answer}"


def test_a_mutant_that_fails_by_a_programming_error_is_broken_and_not_caught(bench: Bench) -> None:
    hidden = bench.try_on(replace(UNKNOWN, new=HIDDEN))
    assert hidden.caught_by is None
    assert not hidden.survived
    assert hidden.line.startswith(
        "L3, unknown read as refused (`_core/elector.py`): BROKEN, AttributeError: '_Job' object has no attribute"
        " 'gone', in tests/unit/test_election.py::test_an_unknown_outcome_moves_no_deadline_and_ends_no_term"
    )
    imported = bench.try_on(replace(UNKNOWN, old="from math import inf\n", new="from math import inf, gone\n"))
    assert imported.caught_by is None
    assert imported.broken.startswith("ImportError: cannot import name 'gone' from 'math'")
    called = bench.try_on(replace(LUA, new="if refused.gone() then"))
    assert called.caught_by is None
    assert "attempt to index" in called.broken


def test_a_mutant_that_no_test_catches_survives_and_one_that_cannot_be_tried_is_an_error(bench: Bench) -> None:
    mutant = of("no margin, at a grant")
    harmless = replace(mutant, new=mutant.old + "  # the same", tests=("tests/unit/test_durations.py",))
    assert bench.try_on(harmless).line.startswith("S3, no margin, at a grant (`_core/elector.py`): SURVIVED, ")
    gone = bench.try_on(replace(mutant, old="what is not there"))
    assert gone.caught_by is None
    assert "occurs 0 times in _core/elector.py" in gone.trouble
    unknown = bench.try_on(replace(mutant, tests=("tests/unit/no_such_file.py",)))
    assert unknown.caught_by is None
    assert "pytest ended with code 4" in unknown.trouble
    empty = bench.try_on(replace(mutant, tests=("tests/unit/test_durations.py", "-k", "no_such_test")))
    assert empty.caught_by is None
    assert "pytest ended with code 5" in empty.trouble


@pytest.mark.timeout(300)  # some 25 runs of tests, which take 15 seconds where nothing else runs
def test_todays_third_is_caught() -> None:
    today = MUTANTS[int(time.time() / 86400) % 3 :: 3]
    outcomes = list(try_all(today))
    assert [outcome.line for outcome in outcomes if outcome.caught_by is None] == []
