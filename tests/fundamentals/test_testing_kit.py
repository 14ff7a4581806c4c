"""The kit for users' tests: one run of a body, and a store that fails on command."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from singletonjob import (
    ConfigError,
    CronJob,
    IntervalJob,
    LeadershipLost,
    Run,
    SingletonJobError,
    SingletonJobs,
    StoreUnavailable,
)
from singletonjob.stores.memory import MemoryStore
from singletonjob.stores.protocol import Acquire, Batch, Refused
from singletonjob.testing import FlakyStore, run_once
from singletonjob.testing.contract import LocalStoreContract
from virtual_loop import holder, memory, run_virtually, running, the_loop

if TYPE_CHECKING:
    from collections.abc import Callable

    from singletonjob import Term

PRESENT = datetime(2026, 3, 1, 3, tzinfo=UTC)


def told(run: Run) -> dict[str, Any]:
    names = ("job", "project", "token", "tick", "scheduled_at", "previous_end", "remaining", "stopping")
    return {name: getattr(run, name) for name in names} | {"late": (run.started_at - run.scheduled_at).total_seconds()}


async def told_async(run: Run) -> dict[str, Any]:
    return told(run)


SHOWN = {
    "project": "pricing",
    "token": 7,
    "tick": 3,
    "scheduled_at": PRESENT,
    "previous_end": PRESENT.replace(hour=2),
    "remaining": 4.0,
    "stopping": False,
}


# -- one run ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [told, told_async])
def test_the_run_shows_what_it_was_told_to_show(body: Callable[[Run], object]) -> None:
    one = run_once(
        body, token=7, scheduled_at=PRESENT, previous_end="2026-03-01T02:00Z", tick=3, remaining="4s", project="pricing"
    )
    late = one.value.pop("late")
    assert one.value == SHOWN | {"job": body.__name__.replace("_", "-")}
    assert 0 <= late < 10
    assert (one.outcome, one.error) == ("ok", None)


def test_by_default_a_run_is_due_now_on_a_lease_that_is_as_good_as_just_renewed() -> None:
    before = datetime.now(UTC)
    shown = run_once(told, lock_expiry=20).value
    assert before <= shown["scheduled_at"] <= datetime.now(UTC)
    assert (shown["remaining"], shown["previous_end"], shown["tick"]) == (18.0, None, None)


async def test_inside_a_running_loop_it_is_awaited_and_runs_on_that_loop() -> None:
    async def body() -> object:
        return asyncio.get_running_loop()

    def sync_body() -> object:
        return threading.current_thread()

    one = run_once(body)
    with pytest.raises(SingletonJobError, match="await run_once"):
        _ = one.outcome
    assert await one is one
    assert one.value is asyncio.get_running_loop()
    assert (await run_once(sync_body)).value is not threading.current_thread()


def test_it_works_on_uvloop_and_in_virtual_time() -> None:
    async def body(run: Run) -> str:
        await asyncio.sleep(0.01)
        return run.job

    async def slow() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    async def main(body: Any) -> Any:
        return (await run_once(body)).value

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(main(body)) == "body"
    assert run_virtually(main(slow)) == pytest.approx(3600)


async def test_the_context_of_the_test_is_the_bodys() -> None:
    request = contextvars.ContextVar("request", default="none")
    request.set("r1")

    async def body() -> str:
        return request.get()

    assert (await run_once(body)).value == "r1"
    assert (await run_once(lambda: request.get())).value == "r1"


@pytest.mark.parametrize("error", [ValueError("no"), AssertionError("wrong"), asyncio.CancelledError("stray")])
def test_what_the_body_raises_is_raised_or_told(error: BaseException) -> None:
    async def body() -> None:
        raise error

    def sync_body() -> None:
        raise error

    for one in (body, sync_body):
        with pytest.raises(type(error)) as raised:
            run_once(one)
        assert raised.value is error
        quiet = run_once(one, reraise=False)
        assert (quiet.outcome, quiet.error) == ("failed", error)


def test_pytests_own_outcomes_pass_through_a_body() -> None:
    with pytest.raises(pytest.skip.Exception):
        run_once(lambda: pytest.skip("not here"))


def test_a_lost_lease_cancels_an_async_body_and_tells_a_sync_one() -> None:
    seen: list[tuple[bool, float]] = []

    async def body(run: Run) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            seen.append((run.stopping, run.remaining))

    def waits(run: Run) -> bool:
        return run.wait(60)

    def checks(run: Run) -> None:
        while True:
            run.wait(0.01)
            run.check()

    assert run_once(body, lose_after=0).outcome == "cancelled"
    assert seen == [(True, 0.0)]
    one = run_once(waits, lose_after="20ms")
    assert (one.outcome, one.value) == ("ok", True)
    assert run_once(checks, lose_after="20ms").outcome == "cancelled"


def test_a_body_that_ignores_the_loss_goes_on_where_the_job_allows_it() -> None:
    async def body(run: Run) -> bool:
        await asyncio.sleep(0.05)
        with pytest.raises(LeadershipLost):
            run.check()
        return run.stopping

    assert run_once(body, lose_after=0, cancel_on_lost_leadership=False).value is True


def test_a_stop_gives_the_run_its_grace_and_then_cancels_it() -> None:
    async def ends(run: Run) -> int:
        while not run.stopping:
            await asyncio.sleep(0.01)
        return 3

    async def goes_on() -> None:
        await asyncio.sleep(60)

    assert run_once(ends, stop_after=0.02).value == 3
    one = run_once(goes_on, stop_after=0, shutdown_grace="50ms")
    assert one.outcome == "cancelled"
    assert one.duration >= 0.05


def test_a_timeout_ends_it() -> None:
    async def body() -> None:
        await asyncio.sleep(60)

    one = run_once(body, timeout="20ms")
    assert one.outcome == "timeout"
    assert one.duration >= 0.02


async def test_a_test_that_gives_up_waiting_cancels_the_body() -> None:
    ended = asyncio.Event()

    async def body() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await run_once(body)
    assert ended.is_set()
    assert not [task for task in asyncio.all_tasks() if "singletonjob" in task.get_name()]


async def test_a_test_that_gives_up_waiting_does_not_wait_for_a_body_in_a_thread() -> None:
    loop, end = asyncio.get_running_loop(), threading.Event()
    begun = loop.time()
    try:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await run_once(lambda: end.wait(20))
        assert loop.time() - begun < 5
        assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    finally:
        end.set()


def test_a_class_form_runs_with_its_hooks_and_keywords() -> None:
    said: list[object] = []

    class Report(CronJob, expression="0 3 * * *", timeout="20ms", enabled=False):
        async def on_elected(self, term: Term) -> None:
            said.append(term.token)

        async def execute(self, run: Run) -> None:
            said.append(run.token)
            await asyncio.sleep(60)

        def on_stepped_down(self, reason: str) -> None:
            said.append(reason)

        def is_enabled(self) -> bool:
            raise AssertionError("not asked")

    assert run_once(Report(), token=5).outcome == "timeout"
    assert said == [5, 5, "shutdown"]
    assert run_once(Report(), token=5, timeout=None, lose_after=0).outcome == "cancelled"
    assert said[-1] == "lost"


@pytest.mark.parametrize("hook", ["on_elected", "on_stepped_down"])
def test_a_hook_that_raises_fails_the_test(hook: str) -> None:
    ran: list[int] = []

    def fails(_self: object, _argument: object) -> None:
        raise ValueError(hook)

    base = type("Base", (IntervalJob,), {"execute": lambda _self: ran.append(1), hook: fails}, every=1)
    with pytest.raises(ValueError, match=hook):
        run_once(base())
    assert ran == ([] if hook == "on_elected" else [1])


def test_what_is_no_job_or_no_instant_is_a_config_error() -> None:
    wrong: Any = 3
    with pytest.raises(ConfigError, match="cannot be called"):
        run_once(wrong)
    with pytest.raises(ConfigError, match="write '2026-03-01T00:00Z'"):
        run_once(told, scheduled_at="tomorrow")
    with pytest.raises(ConfigError, match="has no offset from UTC; write '2026-03-01T00:00:00Z'"):
        run_once(told, scheduled_at=datetime(2026, 3, 1))  # noqa: DTZ001 - the fault
    with pytest.raises(ConfigError, match="lose_after"):
        run_once(told, lose_after="soon")
    with pytest.raises(ConfigError, match=r"\[Job: told\] margin"):
        run_once(told, margin=9)


def test_lambdas_and_partials_are_jobs_too() -> None:
    def feed(name: str, run: Run) -> str:
        return f"{name} {run.job}"

    assert run_once(partial(feed, "eu")).value == "eu feed"
    assert run_once(lambda run: run.job).value == "job"


# -- a store that fails -----------------------------------------------------------------------------------------------


class TestFlakyStoreWithoutFaults(LocalStoreContract):
    """It is a store like any other while nobody tells it to fail."""

    @pytest.fixture
    def make_store(self) -> Callable[[], FlakyStore]:
        memory = MemoryStore()
        return lambda: FlakyStore(memory)


def asks(number: int, node: str = "a") -> Batch:
    return Batch("p", node, 1.0, None, (Acquire("job", number, 10.0, 0),))


async def test_exchanges_fail_hang_and_lose_their_reply_on_command() -> None:
    memory = MemoryStore()
    store = FlakyStore(memory)
    store.fail_next()
    store.lose_next()
    store.hang_next()
    with pytest.raises(StoreUnavailable, match="told to fail"):
        await store.exchange(asks(1))
    assert holder(memory, "job", "p") is None
    with pytest.raises(StoreUnavailable, match="lose the reply"):
        await store.exchange(asks(2))
    assert holder(memory, "job", "p") == "a"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await store.exchange(asks(3))
    assert isinstance((await store.exchange(asks(4, "b"))).verdicts[0], Refused)
    assert store.counts == {"ok": 1, "fail": 1, "lose": 1, "hang": 1}


async def test_a_rule_decides_where_nothing_was_ordered() -> None:
    store = FlakyStore(rule=lambda batch: "fail" if batch.node == "b" else "ok")
    assert (await store.exchange(asks(1))).verdicts
    with pytest.raises(StoreUnavailable):
        await store.exchange(asks(1, "b"))


async def test_while_it_is_down_nothing_is_heard_and_nothing_seen() -> None:
    store = FlakyStore()
    heard = aiter(store.notices("p"))
    assert await anext(heard) == frozenset()
    store.down()
    with pytest.raises(StoreUnavailable):
        await anext(heard)
    for call in (anext(aiter(store.notices("p"))), store.exchange(asks(1)), store.peek("p")):
        with pytest.raises(StoreUnavailable):
            await call
    store.up()
    assert await anext(aiter(store.notices("p"))) == frozenset()
    assert (await store.exchange(asks(1))).verdicts


def test_an_app_keeps_its_lease_through_a_short_outage_and_loses_it_in_a_long_one() -> None:
    async def main() -> tuple[list[int], list[float]]:
        store = FlakyStore(memory())
        app = SingletonJobs("pricing", store=store)
        terms: list[int] = []
        ticks: list[float] = []

        @app.fixed_rate("1s")
        async def tick(run: Run) -> None:
            ticks.append(the_loop().time())
            if run.token not in terms:
                terms.append(run.token)

        async with running(app):
            await asyncio.sleep(10)
            store.down()
            await asyncio.sleep(3)
            store.up()
            await asyncio.sleep(10)
            assert len(terms) == 1
            store.down("hang")
            await asyncio.sleep(30)
            store.up()
            await asyncio.sleep(20)
        return terms, ticks

    terms, ticks = run_virtually(main())
    assert len(terms) == 2
    gap = max(later - earlier for earlier, later in zip(ticks, ticks[1:], strict=False))
    assert 20 < gap < 40


async def test_a_delay_is_taken_before_the_exchange() -> None:
    store = FlakyStore("memory", delay="10ms")
    loop = asyncio.get_running_loop()
    start = loop.time()
    await store.exchange(Batch("p", "a", 1.0))
    assert loop.time() - start >= 0.009
    store.delay_by(0)
    with pytest.raises(ConfigError, match="no outage"):
        store.down("lose")
