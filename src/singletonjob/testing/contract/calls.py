"""The contract's first parts: single calls, whole batches, and calls that come late, twice or not to an end."""

# ruff: noqa: S101 - asserts are what tests are made of

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from ..._core.errors import StoreError
from ..._core.protocol import (
    NO_PROGRESS,
    Acquire,
    Claimed,
    ClaimSlot,
    Granted,
    Refused,
    Release,
    Released,
    Renew,
    Renewed,
)
from .base import SECOND, Replica, StoreTests, expect, on_a_loop

if TYPE_CHECKING:
    from .base import MakeStore

__all__ = ["Base", "Batches", "LateCalls"]


class Base(StoreTests):
    """One request at a time: who has the lease, its token, and what others are told."""

    @on_a_loop
    async def test_a_reading_tells_the_stores_clock_and_up_time_and_asks_for_nothing(self, a: Replica) -> None:
        before = await a.reply()
        await self.later(0.1)
        after = await a.reply()
        assert (before.verdicts, before.void) == ((), False)
        assert 0.09 < (after.clock - before.clock) / SECOND < 5
        assert before.up_for is None or before.up_for >= 0

    @on_a_loop
    async def test_one_replica_has_the_lease_and_the_others_learn_who_and_for_how_long(
        self, a: Replica, b: Replica
    ) -> None:
        await a.token()
        refused = expect(Refused, await b.acquire())
        assert (refused.holder, refused.foreign) == ("a", False)
        assert refused.expires_in is not None
        assert 5 < refused.expires_in <= 10
        await a.acquire(number=2, lock_expiry=1000)
        refused = expect(Refused, await b.acquire())
        assert refused.expires_in is not None
        assert 990 < refused.expires_in <= 1000  # one that ends a tenth early ends before its holder thinks so

    @on_a_loop
    async def test_many_who_ask_at_once_get_one_grant(self, make_store: MakeStore) -> None:
        replicas = [Replica(make_store(), f"n-{number}") for number in range(8)]
        await asyncio.gather(*(replica.reply() for replica in replicas))
        verdicts = await asyncio.gather(*(replica.acquire() for replica in replicas))
        assert sum(isinstance(verdict, Granted) for verdict in verdicts) == 1
        await asyncio.gather(*(replica.store.close() for replica in replicas))

    @on_a_loop
    async def test_jobs_and_projects_do_not_meet(self, a: Replica, b: Replica) -> None:
        await a.token()
        assert isinstance(await b.acquire(job="j2"), Granted)
        assert isinstance(await b.acquire(number=2, job="J"), Granted)
        reply = await b.reply(Acquire(job="j", number=3, lock_expiry=10, above=0), project="q")
        assert isinstance(reply.verdicts[0], Granted)

    @pytest.mark.parametrize(("mine", "other"), [("n-10", "n-1"), ("n-1", "n-10"), ("N-1", "n-1"), ("n 1", "n")])
    @on_a_loop
    async def test_c23_names_are_compared_whole(self, make_store: MakeStore, mine: str, other: str) -> None:
        holder, asking = Replica(make_store(), mine), Replica(make_store(), other)
        token = await holder.token()
        assert expect(Refused, await asking.acquire(number=5)).holder == mine
        assert isinstance(await asking.renew(token), Refused)
        assert await asking.release(number=5) == Released(mine=False)
        assert await holder.renew(token) == Renewed()
        await holder.store.close()
        await asking.store.close()

    @on_a_loop
    async def test_a_renewal_never_acquires(self, a: Replica, b: Replica) -> None:
        assert await a.renew(1) == Refused(holder=None, expires_in=None)
        token = await a.token()
        assert await a.release() == Released(mine=True)
        assert await a.renew(token) == Refused(holder=None, expires_in=None)
        assert isinstance(await b.acquire(), Granted)

    @on_a_loop
    async def test_a_renewal_needs_the_token_of_the_term(self, a: Replica) -> None:
        token = await a.token()
        assert expect(Refused, await a.renew(token - 1)).holder == "a"
        assert expect(Refused, await a.renew(token + 1)).holder == "a"
        assert await a.renew(token) == Renewed()

    @on_a_loop
    async def test_a_renewal_of_an_earlier_term_of_the_same_replica_is_refused_however_often_it_was_renewed(
        self, a: Replica
    ) -> None:
        earlier = await a.token(number=1)
        assert [await a.renew(earlier) for _ in range(3)] == [Renewed()] * 3
        later = await a.token(number=2)
        assert expect(Refused, await a.renew(earlier)).holder == "a"
        assert [await a.renew(later) for _ in range(3)] == [Renewed()] * 3
        assert expect(Refused, await a.renew(earlier)).holder == "a"

    @on_a_loop
    async def test_a_renewal_with_the_token_of_anothers_term_is_refused(self, a: Replica, b: Replica) -> None:
        token = await a.token()
        assert [await a.renew(token) for _ in range(3)] == [Renewed()] * 3
        assert expect(Refused, await b.renew(token)).holder == "a"

    @on_a_loop
    async def test_a_renewal_behind_the_release_in_one_batch_is_refused(self, a: Replica) -> None:
        token = await a.token()
        assert [await a.renew(token) for _ in range(3)] == [Renewed()] * 3
        renewal = Renew(job="j", token=token, lock_expiry=10, progress=NO_PROGRESS)
        reply = await a.reply(renewal, Release(job="j", number=1, progress=NO_PROGRESS), renewal)
        assert reply.verdicts == (Renewed(), Released(mine=True), Refused(None, None))

    @on_a_loop
    async def test_a_release_frees_the_lease_for_anybody_and_says_whether_it_did(self, a: Replica, b: Replica) -> None:
        await a.token()
        assert await b.release(number=9) == Released(mine=False)
        assert await a.release() == Released(mine=True)
        assert await a.release() == Released(mine=False)
        assert isinstance(await b.acquire(), Granted)

    @on_a_loop
    async def test_tokens_grow_and_exceed_the_wall_clock_and_what_the_replica_has_seen(
        self, a: Replica, b: Replica
    ) -> None:
        first = await a.granted(number=1)
        assert first.token >= first.state.wall  # so that it exceeds those of data that were lost
        tokens = [first.token]
        await a.release(number=1)
        tokens.append(await b.token(number=1))
        await b.release(number=1)
        tokens += [await a.token(number=number) for number in range(2, 6)]
        seen = first.token + 3600 * SECOND + 1  # all its digits count
        tokens.append(expect(Granted, await a.acquire(number=6, above=seen)).token)
        tokens.append(expect(Granted, await a.acquire(number=7)).token)
        assert tokens == sorted(set(tokens))
        assert tokens[-2] == seen + 1
        assert await a.renew(tokens[-1]) == Renewed()


