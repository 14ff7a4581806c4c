"""docs/cases.md has a line for each case, and each names tests that are there and carry its number."""

from __future__ import annotations

from tables import TEST, lines, missing

LINES = lines("cases.md", "C")


def test_each_case_has_one_line_and_they_are_in_order() -> None:
    assert [line.number for line in LINES] == [f"C{number:02}" for number in range(1, 115)]


def test_each_line_names_a_test_of_that_case_and_all_of_them_are_there() -> None:
    for line in LINES:
        named = [name for _, name in TEST.findall(line.shown_by)]
        assert named, line.number
        assert [name for name in named if f"_{line.number.lower()}_" not in name] == []
        assert missing(line) == []
