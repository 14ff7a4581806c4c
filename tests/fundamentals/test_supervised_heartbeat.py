"""The heartbeat goes on, whatever a store does and whatever is raised inside of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from singletonjob import SingletonJobs, StoreUnavailable
from singletonjob.stores.protocol import Reply
from virtual_loop import Capture, Gate, memory, run_virtually, running, the_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from singletonjob.stores.protocol import Batch


def app_on(store: Any) -> SingletonJobs:
    app = SingletonJobs("pricing", store=store)

    @app.interval("1s", name="job")
    async def job() -> None: ...

    return app


class Plain(Gate):
    """Its `exchange` is no coroutine function. Calls of the given numbers go to `fault` instead."""

    def __init__(self, fault: Callable[[], object], *numbers: int) -> None:
        super().__init__(memory())
        self._fault = fault
        self._numbers = numbers
        self.calls = 0

    def exchange(self, batch: Batch) -> Any:
        self.calls += 1
        return self._fault() if self.calls in self._numbers else self.store.exchange(batch)


def raises(error: BaseException) -> Callable[[], object]:
    def fault() -> object:
        raise error

    return fault


def later(outcome: Callable[[], object]) -> Callable[[], object]:
    async def fault() -> object:
        return outcome()

    return fault


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (raises(StoreUnavailable("not connected")), "not connected"),
        (raises(SystemExit(3)), "SystemExit(3)"),
        (later(raises(SystemExit(3))), "SystemExit(3)"),
        (later(raises(asyncio.CancelledError())), "cancelled"),
        (lambda: None, "Plain.exchange returned NoneType, not an awaitable; write `async def exchange`"),
        (later(lambda: None), "Plain.exchange returned NoneType, not a Reply"),
        (later(lambda: Reply(1, verdicts=("renewed",))), "Plain.exchange returned"),  # type: ignore[arg-type]  # a fault
        (later(lambda: Reply(1, verdicts=())), "Plain.exchange returned 0 verdicts for a batch of 1"),
    ],
)
def test_whatever_an_exchange_does_wrong_is_a_failed_call_and_the_next_one_is_made(
    fault: Callable[[], object], text: str
) -> None:
    async def main() -> None:
        store = Plain(fault, 4, 5, 6)  # the first failure on an idle connection is not logged
        app = app_on(store)
        with Capture() as logs:
            async with running(app) as replica:
                await asyncio.sleep(60)
                assert app.is_leader("job")
                assert replica.service.beats.frozen().failures >= 1
        (line,) = logs.of("heartbeat-error")
        assert text in line.getMessage()
        assert "lost" not in logs.events()

    run_virtually(main())


def test_an_exception_inside_the_heartbeat_is_logged_once_a_minute_and_the_loop_goes_on_without_spinning() -> None:
    async def main() -> None:
        app = app_on(memory())
        with Capture() as logs:
            async with running(app) as replica:
                await asyncio.sleep(10)
                elector = replica.service._elector
                poll, failed = elector.poll, 0
                token = replica.service.leases["job"].token

                def failing(*arguments: Any) -> Any:
                    nonlocal failed
                    failed += 1
                    raise RuntimeError("a fault of ours")

                elector.poll = cast("Any", failing)  # type: ignore[method-assign]  # a fault of ours
                await asyncio.sleep(8)  # not long enough to lose the lease, but for the fence
                assert 3 <= failed <= 10, "it spins, or has given up"
                elector.poll = poll  # type: ignore[method-assign]  # it is well again
                await asyncio.sleep(60)
                assert app.is_leader("job")
                assert replica.service.leases["job"].token >= token
        (line,) = logs.of("heartbeat-failed")
        assert "RuntimeError('a fault of ours')" in line.getMessage()
        assert line.exc_info is not None

    run_virtually(main())


def test_a_heartbeat_that_can_do_nothing_any_more_turns_health_red_and_the_fence_ends_its_term() -> None:
    async def main() -> None:
        app = app_on(memory())
        with Capture() as logs:
            async with running(app) as replica:
                await asyncio.sleep(10)
                poll = replica.service._elector.poll

                def failing(*_arguments: Any) -> Any:
                    raise RuntimeError("a fault of ours")

                replica.service._elector.poll = cast("Any", failing)  # type: ignore[method-assign]  # a fault of ours
                await asyncio.sleep(9.1)
                assert not app.is_leader("job")
                await asyncio.sleep(5)
                assert app.health().status == "stuck"
                replica.service._elector.poll = poll  # type: ignore[method-assign]  # so that it can stop
        assert "heartbeat-silent" in logs.events()

    run_virtually(main())


def test_an_exception_while_an_answer_is_taken_leaves_no_call_open_for_ever() -> None:
    async def main() -> None:
        store = Gate(memory())
        app = app_on(store)
        with Capture() as logs:
            async with running(app) as replica:
                await asyncio.sleep(10)
                answered, raised = replica.service.beats.answered, 0

                def failing(*arguments: Any) -> None:
                    nonlocal raised
                    raised += 1
                    if raised == 1:
                        raise RuntimeError("a fault of ours")
                    answered(*arguments)

                replica.service.beats.answered = cast("Any", failing)  # type: ignore[method-assign]  # a fault of ours
                calls = len(store.batches)
                await asyncio.sleep(60)
                assert len(store.batches) > calls + 15
                assert app.is_leader("job")
        assert len(logs.of("heartbeat-failed")) == 1

    run_virtually(main())


def cancelled() -> AsyncIterator[frozenset[str]]:
    raise asyncio.CancelledError


def exited() -> AsyncIterator[frozenset[str]]:
    raise SystemExit(3)


def no_iterator() -> Any:
    return None


@pytest.mark.parametrize("fault", [cancelled, exited, no_iterator])
def test_whatever_happens_to_the_notices_they_are_listened_to_again(fault: Callable[[], Any]) -> None:
    class Deaf(Gate):
        asked: list[float]

        def notices(self, project: str) -> Any:
            self.asked.append(the_loop().time())
            return fault() if len(self.asked) < 3 else super().notices(project)

    async def main() -> None:
        store = Deaf(memory())
        store.asked = []
        app = app_on(store)
        async with running(app):
            await asyncio.sleep(30)
            assert len(store.asked) == 3
            assert store.asked[2] < 10
            assert app.is_leader("job")

    run_virtually(main())


def test_a_store_whose_close_raises_does_not_keep_the_heartbeat_from_its_end() -> None:
    class Unclosable(Gate):
        def close(self) -> Any:
            raise SystemExit(3)

    async def main() -> None:
        app = app_on(Unclosable(memory()))
        async with running(app) as replica:
            await asyncio.sleep(5)
        assert replica.heartbeat.done()
        assert replica.heartbeat.exception() is None

    run_virtually(main())
