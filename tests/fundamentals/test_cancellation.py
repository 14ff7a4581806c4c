"""What a body may raise, and who may cancel what: a run that ends in any way ends that run, never the schedule."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

import pytest

from singletonjob import Event, IntervalJob, Run, RunFinished, SingletonJobs
from singletonjob.stores.memory import MemoryStore
from virtual_loop import Capture, Gate, Replica, VirtualClock, memory, nap, run_virtually, running, the_loop
from waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from singletonjob.stores.rules import Record

KINDS = ("async", "sync")
Kind = Literal["async", "sync"]

SCALED: dict[str, Any] = {"lock_expiry": 1.0, "heartbeat_interval": 0.3}
"""For tests in real time."""


def own_app(**options: Any) -> SingletonJobs:
    return SingletonJobs("pricing", store=memory(), **options)


# -- what a body raises --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "error", [ValueError, TimeoutError, asyncio.CancelledError, SystemExit, KeyboardInterrupt, StopIteration]
)
def test_c26_whatever_a_body_raises_is_a_failed_run_with_its_traceback_and_the_term_and_the_schedule_go_on(
    error: type[BaseException], kind: Kind
) -> None:
    async def main() -> None:
        app = own_app()
        runs: list[int] = []

        def body(run: Run) -> None:
            runs.append(run.token)
            if len(runs) in {2, 3, 5}:
                raise error("on purpose")

        async def async_body(run: Run) -> None:
            body(run)

        app.interval(1, name="job")(async_body if kind == "async" else body)
        with Capture() as logs:
            async with running(app):
                await asyncio.sleep(19.5)
                assert app.is_leader("job")
                stats = app.stats()["job"]
        assert len(runs) == 20
        assert len(set(runs)) == 1, "all in one term"
        assert (stats.ok, stats.failed, stats.cancelled, stats.terms) == (17, 3, 0, 1)
        first, rest = logs.of("run-failed")
        assert [(r.levelname, r.job) for r in (first, rest)] == [("ERROR", "job")] * 2
        raised = first.exc_info[1]
        # A coroutine cannot let StopIteration out (PEP 479); the body's own is the cause.
        assert isinstance(raised.__cause__ if error is StopIteration else raised, error)
        assert "on purpose" in logs.text(first)
        assert __file__ in logs.text(first), "the traceback shows the user's line"
        assert "(2 like this in " in rest.getMessage()

    if error is KeyboardInterrupt:
        with ThreadPoolExecutor() as pool:  # in the main thread it would be Ctrl-C
            pool.submit(run_virtually, main()).result()
    else:
        run_virtually(main())


def test_a_body_that_awaits_something_cancelled_has_failed_and_was_not_cancelled() -> None:
    async def main() -> None:
        app = own_app()

        @app.interval(1, name="job")
        async def job() -> None:
            child = asyncio.ensure_future(asyncio.sleep(10))
            child.cancel()
            await child

        async with running(app):
            await asyncio.sleep(2.5)
            stats = app.stats()["job"]
            assert (stats.failed, stats.cancelled, stats.terms) == (3, 0, 1)

    run_virtually(main())


def test_a_bodys_own_timeout_is_not_taken_for_the_runs_timeout() -> None:
    async def main() -> None:
        app = own_app(timeout=30)

        @app.interval(1, name="job")
        async def job() -> None:
            async with asyncio.timeout(0.1):
                await asyncio.sleep(10)

        async with running(app):
            await asyncio.sleep(2)
            stats = app.stats()["job"]
            assert (stats.failed, stats.timeout) == (2, 0)

    run_virtually(main())


def test_a_body_may_catch_its_own_timeout_and_is_still_cut_at_the_runs() -> None:
    async def main() -> None:
        app = own_app(timeout=3)
        caught: list[float] = []

        @app.interval(60, name="job")
        async def job() -> None:
            while True:
                try:
                    async with asyncio.timeout(1):
                        await asyncio.sleep(10)
                except TimeoutError:
                    caught.append(the_loop().time())

        async with running(app):
            await asyncio.sleep(10)
            assert [round(at) for at in caught] == [1, 2]
            assert app.stats()["job"].timeout == 1

    run_virtually(main())


def test_children_of_a_task_group_are_cancelled_with_the_run() -> None:
    async def main() -> None:
        gate = Gate(memory())
        app = SingletonJobs("pricing", store=gate)
        ended: list[str] = []

        async def child(name: str) -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                ended.append(name)

        @app.interval("1h", name="job")
        async def job() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(child("a"))
                group.create_task(child("b"))

        async with running(app):
            await asyncio.sleep(1)
            gate.hang = True
            await asyncio.sleep(10)
            assert sorted(ended) == ["a", "b"]
            stats = app.stats()["job"]
            assert (stats.cancelled, stats.failed) == (1, 0)

    run_virtually(main())


# -- who cancelled? ------------------------------------------------------------------------------------------------


def test_a_body_that_swallows_its_cancellation_and_returns_has_ended_well_and_later_terms_work() -> None:
    async def main() -> None:
        gate = Gate(memory())
        app = SingletonJobs("pricing", store=gate)
        runs: list[float] = []

        @app.interval(1, name="job")
        async def job() -> None:
            runs.append(the_loop().time())
            try:
                await asyncio.sleep(1000 if len(runs) == 1 else 0)
            except asyncio.CancelledError:
                return

        with Capture() as logs:
            async with running(app):
                await asyncio.sleep(1)
                gate.hang = True
                await asyncio.sleep(15)
                gate.hang = False
                await asyncio.sleep(15)
                assert app.is_leader("job")
                assert len(runs) > 3
                assert app.stats()["job"].failed == 0
        assert "runner-died" not in logs.events()

    run_virtually(main())


def test_a_body_that_raises_its_own_error_when_it_is_cancelled_has_failed_with_that_error() -> None:
    async def main() -> None:
        app = own_app(timeout=1)

        @app.interval(60, name="job")
        async def job() -> None:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                raise OSError("while cleaning up") from None

        with Capture() as logs:
            async with running(app):
                await asyncio.sleep(2)
                assert app.stats()["job"].failed == 1
        assert "while cleaning up" in logs.of("run-failed")[0].getMessage()

    run_virtually(main())


def test_events_and_counts_tell_a_cancelled_run_from_a_failed_one_and_from_a_timeout() -> None:
    async def main() -> None:
        gate = Gate(memory())
        app = SingletonJobs("pricing", store=gate, timeout=20)
        plan = ["raise", "sleep", "sleep"]
        outcomes: list[str] = []

        def listen(event: Event) -> None:
            if isinstance(event, RunFinished):
                outcomes.append(event.outcome)

        app.subscribe(listen)

        @app.interval(1, name="job")
        async def job() -> None:
            if plan.pop(0) == "raise":
                raise ValueError
            await asyncio.sleep(1000)

        async with running(app):
            await asyncio.sleep(22)  # failed at 0, timed out at 21, and in flight again
            gate.hang = True
            await asyncio.sleep(9.5)
        assert outcomes == ["failed", "timeout", "cancelled"]

    run_virtually(main())


def test_a_hook_or_a_switch_that_raises_a_cancellation_ends_neither_the_job_nor_its_switch() -> None:
    async def main() -> None:
        app = own_app()
        asked: list[float] = []
        runs: list[int] = []

        class Poll(IntervalJob, every="1s"):
            async def is_enabled(self) -> bool:
                asked.append(the_loop().time())
                if len(asked) == 2:
                    raise asyncio.CancelledError
                return len(asked) != 4

            async def on_stepped_down(self, reason: str) -> None:
                raise asyncio.CancelledError

            async def execute(self, run: Run) -> None:
                runs.append(run.token)

        app.add(Poll())
        with Capture() as logs:
            async with running(app):
                await asyncio.sleep(20)
                assert app.is_leader("poll")
                assert len(set(runs)) == 2, "off once, and on again"
        assert logs.events().count("switch-failed") == 1
        assert len(asked) == 7

    run_virtually(main())


def test_a_switch_that_swallows_its_cancellation_is_asked_no_more_when_the_app_has_stopped() -> None:
    async def main() -> None:
        app = own_app()
        asked: list[float] = []

        class Poll(IntervalJob, every="1s"):
            async def is_enabled(self) -> bool:
                asked.append(the_loop().time())
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(2)
                return True

            async def execute(self, run: Run) -> None: ...

        app.add(Poll())
        async with running(app):
            await asyncio.sleep(6)
        before = len(asked)
        await asyncio.sleep(20)
        assert len(asked) == before

    run_virtually(main())


# -- a runner's task is ended from outside -------------------------------------------------------------------------


class Keeper:
    """A replica whose job's task a test ends; what ran when, and whether it held the lease then."""

    def __init__(self, kind: Kind, seconds: float, *, swallows: bool = False, **options: Any) -> None:
        self.loop = the_loop()
        self.store = MemoryStore(VirtualClock(self.loop))
        self.app = SingletonJobs("pricing", store=self.store, **options)
        self.seconds = seconds
        self.swallows = swallows
        self.running = 0
        self.begun: list[tuple[float, int]] = []
        self.ended: list[float] = []
        self.app.interval(1, name="job")(self.on_loop if kind == "async" else self.in_thread)
        self.replica = Replica(self.app).start()

    async def on_loop(self, run: Run) -> None:
        self._begin(run)
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            if not self.swallows:
                raise
        finally:
            self._end()

    def in_thread(self, run: Run) -> None:
        self._begin(run)
        nap(self.seconds)
        self._end()

    def _begin(self, run: Run) -> None:
        self.running += 1
        self.begun.append((self.loop.time(), run.token))

    def _end(self) -> None:
        self.running -= 1
        self.ended.append(self.loop.time())

    @property
    def record(self) -> Record:
        return self.store._records["pricing", "job"]

    def kill(self) -> float:
        self.replica.service._tasks["job"].cancel()
        return self.loop.time()


