"""The contract on what operators order: it is kept, it bars, it is taken once, and it never touches a lease."""

# ruff: noqa: S101 - asserts are what tests are made of

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest

from ..._core.orders import FollowTrigger, Forget, Look, Ordered, Pause, Paused, Resume, StepDown, Trigger
from ..._core.protocol import Acquire, Barred, Claimed, Granted, Progress, Refused, Renewed, TakeTrigger
from .base import SECOND, Replica, StoreTests, expect, on_a_loop
from .notices import heard, subscription

if TYPE_CHECKING:
    from ..._core.orders import Order
    from .base import MakeStore

__all__ = ["NoticesOfOrders", "Orders"]

PAUSE = Pause(job="j", by="ann@host", reason="a reason; with: 50 % signs")
SAID = "by ann@host: a reason; with: 50 % signs"


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
            assert await replica.acquire(number=2) == Barred("paused", None, mine=False, said=SAID)
        assert await ordered(operator, Resume("j")) == "resumed"
        assert await ordered(operator, Resume("j")) == "not-paused"
        assert expect(Granted, await b.acquire(number=3)).token > token

    @on_a_loop
    async def test_a_pause_is_replaced_only_on_request_and_each_answer_says_which_pause_holds(
        self, a: Replica, operator: Replica
    ) -> None:
        await a.token()
        first = expect(Ordered, await operator.ask(PAUSE._replace(seconds=60)))
        assert (first.outcome, first.was) == ("paused", None)
        assert first.pause is not None
        assert first.pause.until == first.pause.at + 60 * SECOND
        other = Pause(job="j", by="bob@host")
        refused = expect(Ordered, await operator.ask(other))
        assert (refused.outcome, refused.pause, refused.was) == ("is-paused", first.pause, None)
        replaced = expect(Ordered, await operator.ask(other._replace(replace=True)))
        assert (replaced.outcome, replaced.was) == ("paused", first.pause)
        assert replaced.pause is not None
        assert (replaced.pause.by, replaced.pause.until) == ("bob@host", None)
        resumed = expect(Ordered, await operator.ask(Resume("j")))
        assert (resumed.outcome, resumed.pause, resumed.was) == ("resumed", None, replaced.pause)
        assert (await a.view()) is not None

    @on_a_loop
    async def test_a_paused_job_is_neither_handed_over_nor_triggered_and_the_answer_says_who_paused_it(
        self, a: Replica, operator: Replica
    ) -> None:
        await a.token()
        pause = expect(Ordered, await operator.ask(PAUSE)).pause
        for order in (StepDown("j"), Trigger("j", "id", 60)):
            answer = expect(Ordered, await operator.ask(order))
            assert (answer.outcome, answer.pause, answer.holder) == ("is-paused", pause, "a")
        await a.release(off=True)
        for order in (StepDown("j"), Trigger("j", "id", 60)):
            assert expect(Ordered, await operator.ask(order))[:2] == ("is-paused", None)

    @on_a_loop
    async def test_the_leader_of_a_paused_job_hears_who_paused_it_and_why(self, a: Replica, operator: Replica) -> None:
        token = await a.token()
        await ordered(operator, PAUSE)
        assert await a.renew(token) == Renewed("paused", said=SAID)

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
        assert await a.acquire(number=2) == Barred("paused", None, mine=True, said=SAID)
        await a.release(number=2)
        assert await a.acquire(number=3) == Barred("paused", None, mine=False, said=SAID)

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
    async def test_a_job_is_forgotten_only_when_it_is_neither_led_nor_paused_nor_was_so_lately(
        self, a: Replica, operator: Replica
    ) -> None:
        assert await ordered(operator, PAUSE) == "paused"
        forgotten = expect(Ordered, await operator.ask(Forget("j")))
        assert (forgotten.outcome, forgotten.pause is None) == ("is-paused", False)
        await ordered(operator, Resume("j"))
        assert await operator.view() is not None
        assert await ordered(operator, Forget("j")) == "forgotten"
        assert await operator.view() is None
        await a.token()
        assert await ordered(operator, Forget("j")) == "led"
        await a.release()
        assert await ordered(operator, Forget("j")) == "recent"
        assert await operator.view() is not None

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
