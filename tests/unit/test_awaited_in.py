"""`awaited_in`: an await whose steps see the variables of another context, and which is an await in all else."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from singletonjob._jobs.user_code import awaited_in

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator

bound: contextvars.ContextVar[str] = contextvars.ContextVar("bound", default="nothing")


class Answer:
    """An awaitable that is no coroutine."""

    def __await__(self) -> Generator[Any, None, str]:
        yield from asyncio.sleep(0).__await__()
        bound.set("inside")
        return bound.get()


async def bind() -> str:
    await asyncio.sleep(0)
    bound.set("inside")
    await asyncio.sleep(0)
    return bound.get()


async def a_future() -> Any:
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, "inside")
    return await awaited_in(contextvars.copy_context(), future)


@pytest.mark.parametrize("make", [bind, Answer, a_future], ids=["coroutine", "object", "future"])
async def test_it_returns_what_the_awaitable_returns_and_what_that_binds_stays_in_the_context(
    make: type[Awaitable[str]],
) -> None:
    context = contextvars.copy_context()
    assert await awaited_in(context, make()) == "inside"
    assert bound.get() == "nothing"
    assert context.get(bound) == ("inside" if make is not a_future else None)


async def test_a_cancellation_reaches_the_awaitable_which_may_unwind_in_its_context_and_answer_it() -> None:
    seen: list[str] = []

    async def unwind() -> str:
        bound.set("inside")
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            seen.append(bound.get())
        return "went on"

    async def outer() -> tuple[str, int]:
        answer = await awaited_in(contextvars.copy_context(), unwind())
        task = asyncio.current_task()
        assert task is not None
        return answer, task.cancelling()

    task = asyncio.create_task(outer())
    await asyncio.sleep(0)
    task.cancel()
    assert await task == ("went on", 1)
    assert seen == ["inside"]


async def test_an_error_inside_comes_out_with_no_other_error_as_its_context_and_leaves_no_cycle_behind() -> None:
    class Held:
        pass

    async def fail() -> None:
        held = Held()
        refs.append(weakref.ref(held))
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.get_running_loop().create_future(), 0)
        raise LookupError("mine")

    refs: list[weakref.ref[Held]] = []
    gc.disable()
    try:
        with pytest.raises(LookupError, match="mine") as caught:
            await awaited_in(contextvars.copy_context(), fail())
        assert caught.value.__context__ is None
        del caught
        assert refs[0]() is None
    finally:
        gc.enable()


async def test_closed_before_its_end_it_closes_the_awaitable_in_its_context() -> None:
    seen: list[str] = []

    async def hang() -> None:
        bound.set("inside")
        try:
            await asyncio.sleep(100)
        finally:
            seen.append(bound.get())

    async def outer() -> None:
        await awaited_in(contextvars.copy_context(), hang())

    coroutine = outer()
    coroutine.send(None)
    coroutine.close()
    assert seen == ["inside"]
