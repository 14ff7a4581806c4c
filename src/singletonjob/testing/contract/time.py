"""The contract on what ends by itself: a lease ends when its holder said, for everybody at once."""

# ruff: noqa: S101 - asserts are what tests are made of

from __future__ import annotations

from ..._core.protocol import NO_PROGRESS, Granted, NotClaimed, Refused, Released, Renew, Renewed
from .base import Replica, StoreTests, expect, on_a_loop

__all__ = ["Expiry"]


class Expiry(StoreTests):
    """Leases that nobody renews."""

    @on_a_loop
    async def test_a_lease_that_nobody_renews_ends_and_the_next_term_has_a_higher_token(
        self, a: Replica, b: Replica
    ) -> None:
        await b.reply()
        first = (await a.granted(lock_expiry=self.short)).token
        refused = expect(Refused, await b.acquire())
        assert refused.expires_in is not None
        assert 0 < refused.expires_in <= self.short
        await self.later(self.short * 1.25)
        assert await b.token() > first

    @on_a_loop
    async def test_c36_the_expiry_that_the_holder_set_counts_not_that_of_who_asks(self, a: Replica, b: Replica) -> None:
        await a.granted(lock_expiry=10)
        assert isinstance(await b.acquire(number=1, lock_expiry=self.short), Refused)
        await self.later(self.short * 1.25)
        assert isinstance(await b.acquire(number=2, lock_expiry=self.short), Refused)

    @on_a_loop
    async def test_a_renewal_extends_the_lease_from_the_moment_it_arrives(self, a: Replica, b: Replica) -> None:
        token = (await a.granted(lock_expiry=3)).token
        assert await a.renew(token) == Renewed()
        refused = expect(Refused, await b.acquire())
        assert refused.expires_in is not None
        assert 5 < refused.expires_in <= 10

    @on_a_loop
    async def test_each_renewal_of_a_batch_extends_its_own_lease_by_its_own_time(self, a: Replica, b: Replica) -> None:
        lasting = {"short": 10.0, "long": 60.0}
        tokens = {job: await a.token(job=job) for job in lasting}
        renewals = [Renew(job, tokens[job], seconds, NO_PROGRESS) for job, seconds in lasting.items()]
        for batch in (renewals, renewals[::-1], renewals):  # a store may know by then that there is nothing to tell
            assert (await a.reply(*batch)).verdicts == (Renewed(), Renewed())
        for job, seconds in lasting.items():
            refused = expect(Refused, await b.acquire(job=job))
            assert refused.expires_in is not None
            assert seconds - 5 < refused.expires_in <= seconds

    @on_a_loop
    async def test_a_renewal_that_comes_after_the_end_does_not_revive(self, a: Replica, b: Replica) -> None:
        token = (await a.granted(lock_expiry=self.short)).token
        await self.later(self.short * 1.25)
        assert await a.renew(token) == Refused(holder=None, expires_in=None)
        assert isinstance(await b.acquire(), Granted)
        assert expect(Refused, await a.renew(token)).holder == "b"

    @on_a_loop
    async def test_what_comes_after_the_end_cannot_touch_the_next_term(self, a: Replica, b: Replica) -> None:
        granted = await a.granted(lock_expiry=self.short)
        await self.later(self.short * 1.25)
        token = await b.token()
        assert await a.release(number=99) == Released(mine=False)
        assert expect(NotClaimed, await a.claim(granted.token, granted.state.wall)).why == "lost"
        assert expect(Refused, await a.acquire(number=2)).holder == "b"
        assert await b.renew(token) == Renewed()

    @on_a_loop
    async def test_a_lease_that_ended_is_nobodys_and_gives_nothing_back(self, a: Replica, b: Replica) -> None:
        await a.granted(lock_expiry=self.short)
        await self.later(self.short * 1.25)
        view = await b.view()
        assert view is not None
        assert view.holder is None
        assert await a.release() == Released(mine=False)