class Batches(StoreTests):
    """Many requests in one exchange."""

    @on_a_loop
    async def test_the_verdicts_of_a_batch_come_in_its_order(self, a: Replica) -> None:
        granted = await a.granted(job="x")
        token = granted.token
        reply = await a.reply(
            Acquire(job="y", number=2, lock_expiry=10, above=0),
            Renew(job="x", token=token, lock_expiry=10, progress=NO_PROGRESS),
            Release(job="z", number=1, progress=NO_PROGRESS),
            ClaimSlot(job="x", token=token, slot=granted.state.wall, mark="m"),
            Release(job="x", number=1, progress=NO_PROGRESS),
            Renew(job="x", token=token, lock_expiry=10, progress=NO_PROGRESS),
        )
        assert [type(verdict) for verdict in reply.verdicts] == [Granted, Renewed, Released, Claimed, Released, Refused]

    @on_a_loop
    async def test_hundreds_of_jobs_go_in_one_exchange_and_each_has_its_own_verdict(
        self, a: Replica, b: Replica
    ) -> None:
        jobs = [f"job-{number}" for number in range(250)]
        await b.reply(*(Acquire(job, 1, 10, 0) for job in jobs[::7]))
        verdicts = (await a.reply(*(Acquire(job, 1, 10, 0) for job in jobs))).verdicts
        assert [isinstance(verdict, Refused) for verdict in verdicts] == [n % 7 == 0 for n in range(250)]
        renewals = [
            Renew(job, verdict.token, 10, NO_PROGRESS)
            for job, verdict in zip(jobs, verdicts, strict=True)
            if isinstance(verdict, Granted)
        ]
        assert set((await a.reply(*renewals)).verdicts) == {Renewed()}


