"""Where a task sleeps: a timer resumes it at once, anything else in the next turn, and no cancellation is lost."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from singletonjob._runtime.sleeper import Sleeper

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}

on_both_loops = pytest.mark.parametrize("loop", LOOPS)


class Naps:
    """A task that sleeps again and again, and what it saw."""

    def __init__(self) -> None:
        self.sleeper = Sleeper(asyncio.get_running_loop())
        self.woken = 0
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            await self.sleeper
            self.woken += 1

    async def end(self) -> None:
        self.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self.task


def on(loop: str, main: Coroutine[Any, Any, None]) -> None:
    """Run `main` on a loop of that kind."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(main)


def run(loop: str, main: Callable[[Naps], object]) -> None:
    """Run `main`, which is no task, on a loop of that kind."""

    async def whole() -> None:
        naps = Naps()
        await asyncio.sleep(0)
        done = asyncio.get_running_loop().create_future()

        def call() -> None:
            try:
                main(naps)
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        asyncio.get_running_loop().call_soon(call)
        await done
        await naps.end()

    on(loop, whole())


@on_both_loops
def test_a_timer_resumes_the_task_at_once(loop: str) -> None:
    def main(naps: Naps) -> None:
        for count in range(1, 4):
            naps.sleeper.ring()
            assert naps.woken == count

    run(loop, main)


@on_both_loops
def test_whoever_else_wakes_it_does_so_in_the_next_turn_and_only_once(loop: str) -> None:
    async def main() -> None:
        naps = Naps()
        await asyncio.sleep(0)
        naps.sleeper.wake()
        naps.sleeper.wake()
        assert naps.woken == 0
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert naps.woken == 1
        await naps.end()

    on(loop, main())


@on_both_loops
def test_a_timer_that_comes_before_the_turn_takes_its_place_and_the_next_sleep_is_left_alone(loop: str) -> None:
    async def main() -> None:
        naps = Naps()
        await asyncio.sleep(0)

        def both() -> None:
            naps.sleeper.wake()
            naps.sleeper.ring()

        asyncio.get_running_loop().call_soon(both)
        for _ in range(3):
            await asyncio.sleep(0)
        assert naps.woken == 1
        await naps.end()

    on(loop, main())


@on_both_loops
def test_to_wake_what_is_awake_does_nothing(loop: str) -> None:
    async def main() -> None:
        sleeper = Sleeper(asyncio.get_running_loop())
        sleeper.ring()
        sleeper.wake()
        woken = asyncio.create_task(asyncio.wait_for(_sleep(sleeper), 0.02))
        with pytest.raises(TimeoutError):
            await woken

    on(loop, main())


async def _sleep(sleeper: Sleeper) -> None:
    await sleeper


@on_both_loops
@pytest.mark.parametrize("woken_first", [False, True])
def test_a_task_that_is_cancelled_while_it_sleeps_gets_its_cancellation(loop: str, *, woken_first: bool) -> None:
    async def main() -> None:
        naps = Naps()
        await asyncio.sleep(0)
        if woken_first:
            naps.sleeper.wake()
        naps.task.cancel("by a test")
        with pytest.raises(asyncio.CancelledError) as caught:
            await naps.task
        assert naps.task.cancelled()
        assert caught.value.args in {("by a test",), ()}
        naps.sleeper.ring()  # after its end it is no error either

    on(loop, main())


@on_both_loops
def test_it_serves_again_after_a_cancellation_that_was_swallowed(loop: str) -> None:
    async def main() -> None:
        sleeper = Sleeper(asyncio.get_running_loop())

        async def stubborn() -> str:
            try:
                await sleeper
            except asyncio.CancelledError:
                await sleeper
            return "woken"

        task = asyncio.create_task(stubborn())
        await asyncio.sleep(0)
        task.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        sleeper.wake()
        assert await task == "woken"

    on(loop, main())


@on_both_loops
def test_the_task_goes_on_in_its_own_context(loop: str) -> None:
    variable = contextvars.ContextVar("variable", default="nobody's")

    async def main() -> None:
        sleeper = Sleeper(asyncio.get_running_loop())
        seen: list[tuple[str, object]] = []

        async def sleep() -> None:
            variable.set("the task's")
            await sleeper
            seen.append((variable.get(), asyncio.current_task()))

        task = asyncio.create_task(sleep())
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(sleeper.ring)
        await task
        assert seen == [("the task's", task)]

    on(loop, main())
