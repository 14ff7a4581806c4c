"""A histogram of durations, of constant size however many there are."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from itertools import accumulate
from math import nan
from typing import Final

__all__ = ["BOUNDS", "Histogram"]

BOUNDS: Final = tuple(step * 10.0**power for power in range(-5, 3) for step in (1.0, 1.5, 2.0, 3.0, 5.0, 7.0))
"""Upper bounds of the buckets in seconds, each included, from 10 us to 700 s; what is longer has the last bucket."""


class Histogram:
    """How often which duration was seen, in seconds. Quantiles are exact to the width of a bucket, 30 to 50 %.

    `total` is the sum of all, `maximum` the longest, both in seconds.
    """

    __slots__ = ("_counts", "maximum", "total")

    def __init__(self) -> None:
        self._counts = array("Q", bytes(8 * (len(BOUNDS) + 1)))
        self.total: float = 0.0
        self.maximum: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one more."""
        self._counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds
        if seconds > self.maximum:
            self.maximum = seconds

    @property
    def count(self) -> int:
        """How many were seen."""
        return sum(self._counts)

    @property
    def buckets(self) -> list[tuple[float, int]]:
        """For each bound, in seconds, how many were at most that long; from 10 us to 700 s."""
        return list(zip(BOUNDS, accumulate(self._counts), strict=False))

    def quantile(self, q: float) -> float:
        """The duration that the share `q` (0 to 1) of all did not exceed, in seconds; nan when there were none.

        Raises `ValueError` for a `q` outside of that.
        """
        if not 0 <= q <= 1:
            raise ValueError(f"quantile: {q!r} is out of range; give a share from 0 to 1")
        if not (count := self.count):
            return nan
        rank, below, lower = q * count, 0, 0.0
        for bound, number in zip(BOUNDS, self._counts, strict=False):
            if number and below + number >= rank:
                return min(lower + (bound - lower) * (rank - below) / number, self.maximum)
            below += number
            lower = bound
        return self.maximum

    def copy(self) -> Histogram:
        """One that does not change any more."""
        other = Histogram()
        other._counts = self._counts[:]
        other.total, other.maximum = self.total, self.maximum
        return other

    def __repr__(self) -> str:
        if not (count := self.count):
            return "Histogram(count=0)"
        p50, p99 = self.quantile(0.5), self.quantile(0.99)
        return f"Histogram(count={count}, p50={p50:.6f}, p99={p99:.6f}, maximum={self.maximum:.6f})"
