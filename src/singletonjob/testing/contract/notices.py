"""The contract on release notices, for a store that gives them; without, followers ask once per heartbeat."""

# ruff: noqa: S101 - asserts are what tests are made of

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, cast

import pytest

from ..._core.protocol import NO_PROGRESS, Acquire, Release
from .base import Replica, StoreTests, on_a_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["Notices", "subscription"]

HEARD_WITHIN = 5.0
"""Seconds; a store that takes this long has lost the notice."""


def subscription(replica: Replica) -> AsyncGenerator[frozenset[str], None]:
    """The notices of the project `p`, as an asynchronous generator: a thread or a connection may hang on it, so it
    must end when it is told to, not when it is collected."""
    notices = replica.store.notices("p")
    assert isinstance(notices, AsyncGenerator)
    return cast("AsyncGenerator[frozenset[str], None]", notices)


async def heard(notices: AsyncIterator[frozenset[str]]) -> frozenset[str]:
    async with asyncio.timeout(HEARD_WITHIN):
        return await anext(notices)


class Notices(StoreTests):
    """Who hears of a release."""

    @on_a_loop
    async def test_the_first_item_says_that_notices_are_heard(self, a: Replica) -> None:
        async with aclosing(subscription(a)) as notices:
            assert await heard(notices) == frozenset()

    @on_a_loop
    async def test_each_release_is_heard_by_the_others_of_the_project(self, a: Replica, b: Replica) -> None:
        async with aclosing(subscription(b)) as notices:
            await heard(notices)
            for number in range(1, 6):
                await a.token(number=number)
                await a.release(number=number)
                assert await heard(notices) == {"j"}

    @on_a_loop
    async def test_a_lease_that_was_held_before_the_subscription_is_heard_when_it_is_given_back(
        self, a: Replica, b: Replica
    ) -> None:
        await a.token()
        async with aclosing(subscription(b)) as notices:
            await heard(notices)
            await a.release()
            assert await heard(notices) == {"j"}

    @on_a_loop
    async def test_another_project_and_a_release_of_nothing_are_not_heard(self, a: Replica, b: Replica) -> None:
        async with aclosing(subscription(b)) as notices:
            await heard(notices)
            await a.reply(Acquire(job="x", number=1, lock_expiry=10, above=0), project="q")
            await a.reply(Release(job="x", number=1, progress=NO_PROGRESS), project="q")
            await a.release()
            await a.token(number=2, job="last")
            await a.release(number=2, job="last")
            assert await heard(notices) == {"last"}

    @on_a_loop
    async def test_a_cancelled_subscription_ends_and_another_one_hears(self, a: Replica, b: Replica) -> None:
        async def listen() -> None:
            async for _ in b.store.notices("p"):
                told.set()

        told = asyncio.Event()
        task = asyncio.create_task(listen())
        await asyncio.wait_for(told.wait(), HEARD_WITHIN)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await a.token()
        async with aclosing(subscription(b)) as notices:
            assert await heard(notices) == frozenset()
            await a.release()
            assert await heard(notices) == {"j"}
