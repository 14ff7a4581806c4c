"""The kit for users' tests: whole apps in virtual time."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pytest

from singletonjob import (
    ConfigError,
    Elected,
    FixedRateJob,
    IntervalJob,
    Misfired,
    Run,
    RunFinished,
    SingletonJobError,
    SingletonJobs,
    SteppedDown,
    TicksDropped,
)
from singletonjob.testing import virtual_time
from virtual_loop import nap, run_virtually, the_loop, turn_worker
from waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from singletonjob import Event

START = "2026-03-01T00:00Z"


def clock(runs: list[Any]) -> list[str]:
    return [run.started_at.strftime("%H:%M:%S") for run in runs]


# -- which job runs when ----------------------------------------------------------------------------------------------


def test_a_year_of_three_jobs_takes_less_than_ten_seconds() -> None:
    app = SingletonJobs()

    @app.fixed_rate("5m")
    async def often() -> None: ...

    @app.interval("1h")
    async def hourly() -> None: ...

    @app.cron("0 3 * * *", tz="Europe/Berlin")
    async def daily() -> None: ...

    start = perf_counter()
    with virtual_time(START, app) as world:
        world.run_for("365d")
        assert world.now == datetime(2027, 3, 1, tzinfo=UTC)
    took = perf_counter() - start
    counts = {job: len(world.runs_of(job)) for job in ("often", "hourly", "daily")}
    assert counts == {"often": 365 * 288, "hourly": 365 * 24 + 1, "daily": 365}
    assert {run.outcome for run in world.runs} == {"ok"}
    assert all(run.started == run.due for run in world.runs)
    assert {run.scheduled_at.hour for run in world.runs_of("daily")} == {1, 2}  # summer time, and winter
    assert took < 30  # 4 s on the machine that this was written on; the promise is 10 s


def test_what_is_due_at_the_very_end_still_runs() -> None:
    app = SingletonJobs()

    @app.cron("0 * * * *")
    async def hourly() -> None: ...

    with virtual_time(START, app) as world:
        world.run_for("1h")
        assert clock(world.runs) == ["01:00:00"]
        world.run_until("2026-03-01T03:00Z")
        assert clock(world.runs) == ["01:00:00", "02:00:00", "03:00:00"]
        world.run_until(world.now)
        assert len(world.runs) == 3


@pytest.mark.parametrize("sync", [False, True])
def test_an_interval_counts_from_the_end_and_a_grid_drops_what_overlaps(sync: bool) -> None:
    app = SingletonJobs()

    async def body() -> None:
        await asyncio.sleep(25)

    def sync_body(run: Run) -> None:
        assert run.wait(25) is False

    app.interval("10s", name="interval")(sync_body if sync else body)
    app.fixed_rate("10s", name="grid")(sync_body if sync else body)
    with virtual_time(START, app) as world:
        world.run_for("90s")
        runs, stats = world.runs_of("interval"), app.stats()["grid"]
        assert clock(runs) == ["00:00:00", "00:00:35", "00:01:10"]
        assert [run.outcome for run in runs] == ["ok", "ok", None]
        assert runs[0].ended_at == datetime(2026, 3, 1, 0, 0, 25, tzinfo=UTC)
        assert clock(world.runs_of("grid")) == ["00:00:10", "00:00:40", "00:01:10"]
        assert stats.runs + stats.dropped_overlap + 1 == 9
    assert sum(event.count for event in world.events if isinstance(event, TicksDropped)) == 6


def test_a_cron_job_keeps_its_local_hour_through_a_change_of_the_clocks() -> None:
    app = SingletonJobs()

    @app.cron("0 3 * * *", tz="Europe/Berlin")
    async def nightly() -> None: ...

    with virtual_time("2026-03-27T12:00+01:00", app) as world:
        world.run_for("3d")
    assert [run.scheduled_at.isoformat()[5:13] for run in world.runs] == ["03-28T02", "03-29T01", "03-30T01"]


MISFIRES: list[tuple[Any, list[str]]] = [
    ("skip", []),
    ("fire_once", ["05:30:00 05:00"]),
    ("catch_up", ["05:30:00 03:00", "05:30:00 04:00", "05:30:00 05:00"]),
]


@pytest.mark.parametrize(("misfire", "made_up"), MISFIRES)
def test_slots_that_nobody_was_there_for_are_the_misfire_policys(misfire: Any, made_up: list[str]) -> None:
    app = SingletonJobs()

    @app.cron("0 * * * *", misfire=misfire)
    async def hourly() -> None: ...

    with virtual_time(START, app) as world:
        world.run_for("2h30m")
        world.without_leader("3h")
        assert clock(world.runs) == ["01:00:00", "02:00:00"]
        world.run_for("1h")
        runs = world.runs
        assert [f"{run.started_at:%H:%M:%S} {run.scheduled_at:%H:%M}" for run in runs[2:-1]] == made_up
        assert clock(runs)[-1] == "06:00:00"
        missed = sum(event.count for event in world.events if isinstance(event, Misfired))
        assert missed == 3 - len(made_up)
        assert len({event.token for event in world.events if isinstance(event, Elected)}) == 2


def test_a_run_in_flight_has_its_grace_when_all_leave() -> None:
    app = SingletonJobs(shutdown_grace="20s")

    @app.interval("1h", name="short")
    async def short() -> None:
        await asyncio.sleep(15)

    @app.interval("1h", name="long")
    async def long() -> None:
        await asyncio.sleep(60)

    with virtual_time(START, app) as world:
        world.run_for("1s")
        world.without_leader("10m")
        (one,), (other,) = world.runs_of("short"), world.runs_of("long")
        assert (one.outcome, other.outcome) == ("ok", "cancelled")
        assert other.ended_at == datetime(2026, 3, 1, 0, 0, 21, tzinfo=UTC)
        assert world.now == datetime(2026, 3, 1, 0, 10, 1, tzinfo=UTC)


def test_timeouts_and_failures_are_told() -> None:
    app = SingletonJobs(timeout="10s")

    @app.interval("1m", name="hangs")
    async def hangs() -> None:
        await asyncio.Event().wait()

    @app.interval("1m", name="fails")
    def fails() -> None:
        raise ValueError("no price")

    with virtual_time(START, app) as world:
        world.run_for("65s")
    assert [(run.outcome, run.ended_at and run.ended_at.second) for run in world.runs_of("hangs")] == [("timeout", 10)]
    assert [(run.outcome, str(run.error)) for run in world.runs_of("fails")] == [("failed", "no price")] * 2


def test_a_live_switch_and_the_hooks_work_as_in_life() -> None:
    app = SingletonJobs()
    said: list[str] = []

    class Poll(IntervalJob, every="10s"):
        on = True

        def is_enabled(self) -> bool:
            return self.on

        def on_elected(self, term: Any) -> None:
            said.append("elected")
            if len(said) == 1:
                raise ValueError("not yet")

        def on_stepped_down(self, reason: str) -> None:
            said.append(reason)

        async def execute(self, run: Run) -> None: ...

    poll = Poll()
    app.add(poll)
    with virtual_time(START, app) as world:
        world.run_for("1m")
        # Given up at once; asked for again after a back-off of twice the heartbeat.
        assert clock(world.runs)[:2] == ["00:00:06", "00:00:16"]
        poll.on = False
        world.run_for("1m")
        assert app.health().jobs == {"poll": "disabled"}
        count = len(world.runs)
        poll.on = True
        world.run_for("1m")
        assert len(world.runs) > count
    assert said == ["elected", "elected", "disabled", "elected", "shutdown"]


def test_a_job_that_is_switched_off_never_runs() -> None:
    app = SingletonJobs()

    @app.interval("1m", enabled=False)
    async def off() -> None: ...

    with virtual_time(START, app) as world:
        world.run_for("1h")
        assert app.health().jobs == {"off": "disabled"}
    assert world.runs == []


# -- the app around it ------------------------------------------------------------------------------------------------


def test_the_app_answers_meanwhile_and_can_be_used_again() -> None:
    app = SingletonJobs("pricing", store="redis://nobody.invalid:6379/0")
    heard: list[Event] = []
    app.subscribe(heard.append)

    @app.fixed_rate("1m")
    async def tick(run: Run) -> None:
        assert (run.project, run.remaining, run.stopping) == ("pricing", 9.0, False)
        assert app.is_leader("tick")

    for _ in range(2):
        with virtual_time(START, app) as world:
            world.run_for("2m")
            assert app.stats()["tick"].ok == 2
            assert app.health().ready
            beats = app.beats()
            assert beats is not None
            assert beats.remaining["tick"] > 12 * 365 * 86_400, "the lease outlasts every world"
            with pytest.raises(SingletonJobError, match="runs already"):
                virtual_time(START, app)
        assert not app.is_leader("tick")
    assert sum(isinstance(event, RunFinished) for event in heard) == 4


@pytest.mark.parametrize("way", ["stop", "stop in a sync body", "astop"])
def test_a_body_that_stops_its_app_lets_all_jobs_drain_as_in_life(way: str) -> None:
    app, reasons = SingletonJobs("pricing"), list[str]()
    app.subscribe(lambda event: reasons.append(event.reason) if isinstance(event, SteppedDown) else None)

    async def stopping(run: Run) -> None:
        await app.astop() if way == "astop" else app.stop()
        await asyncio.sleep(0)

    app.interval("1m", name="stopping")((lambda: app.stop()) if "sync" in way else stopping)
    app.interval("1s", name="other")(lambda: None)
    with virtual_time(START, app) as world:
        world.run_for("10m")
        assert len(world.runs_of("stopping")) == 1
        assert [run.outcome for run in world.runs_of("stopping")] == ["ok"]
        assert world.runs_of("stopping")[0].ended == world.runs_of("stopping")[0].started, "it did not wait for itself"
        assert reasons == ["shutdown", "shutdown"]
        assert not app.is_leader("other")


def test_several_apps_share_one_time() -> None:
    apps = [SingletonJobs("one"), SingletonJobs("two")]
    order: list[str] = []
    for app, offset in zip(apps, ("0s", "30s"), strict=True):

        @app.fixed_rate("1m", name="tick", offset=offset)
        async def tick(run: Run) -> None:
            order.append(run.project)

    with virtual_time(START, apps[0]) as world:
        world.run_for("1m")
        world.add(apps[1])
        world.run_for("2m")
    assert order == ["one", "two", "one", "two", "one"]


def test_the_environment_sets_options_as_at_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINGLETONJOB_JOBS__TICK__EVERY", "3m")
    monkeypatch.setenv("SINGLETONJOB_JOBS__OTHER__ENABLED", "no")
    app = SingletonJobs()

    @app.interval("1m")
    async def other() -> None: ...

    with virtual_time(START, app) as world:
        world.run_for("1h")
    assert world.runs == []


# -- bodies -----------------------------------------------------------------------------------------------------------


def test_sync_bodies_take_turns_in_threads_and_take_no_time_but_what_they_wait() -> None:
    app = SingletonJobs()
    said: list[tuple[str, float]] = []
    inside: list[str] = []

    def body(run: Run) -> None:
        assert threading.current_thread() is not threading.main_thread()
        inside.append(run.job)
        assert len(inside) == 1
        inside.clear()
        run.wait(5)
        said.append((run.job, world.now.timestamp() % 60))

    app.fixed_rate("30s", name="a")(body)
    app.fixed_rate("30s", name="b")(body)
    with virtual_time(START, app) as world:
        world.run_for("1m")
    assert said[:2] == [("a", 35.0), ("b", 35.0)]


def test_a_sync_body_that_waits_is_told_to_end() -> None:
    app = SingletonJobs()
    ends: list[bool] = []

    @app.interval("1h")
    def waits(run: Run) -> None:
        ends.append(run.wait(1e6))

    with virtual_time(START, app) as world:
        world.run_for("3h")
    assert ends == [True]
    assert [run.outcome for run in world.runs] == ["ok"]
    assert not [thread for thread in threading.enumerate() if thread.name == "singletonjob-waits"]


def test_a_worker_that_is_stopped_ends_its_thread_after_the_call_that_it_makes() -> None:
    async def main() -> None:
        worker = turn_worker("worker")
        napping = asyncio.create_task(worker.run(nap, 5))
        await asyncio.sleep(1)
        worker.stop()
        assert "worker" in [thread.name for thread in threading.enumerate()]
        await napping
        assert the_loop().time() == 5
        wait_for(lambda: "worker" not in [thread.name for thread in threading.enumerate()], 5)

    run_virtually(main())


def test_time_stands_still_while_other_threads_work() -> None:
    app = SingletonJobs()
    took: list[float] = []

    @app.interval("1m")
    async def looks_up() -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()
        await asyncio.to_thread(threading.Event().wait, 0.02)
        took.append(loop.time() - start)

    with virtual_time(START, app) as world:
        world.run_for("1m")
    assert took == [0.0, 0.0]


async def test_it_works_inside_a_running_loop() -> None:
    app = SingletonJobs()
    outer = asyncio.get_running_loop()

    @app.interval("10m")
    async def poll() -> None:
        assert asyncio.get_running_loop() is not outer
        await asyncio.sleep(60)

    with virtual_time(START, app) as world:
        world.run_for("1h")
        assert len(world.runs) == 6


def test_a_scenario_runs_while_time_passes() -> None:
    app = SingletonJobs()

    class Tick(FixedRateJob, every="1m"):
        async def execute(self, run: Run) -> None: ...

    app.add(Tick())

    async def scenario() -> int:
        await asyncio.sleep(601)
        with pytest.raises(SingletonJobError, match=r"await asyncio\.sleep"):
            world.run_for("1m")
        return len(world.runs)

    async def waits_for_nothing() -> None:
        await asyncio.Event().wait()

    with virtual_time(START, app) as world:
        assert world.run(scenario()) == 10
    with virtual_time(START) as world, pytest.raises(RuntimeError, match="never comes"):
        world.run(waits_for_nothing())


def test_a_stray_callback_that_raises_fails_the_test() -> None:
    app = SingletonJobs()

    @app.interval("1m")
    async def starts() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)

    with virtual_time(START, app) as world, pytest.raises(ZeroDivisionError):
        world.run_for("1m")


def test_a_job_whose_task_is_killed_goes_on_as_in_life() -> None:
    app = SingletonJobs()
    started: list[datetime] = []

    @app.fixed_rate("10s")
    async def tick(run: Run) -> None:
        started.append(run.started_at)
        if len(started) == 2:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(1)

    with virtual_time(START, app) as world:
        world.run_for("1m")
    assert len(started) >= 5


# -- what is refused --------------------------------------------------------------------------------------------------


def misuse_late(world: virtual_time) -> None:
    world.run_for("1h")
    world.run_until(START)


MISUSES: list[tuple[Callable[[virtual_time], object], str]] = [
    (misuse_late, "has passed; it is 2026-03-01T01:00:00"),
    (lambda world: world.run_for("soon"), "run_for"),
    (lambda world: world.run_for(timedelta(days=9999)), "12 years at most"),
    (lambda world: world.runs_of("tick"), "'tick' is no job of an app in this world; its jobs are: none"),
    (lambda _world: virtual_time("2026-03-01T00:00"), "start: 2026-03-01T00:00:00 has no offset from UTC"),
    (lambda _world: virtual_time("noon"), "start: 'noon' is no instant"),
]


@pytest.mark.parametrize(("misuse", "text"), MISUSES)
def test_a_misuse_says_what_to_write_instead(misuse: Callable[[virtual_time], object], text: str) -> None:
    with virtual_time(START) as world, pytest.raises(ConfigError, match=text):
        misuse(world)


def test_options_that_do_not_go_together_are_refused_as_at_a_start() -> None:
    app = SingletonJobs(margin=9)
    with pytest.raises(ConfigError, match="margin"):
        virtual_time(START, app)
    with virtual_time(START) as world:
        pass
    with pytest.raises(SingletonJobError, match="has ended"):
        world.add(SingletonJobs())


def test_the_fixture_closes_its_worlds(singletonjob_time: Callable[..., virtual_time]) -> None:
    app = SingletonJobs()

    @app.interval("1h")
    def poll() -> None: ...

    world = singletonjob_time(START, app)
    world.run_for("3h")
    assert len(world.runs) == 4
