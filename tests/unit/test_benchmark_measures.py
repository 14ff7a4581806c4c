"""What the benchmarks make of stamps: lateness, losses, drift, overlap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.assignment import Assignment, Mark
from benchmarks.heat import Outcome
from benchmarks.measures import overlap, quantile, ticks, unaccounted

if TYPE_CHECKING:
    from collections.abc import Iterable

MS = 1_000_000
PERIOD, OFFSET = 10 * MS, 3 * MS
BEGIN, END = 1000 * MS, 2000 * MS
POINTS = range(OFFSET + 50 * PERIOD, OFFSET + 260 * PERIOD, PERIOD)
"""From well before the window, which has 100 of them, to well behind it."""


def outcome(marks: Iterable[tuple[int, int, int]], said: dict[str, int] | None = None) -> Outcome:
    return Outcome(
        contestant="floor",
        assignment=Assignment("floor", "", PERIOD, OFFSET),
        begin=BEGIN,
        end=END,
        marks=[Mark(*mark) for mark in marks],
        cpu=0,
        rss=0,
        said=said or {},
        busy=0.0,
        steal=0.0,
    )


def test_each_point_in_the_window_is_due_once_and_its_lateness_is_in_microseconds() -> None:
    found = ticks(outcome((point, point + 50_000, 0) for point in POINTS), "own")
    assert (found.due, found.served, found.lost, found.early, found.on_grid) == (100, 100, 0, 0, True)
    assert set(found.lateness) == {50.0}
    assert found.drift == 0


def test_a_point_without_a_start_is_lost() -> None:
    found = ticks(outcome((point, point, 0) for index, point in enumerate(POINTS) if index % 10), "own")
    assert (found.served, found.lost) == (90, 10)


def test_a_start_before_its_own_point_is_early() -> None:
    assert ticks(outcome((point, point - 1000, 0) for point in POINTS), "own").early == 100


def test_a_start_for_what_is_no_grid_point_shows() -> None:
    assert not ticks(outcome((point + 1, point + 50_000, 0) for point in POINTS), "own").on_grid


def test_who_names_no_point_is_held_against_the_grid_that_was_asked_for() -> None:
    found = ticks(outcome((0, point + 60_000, 0) for point in POINTS), "asked")
    assert (found.due, found.served) == (100, 100)
    assert set(found.lateness) == {60.0}


def test_a_phase_of_its_own_is_found_from_the_earliest_start() -> None:
    starts = [point + 7777 + index % 3 * 1000 for index, point in enumerate(POINTS)]
    found = ticks(outcome((0, start, 0) for start in starts), "fitted")
    assert (found.due, found.served) == (100, 100)
    assert set(found.lateness) == {0.0, 1.0, 2.0}


def test_a_loop_that_slips_a_millisecond_a_second_drifts_by_three_point_six_seconds_an_hour() -> None:
    found = ticks(outcome((point, point + point // 1000, 0) for point in POINTS), "own")
    assert found.drift == pytest.approx(3.6, rel=0.01)


def test_runs_that_overlap_are_counted_at_once_and_runs_that_touch_are_not() -> None:
    apart = overlap(outcome((point, point, point + 3 * PERIOD) for point in POINTS[::3]), "own")
    assert (apart.most, apart.off_grid) == (1, 0)
    assert overlap(outcome((point, point, point + 25 * MS) for point in POINTS), "own").most == 3


def test_runs_back_to_back_leave_the_grid() -> None:
    starts = range(POINTS[0], POINTS[-1], 25 * MS)
    found = overlap(outcome((0, start, start + 25 * MS) for start in starts), "asked")
    assert (found.starts, found.off_grid) == (40, 20)


@pytest.mark.parametrize(("counted", "missing"), [(20, 0), (19, 1), (21, -1)])
def test_a_drop_that_was_not_counted_or_counted_twice_shows(counted: int, missing: int) -> None:
    marks = [(point, point, 0) for index, point in enumerate(POINTS) if index % 10]
    said = {"first": 0, "last": len(marks) - 1, "dropped": counted}
    assert unaccounted(outcome(marks, said)) == missing


def test_a_quantile_is_a_value_that_occurred() -> None:
    assert quantile([4, 1, 3, 2], 0.5) == 2
    assert quantile(list(range(1, 101)), 0.99) == 99
    assert quantile([5], 0) == 5
