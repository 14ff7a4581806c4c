"""Parity with the .NET original: when a job runs, for each of the three shapes. Whole apps on virtual time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from singletonjob import Misfired, Run, SingletonJobs
from singletonjob._system.timers import Timers
from singletonjob.stores.memory import MemoryStore
from singletonjob.stores.orders import Trigger
from singletonjob.stores.protocol import Batch
from virtual_loop import EPOCH, Capture, Gate, VirtualClock, run_virtually, running, the_loop

if TYPE_CHECKING:
    from typing import Literal

    from singletonjob import Event

DAY = 86_400.0


def make(clock: VirtualClock | None = None, **options: Any) -> SingletonJobs:
    store = MemoryStore(clock or VirtualClock(the_loop()))
    return SingletonJobs("pricing", store=store, **options)


def wall() -> float:
    """The wall clock of a replica whose clock is right, in seconds since the epoch."""
    return EPOCH / 1e6 + the_loop().time()


def test_p32_an_interval_is_waited_from_the_end_of_a_run() -> None:
    async def main() -> None:
        app = make()
        starts: list[float] = []

        @app.interval(1, name="poll")
        async def poll() -> None:
            starts.append(the_loop().time())
            await asyncio.sleep(0.4)

        async with running(app):
            await asyncio.sleep(7.5)
        assert [round(later - first, 3) for first, later in zip(starts, starts[1:], strict=False)] == [1.4] * 5

    run_virtually(main())


def test_p32_an_interval_given_as_a_function_is_read_again_after_each_run() -> None:
    async def main() -> None:
        app = make()
        starts: list[float] = []
        waits = iter((1, "2s", 0.5, 1000))

        @app.interval(lambda: next(waits), name="poll")
        async def poll() -> None:
            starts.append(the_loop().time())

        async with running(app):
            await asyncio.sleep(20)
        assert [round(start - starts[0], 3) for start in starts] == [0, 1, 3, 3.5]

    run_virtually(main())


def test_p33_a_tick_is_dropped_while_a_run_is_in_flight_and_stop_awaits_the_last_run() -> None:
    async def main() -> None:
        app = make()
        runs: list[tuple[float, float]] = []

        @app.fixed_rate("100ms", name="tick")
        async def tick() -> None:
            begun = the_loop().time()
            await asyncio.sleep(0.45)
            runs.append((begun, the_loop().time()))

        async with running(app) as one:
            await asyncio.sleep(1.75)
            dropped = one.app.stats()["tick"].dropped_overlap
        # The original's figures: a tick each 100 ms, work of about 500 ms, four runs in two seconds.
        assert [round(begun, 3) for begun, _ in runs] == [0.1, 0.6, 1.1, 1.6]
        assert dropped == 12
        assert runs[-1][1] == pytest.approx(2.05)
        assert the_loop().time() == pytest.approx(2.05)

    run_virtually(main())


def test_p34_a_cron_job_of_six_fields_runs_every_second() -> None:
    async def main() -> None:
        app = make()
        starts: list[float] = []

        @app.cron("* * * * * *", name="each-second")
        async def each_second() -> None:
            starts.append(wall())

        async with running(app):
            await asyncio.sleep(10.5)
        first = EPOCH // 1_000_000 + 1
        assert starts == [pytest.approx(first + n, abs=1e-3) for n in range(10)]

    run_virtually(main())


def test_p34_p57_a_daily_cron_job_in_a_zone_of_its_own_runs_once_on_each_of_two_virtual_days() -> None:
    async def main() -> None:
        # Nothing but the clock counts here; long leases spare the beats of two days.
        app = make(heartbeat_interval="10m", lock_expiry="1h", max_backoff_delay="1h")
        utc: list[datetime] = []
        singapore: list[datetime] = []

        @app.cron("0 12 * * *", name="daily")
        async def daily(run: Run) -> None:
            utc.append(run.scheduled_at)
            assert abs(run.started_at.timestamp() - wall()) < 1e-3

        @app.cron("0 12 * * *", name="daily-there", tz="Asia/Singapore")
        async def daily_there(run: Run) -> None:
            singapore.append(run.scheduled_at)

        began = datetime.fromtimestamp(wall(), UTC)
        assert began.hour == 11
        async with running(app):
            await asyncio.sleep(2 * DAY)
        assert [run.hour for run in utc] == [12, 12]
        assert (utc[1] - utc[0]).total_seconds() == DAY
        assert (utc[0].date(), singapore[0].date()) == (began.date(), utc[1].date())
        assert [run.hour for run in singapore] == [4, 4]

    run_virtually(main())


def test_p35_slots_are_absolute_instants_that_only_advance_while_the_clock_is_set_to_and_fro() -> None:
    async def main() -> None:
        clock = VirtualClock(the_loop())
        app = make()
        slots: list[float] = []

        @app.cron("* * * * * *", name="each-second")
        async def each_second(run: Run) -> None:
            slots.append(run.scheduled_at.timestamp())

        async with running(app, clock):
            for step in (0.0, -3.0, 0.4, 5.0, -2.2, 0.0):
                clock.offset += step
                await asyncio.sleep(6)
        assert all(earlier < later for earlier, later in zip(slots, slots[1:], strict=False))
        assert len(slots) >= 30
        assert all(slot == int(slot) for slot in slots)

    run_virtually(main())


def test_p36_a_wait_longer_than_fifty_days_is_cut_and_survives_steps_of_the_wall_clock() -> None:
    async def main() -> None:
        clock = VirtualClock(the_loop())
        timers = Timers(the_loop(), clock, longest_boot_sleep=3600.0)
        rung: dict[str, float] = {}

        def at(name: str) -> None:
            rung[name] = the_loop().time()

        instant = clock.wall() + round(60 * DAY * 1e6)

        def look() -> None:  # as a runner does: woken because the clock was set, it sleeps on
            if clock.wall() < instant:
                timers.at_wall(instant, look)
            else:
                at("wall")

        timers.at_boot(clock.boot() + 60 * DAY, lambda: at("boot"))
        timers.at_wall(instant, look)
        await asyncio.sleep(20 * DAY)
        clock.offset += 9 * DAY
        await asyncio.sleep(20 * DAY)
        clock.offset -= 4 * DAY
        await asyncio.sleep(20 * DAY + 1)
        timers.close()
        assert rung["boot"] == pytest.approx(60 * DAY, abs=1e-3)
        assert rung["wall"] == pytest.approx(55 * DAY, abs=1e-3)

    run_virtually(main())


def test_p36_a_suspend_is_noticed_although_the_loops_own_time_stood_still() -> None:
    async def main() -> None:
        clock = VirtualClock(the_loop())
        timers = Timers(the_loop(), clock, longest_boot_sleep=0.5)
        rung: list[float] = []
        timers.at_boot(clock.boot() + DAY, lambda: rung.append(the_loop().time()))
        await asyncio.sleep(10)
        clock.slept += DAY
        await asyncio.sleep(0.5)
        timers.close()
        assert rung

    run_virtually(main())


def test_p37_an_overrun_skips_slots_and_starts_stay_on_the_grid() -> None:
    async def main() -> None:
        app = make()
        starts: list[float] = []
        events: list[Event] = []

        @app.cron("*/2 * * * * *", name="slow")
        async def slow() -> None:
            starts.append(wall())
            await asyncio.sleep(3)

        app.subscribe(events.append)
        async with running(app) as one:
            await asyncio.sleep(61)
            misfired = one.app.stats()["slow"].misfired
        assert {round(later - first, 3) for first, later in zip(starts, starts[1:], strict=False)} == {4.0}
        assert all(start % 2 == pytest.approx(0, abs=1e-3) for start in starts)
        assert misfired == pytest.approx(len(starts), abs=1)
        assert {event.cause for event in events if isinstance(event, Misfired)} == {"overlap"}

    run_virtually(main())


@pytest.mark.parametrize(
    ("misfire", "late"), [("skip", []), ("fire_once", [10]), ("catch_up", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10])]
)
@pytest.mark.parametrize("how", ["suspend", "jump", "overrun"])
def test_p38_what_becomes_of_slots_that_an_overrun_a_suspend_or_a_clock_jump_missed(
    misfire: Literal["skip", "fire_once", "catch_up"], late: list[int], how: str
) -> None:
    async def main() -> None:
        clock = VirtualClock(the_loop())
        app = make(clock)
        runs: list[datetime] = []

        limit = "2s" if misfire == "skip" else None

        @app.cron("0 * * * * *", name="each-minute", misfire=misfire, late_limit=limit)
        async def each_minute(run: Run) -> None:
            runs.append(run.scheduled_at)
            if how == "overrun" and len(runs) == 1:
                await asyncio.sleep(640)  # until 40 s after the newest of ten slots

        async with running(app, clock):
            await asyncio.sleep(25)  # one run, at 20 s
            if how == "suspend":
                clock.slept += 605
            elif how == "jump":
                clock.offset += 605
            else:
                await asyncio.sleep(605)
            await asyncio.sleep(40)  # a step is noticed within 30 s at the latest
            first, *others = runs
            assert [(run - first).total_seconds() / 60 for run in others] == late
            await asyncio.sleep(30)
            assert (runs[-1] - first).total_seconds() / 60 == 11

    run_virtually(main())


def test_a_claim_that_waits_for_the_store_is_not_late_because_the_wall_clock_was_set() -> None:
    async def main() -> None:
        clock = VirtualClock(the_loop())
        gate = Gate(MemoryStore(clock))
        app = SingletonJobs("pricing", store=gate, lock_expiry=60, heartbeat_interval=10)
        runs: list[datetime] = []

        @app.cron("0 * * * * *", name="each-minute", late_limit="30s")
        async def each_minute(run: Run) -> None:
            runs.append(run.scheduled_at)

        @app.fixed_rate("1s", name="watch")  # with its next tick the step is noticed
        async def watch() -> None: ...

        async with running(app, clock):
            await asyncio.sleep(10)
            gate.hang = True
            await asyncio.sleep(12)  # at 20 s the slot came, and its claim waits
            clock.offset -= 2
            await asyncio.sleep(3)
            assert not runs
            gate.hang = False
            await asyncio.sleep(15)
            assert len(runs) == 1
            assert app.stats()["each-minute"].misfired == 0

    run_virtually(main())


def test_p40_a_schedule_without_a_future_slot_is_one_warning_and_no_busy_loop() -> None:
    async def main() -> None:
        clock = VirtualClock(the_loop(), offset=(datetime(9999, 12, 31, tzinfo=UTC).timestamp() - EPOCH / 1e6))
        app = make(clock)

        @app.cron("0 0 29 2 *", name="leap-day")
        async def leap_day() -> None:
            raise AssertionError

        with Capture() as logs:
            async with running(app, clock) as one:
                await asyncio.sleep(600)
                assert one.app.stats()["leap-day"].runs == 0
        (warning,) = logs.of("no-future-slot")
        assert (warning.levelname, warning.job) == ("WARNING", "leap-day")

    run_virtually(main())


def test_a_term_says_once_that_no_slot_is_to_come_also_after_an_extra_run_and_so_does_the_next_one() -> None:
    async def main() -> None:
        clock = VirtualClock(the_loop(), offset=(datetime(9999, 12, 31, tzinfo=UTC).timestamp() - EPOCH / 1e6))
        switch, store = [True], MemoryStore(clock)
        app = SingletonJobs("pricing", store=store, enabled=lambda: switch[0])
        tokens: list[int] = []

        @app.cron("0 0 29 2 *", name="leap-day")
        async def leap_day(run: Run) -> None:
            tokens.append(run.token)

        async def trigger(name: str) -> None:
            order = Trigger("leap-day", name, 60.0)
            await store.exchange(Batch("pricing", "operator", 1.0, requests=(order,)))
            await asyncio.sleep(5)

        with Capture() as logs:
            async with running(app, clock):
                await asyncio.sleep(5)
                await trigger("one")
                await trigger("two")
                for switch[0] in (False, True):
                    await asyncio.sleep(5)
                await trigger("three")
        first, again, later = tokens
        assert first == again < later
        assert [warning.token for warning in logs.of("no-future-slot")] == [first, later]

    run_virtually(main())


@pytest.mark.parametrize("shape", ["interval", "fixed_rate", "cron"])
def test_p41_an_error_in_one_run_is_logged_and_the_loop_goes_on(shape: str) -> None:
    async def main() -> None:
        app = make()
        decorate = {
            "interval": app.interval("1s", name="faulty"),
            "fixed_rate": app.fixed_rate("1s", name="faulty"),
            "cron": app.cron("* * * * * *", name="faulty"),
        }[shape]

        @decorate
        async def faulty() -> None:
            raise OSError("no feed")

        with Capture() as logs:
            async with running(app) as one:
                await asyncio.sleep(5.5)
                stats = one.app.stats()["faulty"]
                assert one.app.is_leader("faulty")
        assert stats.failed == stats.runs >= 5
        assert stats.terms == 1
        failed = logs.of("run-failed")
        assert [record.levelname for record in failed] == ["ERROR"] * 2
        assert all("no feed" in record.getMessage() for record in failed)
        assert f"({stats.runs - 1} like this in " in failed[1].getMessage()

    run_virtually(main())
