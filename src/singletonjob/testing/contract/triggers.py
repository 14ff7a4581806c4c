"""The contract on triggers: taken once, withdrawn for good, and reported with the end of their run."""

# ruff: noqa: S101 - asserts are what tests are made of

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ..._core.orders import FollowTrigger, Trigger
from ..._core.protocol import Claimed, Granted, NotClaimed, Progress, Renewed, TakeTrigger
from .base import Replica, StoreTests, expect, on_a_loop
from .orders import ordered

if TYPE_CHECKING:
    from .base import MakeStore

__all__ = ["Triggers"]


class Triggers(StoreTests):
    """How an operator's extra run is ordered, taken and followed."""

    @pytest.fixture
    def operator(self, make_store: MakeStore) -> Replica:
        return Replica(make_store(), "operator")

    @on_a_loop
    async def test_a_trigger_is_taken_by_one_term_once_however_often_it_asks(
        self, a: Replica, b: Replica, operator: Replica
    ) -> None:
        token = await a.token()
        assert await ordered(operator, Trigger("j", "id", 60)) == "asked"
        assert await ordered(operator, Trigger("j", "other", 60)) == "pending"
        assert expect(Renewed, await a.renew(token)).trigger == "id"
        assert await ordered(operator, FollowTrigger("j", "id")) == "pending"
        take = TakeTrigger("j", token, "id")
        assert [await a.ask(take), await a.ask(take)] == [Claimed(), Claimed()]
        assert await ordered(operator, FollowTrigger("j", "id", withdraw=True)) == "started"
        assert await a.renew(token) == Renewed()
        await a.release()
        later = await b.token()
        assert expect(NotClaimed, await b.ask(TakeTrigger("j", later, "id"))).why == "taken"
        assert expect(NotClaimed, await a.ask(take)).why == "lost"

    @on_a_loop
    async def test_a_trigger_that_came_while_a_run_was_in_flight_is_told_as_that(
        self, a: Replica, operator: Replica
    ) -> None:
        token = await a.token()
        await ordered(operator, Trigger("j", "id", 60))
        assert await a.ask(TakeTrigger("j", token, "id", busy=True)) == Claimed()
        assert await ordered(operator, FollowTrigger("j", "id")) == "busy"
        assert expect(NotClaimed, await a.ask(TakeTrigger("j", token, "id"))).why == "taken"

    @on_a_loop
    async def test_a_trigger_is_not_taken_after_its_time_or_when_it_was_withdrawn(
        self, a: Replica, operator: Replica
    ) -> None:
        token = await a.token()
        await ordered(operator, Trigger("j", "late", self.short))
        await self.later(self.short * 1.1)
        assert await a.renew(token) == Renewed()
        assert expect(NotClaimed, await a.ask(TakeTrigger("j", token, "late"))).why == "taken"
        await ordered(operator, Trigger("j", "back", 60))
        assert await ordered(operator, FollowTrigger("j", "back", withdraw=True)) == "withdrawn"
        assert await ordered(operator, FollowTrigger("j", "back")) == "gone"
        assert expect(NotClaimed, await a.ask(TakeTrigger("j", token, "back"))).why == "taken"

    @on_a_loop
    async def test_an_operator_learns_how_the_run_of_a_trigger_ended(
        self, a: Replica, b: Replica, operator: Replica
    ) -> None:
        token = await a.token()
        for name, outcome in (("1", "ok"), ("2", "failed"), ("3", "timeout")):
            await ordered(operator, Trigger("j", name, 60))
            assert await a.ask(TakeTrigger("j", token, name)) == Claimed()
            assert await ordered(operator, FollowTrigger("j", name)) == "started"
            await a.renew(token, Progress(finished=f"{name};{outcome}"))
            assert await ordered(operator, FollowTrigger("j", name)) == f"ran-{outcome}"
        await ordered(operator, Trigger("j", "4", 60))
        await a.ask(TakeTrigger("j", token, "4"))
        assert await ordered(operator, FollowTrigger("j", "4")) == "started"
        await a.release(progress=Progress(finished="4;cancelled"))
        assert await ordered(operator, FollowTrigger("j", "4")) == "ran-cancelled"
        assert isinstance(await b.acquire(), Granted)
