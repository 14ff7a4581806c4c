"""What this library is for, as a story: exactly one replica runs a job, and another takes over.

The replicas here are whole apps, unmodified, on a loop with virtual time and one store in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from singletonjob import ConfigError, IntervalJob, LeadershipLost, Run, SingletonJobs, Term
from virtual_loop import Capture, Gate, Replica, VirtualClock, memory, run_virtually, running, the_loop

if TYPE_CHECKING:
    from collections.abc import Callable

    from singletonjob.stores import LeaseStore


class Ledger:
    """What ran: (replica, scheduled second, start, end) on the loop's time."""

    def __init__(self) -> None:
        self.runs: list[tuple[str, float, float]] = []
        self.ticks: list[int | None] = []
        self.running = 0
        self.most_at_once = 0

    def job(self, who: str, seconds: float = 0.0) -> Callable[[Run], object]:
        import asyncio

        async def body(run: Run) -> None:
            loop = the_loop()
            begun = loop.time()
            self.ticks.append(run.tick)
            self.running += 1
            self.most_at_once = max(self.most_at_once, self.running)
            try:
                if seconds:
                    await asyncio.sleep(seconds)
            finally:
                self.running -= 1
                self.runs.append((who, begun, loop.time()))

        return body

    def by(self, who: str) -> list[tuple[float, float]]:
        return [(start, end) for name, start, end in self.runs if name == who]


def replica(
    who: str, store: LeaseStore, ledger: Ledger, *, every: str = "100ms", seconds: float = 0.0, **options: Any
) -> SingletonJobs:
    app = SingletonJobs("pricing", store=store, node_id=who, **options)
    app.fixed_rate(every, name="tick")(ledger.job(who, seconds))
    return app


def test_of_three_replicas_exactly_one_runs_the_job() -> None:
    async def main() -> None:
        store, ledger = memory(), Ledger()
        replicas = [Replica(replica(who, store, ledger)).start() for who in "abc"]
        await sleep(60)
        leaders = [r.app.is_leader("tick") for r in replicas]
        assert leaders.count(True) == 1
        assert len({who for who, _, _ in ledger.runs}) == 1
        assert len(ledger.runs) == pytest.approx(600, abs=2)
        for each in replicas:
            await each.stop()

    run_virtually(main())


def test_after_a_graceful_stop_the_next_leader_comes_within_milliseconds() -> None:
    async def main() -> None:
        store, ledger = memory(), Ledger()
        a, b = (Replica(replica(who, store, ledger)).start() for who in "ab")
        await sleep(5.05)
        stopped = the_loop().time()
        await a.stop()
        await sleep(0.01)
        assert b.app.is_leader("tick")
        await sleep(1)
        assert ledger.by("b")[0][0] - stopped < 0.101
        assert ledger.most_at_once == 1
        await b.stop()

    run_virtually(main())


def test_after_a_crash_the_next_leader_comes_when_the_lease_ends_and_not_a_heartbeat_later() -> None:
    async def main() -> None:
        store, ledger = memory(), Ledger()
        a, b = (Replica(replica(who, store, ledger)).start() for who in "ab")
        await sleep(20.05)
        a.crash()
        crashed = the_loop().time()
        await sleep(15)
        gap = ledger.by("b")[0][0] - crashed
        assert 6.9 <= gap <= 10 * 1.01 + 0.2
        await b.stop()

    run_virtually(main())


def test_fixed_rate_keeps_its_grid_across_a_hand_over_and_no_tick_runs_twice() -> None:
    async def main() -> None:
        store, ledger = memory(), Ledger()
        a = Replica(replica("a", store, ledger)).start()
        # The successor's wall clock is 250 ms behind: it would see the last ticks once more.
        b = Replica(replica("b", store, ledger), VirtualClock(the_loop(), offset=-0.25)).start()
        await sleep(3.02)
        await a.stop()
        await sleep(3)
        await b.stop()
        assert ledger.by("a")
        assert ledger.by("b")
        assert len(ledger.ticks) == len(set(ledger.ticks))
        assert ledger.ticks == sorted(ledger.ticks, key=lambda tick: tick or 0)

    run_virtually(main())


def test_an_hourly_interval_job_runs_once_through_ten_hand_overs_within_a_minute() -> None:
    async def main() -> None:
        store = memory()
        runs: list[str] = []

        def start(number: int) -> Replica:
            app = SingletonJobs("pricing", store=store)

            @app.interval("1h", name="hourly")
            async def hourly() -> None:
                runs.append(f"replica {number}")

            return Replica(app).start()

        current = start(0)
        for number in range(1, 11):
            await sleep(5)
            following = start(number)
            await current.stop()
            current = following
        await sleep(5)
        assert runs == ["replica 0"]
        assert current.app.is_leader("hourly")
        await sleep(3600)
        assert runs == ["replica 0", "replica 10"]
        await current.stop()

    run_virtually(main())


def test_a_cron_slot_runs_once_across_replicas_and_hand_overs() -> None:
    async def main() -> None:
        store = memory()
        slots: list[int] = []

        def start() -> Replica:
            app = SingletonJobs("pricing", store=store)

            @app.cron("* * * * * *", name="each-second")
            async def each_second(run: Run) -> None:
                slots.append(round(run.scheduled_at.timestamp()))

            return Replica(app).start()

        current = start()
        for _ in range(8):
            await sleep(2.4)
            following = start()
            await current.stop()
            current = following
        await sleep(2)
        await current.stop()
        assert len(slots) == len(set(slots))
        assert slots == list(range(slots[0], slots[-1] + 1))

    run_virtually(main())


