"""The last moment before a body is called, and what is left of a term after its end: checked from inside the body."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from singletonjob import LeadershipLost, Run, SingletonJobs
from virtual_loop import Capture, VirtualLoop, memory, run_virtually, running, the_loop

if TYPE_CHECKING:
    import logging

LEASE = 10.0


class SlowAtThird(Capture):
    """Takes longer than a lease to write that the third run is about to start."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self.loop = loop
        self.about_to_start = 0

    def emit(self, record: logging.LogRecord) -> None:
        if record.__dict__["event"] == "run-started":
            self.about_to_start += 1
            if self.about_to_start == 3:
                self.loop.advance(LEASE)


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_a_run_does_not_start_if_the_term_ended_between_the_decision_and_the_call(kind: str) -> None:
    # What comes in between is a log handler that takes its time; to the run, a stopped process looks the same.
    async def main() -> None:
        loop, store = the_loop(), memory()
        app = SingletonJobs("pricing", store=store)
        remaining: list[float] = []

        def tick(run: Run) -> None:
            remaining.append(run.remaining)

        async def tick_on_loop(run: Run) -> None:
            remaining.append(run.remaining)

        app.interval("1s", name="tick")(tick_on_loop if kind == "async" else tick)

        with SlowAtThird(loop) as log:
            async with running(app):
                await asyncio.sleep(30.123)
                assert log.about_to_start > 5  # it led again
                assert len(remaining) == log.about_to_start - 1
        assert min(remaining) > 0

    run_virtually(main())


def test_a_run_that_was_kept_from_an_earlier_term_says_that_it_is_over_also_when_its_replica_leads_again() -> None:
    async def main() -> None:
        store = memory()
        app = SingletonJobs("pricing", store=store)
        kept: list[Run] = []

        @app.interval("1s", name="tick")
        async def tick(run: Run) -> None:
            kept.append(run)
            run.check()

        async with running(app):
            await asyncio.sleep(3)
            record = store._records["pricing", "tick"]
            record.holder = "somebody"
            await asyncio.sleep(30)
            first, last = kept[0], kept[-1]
            assert (first.token, first.remaining, first.stopping) == (min(run.token for run in kept), 0.0, True)
            assert first.token < last.token
            with pytest.raises(LeadershipLost):
                first.check()
            assert last.remaining > 0

    run_virtually(main())


def test_a_cron_run_starts_only_when_the_store_has_its_slot_for_its_term() -> None:
    async def main() -> None:
        store = memory()
        app = SingletonJobs("pricing", store=store)
        seen: list[tuple[int | None, int | None]] = []
        expected: list[tuple[int, int]] = []

        @app.cron("* * * * * *", name="each-second")
        async def each_second(run: Run) -> None:
            record = store._records["pricing", "each-second"]
            seen.append((record.slot, record.slot_token))
            expected.append((round(run.scheduled_at.timestamp()) * 1_000_000, run.token))

        async with running(app):
            await asyncio.sleep(5)
        assert len(seen) >= 4
        assert seen == expected

    run_virtually(main())
