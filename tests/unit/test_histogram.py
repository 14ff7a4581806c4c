"""The histogram of durations: constant in size, exact to the width of a bucket."""

from __future__ import annotations

import math
import random
import sys

import pytest

from singletonjob._reporting.histogram import BOUNDS, Histogram


def of(*seconds: float) -> Histogram:
    histogram = Histogram()
    for value in seconds:
        histogram.add(value)
    return histogram


def test_an_empty_histogram_has_no_quantile() -> None:
    assert math.isnan(of().quantile(0.5))
    assert of().count == 0


def test_a_quantile_lies_in_the_bucket_of_the_true_one_and_never_above_the_maximum() -> None:
    numbers = random.Random(1)
    values = sorted(numbers.lognormvariate(-6, 2) for _ in range(5000))
    histogram = of(*values)
    for q in (0.01, 0.25, 0.5, 0.9, 0.99, 0.999):
        true, told = values[int(q * len(values))], histogram.quantile(q)
        assert true / 1.51 <= told <= true * 1.51
    assert histogram.quantile(1) == histogram.maximum == values[-1]
    assert histogram.total == pytest.approx(sum(values))


def test_what_is_beyond_the_buckets_counts_in_the_first_or_the_last_one() -> None:
    assert of(0.0, 1e-9).buckets[0] == (BOUNDS[0], 2)
    long = of(1e6)
    assert long.buckets[-1] == (BOUNDS[-1], 0)
    assert long.count == 1
    assert long.quantile(0.5) == 1e6


def test_a_bound_belongs_to_its_bucket_and_the_counts_of_the_buckets_add_up() -> None:
    buckets = dict(of(*BOUNDS).buckets)
    assert [buckets[bound] for bound in BOUNDS] == list(range(1, len(BOUNDS) + 1))


def test_a_copy_does_not_change_any_more() -> None:
    live = of(0.1)
    copied = live.copy()
    live.add(0.2)
    assert (copied.count, copied.maximum, copied.total) == (1, 0.1, 0.1)


def test_its_size_does_not_depend_on_how_much_it_has_seen() -> None:
    few, many = of(0.1), of(*(n / 1000 for n in range(10_000)))
    assert sys.getsizeof(few._counts) == sys.getsizeof(many._counts)


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="give a share from 0 to 1"):
        of(1.0).quantile(share)


def test_it_shows_what_it_knows() -> None:
    assert repr(of()) == "Histogram(count=0)"
    assert repr(of(0.25)) == "Histogram(count=1, p50=0.250000, p99=0.250000, maximum=0.250000)"
