"""Hooks, live switches, callbacks and callable intervals: where they run, what they may raise, what waits for them."""

from __future__ import annotations

import asyncio
import contextvars
import sqlite3
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from singletonjob import Event, IntervalJob, Run, SingletonJobs, Term
from singletonjob.stores.memory import MemoryStore
from singletonjob.testing import run_once
from virtual_loop import Capture, Gate, Replica, holder, memory, nap, run_virtually, running, the_loop
from waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from virtual_loop import VirtualLoop


# -- what user code raises -------------------------------------------------------------------------------------------

PLACES = {
    "on_elected": "hook-failed",
    "on_stepped_down": "hook-failed",
    "is_enabled": "switch-failed",
    "async is_enabled": "switch-failed",
    "interval": "schedule-failed",
    "callback": "subscriber-failed",
}


class Raising(IntervalJob, every="1s", name="job"):
    """A job whose code raises `error` once at `place`, 5 s after the start."""

    def __init__(self, place: str, error: BaseException) -> None:
        self.place = place
        self.error = error
        self.raised = 0
        self.runs: list[float] = []

    def at(self, place: str) -> None:
        if place == self.place and not self.raised and the_loop().time() >= 5:
            self.raised += 1
            raise self.error

    def is_enabled(self) -> bool | Any:
        if self.place == "async is_enabled":
            return self.asked_async()
        self.at("is_enabled")
        # Off from the 6th to the 9th second, so that a term ends and another one begins.
        return not 6 <= the_loop().time() < 9

    async def asked_async(self) -> bool:
        await asyncio.sleep(0.1)
        self.at("async is_enabled")
        return True

    async def on_elected(self, term: Term) -> None:
        self.at("on_elected")

    async def on_stepped_down(self, reason: str) -> None:
        self.at("on_stepped_down")

    async def execute(self, run: Run) -> None:
        self.runs.append(the_loop().time())

    def every(self) -> float:
        self.at("interval")
        return 1.0

    def heard(self, _event: Event) -> None:
        self.at("callback")


@pytest.mark.parametrize("error", [SystemExit, GeneratorExit, asyncio.CancelledError])
@pytest.mark.parametrize("place", PLACES)
def test_whatever_a_hook_a_switch_an_interval_or_a_callback_raises_is_one_failed_call_and_all_jobs_go_on(
    place: str, error: type[BaseException]
) -> None:
    async def main() -> None:
        app = SingletonJobs("pricing", store=memory(), max_backoff_delay=3)
        job = Raising(place, error("bad configuration"))
        others: list[float] = []
        if place == "interval":
            app.interval(job.every, name="job")(job.execute)
        else:
            app.add(job)
        app.subscribe(job.heard)

        @app.interval("100ms", name="other")
        async def other() -> None:
            others.append(the_loop().time())

        with Capture() as logs:
            async with running(app):
                await asyncio.sleep(25)
                assert app.is_leader("job")
                assert app.health().status == "ok"
        assert job.raised == 1
        assert job.runs[-1] >= 23
        assert len(others) >= 240
        (failed,) = logs.of(PLACES[place])
        assert "bad configuration" in failed.getMessage()
        assert "runner-died" not in logs.events()

    run_virtually(main())


def test_outside_of_the_main_thread_a_keyboard_interrupt_out_of_user_code_is_a_failed_call() -> None:
    failures: list[str] = []

    async def main() -> None:
        app = SingletonJobs("pricing", store=memory())
        job = Raising("on_stepped_down", KeyboardInterrupt("on purpose"))
        app.add(job)
        with Capture() as logs:
            async with running(app):
                await asyncio.sleep(20)
                assert job.runs[-1] >= 18
        failures.extend(logs.of("hook-failed"))

    thread = threading.Thread(target=lambda: run_virtually(main()))
    thread.start()
    thread.join()
    assert len(failures) == 1


def test_ctrl_c_in_a_body_ends_a_program_that_keeps_its_signals_to_itself_and_the_lease_is_released() -> None:
    """Python's own handler raises it in the code that the main thread executes, which may be a body."""
    store = MemoryStore()

    async def main() -> None:
        app = SingletonJobs("pricing", store=store)

        @app.interval("1s", name="job")
        async def job() -> None:
            assert store._records["pricing", "job"].holder is not None
            raise KeyboardInterrupt

        async with app:
            await asyncio.sleep(20)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert store._records["pricing", "job"].holder is None


# -- the thread of sync hooks ----------------------------------------------------------------------------------------

bound: contextvars.ContextVar[str] = contextvars.ContextVar("bound", default="nothing")


