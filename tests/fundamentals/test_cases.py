"""What went wrong elsewhere, and does not here; each test carries the number of its case."""

from __future__ import annotations

import asyncio
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import pytest

from singletonjob import Elected, Event, FixedRateJob, LeadershipLost, Run, SingletonJobs, StoreError, StoreUnavailable
from singletonjob.stores.protocol import Acquire, Failed, Renew, Reply
from virtual_loop import Capture, Gate, Replica, VirtualClock, memory, nap, run_virtually, running, the_loop

if TYPE_CHECKING:
    from collections.abc import Callable

    from singletonjob.stores import LeaseStore
    from singletonjob.stores.memory import MemoryStore
    from singletonjob.stores.protocol import Batch
    from singletonjob.stores.rules import Record


def app_on(store: LeaseStore, **options: Any) -> SingletonJobs:
    return SingletonJobs("pricing", store=store, **options)


def ticking(store: LeaseStore, starts: list[float], **options: Any) -> SingletonJobs:
    """An app with a job "tick" each 100 ms that notes its starts."""
    app = app_on(store, **options)

    @app.fixed_rate("100ms", name="tick")
    async def tick() -> None:
        starts.append(the_loop().time())

    return app


def lease_of(store: MemoryStore, job: str = "tick") -> Record:
    return store._records["pricing", job]


def steal(store: MemoryStore, job: str = "tick", seconds: float = 60.0) -> int:
    """Somebody else writes himself into the store; returns when that ends, on the store's clock."""
    record = lease_of(store, job)
    record.holder = "somebody-else"
    record.token += 1
    record.expires = int((VirtualClock(the_loop()).boot() + seconds) * 1e6)
    return record.expires


def last_good_send(gate: Gate) -> float:
    """When the newest batch left, on the loop's time, for a store that answers at once."""
    assert isinstance(gate, Watched)
    return gate.sent[-1]


class Watched(Gate):
    """A gate that notes when each batch came, and that can lose replies or fail the next calls."""

    def __init__(self, store: LeaseStore) -> None:
        super().__init__(store)
        self.sent: list[float] = []
        self.lose_replies = False
        self.fail_next = 0

    async def exchange(self, batch: Batch) -> Reply:
        if self.fail_next:
            self.fail_next -= 1
            raise StoreUnavailable("on purpose")
        if not self.hang:
            self.sent.append(the_loop().time())
        reply = await super().exchange(batch)
        if self.lose_replies and batch.requests:
            await asyncio.Event().wait()
        return reply


# -- who leads -----------------------------------------------------------------------------------------------------


class Broken(Gate):
    """After its first reading, every exchange comes to the given end."""

    def __init__(self, store: LeaseStore, outcome: BaseException | Callable[[Reply], Any]) -> None:
        super().__init__(store)
        self.outcome = outcome

    async def exchange(self, batch: Batch) -> Reply:
        if not batch.requests:
            return await super().exchange(batch)
        self.batches.append(batch)
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        clock = int(VirtualClock(the_loop()).boot() * 1e6)
        answer: Reply = self.outcome(Reply(clock=clock))
        return answer


@pytest.mark.parametrize(
    "outcome",
    [
        ConnectionError("reset"),
        TimeoutError(),
        StoreError("READONLY You can't write against a read only replica."),
        StoreError("OOM command not allowed when used memory > 'maxmemory'."),
        asyncio.CancelledError(),
        lambda reply: None,
        lambda reply: Reply(clock=reply.clock, verdicts=(Failed(error="WRONGTYPE"),)),
    ],
    ids=["ConnectionError", "TimeoutError", "READONLY", "OOM", "cancelled", "nothing", "WRONGTYPE"],
)
def test_c02_anything_but_an_explicit_grant_is_no_leadership(outcome: Any) -> None:
    async def main() -> None:
        store = memory()
        starts_a: list[float] = []
        starts_b: list[float] = []
        gate = Broken(store, outcome)
        async with running(ticking(store, starts_a)) as a:
            await asyncio.sleep(1)
            async with running(ticking(gate, starts_b)) as b:
                await asyncio.sleep(60)
                assert starts_b == []
                assert not b.app.is_leader("tick")
                assert b.app.stats()["tick"].terms == 0
                assert len(gate.batches) >= 5, "it keeps asking"
                assert a.app.is_leader("tick")
        assert len(starts_a) == pytest.approx(10 * the_loop().time(), abs=3)

    run_virtually(main())


