"""C29: jobs that wait for most of a year, on the timers of real loops, whose longest sleep is shorter than that."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
import uvloop

from singletonjob import SingletonJobs
from singletonjob._core.values import Now
from singletonjob._system import timers as _timer
from singletonjob._system.clock import SystemClock
from singletonjob.stores.memory import MemoryStore
from virtual_loop import Capture

if TYPE_CHECKING:
    from collections.abc import Callable

WATCHED = 1.0
"""Seconds, a twentieth of those in which one wake is allowed."""


class SecondOfJanuary:
    """The machine's clocks, but the wall clock began on 2 January. Its timers are the loop's own."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._offset = 1_767_312_000_000_000 - self._clock.wall()  # from now to 2026-01-02T00:00Z

    def boot(self) -> float:
        return self._clock.boot()

    def wall(self) -> int:
        return self._clock.wall() + self._offset

    def now(self) -> Now:
        return Now(self.wall(), self.boot())


def on_asyncio(app: SingletonJobs) -> None:
    on_a_loop(app, asyncio.new_event_loop)


def on_uvloop(app: SingletonJobs) -> None:
    on_a_loop(app, uvloop.new_event_loop)


def on_a_loop(app: SingletonJobs, factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        async with app:
            await asyncio.sleep(WATCHED)

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())


def in_a_thread(app: SingletonJobs) -> None:
    with app.in_thread():
        time.sleep(WATCHED)


@pytest.mark.parametrize("wait", [on_asyncio, on_uvloop, in_a_thread])
@pytest.mark.parametrize("clock", [None, SecondOfJanuary()], ids=["timerfd", "loop's own timers"])
def test_c29_a_wait_of_a_year_neither_fails_nor_spins(
    clock: SecondOfJanuary | None, wait: Callable[[SingletonJobs], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    rings = runs = 0
    ring = _timer._Queue.fire

    def counted(queue: _timer._Queue, *, stepped: bool = False) -> None:
        nonlocal rings
        rings += 1
        ring(queue, stepped=stepped)

    monkeypatch.setattr(_timer._Queue, "fire", counted)
    app = SingletonJobs("pricing", MemoryStore(clock or SystemClock()), clock=clock)
    today = datetime.now(UTC) if clock is None else datetime(2026, 1, 2, tzinfo=UTC)
    yesterday = today - timedelta(days=1)

    @app.cron(f"0 0 {yesterday.day} {yesterday.month} *")
    async def yearly() -> None:
        raise AssertionError("it is most of a year too early")

    @app.interval("400d")
    async def long() -> None:
        nonlocal runs
        runs += 1

    with Capture() as logs:
        wait(app)
    assert runs == 1
    assert rings <= 3, "one for the first run of the interval"
    assert {record.levelname for record in logs.records} <= {"INFO", "DEBUG"}
    (started,) = [record for record in logs.of("started") if record.job == "yearly"]
    due = datetime.fromisoformat(started.getMessage().partition("next at ")[2].split()[0])
    assert (due.day, due.month) == (yesterday.day, yesterday.month)
    assert timedelta(days=360) < due - today < timedelta(days=4 * 366 + 1)
