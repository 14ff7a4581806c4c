"""The counts of a job's runs: asked for from any thread, and exact all the same."""

from __future__ import annotations

import threading

import pytest

from singletonjob._reporting.job_counters import AT_ONCE, Counts
from singletonjob._system.clock import SystemClock

CLOCK = SystemClock()


def test_runs_that_are_not_sorted_yet_are_counted_as_well() -> None:
    counts = Counts(CLOCK)
    for number in range(1, 2 * AT_ONCE + 2):
        counts.ran("ok", 0.001, 0.002, CLOCK.now())
        assert counts.runs == number
    stats = counts.frozen()
    assert stats.runs == stats.ok == stats.lateness.count == stats.duration.count == 2 * AT_ONCE + 1


@pytest.mark.usefixtures("_often_switched")
def test_asked_for_by_other_threads_meanwhile_no_run_is_lost_and_none_counted_twice() -> None:
    counts, over = Counts(CLOCK), threading.Event()
    uneven: list[int] = []

    def ask() -> None:
        while not over.is_set():
            stats = counts.frozen()
            uneven.extend({stats.runs, stats.ok, stats.lateness.count} - {stats.ok})

    askers = [threading.Thread(target=ask) for _ in range(3)]
    for asker in askers:
        asker.start()
    now = CLOCK.now()
    for _ in range(20_000):
        counts.ran("ok", 0.001, 0.002, now)
    over.set()
    for asker in askers:
        asker.join()
    stats = counts.frozen()
    assert not uneven
    assert stats.ok == stats.lateness.count == stats.duration.count == 20_000