def test_c03_a_renewal_never_prolongs_what_is_somebody_elses_and_the_loss_is_known_within_a_heartbeat() -> None:
    async def main() -> None:
        store = memory()
        starts: list[float] = []
        with Capture() as logs:
            async with running(ticking(store, starts)) as a:
                await asyncio.sleep(7)
                until = steal(store)
                await asyncio.sleep(3)
                assert logs.events("tick").count("lost") == 1
                assert not a.app.is_leader("tick")
                ran = len(starts)
                for _ in range(56):
                    await asyncio.sleep(1)
                    assert lease_of(store).holder == "somebody-else"
                    assert lease_of(store).expires == until
                assert len(starts) == ran
                await asyncio.sleep(2)
                assert a.app.is_leader("tick"), "when the other's time is over"

    run_virtually(main())


def test_c25_jobs_belong_to_the_app_that_they_were_added_to() -> None:
    async def main() -> None:
        store = memory()
        ran: list[str] = []
        x, y = app_on(store), app_on(store)

        @x.interval(1, name="of-x")
        async def of_x() -> None:
            ran.append("x")

        @y.interval(1, name="of-y")
        async def of_y() -> None:
            ran.append("y")

        async with running(x):
            await asyncio.sleep(10)
        assert set(ran) == {"x"}
        assert {job for _, job in store._records} == {"of-x"}
        assert y.health().jobs == {"of-y": "disabled"}

    run_virtually(main())


def test_c38_a_replica_that_lost_its_lease_stops_without_touching_its_successors() -> None:
    async def main() -> None:
        store = memory()
        gate = Watched(store)
        starts: list[float] = []
        with Capture() as logs:
            a = Replica(ticking(gate, starts)).start()
            await asyncio.sleep(5)
            b = Replica(ticking(store, starts)).start()
            gate.hang = True
            await asyncio.sleep(12)
            gate.hang = False
            assert b.app.is_leader("tick")
            node = b.service.node
            assert lease_of(store).holder == node
            token = lease_of(store).token
            await asyncio.gather(a.stop(), a.stop(), a.service.stop())
            await a.stop()
            assert lease_of(store).holder == node
            assert lease_of(store).token == token
            assert b.app.is_leader("tick")
        released = [record.node for record in logs.of("released")]
        assert released == []
        await b.stop()

    run_virtually(main())


def test_c38_stopping_twice_and_at_once_is_no_error_and_releases_once() -> None:
    async def main() -> None:
        store = memory()
        starts: list[float] = []
        with Capture() as logs:
            a = Replica(ticking(store, starts)).start()
            await asyncio.sleep(5)
            await asyncio.gather(*(a.service.stop() for _ in range(5)))
            await a.service.stop()
            a.service.request_stop()
        assert len(logs.of("released")) == 1
        assert lease_of(store).holder is None

    run_virtually(main())


@pytest.mark.parametrize("rivals", [0, 1])
def test_c39_a_grant_whose_answer_was_lost_is_taken_up_with_the_next_try_and_counted_from_its_sending(
    rivals: int,
) -> None:
    async def main() -> None:
        store = memory()
        gate = Watched(store)
        gate.lose_replies = True
        starts: list[float] = []
        other_starts: list[float] = []
        app = ticking(gate, starts)
        elected: list[float] = []
        deadlines: list[float] = []

        def listen(event: Event) -> None:
            if isinstance(event, Elected):
                elected.append(the_loop().time())
                deadlines.append(
                    a.service._heartbeat.leases["tick"].leadership.deadline
                    - VirtualClock(the_loop()).boot()
                    + elected[0]
                )

        app.subscribe(listen)
        a = Replica(app).start()
        others = [Replica(ticking(store, other_starts)).start() for _ in range(rivals)]
        await asyncio.sleep(0.5)
        assert lease_of(store).holder == a.service.node
        assert not a.app.is_leader("tick")
        gate.lose_replies = False
        # The call is given up after 2 s; a follower tries again after at most 1.2 back-offs of twice a heartbeat.
        await asyncio.sleep(2 + 1.2 * 6)
        assert a.app.is_leader("tick")
        assert starts
        assert not other_starts
        asks = [
            sent
            for sent, batch in zip(gate.sent, gate.batches, strict=True)
            if any(isinstance(request, Acquire) for request in batch.requests)
        ]
        assert len(asks) == 2, "no third try was needed"
        assert elected == [pytest.approx(asks[1])]
        assert deadlines == [pytest.approx(asks[1] + 9.0)]
        for each in (a, *others):
            await each.stop()

    run_virtually(main())


