"""What the stamps say: lateness against the grid, ticks early, lost and dropped, drift. Pure."""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.assignment import Assignment, Mark
    from benchmarks.field import Grid
    from benchmarks.heat import Outcome

__all__ = ["Overlap", "Ticks", "overlap", "quantile", "ticks", "unaccounted"]


class Ticks(NamedTuple):
    """One contestant in one window. Lateness in microseconds, drift in seconds an hour."""

    due: int
    served: int
    lost: int
    early: int
    lateness: list[float]
    drift: float
    on_grid: bool


class Overlap(NamedTuple):
    """How runs lay to each other in one window: how many started, the most at once, how many started off the grid."""

    starts: int
    most: int
    off_grid: int
    runs: list[tuple[float, float]]


def quantile(values: Sequence[float], share: float) -> float:
    """The value that so large a share of `values` does not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, int(share * len(ordered) + 0.999999) - 1))]


def ticks(outcome: Outcome, grid: Grid) -> Ticks:
    """What came of the grid points within the window."""
    assignment, begin, end = outcome.assignment, outcome.begin, outcome.end
    window = end - begin
    placed = sorted(
        (planned, start - planned) for planned, start in _placed(outcome.marks, assignment, grid) if planned >= begin
    )
    placed = [(planned, late) for planned, late in placed if planned < end]
    served = len(placed) if assignment.jobs > 1 else len({planned for planned, _ in placed})
    if grid == "fitted":
        due = round(window / assignment.period)
    else:
        due = sum(
            _points_before(end, assignment, job) - _points_before(begin, assignment, job)
            for job in range(assignment.jobs)
        )
    return Ticks(
        due=due,
        served=served,
        lost=max(0, due - served),
        early=sum(late < 0 for _, late in placed),
        lateness=[late / 1000 for _, late in placed],
        drift=_drift(placed),
        on_grid=assignment.jobs > 1
        or all((planned - assignment.offset) % assignment.period == 0 for planned, _ in placed),
    )


def _points_before(instant: int, assignment: Assignment, job: int) -> int:
    return (instant - assignment.offset_of(job) - 1) // assignment.period


def _placed(marks: Sequence[Mark], assignment: Assignment, grid: Grid) -> list[tuple[int, int]]:
    """Each start with the grid point that it is held against."""
    if grid == "fitted":
        return _fitted([mark.start for mark in marks], assignment.period)
    return [
        (mark.planned or mark.start - (mark.start - assignment.offset) % assignment.period, mark.start)
        for mark in marks
    ]


def _fitted(starts: Sequence[int], period: int) -> list[tuple[int, int]]:
    """Starts on a grid of their own phase: the one on which the earliest of them is on time."""
    if not starts:
        return []
    points = [0]
    for before, after in pairwise(starts):
        points.append(points[-1] + round((after - before) / period) * period)
    phase = min(start - point for start, point in zip(starts, points, strict=True))
    return [(phase + point, start) for start, point in zip(starts, points, strict=True)]


def _drift(placed: Sequence[tuple[int, int]]) -> float:
    """How much later the second half came than the first, in seconds an hour."""
    half = len(placed) // 2
    if half < 2:
        return 0.0
    first, second = placed[:half], placed[half:]
    later = median(late for _, late in second) - median(late for _, late in first)
    apart = median(planned for planned, _ in second) - median(planned for planned, _ in first)
    return 3600 * later / apart if apart else 0.0


def overlap(outcome: Outcome, grid: Grid) -> Overlap:
    """How the runs that started in the window lay to each other; times in seconds since its begin."""
    inside = [mark for mark in outcome.marks if outcome.begin <= mark.start < outcome.end]
    changes = sorted(
        change for mark in inside for change in ((mark.start, 1), (mark.end or outcome.end, -1))
    )  # an end comes before a start of the same moment
    most = at_once = 0
    for _, change in changes:
        at_once += change
        most = max(most, at_once)
    return Overlap(
        starts=len(inside),
        most=most,
        off_grid=_off_grid(_placed(inside, outcome.assignment, grid), outcome.assignment, grid),
        runs=[
            ((mark.start - outcome.begin) / 1e9, ((mark.end or outcome.end) - outcome.begin) / 1e9) for mark in inside
        ],
    )


def _off_grid(placed: Sequence[tuple[int, int]], assignment: Assignment, grid: Grid) -> int:
    """How many starts belong to no point of the grid.

    Who names the point that it runs for is off the grid only where that is none, or not the newest. For the others a
    start tells that comes a fifth of a period after a point, or, on a grid of their own phase, so far from the usual.
    """
    period = assignment.period
    if grid == "own":
        return sum(
            (planned - assignment.offset) % period != 0 or not 0 <= start - planned < period
            for planned, start in placed
        )
    usual = median(start - planned for planned, start in placed) if placed and grid == "fitted" else 0
    return sum(abs(start - planned - usual) > period / 5 for planned, start in placed)


def unaccounted(outcome: Outcome) -> int | None:
    """Ticks that ours neither ran nor counted as dropped, between the two runs at which it read its own counts."""
    said = outcome.said
    if "dropped" not in said:
        return None
    first, last = (outcome.marks[said[name]] for name in ("first", "last"))
    points = (last.planned - first.planned) // outcome.assignment.period
    return points - (said["last"] - said["first"]) - said["dropped"]
