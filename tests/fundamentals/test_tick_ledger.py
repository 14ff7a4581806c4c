"""The tick ledger: each grid point of a leader is run, or dropped by the run before it, or late; to the tick."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from singletonjob import Run, RunFinished, RunStarted, SingletonJobs, TicksDropped
from virtual_loop import EPOCH, Replica, memory, run_virtually, running, the_loop

if TYPE_CHECKING:
    from singletonjob import Event
    from singletonjob._reporting.job_counters import JobStats
    from singletonjob.stores import LeaseStore

PERIOD = 0.1
BODY = 0.25


class Grid:
    """Bodies of 250 ms on a grid of 100 ms, and all that was seen of them."""

    def __init__(self) -> None:
        self.runs: list[tuple[int, float, float]] = []  # grid number, start and end in virtual time
        self.running = self.most = 0

    def replica(self, who: str, store: LeaseStore) -> SingletonJobs:
        app = SingletonJobs("pricing", store=store, node_id=who)

        @app.fixed_rate(PERIOD, name="grid")
        async def body(run: Run) -> None:
            assert run.tick is not None
            self.running += 1
            self.most = max(self.most, self.running)
            begun = the_loop().time()
            try:
                await asyncio.sleep(BODY)
            finally:
                self.running -= 1
                self.runs.append((run.tick, begun, the_loop().time()))

        return app


def accounted(stats: JobStats) -> int:
    return stats.runs + stats.dropped_overlap + stats.dropped_late


def test_over_a_minute_every_tick_is_run_or_counted_as_dropped_and_starts_are_on_the_grid() -> None:
    async def main() -> None:
        grid = Grid()
        async with running(grid.replica("a", memory())) as one:
            await asyncio.sleep(60.05)
            # At the end of a run all ticks up to now are decided; until then those that came meanwhile are not.
            while grid.running:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.001)
            stats = one.app.stats()["grid"]
        numbers = [number for number, _, _ in grid.runs]
        decided = EPOCH + round(grid.runs[-1][2] * 1e6)
        due = decided // 100_000 - numbers[0] + 1
        assert accounted(stats) == due
        assert stats.runs == len(grid.runs) == stats.ok
        assert grid.most == 1
        assert {after - before for before, after in pairwise(numbers)} == {3}
        for number, begun, _ in grid.runs:
            lateness = EPOCH + begun * 1e6 - number * 100_000
            assert 0 <= lateness < 1000
        assert stats.lateness.count == stats.duration.count == stats.runs
        assert stats.lateness.maximum < 0.001
        assert BODY <= stats.duration.quantile(0.5) < 0.3
        assert stats.stale is not None
        assert 0 <= stats.stale < 0.01

    run_virtually(main())


def test_across_a_hand_over_no_tick_runs_twice_and_what_nobody_counts_lies_between_two_leaders() -> None:
    async def main() -> None:
        store, grid = memory(), Grid()
        first = Replica(grid.replica("a", store)).start()
        await asyncio.sleep(0.5)
        second = Replica(grid.replica("b", store)).start()
        await asyncio.sleep(30)
        service = first.service
        await first.stop()
        old = service.runners["grid"].counts.frozen()
        stopped = len(grid.runs)
        await asyncio.sleep(30)
        while grid.running:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.001)
        new = second.app.stats()["grid"]
        await second.stop()
        numbers = [number for number, _, _ in grid.runs]
        assert len(set(numbers)) == len(numbers)
        assert numbers == sorted(numbers)
        assert grid.most == 1
        # The old leader's account reaches to the end of its last run, the new one's begins with its first.
        ends = [(EPOCH + round(end * 1e6)) // 100_000 for _, _, end in (grid.runs[stopped - 1], grid.runs[-1])]
        assert accounted(old) == ends[0] - numbers[0] + 1
        assert accounted(new) == ends[1] - numbers[stopped] + 1
        assert 0 <= numbers[stopped] - ends[0] - 1 <= 1

    run_virtually(main())


def test_events_carry_what_became_of_every_tick() -> None:
    async def main() -> None:
        grid = Grid()
        app = grid.replica("a", memory())
        events: list[Event] = []
        app.subscribe(events.append)
        async with running(app):
            await asyncio.sleep(10.05)
            while grid.running:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.001)
            stats = app.stats()["grid"]
            await asyncio.sleep(0.001)
            dropped = sum(event.count for event in events if isinstance(event, TicksDropped))
            assert dropped == stats.dropped_overlap + stats.dropped_late
            starts = [event for event in events if isinstance(event, RunStarted)]
            ends = [event for event in events if isinstance(event, RunFinished)]
            assert len(ends) == stats.runs
            assert max(event.lateness for event in starts) == pytest.approx(stats.lateness.maximum)
            assert sum(event.duration for event in ends) == pytest.approx(stats.duration.total)

    run_virtually(main())


def test_a_loop_that_comes_late_by_less_than_a_period_runs_the_tick_and_by_more_drops_all_but_the_newest() -> None:
    async def main() -> None:
        app = SingletonJobs("pricing", store=memory())
        numbers: list[int] = []

        @app.fixed_rate(PERIOD, name="grid")
        async def body(run: Run) -> None:
            assert run.tick is not None
            numbers.append(run.tick)

        async with running(app):
            await asyncio.sleep(1.01)
            before = len(numbers)
            the_loop().advance(0.17)  # one tick passes meanwhile, and is late by 0.08 s
            await asyncio.sleep(0.001)
            assert len(numbers) == before + 1
            assert app.stats()["grid"].dropped_late == 0
            the_loop().advance(0.5)
            await asyncio.sleep(0.001)
            assert len(numbers) == before + 2
            assert app.stats()["grid"].dropped_late == 4
            assert accounted(app.stats()["grid"]) == numbers[-1] - numbers[0] + 1

    run_virtually(main())


def test_staleness_is_counted_from_the_last_run_that_ended_well() -> None:
    async def main() -> None:
        app = SingletonJobs("pricing", store=memory())
        fails = False

        @app.interval(1, name="pull")
        async def pull() -> None:
            if fails:
                raise ValueError

        async with running(app):
            assert app.stats()["pull"].stale is None
            await asyncio.sleep(5.5)
            fresh = app.stats()["pull"].stale
            assert fresh is not None
            assert fresh < 1.01
            fails = True
            await asyncio.sleep(20)
            stale = app.stats()["pull"].stale
            assert stale is not None
            assert 20 <= stale <= 21.01
            assert app.stats()["pull"].failed == pytest.approx(20, abs=1)

    run_virtually(main())
