"""Time that a test has frozen: an app starts, runs and stops all the same, and nobody needs to freeze it."""

from __future__ import annotations

import time

import pytest
from freezegun import freeze_time

from singletonjob import SingletonJobs
from singletonjob.testing import virtual_time


def elapsed() -> float:
    """Seconds on a clock that freezegun leaves alone; it replaces the others wherever a module keeps them."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


@pytest.mark.parametrize("real_asyncio", [True, False])
def test_c109_where_a_test_has_frozen_time_an_app_starts_runs_and_stops_within_seconds(real_asyncio: bool) -> None:
    begun = elapsed()
    app, ran = SingletonJobs("pricing", "memory"), []
    app.interval("50ms", name="tick")(lambda: ran.append(1))
    with freeze_time("2026-01-01", real_asyncio=real_asyncio), app.in_thread():
        while not ran and elapsed() - begun < 4:
            time.sleep(0.01)
    assert ran
    assert elapsed() - begun < 5


def test_c109_with_virtual_time_a_day_of_ticks_takes_no_more_than_moments() -> None:
    app = SingletonJobs("pricing", "memory")
    app.fixed_rate("1m", name="tick")(lambda: None)
    begun = elapsed()
    with virtual_time("2026-01-01T00:00:30Z", app) as world:
        world.run_for("1d")
        assert len(world.runs) == 24 * 60
    assert elapsed() - begun < 10  # it takes a tenth of a second