@pytest.mark.parametrize("failures", [1, 2])
def test_c40_a_failed_renewal_or_two_cost_no_leadership_and_no_tick(failures: int) -> None:
    async def main() -> None:
        gate = Watched(memory())
        starts: list[float] = []
        async with running(ticking(gate, starts)) as a:
            await asyncio.sleep(10.05)
            gate.fail_next = failures
            await asyncio.sleep(20)
            assert gate.fail_next == 0
            stats = a.app.stats()["tick"]
            assert stats.terms == 1
            assert stats.dropped_late == stats.dropped_overlap == 0
        gaps = [later - earlier for earlier, later in zip(starts, starts[1:], strict=False)]
        assert max(gaps) == pytest.approx(0.1, abs=0.001)

    run_virtually(main())


def test_c40_when_every_renewal_fails_the_leader_goes_on_trying_and_stops_at_its_deadline_and_not_before() -> None:
    async def main() -> None:
        gate = Watched(memory())
        starts: list[float] = []
        async with running(ticking(gate, starts)) as a:
            await asyncio.sleep(10.05)
            good = last_good_send(gate)
            before = len(gate.batches)
            gate.error = StoreUnavailable("refused")
            await asyncio.sleep(20)
            assert good + 8.85 <= starts[-1] <= good + 9.0
            assert not a.app.is_leader("tick")
            tries = [r for b in gate.batches[before:] for r in b.requests if isinstance(r, Renew)]
            readings = [b for b in gate.batches[before:] if not b.requests]
            assert len(tries) + len(readings) >= 10

    run_virtually(main())


def test_c43_is_leader_is_a_time_check_and_the_hook_is_called_once() -> None:
    async def main() -> None:
        gate = Watched(memory())
        told: list[tuple[str, float]] = []

        class Tick(FixedRateJob, every="100ms"):
            async def on_stepped_down(self, reason: str) -> None:
                told.append((reason, the_loop().time()))

            async def execute(self, run: Run) -> None: ...

        app = app_on(gate)
        app.add(Tick())
        async with running(app):
            await asyncio.sleep(10.05)
            good = last_good_send(gate)
            gate.hang = True
            await asyncio.sleep(good + 8.99 - the_loop().time())
            assert app.is_leader("tick")
            the_loop().advance(0.02)  # nothing ran since: neither a timer nor the heartbeat
            assert not app.is_leader("tick")
            await asyncio.sleep(30)
            assert [reason for reason, _ in told] == ["expired"]
            assert told[0][1] == pytest.approx(good + 9.01, abs=0.05)
            gate.hang = False

    run_virtually(main())


# -- runs that take their time -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_c44_a_run_longer_than_the_lease_keeps_it_and_nobody_else_starts(kind: str) -> None:
    async def main() -> None:
        store, loop = memory(), the_loop()
        running_now, most = 0, 0
        runs: list[str] = []

        def begin(who: str) -> None:
            nonlocal running_now, most
            running_now += 1
            most = max(most, running_now)
            runs.append(who)

        def end() -> None:
            nonlocal running_now
            running_now -= 1

        def make(who: str) -> SingletonJobs:
            app = app_on(store)

            async def on_loop() -> None:
                begin(who)
                await asyncio.sleep(35)
                end()

            def in_thread() -> None:
                begin(who)
                nap(35)
                end()

            app.interval(1, name="long")(on_loop if kind == "async" else in_thread)
            return app

        replicas = [Replica(make(who)).start() for who in "abc"]
        await asyncio.sleep(1)
        for _ in range(1190):
            await asyncio.sleep(0.1)
            expires = lease_of(store, "long").expires
            assert expires is not None
            assert 6.5 <= expires / 1e6 - VirtualClock(loop).boot() <= 10.0
        assert most == 1
        assert len(runs) == 4
        assert len(set(runs)) == 1
        await asyncio.gather(*(each.stop() for each in replicas))

    run_virtually(main())


def test_c45_fixed_rate_stays_on_its_grid_and_drops_while_an_interval_is_waited_from_the_end() -> None:
    async def main() -> None:
        app = app_on(memory())
        starts: dict[str, list[float]] = {"grid": [], "interval": []}

        @app.fixed_rate(2, name="grid")
        async def grid() -> None:
            starts["grid"].append(the_loop().time())
            await asyncio.sleep(3)

        @app.interval(2, name="interval")
        async def interval() -> None:
            starts["interval"].append(the_loop().time())
            await asyncio.sleep(3)

        async with running(app):
            await asyncio.sleep(62 - 0.01)
            stats = app.stats()["grid"]
            first = starts["grid"][0]
            assert [round(at - first, 3) for at in starts["grid"]] == [4.0 * n for n in range(15)]
            assert first == 2.0, "the first point of the grid after the election"
            assert stats.dropped_overlap in {14, 15}, "the last run may still be in flight"
            first = starts["interval"][0]
            assert [round(at - first, 3) for at in starts["interval"]][:12] == [5.0 * n for n in range(12)]

    run_virtually(main())