@pytest.mark.parametrize("swallows", [False, True])
def test_c35_a_job_whose_task_is_killed_runs_again_within_a_second_in_a_term_of_its_own(swallows: bool) -> None:
    async def main() -> None:
        keeper = Keeper("async", 2.0, swallows=swallows)
        with Capture() as logs:
            await asyncio.sleep(1)
            first = keeper.record.token
            killed = keeper.kill()
            await asyncio.sleep(0.01)
            assert keeper.ended
            assert keeper.record.holder is None, "released: nobody works for it at this moment"
            await asyncio.sleep(0.99)
            assert keeper.app.is_leader("job")
            await asyncio.sleep(1)
            assert keeper.begun[-1][0] - killed <= 1 + 1, "the interval counts from the end of the run that was killed"
            assert keeper.begun[-1][1] > first
            await asyncio.sleep(10)
            assert keeper.app.stats()["job"].terms == 2
            await keeper.replica.stop()
        assert logs.events("job").count("runner-died") == 1
        assert "lost" not in logs.events("job"), "the lease was given up, not lost"

    run_virtually(main())


def test_c35_a_sync_body_whose_task_is_killed_keeps_the_lease_until_it_has_ended() -> None:
    async def main() -> None:
        keeper = Keeper("sync", 8.0)
        await asyncio.sleep(1)
        first = keeper.record.token
        keeper.kill()
        while keeper.running:
            await asyncio.sleep(0.25)
            if keeper.running:
                assert keeper.record.holder == keeper.replica.service.node
                assert keeper.record.token == first
                assert len(keeper.begun) == 1
        assert keeper.loop.time() == pytest.approx(8, abs=0.3)
        await asyncio.sleep(1.5)
        assert keeper.app.is_leader("job")
        assert keeper.record.token > first
        assert keeper.begun[1][0] >= keeper.ended[0]
        await keeper.replica.stop()

    run_virtually(main())