class LateCalls(StoreTests):
    """Calls that the network kept back, delivered twice, or whose answer it lost."""

    @on_a_loop
    async def test_a_batch_that_comes_too_late_changes_nothing_and_tells_the_stores_clock(
        self, a: Replica, b: Replica
    ) -> None:
        granted = await a.granted(job="mine")
        requests = (
            Acquire(job="free", number=2, lock_expiry=10, above=0),
            Renew(job="mine", token=granted.token, lock_expiry=1000, progress=NO_PROGRESS),
            ClaimSlot(job="mine", token=granted.token, slot=granted.state.wall, mark="m"),
            Release(job="mine", number=1, progress=NO_PROGRESS),
        )
        clock = (await a.reply()).clock
        reply = await a.reply(*requests, void_at=clock - 1)
        assert (reply.void, reply.verdicts) == (True, ())
        assert reply.clock >= clock
        assert isinstance(await b.acquire(job="free"), Granted)
        refused = expect(Refused, await b.acquire(number=2, job="mine"))
        assert refused.expires_in is not None
        assert refused.expires_in <= 10

    @on_a_loop
    async def test_a_batch_that_comes_in_time_is_carried_out(self, a: Replica) -> None:
        clock = (await a.reply()).clock
        reply = await a.reply(Acquire("j", 1, 10, 0), void_at=clock + 5 * SECOND)
        assert (reply.void, [type(verdict) for verdict in reply.verdicts]) == (False, [Granted])

    @on_a_loop
    async def test_c39_a_grant_whose_answer_was_lost_is_taken_up_by_the_next_ask(self, a: Replica, b: Replica) -> None:
        lost = await a.token(number=1)  # the answer does not arrive
        granted = await a.granted(number=2)
        assert granted.token > lost
        assert await a.renew(granted.token) == Renewed()
        assert expect(Refused, await b.acquire()).holder == "a"

    @pytest.mark.parametrize("number", [3, 2])
    @on_a_loop
    async def test_an_acquisition_of_a_number_that_was_used_changes_nothing(self, a: Replica, number: int) -> None:
        token = await a.token(number=3)
        assert expect(Refused, await a.acquire(number=number, lock_expiry=1000)).holder == "a"
        view = await a.view()
        assert view is not None
        assert view.token == token
        assert view.expires_in is not None
        assert view.expires_in <= 10
        assert await a.renew(token) == Renewed()

    @on_a_loop
    async def test_numbers_are_compared_as_numbers(self, a: Replica) -> None:
        await a.token(number=9)
        token = await a.token(number=10)
        assert expect(Refused, await a.acquire(number=9)).holder == "a"
        assert await a.release(number=9) == Released(mine=False)
        assert await a.renew(token) == Renewed()
        assert await a.release(number=100) == Released(mine=True)

    @on_a_loop
    async def test_a_late_release_of_my_own_cannot_end_my_later_term(self, a: Replica) -> None:
        await a.token(number=1)
        token = await a.token(number=2)
        assert await a.release(number=1) == Released(mine=False)
        assert await a.renew(token) == Renewed()

    @on_a_loop
    async def test_c38_a_late_or_repeated_release_cannot_end_the_term_of_another(self, a: Replica, b: Replica) -> None:
        await a.token()
        await a.release()
        token = await b.token()
        assert await a.release() == Released(mine=False)
        assert await a.release(number=99) == Released(mine=False)
        assert await b.renew(token) == Renewed()

    @on_a_loop
    async def test_a_late_renewal_of_my_earlier_term_does_not_extend_my_later_one(self, a: Replica) -> None:
        first = await a.token(number=1)
        await a.token(number=2)
        assert expect(Refused, await a.renew(first)).holder == "a"

    @on_a_loop
    async def test_a_call_that_was_cancelled_leaves_the_store_usable_and_the_lease_in_one_piece(
        self, a: Replica, b: Replica
    ) -> None:
        await a.reply()
        await b.reply()
        for number in range(1, 11):
            call = asyncio.create_task(a.acquire(number=number))
            await asyncio.sleep(0.0003 * number)
            call.cancel()
            with suppress(asyncio.CancelledError, StoreError):
                await call
            await a.reply()  # after a cancelled call a store may need a new connection
        # Whatever became of those, a release that covers them leaves nothing behind.
        await a.release(number=10)
        token = await b.token()
        assert await b.renew(token) == Renewed()