def test_c46_at_a_loss_an_async_run_is_cancelled_and_a_sync_one_that_looks_ends_and_one_that_does_not_is_reported() -> (
    None
):
    async def main() -> None:
        store, loop = memory(), the_loop()
        gate = Watched(store)
        app = app_on(gate)
        ended: dict[str, float] = {}

        @app.interval("1h", name="async")
        async def on_loop() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                ended["async"] = loop.time()

        @app.interval("1h", name="polite")
        def polite(run: Run) -> None:
            while not run.stopping:
                nap(0.05)
            ended["polite"] = loop.time()
            with pytest.raises(LeadershipLost):
                run.check()

        @app.interval("1h", name="deaf")
        def deaf() -> None:
            nap(40)

        with Capture() as logs:
            async with running(app):
                await asyncio.sleep(5)
                good = last_good_send(gate)
                gate.hang = True
                await asyncio.sleep(10)
                gate.hang = False
                deadline = good + 9.0
                assert ended["async"] == pytest.approx(deadline, abs=0.01)
                assert deadline <= ended["polite"] <= deadline + 0.1
                assert [r.job for r in logs.of("run-cancelled")] == ["async"]
                assert "deaf" in {r.job for r in logs.of("run-without-lease")}
                await asyncio.sleep(40)

    run_virtually(main())


class Stubborn(Gate):
    """A store whose calls, once it hangs, take 30 s to notice that they were cancelled."""

    async def exchange(self, batch: Batch) -> Reply:
        if self.hang:
            until = the_loop().time() + 30
            while the_loop().time() < until:
                try:
                    await asyncio.sleep(until - the_loop().time())
                except asyncio.CancelledError:
                    continue
        return await self.store.exchange(batch)


def test_c98_a_call_that_ignores_its_cancellation_delays_neither_the_deadline_nor_the_cancelled_run() -> None:
    async def main() -> None:
        gate = Stubborn(memory())
        app = app_on(gate)
        ended: list[float] = []

        @app.interval("1h", name="job")
        async def job() -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                ended.append(the_loop().time())

        async with running(app):
            await asyncio.sleep(4)
            gate.hang = True
            await asyncio.sleep(8.999)  # the last good call left at 4 s at the latest
            assert not ended or ended[0] <= 13
            await asyncio.sleep(0.01)
            assert not app.is_leader("job")
            assert ended
            gate.hang = False
            await asyncio.sleep(60)
            assert app.is_leader("job")

    run_virtually(main())


# -- what a body may be --------------------------------------------------------------------------------------------


def test_c104_whatever_turns_out_awaitable_is_awaited_once_per_tick() -> None:
    async def main() -> None:
        ran: dict[str, int] = {}

        async def work(name: str) -> None:
            await asyncio.sleep(0.01)
            ran[name] = ran.get(name, 0) + 1

        class Caller:
            async def __call__(self) -> None:
                await work("object")

            async def method(self) -> None:
                await work("method")

            @staticmethod
            async def static() -> None:
                await work("static")

        async def plain() -> None:
            await work("plain")

        def decorated(body: Callable[[], Any]) -> Callable[[], Any]:
            @wraps(body)
            def wrapper() -> Any:
                return body()

            return wrapper

        @decorated
        async def wrapped() -> None:
            await work("wrapped")

        def returns_a_coroutine() -> Any:
            return work("returned")

        def returns_a_future() -> Any:
            async def later() -> None:
                await work("awaitable")

            class Promise:
                def __await__(self) -> Any:
                    return later().__await__()

            return Promise()

        def sync() -> None:
            ran["sync"] = ran.get("sync", 0) + 1

        app = app_on(memory())
        bodies: dict[str, Any] = {
            "plain": plain,
            "partial": partial(work, "partial"),
            "object": Caller(),
            "method": Caller().method,
            "static": Caller.static,
            "wrapped": wrapped,
            "returned": returns_a_coroutine,
            "awaitable": returns_a_future,
            "sync": sync,
        }
        for name, body in bodies.items():
            app.fixed_rate(1, name=name)(body)
        async with running(app):
            await asyncio.sleep(5.5)
        assert ran == dict.fromkeys(bodies, 5)

    run_virtually(main())
