"""The contract on what is kept beside a lease: claimed slots, and what one leader leaves to the next."""

# ruff: noqa: S101 - asserts are what tests are made of

from __future__ import annotations

from ..._core.protocol import NO_PROGRESS, Claimed, NotClaimed, Progress, Refused, Release
from ...stores.rules import AHEAD
from .base import SECOND, Replica, StoreTests, expect, on_a_loop

__all__ = ["Slots"]


class Slots(StoreTests):
    """A slot is claimed by one term, and reports only grow."""

    @on_a_loop
    async def test_a_slot_is_claimed_by_one_term_however_often_it_asks(self, a: Replica, b: Replica) -> None:
        granted = await a.granted()
        slot = granted.state.wall
        assert [await a.claim(granted.token, slot), await a.claim(granted.token, slot)] == [Claimed(), Claimed()]
        await a.release()
        token = await b.token()
        assert expect(NotClaimed, await b.claim(token, slot)).why == "taken"
        assert await b.claim(token, slot + 1) == Claimed()

    @on_a_loop
    async def test_a_grant_tells_whether_the_term_before_it_was_given_back(self, a: Replica, b: Replica) -> None:
        first = await a.granted(number=1)
        assert not first.state.released  # there was none
        assert expect(Refused, await b.acquire(number=1)).token == first.token
        await a.release(number=1)
        assert (await b.granted(number=1)).state.released == first.token
        assert (await b.granted(number=2)).state.released == first.token  # it never got the answer, say
        await b.ask(Release(job="j", number=2, progress=NO_PROGRESS, unused=True))
        assert not (await a.granted(number=2)).state.released  # no term began with what was given back

    @on_a_loop
    async def test_a_slot_before_the_newest_one_is_taken(self, a: Replica) -> None:
        granted = await a.granted()
        assert await a.claim(granted.token, granted.state.wall) == Claimed()
        assert expect(NotClaimed, await a.claim(granted.token, granted.state.wall - 1)).why == "taken"

    @on_a_loop
    async def test_a_claim_needs_the_term_in_force(self, a: Replica, b: Replica) -> None:
        granted = await a.granted()
        slot = granted.state.wall
        assert expect(NotClaimed, await a.claim(granted.token - 1, slot)).why == "lost"
        assert expect(NotClaimed, await b.claim(granted.token, slot)).why == "lost"
        await a.release()
        assert expect(NotClaimed, await a.claim(granted.token, slot)).why == "lost"
        later = await b.granted()
        assert later.state.slot is None  # none of these left a trace

    @on_a_loop
    async def test_a_slot_more_than_ten_minutes_ahead_of_the_stores_clock_is_refused(self, a: Replica) -> None:
        granted = await a.granted()
        wall = granted.state.wall
        refused = expect(NotClaimed, await a.claim(granted.token, wall + AHEAD + 60 * SECOND))
        assert refused.why == "ahead"
        assert wall <= refused.wall < wall + 60 * SECOND
        assert await a.claim(granted.token, wall + AHEAD - 60 * SECOND) == Claimed()

    @on_a_loop
    async def test_a_tick_that_a_wrong_clock_reported_bars_no_slot(self, a: Replica) -> None:
        granted = await a.granted()
        wall = granted.state.wall
        await a.renew(granted.token, Progress(tick=wall + AHEAD + 60 * SECOND))
        assert await a.claim(granted.token, wall) == Claimed()

    @on_a_loop
    async def test_the_next_leader_reads_what_the_last_one_left(self, a: Replica, b: Replica) -> None:
        granted = await a.granted()
        token, slot = granted.token, granted.state.wall
        await a.claim(token, slot, mark="a mark")
        await a.renew(token, Progress(done=slot, ended_ago=0.5))
        await a.release()
        await self.later(self.short)
        state = (await b.granted()).state
        assert (state.slot, state.slot_token, state.mark, state.done) == (slot, token, "a mark", slot)
        assert state.ended_ago is not None
        assert 0.49 + self.short < state.ended_ago < 5
        assert state.wall > slot

    @on_a_loop
    async def test_a_release_reports_too_and_reports_only_grow(self, a: Replica, b: Replica) -> None:
        granted = await a.granted()
        token, wall = granted.token, granted.state.wall
        await a.renew(token, Progress(tick=wall + 5, done=wall + 3, ended_ago=1.0))
        await a.renew(token, Progress(tick=wall + 4, done=wall + 2, ended_ago=9.0))
        await a.renew(token)
        await a.release(progress=Progress(done=wall + 4))
        state = (await b.granted()).state
        assert (state.slot, state.slot_token, state.done) == (wall + 5, token, wall + 4)
        assert state.ended_ago is not None
        assert 0.99 < state.ended_ago < 5

    @on_a_loop
    async def test_a_replica_without_the_lease_reports_nothing(self, a: Replica, b: Replica) -> None:
        granted = await a.granted()
        report = Progress(tick=granted.state.wall, done=granted.state.wall, ended_ago=0.0)
        await b.renew(granted.token, report)
        await b.release(number=9, progress=report)
        await a.release()
        state = (await b.granted(number=10)).state
        assert (state.slot, state.done, state.ended_ago) == (None, None, None)

    @on_a_loop
    async def test_what_is_owed_begins_at_the_first_sight_moves_with_what_is_settled_and_begins_anew_after_off(
        self, a: Replica, b: Replica
    ) -> None:
        first = await a.granted()
        wall = first.state.wall
        assert first.state.off == wall
        await a.renew(first.token, Progress(settled=wall + 4))
        await a.renew(first.token, Progress(settled=wall + 2))
        await a.renew(first.token, Progress(settled=wall + AHEAD + 60 * SECOND))  # a wrong clock's
        await a.release()
        assert (await b.granted()).state.off == wall + 4
        await b.release(off=True)
        switched_on = (await a.granted(number=2)).state
        assert switched_on.off == switched_on.wall
