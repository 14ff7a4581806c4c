"""A rotating third of the mutants, each day another one; `sh scripts/soak mutants` tries them all."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from soak._mutant_table import MUTANTS, Mutant
from soak.mutants import PACKAGE, Bench, mutated, try_all


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_text_of_each_mutant_stands_once_in_its_file_and_what_it_becomes_can_be_read(mutant: Mutant) -> None:
    file = PACKAGE / mutant.file
    text = mutated(mutant, file.read_text())
    assert text != file.read_text()
    if file.suffix == ".py":
        compile(text, str(file), "exec")


def test_mutants_are_told_apart_by_their_names() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert sorted(set(names)) == sorted(names)
    assert len(names) >= 19


@pytest.mark.timeout(400)  # some fifty runs of tests, which take half a minute where nothing else runs
def test_todays_third_is_caught() -> None:
    today = MUTANTS[int(time.time() / 86400) % 3 :: 3]
    outcomes = list(try_all(today))
    assert [outcome.line for outcome in outcomes if outcome.caught_by is None] == []


def test_a_mutant_that_no_test_catches_survives_and_one_that_cannot_be_tried_is_an_error() -> None:
    mutant = MUTANTS[0]
    harmless = replace(mutant, new=mutant.old + "  # the same", tests=("tests/unit/test_durations.py",))
    with Bench() as bench:
        assert bench.try_on(harmless).line.startswith(f"{mutant.name} (`_election.py`): SURVIVED, ")
        gone = bench.try_on(replace(mutant, old="what is not there"))
        assert gone.caught_by is None
        assert "stands in _election.py 0 times" in gone.trouble
        broken = bench.try_on(replace(mutant, tests=("tests/unit/no_such_file.py",)))
        assert broken.caught_by is None
        assert "pytest ended with code 4" in broken.trouble
        empty = bench.try_on(replace(mutant, tests=("tests/unit/test_durations.py", "-k", "no_such_test")))
        assert empty.caught_by is None
        assert "pytest ended with code 5" in empty.trouble
