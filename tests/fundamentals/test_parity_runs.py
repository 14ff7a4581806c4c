"""Parity with the .NET original: what becomes of a run in flight, and long runs. Whole apps on virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from singletonjob import Run, SingletonJobs
from singletonjob.stores.memory import MemoryStore
from virtual_loop import Capture, Gate, Replica, memory, run_virtually, running, the_loop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from singletonjob.stores import LeaseStore


class Long:
    """One run of 100 s, and how it ended."""

    def __init__(self, store: LeaseStore, **options: Any) -> None:
        self.on = True
        self.begun: list[float] = []
        self.ended: list[tuple[str, float]] = []
        self.app = SingletonJobs("pricing", store=store, **options)
        self.app.interval("1h", name="long", enabled=lambda: self.on)(self.body)

    async def body(self) -> None:
        self.begun.append(the_loop().time())
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            self.ended.append(("cancelled", the_loop().time()))
            raise
        self.ended.append(("finished", the_loop().time()))


def started(**options: Any) -> tuple[Long, Replica, Gate]:
    gate = Gate(memory())
    job = Long(gate, **options)
    return job, Replica(job.app).start(), gate


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
    cause: Callable[[Long, Replica, Gate], Awaitable[None]], within: float, reason: str
) -> None:
    async def main() -> None:
        job, replica, gate = started()
        with Capture() as logs:
            await asyncio.sleep(5)
            happened = the_loop().time()
            await cause(job, replica, gate)
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
    cause: Callable[[Long, Replica, Gate], Awaitable[None]], within: float, reason: str
) -> None:
    async def main() -> None:
        job, replica, gate = started(cancel_on_lost_leadership=False)
        await asyncio.sleep(5)
        await cause(job, replica, gate)
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
    cause: Callable[[Long, Replica, Gate], Awaitable[None]], within: float, reason: str
) -> None:
    async def main() -> None:
        job, replica, gate = started(cancel_on_lost_leadership=False)
        await asyncio.sleep(5)
        if cause is not host_stop:
            await cause(job, replica, gate)
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