def test_a_tick_that_arrives_while_a_run_is_in_flight_is_dropped_and_counted() -> None:
    async def main() -> None:
        store, ledger = memory(), Ledger()
        async with running(replica("a", store, ledger, seconds=0.25)) as one:
            await sleep(6.05)
            stats = one.app.stats()["tick"]
        assert ledger.most_at_once == 1
        assert all(round(start * 10, 3) == int(start * 10 + 0.5) for start, _ in ledger.by("a"))
        assert stats.dropped_overlap == pytest.approx(2 * stats.runs, abs=2)
        assert stats.dropped_late == 0

    run_virtually(main())


def test_when_the_lease_is_lost_the_run_in_flight_is_cancelled() -> None:
    async def main() -> None:
        store = memory()
        gate, ledger = Gate(store), Ledger()
        with Capture() as logs:
            one = Replica(replica("a", gate, ledger, every="1h", seconds=0)).start()
            one_long = SingletonJobs("pricing", store=gate)
            ended: list[float] = []

            @one_long.interval("1h", name="long")
            async def long() -> None:
                import asyncio

                try:
                    await asyncio.sleep(1000)
                finally:
                    ended.append(the_loop().time())

            two = Replica(one_long).start()
            await sleep(4)
            cut = the_loop().time()
            gate.hang = True
            await sleep(20)
        assert ended
        assert ended[0] - cut <= 9.0
        assert not two.app.is_leader("long")
        assert "lost" in logs.events("long")
        assert "run-cancelled" in logs.events("long")
        for each in (one, two):
            await each.stop()

    run_virtually(main())


def test_without_cancel_on_lost_leadership_the_run_in_flight_goes_on() -> None:
    async def main() -> None:
        import asyncio

        gate = Gate(memory())
        app = SingletonJobs("pricing", store=gate, cancel_on_lost_leadership=False)
        seen: list[object] = []

        @app.interval("1h", name="long")
        async def long(run: Run) -> None:
            await asyncio.sleep(30)
            seen.append(run.stopping)
            with pytest.raises(LeadershipLost):
                run.check()

        async with running(app):
            await sleep(2)
            gate.hang = True
            await sleep(40)
        assert seen == [True]

    run_virtually(main())


def test_an_outage_shorter_than_the_lease_allows_costs_no_leadership() -> None:
    async def main() -> None:
        from singletonjob import StoreUnavailable

        gate, ledger = Gate(memory()), Ledger()
        with Capture() as logs:
            async with running(replica("a", gate, ledger)) as one:
                await sleep(10.1)
                gate.error = StoreUnavailable("refused")
                await sleep(3.9)
                gate.error = None
                await sleep(10)
                assert one.app.stats()["tick"].terms == 1
                assert one.app.health().status == "ok"
        assert "lost" not in logs.events()
        assert logs.events().count("heartbeat-error") == 1
        assert len(ledger.runs) == pytest.approx(240, abs=2)

    run_virtually(main())


def test_hooks_run_inside_the_term_and_their_failure_gives_it_up() -> None:
    async def main() -> None:
        store = memory()
        told: list[str] = []

        class Poll(IntervalJob, every="1s"):
            def __init__(self, *, broken: bool) -> None:
                self.broken = broken

            async def on_elected(self, term: Term) -> None:
                told.append(f"elected {term.remaining > 8}")
                if self.broken:
                    raise OSError("no database")

            async def on_stepped_down(self, reason: str) -> None:
                told.append(f"stepped down {reason}")

            async def execute(self, run: Run) -> None:
                told.append("run")

        broken = SingletonJobs("pricing", store=store)
        broken.add(Poll(broken=True))
        good = SingletonJobs("pricing", store=store)
        good.add(Poll(broken=False))
        with Capture() as logs:
            first = Replica(broken).start()
            await sleep(0.01)
            second = Replica(good).start()
            await sleep(1.5)
            assert second.app.is_leader("poll")
            await second.stop()
            await first.stop()
        assert told == ["elected True", "elected True", "run", "run", "stepped down shutdown"]
        assert logs.events().count("hook-failed") == 1

    run_virtually(main())


def test_a_live_switch_gives_the_lease_to_an_enabled_peer_and_takes_part_again() -> None:
    async def main() -> None:
        store, ledger = memory(), Ledger()
        switch = [True]
        a = Replica(replica("a", store, ledger, enabled=lambda: switch[0])).start()
        await sleep(1)
        b = Replica(replica("b", store, ledger)).start()
        await sleep(1)
        assert a.app.is_leader("tick")
        switch[0] = False
        await sleep(3.2)
        assert b.app.is_leader("tick")
        assert a.app.health().jobs == {"tick": "disabled"}
        await b.stop()
        await sleep(5)
        assert not a.app.is_leader("tick")
        switch[0] = True
        await sleep(3.2)
        assert a.app.is_leader("tick")
        await a.stop()

    run_virtually(main())


def test_an_app_that_runs_takes_no_more_jobs() -> None:
    async def main() -> None:
        async with running(replica("a", memory(), Ledger())) as one:
            with pytest.raises(ConfigError, match="started"):
                one.app.interval(1, name="late")(lambda: None)

    run_virtually(main())


async def sleep(seconds: float) -> None:
    import asyncio

    await asyncio.sleep(seconds)
