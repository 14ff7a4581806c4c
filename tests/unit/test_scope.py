"""The scope around a call: its own end is told from everybody else's, and none is lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from singletonjob._runtime.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def call(
    what: Callable[[], Awaitable[object]], then: Callable[[Scope, asyncio.Task[None]], None]
) -> list[object]:
    """What came of `what` in a scope to which `then` was done: the error, if any, and whether the end was the scope's;
    and at last how many cancellations of the task are left."""
    seen: list[object] = []
    scopes: list[Scope] = []

    async def run() -> None:
        task: asyncio.Task[None] | None = asyncio.current_task()
        assert task is not None
        scope = Scope(task)
        scopes.append(scope)
        try:
            await what()
            seen.append(None)
        except BaseException as error:
            seen.append(type(error))
        seen.append(scope.close())
        seen.append(task.cancelling())

    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    then(scopes[0], task)
    await asyncio.wait({task})
    return seen


async def sleep() -> None:
    await asyncio.sleep(3600)


async def swallow() -> None:
    with pytest.raises(asyncio.CancelledError):
        await sleep()


async def answer_with_another() -> None:
    try:
        await sleep()
    except asyncio.CancelledError:
        raise KeyError from None


async def test_its_own_end_is_its_own() -> None:
    assert await call(sleep, lambda scope, _: scope.cancel(over=False)) == [asyncio.CancelledError, True, 0]


async def test_a_cancellation_from_outside_is_not() -> None:
    def outside(_: Scope, task: asyncio.Task[None]) -> None:
        task.cancel()

    assert await call(sleep, outside) == [asyncio.CancelledError, False, 1]


async def test_with_both_at_once_the_one_from_outside_is_left() -> None:
    def both(scope: Scope, task: asyncio.Task[None]) -> None:
        scope.cancel(over=False)
        task.cancel()

    assert await call(sleep, both) == [asyncio.CancelledError, False, 1]


async def test_asked_twice_it_cancels_once() -> None:
    def twice(scope: Scope, _: asyncio.Task[None]) -> None:
        scope.cancel(over=False)
        scope.cancel(over=False)

    assert await call(sleep, twice) == [asyncio.CancelledError, True, 0]


@pytest.mark.parametrize("ends", [(False, True), (False, True, True), (False, True, False)])
async def test_when_its_time_is_over_a_call_that_is_busy_with_its_end_is_cancelled_once_more(
    ends: tuple[bool, ...],
) -> None:
    begun = asyncio.Event()
    cancelled: list[str] = []

    async def clean_up_for_long() -> None:
        try:
            await sleep()
        finally:
            cancelled.append("the call")
            begun.set()
            try:
                await sleep()
            finally:
                cancelled.append("its end")
                await asyncio.sleep(0.01)
                cancelled.append("no more")

    async def end(scope: Scope) -> None:
        scope.cancel(over=ends[0])
        await begun.wait()
        for over in ends[1:]:
            scope.cancel(over=over)
            await asyncio.sleep(0.001)

    ending: list[asyncio.Task[None]] = []
    result = await call(clean_up_for_long, lambda scope, _: ending.append(asyncio.create_task(end(scope))))
    assert result == [asyncio.CancelledError, True, 0]
    assert cancelled == ["the call", "its end", "no more"]


async def test_a_call_that_swallows_its_end_leaves_nothing_behind() -> None:
    assert await call(swallow, lambda scope, _: scope.cancel(over=False)) == [None, True, 0]


async def test_a_call_that_answers_its_end_with_another_error_keeps_that_error() -> None:
    assert await call(answer_with_another, lambda scope, _: scope.cancel(over=False)) == [KeyError, True, 0]


async def test_unharmed_it_has_ended_nothing() -> None:
    async def quick() -> None:
        await asyncio.sleep(0.001)

    assert await call(quick, lambda *_: None) == [None, False, 0]


async def test_after_its_close_it_says_no_more() -> None:
    task = asyncio.current_task()
    assert task is not None
    scope = Scope(task)
    scope.cancel(over=False)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.sleep(0)
    assert scope.close()
    assert not scope.close()
    assert task.cancelling() == 0
