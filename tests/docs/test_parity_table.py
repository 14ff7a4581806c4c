"""docs/parity.md has a line for each trait of the original, and each names tests and pages that are there."""

from __future__ import annotations

import pytest

from tables import Line, lines, missing


@pytest.mark.parametrize(("label", "count"), [("P", 67), ("S", 11)])
def test_each_trait_has_one_line_and_they_are_in_order(label: str, count: int) -> None:
    assert [line.number for line in lines("parity.md", label)] == [f"{label}{number}" for number in range(1, count + 1)]


@pytest.mark.parametrize("label", ["P", "S"])
def test_each_line_names_a_test_or_a_page_and_all_of_them_are_there(label: str) -> None:
    assert [gone for line in lines("parity.md", label) for gone in missing(line)] == []


def test_what_is_not_there_is_found() -> None:
    here = "tests/docs/test_parity_table.py"
    shown = f"`{here}::test_what_is_not_there_is_found`<br>`{here}::test_what_is`<br>`tests/no.py::test_a`"
    assert missing(Line("P1", f"{shown}<br>[a](parity.md)<br>[b](no.md)<br>`samples/no`")) == [
        f"{here}::test_what_is",
        "tests/no.py::test_a",
        "no.md",
        "samples/no",
    ]
    assert missing(Line("P2", "it is so")) == ["P2 names nothing"]