class Import(IntervalJob, every="1s", name="job"):
    """A sync job with a resource that only its thread may use."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.calls: list[tuple[str, threading.Thread]] = []

    def on_elected(self, term: Term) -> None:
        self.calls.append(("on_elected", threading.current_thread()))
        bound.set("by on_elected")
        self.database = sqlite3.connect(":memory:")

    def execute(self, run: Run) -> None:
        self.calls.append(("execute", threading.current_thread()))
        self.database.execute("select 1")
        self.seen.append(bound.get())
        bound.set("by a run")

    def on_stepped_down(self, reason: str) -> None:
        self.calls.append(("on_stepped_down", threading.current_thread()))
        self.database.close()


def test_sync_hooks_of_a_sync_job_run_in_its_thread_and_share_what_is_bound_to_that() -> None:
    async def main() -> None:
        app, job = SingletonJobs("pricing", store=memory()), Import()
        app.add(job)
        with Capture() as logs:
            async with running(app):
                await asyncio.sleep(2.5)
                assert app.stats()["job"].ok == 3
        assert [name for name, _ in job.calls] == ["on_elected", "execute", "execute", "execute", "on_stepped_down"]
        (thread,) = {thread for _, thread in job.calls}
        assert thread is not threading.current_thread()
        assert job.seen == ["by on_elected"] * 3, "what a run sets is gone with it"
        assert not logs.of("hook-failed")

    run_virtually(main())


def test_run_once_calls_the_sync_hooks_of_a_sync_job_in_its_thread() -> None:
    job = Import()
    assert run_once(job).outcome == "ok"
    assert len({thread for _, thread in job.calls}) == 1


@pytest.mark.parametrize("which", ["hooks of an async body", "async hooks of a sync body"])
def test_all_other_hooks_run_on_the_job_loop(which: str) -> None:
    async def main() -> None:
        app, threads = SingletonJobs("pricing", store=memory()), list[threading.Thread]()

        class SyncHooks(IntervalJob, every="1s", name="job"):
            def on_elected(self, term: Term) -> None:
                threads.append(threading.current_thread())

            def on_stepped_down(self, reason: str) -> None:
                threads.append(threading.current_thread())

            async def execute(self, run: Run) -> None: ...

        class AsyncHooks(IntervalJob, every="1s", name="job"):
            async def on_elected(self, term: Term) -> None:
                threads.append(threading.current_thread())
                await asyncio.sleep(0.01)
                bound.set("by on_elected")

            async def on_stepped_down(self, reason: str) -> None:
                threads.append(threading.current_thread())

            def execute(self, run: Run) -> None:
                assert bound.get() == "by on_elected"

        app.add(SyncHooks() if which == "hooks of an async body" else AsyncHooks())
        async with running(app):
            await asyncio.sleep(1.5)
            assert app.stats()["job"].ok == 2
        assert threads == [threading.current_thread()] * 2

    run_virtually(main())


class Slow(IntervalJob, every="1s", name="job"):
    """A sync job whose hooks take so many seconds, or raise."""

    def __init__(self, elected: float = 0.0, stepped_down: float = 0.0, error: Exception | None = None) -> None:
        self.loop = the_loop()
        self.on = True
        self.naps = {"on_elected": elected, "on_stepped_down": stepped_down}
        self.error = error
        self.ended: list[tuple[str, float]] = []
        self.runs: list[float] = []

    def is_enabled(self) -> bool:
        return self.on

    def on_elected(self, term: Term) -> None:
        self._hook("on_elected")

    def on_stepped_down(self, reason: str) -> None:
        self._hook("on_stepped_down")

    def _hook(self, name: str) -> None:
        nap(self.naps[name])
        self.ended.append((name, self.loop.time()))
        if self.error is not None:
            raise self.error

    def execute(self, run: Run) -> None:
        self.runs.append(self.loop.time())


def test_a_sync_hook_of_a_sync_job_that_blocks_holds_no_other_job_up_and_the_first_run_comes_after_it() -> None:
    async def main() -> None:
        app, job, ticks = SingletonJobs("pricing", store=memory()), Slow(elected=15.0, stepped_down=4.0), list[float]()
        app.add(job)

        @app.fixed_rate("100ms", name="tick")
        async def tick() -> None:
            ticks.append(the_loop().time())

        async with running(app):
            await asyncio.sleep(20)
            assert app.is_leader("job"), "renewed meanwhile"
            assert job.runs[0] == pytest.approx(job.ended[0][1], abs=0.01)
            assert app.stats()["tick"].runs >= 195
            job.on = False
            await asyncio.sleep(6)
        assert [name for name, _ in job.ended] == ["on_elected", "on_stepped_down"]
        assert max(b - a for a, b in zip(ticks, ticks[1:], strict=False)) < 0.15

    run_virtually(main())


@pytest.mark.parametrize("hook", ["on_elected", "on_stepped_down"])
def test_nothing_is_released_before_the_call_of_a_sync_hook_has_really_ended(hook: str) -> None:
    async def main() -> None:
        store = memory()
        job = Slow(elected=10.0) if hook == "on_elected" else Slow(stepped_down=10.0)
        app = SingletonJobs("pricing", store=store)
        app.add(job)
        replica = Replica(app).start()
        await asyncio.sleep(3)
        stopping = asyncio.ensure_future(replica.stop())
        while hook not in [name for name, _ in job.ended]:
            assert holder(store, "job") == replica.service.node
            await asyncio.sleep(0.25)
        await stopping
        assert holder(store, "job") is None
        assert not replica.service.abandoned

    run_virtually(main())


def test_a_sync_on_elected_that_raises_or_outlives_its_timeout_gives_the_term_up_when_it_has_ended() -> None:
    async def main() -> None:
        for job in (Slow(elected=8.0), Slow(elected=1.0, error=ValueError("no feed"))):
            store = memory()
            app = SingletonJobs("pricing", store=store, timeout=5, shutdown_grace=10, max_backoff_delay=3)
            app.add(job)
            with Capture() as logs:
                async with running(app):
                    await asyncio.sleep(0.5)
                    first = store._records["pricing", "job"].token
                    while not job.ended:
                        assert store._records["pricing", "job"].token == first
                        assert holder(store, "job") is not None
                        await asyncio.sleep(0.1)
                    await asyncio.sleep(0.2)
                    assert holder(store, "job") is None
                    assert "on_elected" in logs.of("hook-failed")[0].getMessage()
                    job.naps["on_elected"], job.error = 0.0, None
                    await asyncio.sleep(10)
                    assert app.is_leader("job")
                    assert job.runs
            assert not logs.of("stuck")

    run_virtually(main())


def test_a_sync_hook_that_outlives_its_term_keeps_the_next_one_away_until_it_has_ended() -> None:
    async def main() -> None:
        gate, job = Gate(memory()), Slow(elected=30.0)
        app = SingletonJobs("pricing", store=gate)
        app.add(job)
        with Capture() as logs:
            async with running(app) as replica:
                await asyncio.sleep(2)
                gate.hang = True
                await asyncio.sleep(15)
                gate.hang = False
                await asyncio.sleep(10)
                assert logs.events("job").count("run-without-lease") == 1
                assert replica.app.stats()["job"].terms == 1, "not asked for while its hook runs"
                await asyncio.sleep(15)
                job.naps["on_elected"] = 0.0
                assert job.runs == [], "the term was over"
                await asyncio.sleep(45)
                assert job.runs

    run_virtually(main())


def test_a_sync_on_elected_waits_like_a_sync_run_while_a_renewal_is_overdue(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        job = Slow()
        app = SingletonJobs("pricing", store=memory())
        app.add(job)
        monkeypatch.setattr(
            "singletonjob._runtime.runner.Runner._overdue", lambda _runner, _lease: the_loop_time() < 1.0
        )
        loop = the_loop()
        the_loop_time: Callable[[], float] = loop.time
        async with running(app):
            await asyncio.sleep(0.9)
            assert job.ended == []
            await asyncio.sleep(0.3)
            assert [name for name, _ in job.ended] == ["on_elected"]
            assert app.stats()["job"].terms == 1

    run_virtually(main())


# -- run.to_thread ---------------------------------------------------------------------------------------------------


def nap_in_executor(loop: VirtualLoop, seconds: float) -> None:
    """Sleep in virtual time in a call of an executor, for which the loop lets time stand still."""
    over = threading.Event()

    def wake() -> None:
        loop.busy += 1
        over.set()

    def fall_asleep() -> None:
        loop.busy -= 1
        loop.call_later(seconds, wake)

    loop.call_soon_threadsafe(fall_asleep)
    over.wait()


class Worker(IntervalJob, every="1s", name="job"):
    """An async job whose body awaits work of so many seconds in a thread."""

    def __init__(self, seconds: float) -> None:
        self.loop = the_loop()
        self.seconds = seconds
        self.working = 0
        self.ended: list[float] = []
        self.outcomes: list[str] = []

    def work(self, run: Run) -> None:
        self.working += 1
        nap_in_executor(self.loop, self.seconds)
        self.working -= 1
        self.ended.append(self.loop.time())

    async def execute(self, run: Run) -> None:
        await run.to_thread(self.work, run)


def test_the_lease_is_kept_until_work_that_a_cancelled_run_has_in_a_thread_has_ended() -> None:
    async def main() -> None:
        store = memory()
        job, next_job = Worker(6.0), Worker(0.0)
        app, peer = (SingletonJobs("pricing", store=store, shutdown_grace=5) for _ in range(2))
        app.add(job)
        peer.add(next_job)
        replica = Replica(app).start()
        await asyncio.sleep(0.5)
        async with running(peer):
            await asyncio.sleep(0.1)
            stopping = asyncio.ensure_future(replica.stop())
            while job.working:
                assert holder(store, "job") == replica.service.node
                assert not next_job.ended
                await asyncio.sleep(0.05)
            counts = replica.service.runners["job"].counts
            await stopping
            assert not replica.service.abandoned
            assert counts.frozen().cancelled == 1
            await asyncio.sleep(2)
            assert next_job.ended[0] > job.ended[0]

    run_virtually(main())


def test_past_timeout_and_grace_work_in_a_thread_is_stuck_and_its_lease_is_not_released_before_its_end() -> None:
    async def main() -> None:
        store, job = memory(), Worker(40.0)
        app = SingletonJobs("pricing", store=store, timeout=3, shutdown_grace=2)
        app.add(job)
        with Capture() as logs:
            async with running(app):
                await asyncio.sleep(30)
                assert app.health().jobs["job"] == "stuck"
                assert len(logs.of("stuck")) == 1
                assert not logs.of("released")
                assert app.stats()["job"].terms == 1
                job.seconds = 0.0
                await asyncio.sleep(30)
                assert app.is_leader("job")

    run_virtually(main())


def test_a_term_ends_only_after_work_in_a_thread_that_nobody_awaits() -> None:
    async def main() -> None:
        store, tasks = memory(), list[asyncio.Task[None]]()
        work = Worker(20.0)
        app = SingletonJobs("pricing", store=store, timeout=10)

        @app.interval("1h", name="job")
        async def job(run: Run) -> None:
            tasks.append(asyncio.create_task(run.to_thread(work.work, run)))
            await asyncio.sleep(0.1)

        replica = Replica(app).start()
        await asyncio.sleep(5)
        stopping = asyncio.ensure_future(replica.stop())
        while work.working:
            assert holder(store, "job") == replica.service.node
            await asyncio.sleep(0.25)
        await stopping
        assert work.ended == [pytest.approx(20, abs=0.1)]
        assert not replica.service.abandoned
        assert holder(store, "job") is None

    run_virtually(main())


def test_to_thread_returns_what_the_function_returns_raises_what_it_raises_and_passes_the_context_on() -> None:
    async def body(run: Run) -> list[object]:
        def add(one: int, *, other: int) -> tuple[int, str, bool]:
            return one + other, bound.get(), threading.current_thread().daemon

        def fail(error: BaseException) -> None:
            raise error

        bound.set("in the body")
        told: list[object] = [await run.to_thread(add, 1, other=2)]
        for error in (ValueError("no"), StopIteration("no"), SystemExit("no")):
            try:
                await run.to_thread(fail, error)
            except BaseException as raised:
                told.append(raised.__cause__ if isinstance(error, StopIteration) else raised)
        return told

    (added, *raised) = run_once(body).value
    assert added == (3, "in the body", True)
    assert [type(error) for error in raised] == [ValueError, StopIteration, SystemExit]


def test_a_function_in_a_thread_is_told_at_once_when_its_run_is_to_end_and_its_error_is_the_runs() -> None:
    moments: dict[str, float] = {}

    def work(run: Run) -> None:
        assert run.wait(20)
        moments["told"] = time.monotonic()
        run.check()
        raise ValueError("not cleaned up")

    async def body(run: Run) -> None:
        asyncio.get_running_loop().call_later(0.05, lambda: moments.setdefault("lost", time.monotonic() + 0.05))
        await run.to_thread(work, run)

    stopped = run_once(body, stop_after=0.1, shutdown_grace=0, reraise=False)
    assert (stopped.outcome, str(stopped.error)) == ("failed", "not cleaned up")
    assert moments["told"] - moments["lost"] < 0.8, "not with the next look, up to a second later"
    lost = run_once(body, lose_after=0.1, reraise=False)
    assert lost.outcome == "cancelled", "the function raised LeadershipLost"


def test_a_loop_that_is_closed_without_a_word_keeps_the_lease_while_work_of_a_run_goes_on_in_a_thread() -> None:
    begun, go_on = threading.Event(), threading.Event()
    store = MemoryStore()
    app = SingletonJobs("pricing", store=store, lock_expiry=0.6, heartbeat_interval=0.1)

    @app.interval("1h", name="job")
    async def job(run: Run) -> None:
        begun.set()
        await run.to_thread(go_on.wait, 10)

    async def until_begun() -> None:
        while not begun.is_set():
            await asyncio.sleep(0.002)

    def main() -> None:
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda _loop, _context: None)  # tasks are destroyed while they are pending
        loop.run_until_complete(app.__aenter__())
        loop.run_until_complete(until_begun())
        loop.close()

    thread = threading.Thread(target=main)
    thread.start()
    thread.join()
    end = time.monotonic() + 0.4
    while time.monotonic() < end:
        assert store._records["pricing", "job"].holder is not None, "the work goes on"
        time.sleep(0.01)
    go_on.set()
    wait_for(lambda: store._records["pricing", "job"].holder is None, 3)


# -- context variables -------------------------------------------------------------------------------------------------


class Bind(IntervalJob, every="1s", name="job"):
    """An async job whose hooks and runs each bind the variable, and keep what they saw before."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self.token: contextvars.Token[str]

    def see(self, who: str) -> None:
        self.seen.append((who, bound.get()))

    async def on_elected(self, term: Term) -> None:
        self.see("on_elected")
        await asyncio.sleep(0.01)
        self.token = bound.set("by on_elected")

    async def execute(self, run: Run) -> None:
        self.see("run")
        bound.set("by a run")
        await asyncio.sleep(0.01)
        assert bound.get() == "by a run", "also after an await"
        assert await asyncio.create_task(self.ask()) == "by a run", "a child task starts with a copy"
        with suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.sleep(10)
        assert bound.get() == "by a run", "also after a cancellation that ended inside"
        assert await run.to_thread(bound.get) == "by a run"

    async def ask(self) -> str:
        return bound.get()

    async def on_stepped_down(self, reason: str) -> None:
        self.see("on_stepped_down")
        bound.reset(self.token)