def test_a_sync_body_whose_task_is_killed_is_still_held_to_its_timeout() -> None:
    async def main() -> None:
        keeper = Keeper("sync", 60.0, timeout=5, shutdown_grace=2)
        await asyncio.sleep(1)
        keeper.kill()
        await asyncio.sleep(5 + 2 + 10 - 1 + 0.5)
        # Nobody vouches for it beyond timeout and grace, so the lease ends although the body goes on.
        assert keeper.running == 1
        expires = keeper.record.expires
        assert expires is None or expires < VirtualClock(keeper.loop).boot() * 1e6
        assert keeper.app.health().jobs["job"] == "stuck"
        await asyncio.sleep(50)
        assert len(keeper.begun) >= 2
        assert keeper.begun[1][0] >= keeper.ended[0]
        await keeper.replica.stop()

    run_virtually(main())


def test_c35_a_task_killed_between_two_runs_is_restarted_too() -> None:
    async def main() -> None:
        keeper = Keeper("async", 0.0)
        await asyncio.sleep(5.5)
        keeper.kill()
        await asyncio.sleep(1)
        assert keeper.app.is_leader("job")
        await asyncio.sleep(3)
        assert keeper.begun[-1][0] > 8
        await keeper.replica.stop()

    run_virtually(main())


def test_s4_the_lease_is_kept_until_a_body_has_unwound_however_often_its_jobs_task_is_ended() -> None:
    async def main() -> None:
        store = MemoryStore(VirtualClock(the_loop()))
        app = SingletonJobs("pricing", store=store)
        unwinding = asyncio.Event()
        cancelled: list[float] = []

        @app.interval(1, name="job")
        async def job() -> None:
            until = the_loop().time() + 5
            while the_loop().time() < until:
                try:
                    await asyncio.sleep(until - the_loop().time())
                except asyncio.CancelledError:
                    cancelled.append(the_loop().time())
                    unwinding.set()

        replica = Replica(app).start()
        await asyncio.sleep(1)
        node = replica.service.node
        task = replica.service._tasks["job"]
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(1)
            assert store._records["pricing", "job"].holder == node
            assert not task.done()
        assert len(cancelled) == 3  # each of them reaches the body
        await asyncio.sleep(3)
        assert task.done()
        await replica.stop()

    run_virtually(main())


