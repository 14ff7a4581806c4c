"""Parity with the .NET original: jobs that are off, and live switches. Whole apps on virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from singletonjob import IntervalJob, Run, SingletonJobs
from virtual_loop import Capture, Gate, holder, memory, run_virtually, running, the_loop

if TYPE_CHECKING:
    from singletonjob.stores import LeaseStore


class Switched:
    """A job each 100 ms behind a live switch that a test moves, and breaks."""

    def __init__(self, store: LeaseStore, **options: Any) -> None:
        self.on: bool | Exception = True
        self.asked: list[float] = []
        self.starts: list[float] = []
        self.app = SingletonJobs("pricing", store=store, **options)
        self.app.interval("100ms", name="poll", enabled=self.switch)(self.poll)

    def switch(self) -> bool:
        self.asked.append(the_loop().time())
        if isinstance(self.on, Exception):
            raise self.on
        return self.on

    async def poll(self) -> None:
        self.starts.append(the_loop().time())


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