class BindInThread(Bind, name="job"):
    """The same with a sync body and sync hooks."""

    def on_elected(self, term: Term) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        self.see("on_elected")
        self.token = bound.set("by on_elected")

    def execute(self, run: Run) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        self.see("run")
        bound.set("by a run")

    def on_stepped_down(self, reason: str) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        self.see("on_stepped_down")
        bound.reset(self.token)


@pytest.mark.parametrize("kind", [Bind, BindInThread], ids=["async", "sync"])
def test_each_run_sees_what_was_bound_at_the_start_and_by_on_elected_and_nothing_of_other_runs_and_terms(
    kind: type[Bind],
) -> None:
    async def main() -> None:
        app, job = SingletonJobs("pricing", store=memory()), kind()
        app.add(job)
        bound.set("before the start")
        with Capture() as logs:
            async with running(app) as replica:
                for _ in range(2):
                    await asyncio.sleep(2.5)
                    lease = replica.service.leases["job"]
                    replica.service.runners["job"]._resign(lease)
                    await asyncio.sleep(20)
            assert not logs.of("hook-failed")
        terms = ",".join(who for who, _ in job.seen).split("on_elected,")[1:]
        assert len(terms) >= 2
        assert all(term.startswith("run,run,") for term in terms)
        expected = {"on_elected": "before the start", "run": "by on_elected", "on_stepped_down": "by on_elected"}
        assert dict(job.seen) == expected
        assert set(job.seen) == set(expected.items())

    run_virtually(main())


def test_what_a_switch_an_interval_or_a_subscriber_binds_is_gone_with_its_call() -> None:
    async def main() -> None:
        app, seen = SingletonJobs("pricing", store=memory()), dict[str, set[str]]()

        def see(who: str) -> None:
            seen.setdefault(who, set()).add(bound.get())
            bound.set(f"by a {who}")

        async def switch() -> bool:
            await asyncio.sleep(0.01)
            see("switch")
            return True

        def every() -> float:
            see("interval")
            return 1.0

        @app.interval(every, name="job", enabled=switch)
        async def job() -> None:
            seen.setdefault("run", set()).add(bound.get())

        for name in ("first subscriber", "second subscriber"):
            app.subscribe(lambda _event, name=name: see(name))  # type: ignore[misc]
        async with running(app):
            await asyncio.sleep(10)
        assert seen == {
            who: {"nothing"} for who in ("switch", "interval", "run", "first subscriber", "second subscriber")
        }

    run_virtually(main())