def test_a_body_that_cancels_its_own_task_ends_its_run_alone() -> None:
    async def main() -> None:
        app = own_app()
        runs: list[int] = []

        @app.interval(1, name="job")
        async def job(run: Run) -> None:
            runs.append(run.token)
            if len(runs) == 2:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(0)

        async with running(app):
            await asyncio.sleep(6)
            assert app.is_leader("job")
            assert len(runs) >= 4
            assert len(set(runs)) == 1
            assert app.stats()["job"].cancelled == 1

    run_virtually(main())


# -- a stop is cancelled, a loop dies ------------------------------------------------------------------------------


def test_a_stop_whose_caller_is_cancelled_goes_on_and_releases() -> None:
    async def main() -> None:
        keeper = Keeper("async", 5.0)
        await asyncio.sleep(1)
        stopping = asyncio.create_task(keeper.replica.service.stop())
        await asyncio.sleep(1)
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        assert keeper.running
        assert keeper.record.holder is not None
        await keeper.replica.stop()
        assert not keeper.running
        assert keeper.record.holder is None

    run_virtually(main())


class RealApp:
    """One job in real time, and what the store says about it."""

    def __init__(self, body: Callable[[Run], object]) -> None:
        self.store = MemoryStore()
        self.app = SingletonJobs("pricing", store=self.store, **SCALED)
        self.app.interval("1h", name="job")(body)

    @property
    def holder(self) -> str | None:
        return self.store._records["pricing", "job"].holder


def in_a_thread(main: Callable[[], object]) -> threading.Thread:
    def run() -> None:
        try:
            main()
        except RuntimeError as error:
            assert str(error) == "the program has died"  # noqa: PT017 - raised by the test's own coroutine

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def dies_in_the_run(real: RealApp, begun: threading.Event) -> None:
    """The program fails once the run has begun, and its loop is torn down."""

    async def main() -> None:
        await real.app.__aenter__()
        while not begun.is_set():
            await asyncio.sleep(0.002)
        raise RuntimeError("the program has died")

    in_a_thread(lambda: asyncio.run(main())).join()


def never_again(real: RealApp) -> None:
    """The lease stays free for longer than a heartbeat and a dead job's revival take."""
    end = time.monotonic() + 1.2
    while time.monotonic() < end:
        assert real.holder is None
        time.sleep(0.01)


def test_c35_when_the_loop_is_torn_down_the_run_is_cancelled_and_the_lease_released_at_once_and_for_good(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def job(run: Run) -> None:
        begun.set()
        try:
            await asyncio.sleep(1000)
        finally:
            ended.set()

    real = RealApp(job)

    dies_in_the_run(real, begun)
    assert ended.is_set()
    wait_for(lambda: real.holder is None, 0.25)  # a heartbeat takes 0.3 s: it is told, not found out
    never_again(real)
    service = real.app._service
    assert service is not None
    assert all(task.done() for task in service._tasks.values()), "no new task is left behind in a closed loop"
    assert not [r for r in caplog.records if r.name == "asyncio"]


def test_c35_a_loop_that_is_closed_without_a_word_releases_within_a_heartbeat() -> None:
    real = RealApp(lambda run: None)

    def main() -> None:
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda _loop, _context: None)  # tasks are destroyed while they are pending
        loop.run_until_complete(real.app.__aenter__())
        loop.run_until_complete(until_led())
        loop.close()

    async def until_led() -> None:
        while not real.app.is_leader("job"):
            await asyncio.sleep(0.002)

    in_a_thread(main).join()
    wait_for(lambda: real.holder is None, 1.5)
    never_again(real)


def test_c35_when_the_loop_dies_a_sync_body_keeps_the_lease_until_it_has_ended_in_its_thread() -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def job(run: Run) -> None:
        begun.set()
        go_on.wait(10)
        ended.set()

    real = RealApp(job)

    dies_in_the_run(real, begun)
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        assert real.holder is not None, "the body still runs"
        record = real.store._records["pricing", "job"]
        assert record.expires is not None
        assert record.expires / 1e6 > time.clock_gettime(time.CLOCK_BOOTTIME), "renewed meanwhile"
        time.sleep(0.01)
    go_on.set()
    assert ended.wait(5)
    wait_for(lambda: real.holder is None, 1.5)
    never_again(real)
