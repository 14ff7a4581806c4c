"""The contract on what operators order: it is kept, it bars, it is taken once, and it never touches a lease."""

# ruff: noqa: S101 - asserts are what tests are made of

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from ..stores.orders import FollowTrigger, Look, Ordered, Pause, Paused, Resume, StepDown, Trigger
from ..stores.protocol import Acquire, Barred, Claimed, Granted, NotClaimed, Progress, Refused, Renewed, TakeTrigger
from .contract_base import SECOND, Replica, StoreTests, expect, on_a_loop
from .contract_notices import heard, subscription

if TYPE_CHECKING:
    from ..stores.orders import Order
    from .contract_base import MakeStore

__all__ = ["NoticesOfOrders", "Orders"]

PAUSE = Pause(job="j", by="ann@host", reason="a reason; with: signs")


async def ordered(replica: Replica, order: Order) -> str:
    return expect(Ordered, await replica.ask(order)).outcome


class Orders(StoreTests):
    """What an operator can have done, and nothing beyond it."""

    @pytest.fixture
    def operator(self, make_store: MakeStore) -> Replica:
        return Replica(make_store(), "operator")

    @on_a_loop
    async def test_an_order_leaves_the_lease_to_its_holder_also_when_the_operator_is_gone(
        self, a: Replica, b: Replica, operator: Replica
    ) -> None:
        token = await a.token()
        orders = (StepDown("j"), Trigger("j", "id", 60), PAUSE, Resume("j"))
        for order in orders:
            assert expect(Ordered, await operator.ask(order)).holder == "a"
        await operator.store.close()
        assert expect(Refused, await b.acquire()).holder == "a"
        assert expect(Renewed, await a.renew(token)).order == "resigned"

    @on_a_loop
    async def test_an_order_is_read_by_a_leader_whose_renewals_met_none_before(
        self, a: Replica, operator: Replica
    ) -> None:
        token = await a.token()
        assert [await a.renew(token) for _ in range(3)] == [Renewed()] * 3
        await ordered(operator, Trigger("j", "id", 60))
        assert await a.renew(token) == Renewed(trigger="id")
        assert await a.ask(TakeTrigger("j", token, "id")) == Claimed()
        for order, word in ((PAUSE, "paused"), (Resume("j"), ""), (StepDown("j"), "resigned")):
            await ordered(operator, order)
            assert [expect(Renewed, await a.renew(token)).order for _ in range(3)] == [word] * 3

    @on_a_loop
    async def test_nobody_gets_a_lease_that_is_paused_until_it_is_resumed(
        self, a: Replica, b: Replica, operator: Replica
    ) -> None:
        token = await a.token()
        assert await ordered(operator, PAUSE) == "paused"
        assert expect(Refused, await b.acquire()).holder == "a"  # a lease is a lease
        assert expect(Renewed, await a.renew(token)).order == "paused"
        await a.release(off=True)
        for replica in (a, b):
            assert await replica.acquire(number=2) == Barred("paused", None, mine=False)
        assert await ordered(operator, Resume("j")) == "resumed"
        assert await ordered(operator, Resume("j")) == "not-paused"
        assert expect(Granted, await b.acquire(number=3)).token > token

    @on_a_loop
    async def test_a_pause_ends_by_itself(self, a: Replica, operator: Replica) -> None:
        await ordered(operator, PAUSE._replace(seconds=self.short))
        barred = expect(Barred, await a.acquire())
        assert barred.seconds is not None
        assert 0 < barred.seconds <= self.short
        await self.later(self.short * 1.1)
        assert isinstance(await a.acquire(number=2), Granted)

    @on_a_loop
    async def test_a_key_that_names_the_asker_from_before_is_told_to_it_when_it_is_barred(
        self, a: Replica, operator: Replica
    ) -> None:
        await a.token(number=1)
        await ordered(operator, PAUSE)
        assert await a.acquire(number=2) == Barred("paused", None, mine=True)
        await a.release(number=2)
        assert await a.acquire(number=3) == Barred("paused", None, mine=False)

    @on_a_loop
    async def test_a_look_shows_who_paused_when_until_when_and_why(self, a: Replica, operator: Replica) -> None:
        wall = (await a.granted()).state.wall
        await ordered(operator, PAUSE._replace(seconds=60))
        view = await a.view()
        assert view is not None
        assert view.holder == "a"
        assert isinstance(view.paused, Paused)
        assert (view.paused.by, view.paused.reason) == (PAUSE.by, PAUSE.reason)
        assert wall <= view.paused.at < wall + 60 * SECOND
        assert view.paused.until == view.paused.at + 60 * SECOND
        await ordered(operator, Resume("j"))
        view = await a.view()
        assert view is not None
        assert view.paused is None

    @on_a_loop
    async def test_a_job_that_was_never_led_can_be_paused_and_is_shown(self, a: Replica, operator: Replica) -> None:
        assert await ordered(operator, PAUSE) == "paused"
        view = await operator.view()
        assert view is not None
        assert view.holder is None
        assert view.paused is not None
        assert isinstance(await a.acquire(), Barred)

    @on_a_loop
    async def test_slots_of_a_pause_are_not_owed_and_those_after_it_are(
        self, a: Replica, b: Replica, operator: Replica
    ) -> None:
        first = await a.granted()
        await a.renew(first.token, Progress(settled=first.state.wall + 1))
        await ordered(operator, PAUSE)
        await self.later(self.short)
        await ordered(operator, Resume("j"))
        await a.renew(first.token)  # it never heard of the pause
        await self.later(self.short)
        await a.release()
        state = (await b.granted()).state
        assert state.off is not None
        assert first.state.wall + self.short * SECOND * 0.9 < state.off < state.wall - self.short * SECOND * 0.9

    @on_a_loop
    async def test_one_that_was_told_to_step_down_is_barred_until_another_term_began(
        self, a: Replica, b: Replica, operator: Replica
    ) -> None:
        token = await a.token()
        assert await ordered(operator, StepDown("j")) == "asked"
        assert expect(Renewed, await a.renew(token)).order == "resigned"
        await a.release()
        barred = expect(Barred, await a.acquire(number=2))
        assert (barred.why, barred.mine) == ("resigned", False)
        assert barred.seconds is not None
        assert 5 < barred.seconds <= 10
        await b.token()
        await b.release()
        assert isinstance(await a.acquire(number=3), Granted)

    @on_a_loop
    async def test_one_that_was_told_to_step_down_is_barred_no_longer_than_its_lease_would_have_lasted(
        self, a: Replica, operator: Replica
    ) -> None:
        await a.granted(lock_expiry=self.short)
        await ordered(operator, StepDown("j"))
        await a.release()
        assert isinstance(await a.acquire(number=2), Barred)
        await self.later(self.short * 1.1)
        assert isinstance(await a.acquire(number=3), Granted)

    @on_a_loop
    async def test_where_nobody_leads_nobody_can_step_down_or_be_triggered(self, operator: Replica) -> None:
        assert await ordered(operator, StepDown("j")) == "nobody"
        assert await ordered(operator, Trigger("j", "id", 60)) == "nobody"
        assert await ordered(operator, FollowTrigger("j", "id")) == "gone"

    @on_a_loop
    async def test_a_look_tells_who_leads_and_for_how_long(self, a: Replica, b: Replica, operator: Replica) -> None:
        assert expect(Ordered, await operator.ask(Look("j"))) == Ordered("nobody")
        token = await a.token()
        led = expect(Ordered, await operator.ask(Look("j")))
        assert (led.outcome, led.holder) == ("led", "a")
        assert led.expires_in is not None
        assert 5 < led.expires_in <= 10
        assert await a.renew(token) == Renewed()  # it asked for nothing
        await a.release()
        assert expect(Ordered, await operator.ask(Look("j"))) == Ordered("nobody")
        await b.token()
        assert expect(Ordered, await operator.ask(Look("j"))).holder == "b"

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
    async def test_an_order_that_comes_too_late_changes_nothing(self, a: Replica, operator: Replica) -> None:
        clock = (await operator.reply()).clock
        assert (await operator.reply(PAUSE, void_at=clock - 1)).void
        assert isinstance(await a.acquire(), Granted)

    @on_a_loop
    async def test_orders_for_many_jobs_go_in_one_exchange(self, a: Replica, operator: Replica) -> None:
        jobs = [f"j{number}" for number in range(250)]
        await a.reply(*(Acquire(job=job, number=1, lock_expiry=10, above=0) for job in jobs))
        reply = await operator.reply(*(PAUSE._replace(job=job) for job in jobs))
        assert [expect(Ordered, one).outcome for one in reply.verdicts] == ["paused"] * len(jobs)


class NoticesOfOrders(StoreTests):
    """Who hears of an order."""

    @on_a_loop
    async def test_each_order_that_changes_something_is_heard(self, a: Replica, b: Replica) -> None:
        await a.token()
        async with aclosing(subscription(b)) as notices:
            await heard(notices)
            for order in (Trigger("j", "id", 60), StepDown("j"), PAUSE, Resume("j")):
                await a.ask(order)
                assert await heard(notices) == {"j"}
            for nothing in (Resume("j"), FollowTrigger("j", "id"), Look("j")):
                await a.ask(nothing)
            await a.ask(PAUSE._replace(job="last"))
            assert await heard(notices) == {"last"}
