"""Cron jobs of running apps in the nights that other schedulers got wrong: clock changes, leap days; how they start."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from singletonjob import IntervalJob, Run, SingletonJobs
from singletonjob.stores.memory import MemoryStore
from virtual_loop import Capture, VirtualClock, run_virtually, running, the_loop

if TYPE_CHECKING:
    from collections.abc import Callable

HOUR = 3600.0


def at(moment: str) -> tuple[VirtualClock, SingletonJobs]:
    """A clock that shows `moment` (UTC) now, and an app on it. Long leases spare the beats of long days."""
    clock = VirtualClock(the_loop())
    clock.offset = datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp() - clock.wall() / 1e6
    store = MemoryStore(clock)
    return clock, SingletonJobs(
        "nights", store=store, heartbeat_interval="10m", lock_expiry="1h", max_backoff_delay="1h"
    )


def noted(starts: list[str]) -> Callable[[Run], None]:
    async def body(run: Run) -> None:
        assert abs((run.started_at - run.scheduled_at).total_seconds()) < 0.01
        starts.append(run.scheduled_at.strftime("%m-%dT%H:%M"))

    return body  # type: ignore[return-value]  # any body will do


@pytest.mark.parametrize(
    ("expression", "zone", "start", "hours", "runs"),
    [
        pytest.param("20 2 * * *", "Europe/Paris", "2020-10-24T22:00", 6, ["10-25T00:20"], id="c67-autumn-once"),
        pytest.param("30 2 * * *", "America/New_York", "2026-03-08T05:00", 6, ["03-08T07:00"], id="c12-spring-once"),
        pytest.param("0 0 * * *", "Asia/Beirut", "2026-03-28T20:00", 4, ["03-28T22:00"], id="c59-midnight-gap"),
        pytest.param(
            "0 * * * *",
            "America/Los_Angeles",
            "2026-11-01T07:30",
            4,
            ["11-01T08:00", "11-01T09:00", "11-01T10:00", "11-01T11:00"],
            id="c56-hourly-both-passes",
        ),
    ],
)
def test_c67_a_night_of_a_clock_change_has_the_runs_of_the_calendar(
    expression: str, zone: str, start: str, hours: int, runs: list[str]
) -> None:
    async def main() -> None:
        clock, app = at(start)
        starts: list[str] = []
        app.cron(expression, tz=zone, name="job")(noted(starts))
        async with running(app, clock):
            await asyncio.sleep(hours * HOUR)
        assert starts == runs

    run_virtually(main())


def test_c75_on_a_leap_day_each_shape_of_job_runs_as_on_any_other() -> None:
    async def main() -> None:
        clock, app = at("2028-02-29T08:30")
        cron: dict[str, list[str]] = {"0 9 29 2 *": [], "0 9 L * *": [], "0 9 1 3 *": [], "0 9 * * *": []}
        for number, (expression, starts) in enumerate(cron.items()):
            app.cron(expression, name=f"cron-{number}")(noted(starts))
        intervals, ticks = [0], list[int]()

        class Every(IntervalJob, every="6h"):
            async def execute(self, run: Run) -> None:
                intervals[0] += 1

        app.add(Every())

        @app.fixed_rate("12h")
        async def tick(run: Run) -> None:
            assert run.tick is not None
            ticks.append(run.tick)

        with Capture() as logs:
            async with running(app, clock):
                await asyncio.sleep(25 * HOUR)
        assert cron == {
            "0 9 29 2 *": ["02-29T09:00"],
            "0 9 L * *": ["02-29T09:00"],
            "0 9 1 3 *": ["03-01T09:00"],
            "0 9 * * *": ["02-29T09:00", "03-01T09:00"],
        }
        assert intervals == [5]
        assert [later - ticks[0] for later in ticks] == [0, 1]
        assert [record.getMessage() for record in logs.records if record.levelno >= 30] == []

    run_virtually(main())


def test_c77_a_step_that_does_not_divide_its_field_is_one_warning_at_the_start() -> None:
    async def main() -> None:
        clock, app = at("2026-01-01T00:00")
        for number, expression in enumerate(("*/45 * * * *", "*/15 * * * *")):
            app.cron(expression, name=f"job-{number}")(noted([]))
        with Capture() as logs:
            async with running(app, clock):
                await asyncio.sleep(3 * HOUR)
        (warning,) = logs.of("schedule-warning")
        assert warning.job == "job-0"
        assert "minute '*/45' starts anew with each round of the field" in warning.getMessage()

    run_virtually(main())


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("*/30 * * * * *", "; cron '*/30 * * * * *' (seconds first), next at 2026-01-01T00:00:30+00:00 (UTC)"),
        ("19 * * * *", "; cron '19 * * * *', next at 2026-01-01T00:19:00+00:00 (UTC)"),
    ],
)
def test_c79_the_start_up_line_says_that_six_fields_have_seconds_first(expression: str, said: str) -> None:
    async def main() -> None:
        clock, app = at("2026-01-01T00:00")
        app.cron(expression, name="job")(noted([]))
        with Capture() as logs:
            async with running(app, clock):
                pass
        (started,) = logs.of("started")
        assert said in started.getMessage()

    run_virtually(main())


def test_a_thousand_cron_jobs_start_within_a_second_or_a_few_where_others_work_too() -> None:
    async def body() -> None: ...

    zones = ("UTC", "America/New_York", "Europe/Berlin", "Asia/Singapore")
    app = SingletonJobs("nights", store="memory")
    began = time.perf_counter()
    for number in range(1000):
        app.cron(f"{number % 60} {number // 60} * * *", tz=zones[number % 4], name=f"job-{number}")(body)
    with app.in_thread():
        while not all(app.is_leader(f"job-{number}") for number in range(1000)):
            assert time.perf_counter() - began < 8  # the promise is 1 s, measured by `sh scripts/soak cron`
            time.sleep(0.01)
