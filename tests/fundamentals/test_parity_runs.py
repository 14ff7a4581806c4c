"""Parity with the .NET original: switches, cancellation and long runs. Whole apps on virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from singletonjob import IntervalJob, Run, SingletonJobs
from singletonjob.stores.memory import MemoryStore
from virtual_loop import Capture, Gate, Replica, VirtualClock, run_virtually, running, the_loop

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from singletonjob.stores import LeaseStore


def memory() -> MemoryStore:
    return MemoryStore(VirtualClock(the_loop()))


def holder(store: MemoryStore, job: str) -> str | None:
    """Whose lease it is, as the store has it; None: the key is free."""
    record = store._records["pricing", job]
    live = record.expires is not None and record.expires > store._clock.boot() * 1e6
    return record.holder if live else None


class Switched:
    """A job each 100 ms behind a live switch that a test moves, and breaks."""

    def __init__(self, store: LeaseStore, **options: object) -> None:
        self.on: bool | Exception = True
        self.asked: list[float] = []
        self.starts: list[float] = []
        self.app = SingletonJobs("pricing", store=store, **options)  # type: ignore[arg-type]
        self.app.interval("100ms", name="poll", enabled=self.switch)(self.poll)

    def switch(self) -> bool:
        self.asked.append(the_loop().time())
        if isinstance(self.on, Exception):
            raise self.on
        return self.on

    async def poll(self) -> None:
        self.starts.append(the_loop().time())


# -- enable and disable --------------------------------------------------------------------------------------------


def test_p42_a_job_that_is_off_says_so_once_and_never_talks_to_the_store() -> None:
    async def main() -> None:
        store = memory()
        gate = Gate(store)
        app = SingletonJobs("pricing", store=gate)

        @app.interval("100ms", name="poll", enabled=False)
        async def poll() -> None:
            raise AssertionError

        with Capture() as logs:
            async with running(app):
                await asyncio.sleep(60)
                assert app.health().jobs == {"poll": "disabled"}
                assert not app.is_leader("poll")
        assert [(r.event, r.levelname) for r in logs.records] == [("disabled", "INFO")]
        assert not gate.batches
        assert holder(store, "poll") is None

    run_virtually(main())


def test_p43_a_live_switch_is_asked_once_per_heartbeat() -> None:
    async def main() -> None:
        job = Switched(memory())
        async with running(job.app):
            await asyncio.sleep(30.5)
        gaps = [later - earlier for earlier, later in zip(job.asked, job.asked[1:], strict=False)]
        assert len(job.asked) == 11
        assert gaps == [pytest.approx(3)] * 10

    run_virtually(main())


def test_p43_off_releases_the_key_and_stops_the_runs_and_on_again_rejoins_within_a_heartbeat() -> None:
    async def main() -> None:
        store = memory()
        job = Switched(store)
        with Capture() as logs:
            async with running(job.app):
                await asyncio.sleep(5)
                assert holder(store, "poll")
                job.on, switched = False, the_loop().time()
                await asyncio.sleep(3.1)
                assert holder(store, "poll") is None
                count = len(job.starts)
                assert job.starts[-1] <= switched + 3
                await asyncio.sleep(30)
                assert len(job.starts) == count
                job.on, switched = True, the_loop().time()
                await asyncio.sleep(3.2)
                assert job.app.is_leader("poll")
                assert job.starts[count] - switched <= 3.1
        assert [(r.event, r.levelname) for r in logs.records if r.event in {"switched-off", "enabled"}] == [
            ("switched-off", "INFO"),
            ("enabled", "INFO"),
        ]

    run_virtually(main())


def test_p43_a_switch_that_is_off_at_the_start_keeps_the_job_from_competing() -> None:
    async def main() -> None:
        store = memory()
        job = Switched(store)
        job.on = False
        async with running(job.app):
            await asyncio.sleep(10)
            assert not job.starts
            assert holder(store, "poll") is None
            job.on = True
            await asyncio.sleep(3.1)
            assert job.starts

    run_virtually(main())


def test_p44_a_disabled_leader_yields_to_an_enabled_peer_and_stays_idle() -> None:
    async def main() -> None:
        store = memory()
        first, second = Switched(store), Switched(store)
        async with running(first.app):
            await asyncio.sleep(1)
            async with running(second.app):
                await asyncio.sleep(4)
                assert not second.starts
                first.on = False
                await asyncio.sleep(3.1)
                assert second.app.is_leader("poll")
                assert second.starts[0] >= first.starts[-1]
                assert second.starts[0] - first.starts[-1] < 0.2
                count = len(first.starts)
                await asyncio.sleep(60)
                assert len(first.starts) == count

    run_virtually(main())


@pytest.mark.parametrize("last", [True, False])
def test_p45_a_switch_that_raises_is_a_warning_and_its_last_answer_is_kept(last: bool) -> None:
    async def main() -> None:
        job = Switched(memory())
        job.on = last
        with Capture() as logs:
            async with running(job.app):
                await asyncio.sleep(1)
                job.on = OSError("no flag service")
                await asyncio.sleep(30)
                assert job.app.is_leader("poll") is last
        failed = logs.of("switch-failed")
        assert failed
        assert all(r.levelname == "WARNING" and "no flag service" in r.getMessage() for r in failed)
        assert bool(job.starts) is last
        assert not logs.of("lost")

    run_virtually(main())


def test_p46_a_static_off_wins_and_the_live_hook_is_never_called() -> None:
    async def main() -> None:
        store = memory()
        app = SingletonJobs("pricing", store=store)
        asked: list[float] = []

        class Poll(IntervalJob, every="100ms", enabled=False):
            async def is_enabled(self) -> bool:
                asked.append(the_loop().time())
                return True

            async def execute(self, run: Run) -> None:
                raise AssertionError

        app.add(Poll())
        async with running(app):
            await asyncio.sleep(20)
            assert not asked
            assert app.health().jobs == {"poll": "disabled"}
            assert holder(store, "poll") is None

    run_virtually(main())


# -- a run in flight ----------------------------------------------------------------------------------------------


class Long:
    """One run of 100 s, and how it ended."""

    def __init__(self, store: LeaseStore, **options: object) -> None:
        self.on = True
        self.begun: list[float] = []
        self.ended: list[tuple[str, float]] = []
        self.app = SingletonJobs("pricing", store=store, **options)  # type: ignore[arg-type]
        self.app.interval("1h", name="long", enabled=lambda: self.on)(self.body)

    async def body(self) -> None:
        self.begun.append(the_loop().time())
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            self.ended.append(("cancelled", the_loop().time()))
            raise
        self.ended.append(("finished", the_loop().time()))


async def host_stop(job: Long, replica: Replica, gate: Gate) -> None:
    await replica.stop()


async def preemption(job: Long, replica: Replica, gate: Gate) -> None:
    assert isinstance(gate.store, MemoryStore)
    gate.store._records["pricing", "long"].holder = "somebody-else"


async def lapse(job: Long, replica: Replica, gate: Gate) -> None:
    gate.hang = True


async def disable(job: Long, replica: Replica, gate: Gate) -> None:
    job.on = False


CAUSES = pytest.mark.parametrize(
    ("cause", "within", "reason"),
    [(host_stop, 20.0, "shutdown"), (preemption, 3.0, "lost"), (lapse, 9.0, "expired"), (disable, 3.0, "disabled")],
)


@CAUSES
def test_p47_p48_the_run_in_flight_is_cancelled_by_default_and_that_is_no_error(
    cause: Callable[[Long, Replica, Gate], object], within: float, reason: str
) -> None:
    async def main() -> None:
        gate = Gate(memory())
        job = Long(gate)
        replica = Replica(job.app).start()
        with Capture() as logs:
            await asyncio.sleep(5)
            happened = the_loop().time()
            await cause(job, replica, gate)  # type: ignore[misc]
            await asyncio.sleep(21)
            ((how, at),) = job.ended
            assert how == "cancelled"
            assert at - happened <= within + 0.01
            (line,) = logs.of("run-cancelled")
            assert (line.levelname, line.reason) == ("INFO", reason)
            assert not logs.of("run-failed")
        if cause is not host_stop:
            gate.hang = False
            await replica.stop()

    run_virtually(main())


@CAUSES
def test_p47_p49_without_cancel_on_lost_leadership_it_goes_on_and_only_the_stop_of_the_host_ends_it(
    cause: Callable[[Long, Replica, Gate], object], within: float, reason: str
) -> None:
    async def main() -> None:
        gate = Gate(memory())
        job = Long(gate, cancel_on_lost_leadership=False)
        replica = Replica(job.app).start()
        await asyncio.sleep(5)
        await cause(job, replica, gate)  # type: ignore[misc]
        if cause is host_stop:
            ((how, at),) = job.ended
            assert how == "cancelled"
            assert at == pytest.approx(25)
            return
        await asyncio.sleep(21)
        assert not job.ended
        await asyncio.sleep(80)
        ((how, at),) = job.ended
        assert how == "finished"
        assert at == pytest.approx(100)
        assert len(job.begun) == 1
        gate.hang = False
        await replica.stop()

    run_virtually(main())


@CAUSES
def test_p49_a_run_that_outlived_its_term_is_still_ended_by_the_stop_of_the_host(
    cause: Callable[[Long, Replica, Gate], object], within: float, reason: str
) -> None:
    async def main() -> None:
        gate = Gate(memory())
        job = Long(gate, cancel_on_lost_leadership=False)
        replica = Replica(job.app).start()
        await asyncio.sleep(5)
        if cause is not host_stop:
            await cause(job, replica, gate)  # type: ignore[misc]
        await asyncio.sleep(20)
        stopped = the_loop().time()
        gate.hang = False
        await replica.stop()
        ((how, at),) = job.ended
        assert how == "cancelled"
        assert at - stopped <= 20.01

    run_virtually(main())


def test_p49_the_end_of_a_run_that_outlived_its_term_is_known_to_this_replica_s_next_term() -> None:
    async def main() -> None:
        store = memory()
        app = SingletonJobs("pricing", store=store, cancel_on_lost_leadership=False)
        slots: list[datetime] = []

        @app.cron("0 * * * * *", name="each-minute")
        async def each_minute(run: Run) -> None:
            slots.append(run.scheduled_at)
            await asyncio.sleep(25)

        with Capture() as logs:
            async with running(app):
                await asyncio.sleep(25)  # the first run began at 20 s
                assert len(slots) == 1
                store._records["pricing", "each-minute"].holder = "somebody-else"
                await asyncio.sleep(70)
                assert app.stats()["each-minute"].terms == 2
        assert [(slot - slots[0]).total_seconds() for slot in slots] == [0, 60]
        assert not logs.of("misfired")  # neither "interrupted" nor missed

    run_virtually(main())


# -- long runs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "warned"), [(7.9, False), (8.1, True)])
def test_p50_a_run_longer_than_eighty_percent_of_the_lease_is_warned_of_with_both_figures(
    seconds: float, warned: bool
) -> None:
    async def main() -> None:
        app = SingletonJobs("pricing", store=memory())

        @app.interval("1h", name="long")
        async def long() -> None:
            await asyncio.sleep(seconds)

        with Capture() as logs:
            async with running(app):
                await asyncio.sleep(8.05)
                while_it_ran = logs.of("run-long")
                await asyncio.sleep(60)
        assert bool(while_it_ran) is warned
        if warned:
            (line,) = logs.of("run-long")
            assert (line.levelname, line.job) == ("WARNING", "long")
            assert "8.0 s" in line.getMessage()
            assert "10 s" in line.getMessage()
        else:
            assert not logs.of("run-long")

    run_virtually(main())


def test_p51_a_job_that_holds_a_connection_can_be_left_out_of_that_warning() -> None:
    async def main() -> None:
        app = SingletonJobs("pricing", store=memory())

        async def long() -> None:
            await asyncio.sleep(300)

        app.interval("1h", name="listener", warn_on_long_run=False, shutdown_grace=0)(long)
        app.interval("1h", name="long", shutdown_grace=0)(long)
        with Capture() as logs:
            async with running(app):
                await asyncio.sleep(100)
        assert {r.job for r in logs.of("run-long")} == {"long"}

    run_virtually(main())


def test_p52_a_run_of_hours_keeps_its_lease() -> None:
    async def main() -> None:
        store = memory()
        runs: list[tuple[str, float]] = []

        def make(who: str) -> SingletonJobs:
            app = SingletonJobs("pricing", store=store, node_id=who)

            @app.interval("1h", name="stream")
            async def stream() -> None:
                await asyncio.sleep(2 * 3600)
                runs.append((who, the_loop().time()))

            return app

        async with running(make("a")) as a, running(make("b")) as b:
            await asyncio.sleep(2 * 3600 + 1)
            ((who, ended),) = runs
            assert who == "a"
            assert ended == pytest.approx(7200, abs=0.1)
            assert a.app.stats()["stream"].terms == 1
            assert b.app.stats()["stream"].terms == 0

    run_virtually(main())
