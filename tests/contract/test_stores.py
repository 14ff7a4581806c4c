"""What every store must do, whatever keeps its leases: one set of rules, run on each."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Protocol, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from singletonjob._model import Now
from singletonjob.stores.memory import MemoryStore
from singletonjob.stores.protocol import (
    Acquire,
    Batch,
    Claimed,
    ClaimSlot,
    Granted,
    NotClaimed,
    Progress,
    Refused,
    Release,
    Released,
    Renew,
    Renewed,
    Reply,
    Request,
    Verdict,
)
from singletonjob.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from singletonjob.stores import LeaseStore

T = TypeVar("T", bound=Verdict)

SECOND = 1_000_000
WALL = 1_800_000_000 * SECOND
NOTHING = Progress()


class HandClock:
    """A machine's clocks, moved by hand."""

    def __init__(self) -> None:
        self.seconds = 50.0
        self.micros = WALL

    def boot(self) -> float:
        return self.seconds

    def wall(self) -> int:
        return self.micros

    def now(self) -> Now:
        return Now(self.micros, self.seconds)

    def later(self, seconds: float) -> None:
        self.seconds += seconds
        self.micros += round(seconds * SECOND)


class Ground(Protocol):
    """One place where leases are kept, and the replicas' ways to it."""

    clock: HandClock

    def store(self) -> LeaseStore:
        """Another replica's store on the same leases."""
        ...


class MemoryGround:
    def __init__(self) -> None:
        self.clock = HandClock()
        self._store = MemoryStore(self.clock)

    def store(self) -> LeaseStore:
        return self._store


class SqliteGround:
    def __init__(self, path: Path) -> None:
        self.clock = HandClock()
        self._path = path

    def store(self) -> LeaseStore:
        return SqliteStore(self._path, self.clock)


class Replica:
    """One replica's questions, each in an exchange of its own."""

    def __init__(self, store: LeaseStore, node: str) -> None:
        self.store = store
        self.node = node

    async def reply(self, *requests: Request, void_at: int | None = None, project: str = "p") -> Reply:
        batch = Batch(project=project, node=self.node, bound=5.0, void_at=void_at, requests=requests)
        return await self.store.exchange(batch)

    async def ask(self, request: Request) -> Verdict:
        (verdict,) = (await self.reply(request)).verdicts
        return verdict

    async def acquire(self, number: int = 1, lock_expiry: float = 10, above: int = 0, job: str = "j") -> Verdict:
        return await self.ask(Acquire(job=job, number=number, lock_expiry=lock_expiry, above=above))

    async def token(self, number: int = 1, job: str = "j") -> int:
        return expect(Granted, await self.acquire(number, job=job)).token

    async def renew(self, token: int, progress: Progress = NOTHING) -> Verdict:
        return await self.ask(Renew(job="j", token=token, lock_expiry=10, progress=progress))

    async def release(
        self, number: int = 1, progress: Progress = NOTHING, off: bool = False, job: str = "j"
    ) -> Verdict:
        return await self.ask(Release(job=job, number=number, progress=progress, off=off))

    async def claim(self, token: int, slot: int) -> Verdict:
        return await self.ask(ClaimSlot(job="j", token=token, slot=slot, mark="m"))


def expect(kind: type[T], verdict: Verdict) -> T:
    assert isinstance(verdict, kind), verdict
    return verdict


@pytest.fixture(params=["memory", "sqlite"])
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Ground:
    return MemoryGround() if request.param == "memory" else SqliteGround(tmp_path / "leases.db")


@pytest.fixture
async def a(ground: Ground) -> AsyncIterator[Replica]:
    async for replica in _replica(ground, "a"):
        yield replica


@pytest.fixture
async def b(ground: Ground) -> AsyncIterator[Replica]:
    async for replica in _replica(ground, "b"):
        yield replica


async def _replica(ground: Ground, node: str) -> AsyncIterator[Replica]:
    replica = Replica(ground.store(), node)
    await replica.reply()
    yield replica
    await replica.store.close()


class TestLeaseStore:
    async def test_a_reading_tells_the_clock_and_that_nothing_is_forgotten(self, ground: Ground, a: Replica) -> None:
        assert await a.reply() == Reply(clock=50 * SECOND, up_for=math.inf)
        ground.clock.later(1.5)
        assert (await a.reply()).clock == 51_500_000

    async def test_one_replica_has_the_lease_and_the_others_learn_who_and_for_how_long(
        self, ground: Ground, a: Replica, b: Replica
    ) -> None:
        await a.token()
        ground.clock.later(4)
        assert await b.acquire() == Refused(holder="a", expires_in=6.0)

    async def test_many_who_ask_at_once_get_one_grant(self, ground: Ground) -> None:
        replicas = [Replica(ground.store(), f"n-{number}") for number in range(8)]
        await asyncio.gather(*(replica.reply() for replica in replicas))
        verdicts = await asyncio.gather(*(replica.acquire() for replica in replicas))
        assert sum(isinstance(verdict, Granted) for verdict in verdicts) == 1
        await asyncio.gather(*(replica.store.close() for replica in replicas))

    async def test_the_verdicts_of_a_batch_come_in_its_order(self, a: Replica) -> None:
        token = await a.token(job="x")
        reply = await a.reply(
            Acquire(job="y", number=2, lock_expiry=10, above=0),
            Renew(job="x", token=token, lock_expiry=10, progress=NOTHING),
            Release(job="z", number=1, progress=NOTHING),
            ClaimSlot(job="x", token=token, slot=WALL, mark="m"),
            Release(job="x", number=1, progress=NOTHING),
            Renew(job="x", token=token, lock_expiry=10, progress=NOTHING),
        )
        assert [type(verdict) for verdict in reply.verdicts] == [Granted, Renewed, Released, Claimed, Released, Refused]

    async def test_projects_do_not_meet(self, a: Replica, b: Replica) -> None:
        await a.token()
        reply = await b.reply(Acquire(job="j", number=1, lock_expiry=10, above=0), project="q")
        assert isinstance(reply.verdicts[0], Granted)

    async def test_a_batch_that_comes_too_late_changes_nothing_and_says_so(
        self, ground: Ground, a: Replica, b: Replica
    ) -> None:
        request = Acquire(job="j", number=1, lock_expiry=10, above=0)
        assert await a.reply(request, void_at=50 * SECOND - 1) == Reply(clock=50 * SECOND, void=True)
        assert isinstance(await b.acquire(), Granted)
        ground.clock.later(10)
        assert isinstance((await a.reply(request, void_at=60 * SECOND)).verdicts[0], Granted)

    async def test_c39_a_grant_whose_answer_was_lost_is_taken_up_by_the_next_ask(
        self, ground: Ground, a: Replica, b: Replica
    ) -> None:
        await a.acquire(number=1)  # the answer does not arrive
        ground.clock.later(2)
        granted = expect(Granted, await a.acquire(number=2))
        assert await a.renew(granted.token) == Renewed()
        assert await b.acquire() == Refused(holder="a", expires_in=10.0)

    async def test_a_duplicate_of_an_acquisition_changes_nothing(self, ground: Ground, a: Replica, b: Replica) -> None:
        token = await a.token(number=2)
        ground.clock.later(3)
        assert await a.acquire(number=2) == Refused(holder="a", expires_in=7.0)
        assert await a.acquire(number=1) == Refused(holder="a", expires_in=7.0)
        assert await a.renew(token) == Renewed()

    async def test_c36_the_expiry_that_the_holder_set_counts(self, ground: Ground, a: Replica, b: Replica) -> None:
        await a.acquire(lock_expiry=30)
        ground.clock.later(29)
        assert await b.acquire(lock_expiry=10) == Refused(holder="a", expires_in=1.0)
        ground.clock.later(1)
        assert isinstance(await b.acquire(lock_expiry=10), Granted)

    async def test_c38_a_release_cannot_end_a_later_term(self, ground: Ground, a: Replica, b: Replica) -> None:
        await a.token()
        ground.clock.later(10)
        token = await b.token()
        assert await a.release(number=99) == Released(mine=False)
        assert await b.renew(token) == Renewed()
        assert await b.release() == Released(mine=True)
        assert await b.release() == Released(mine=False)

    async def test_a_late_release_of_my_own_cannot_end_my_later_term(self, a: Replica) -> None:
        await a.token(number=1)
        token = await a.token(number=2)
        assert await a.release(number=1) == Released(mine=False)
        assert await a.renew(token) == Renewed()

    async def test_c23_names_are_compared_whole(self, ground: Ground) -> None:
        mine, other = Replica(ground.store(), "n-10"), Replica(ground.store(), "n-1")
        await mine.reply()
        await other.reply()
        token = await mine.token()
        assert expect(Refused, await other.acquire(number=5)).holder == "n-10"
        assert isinstance(await other.renew(token), Refused)
        assert await other.release(number=5) == Released(mine=False)
        assert await mine.renew(token) == Renewed()
        await mine.store.close()
        await other.store.close()

    async def test_a_late_renewal_does_not_revive(self, ground: Ground, a: Replica, b: Replica) -> None:
        token = await a.token()
        ground.clock.later(10)
        assert await a.renew(token) == Refused(holder=None, expires_in=None)
        assert isinstance(await b.acquire(), Granted)

    async def test_tokens_grow_across_release_expiry_and_a_wall_clock_that_goes_back(
        self, ground: Ground, a: Replica, b: Replica
    ) -> None:
        tokens = [await a.token(number=1)]
        await a.release(number=1)
        ground.clock.micros -= 3600 * SECOND
        tokens.append(await b.token(number=1))
        ground.clock.later(10)
        tokens.append(await a.token(number=2))
        tokens.append(expect(Granted, await a.acquire(number=3, above=WALL * 2)).token)
        assert tokens == sorted(set(tokens))
        assert tokens[-1] > WALL * 2

    async def test_a_slot_is_claimed_by_one_term_however_often_it_asks(self, a: Replica, b: Replica) -> None:
        token = await a.token()
        assert [await a.claim(token, WALL), await a.claim(token, WALL)] == [Claimed(), Claimed()]
        await a.release()
        assert await b.claim(await b.token(), WALL) == NotClaimed(why="taken", wall=WALL)

    async def test_the_next_leader_reads_what_the_last_one_left(self, ground: Ground, a: Replica, b: Replica) -> None:
        token = await a.token()
        await a.claim(token, WALL)
        ground.clock.later(2)
        await a.renew(token, Progress(done=WALL, ended_ago=0.5))
        await a.release(off=True)
        ground.clock.later(3)
        state = expect(Granted, await b.acquire()).state
        assert (state.slot, state.slot_token, state.mark, state.done) == (WALL, token, "m", WALL)
        assert (state.ended_ago, state.off, state.wall) == (3.5, ground.clock.micros, ground.clock.micros)


class TestNotices:
    async def test_the_first_item_says_that_notices_are_heard(self, a: Replica) -> None:
        async with aclosing(subscription(a)) as notices:
            assert await anext(notices) == frozenset()

    async def test_a_release_is_heard_by_the_others_of_the_project(self, a: Replica, b: Replica) -> None:
        async with aclosing(subscription(b)) as notices:
            await anext(notices)
            for number in range(1, 6):
                await a.token(number=number)
                await a.release(number=number)
                async with asyncio.timeout(5):
                    assert await anext(notices) == {"j"}

    async def test_a_lease_that_was_held_before_the_subscription_is_heard_when_it_is_given_back(
        self, a: Replica, b: Replica
    ) -> None:
        await a.token()
        async with aclosing(subscription(b)) as notices:
            await anext(notices)
            await a.release()
            async with asyncio.timeout(5):
                assert await anext(notices) == {"j"}

    async def test_another_project_and_a_release_of_nothing_are_not_heard(self, a: Replica, b: Replica) -> None:
        async with aclosing(subscription(b)) as notices:
            await anext(notices)
            await a.reply(Acquire(job="x", number=1, lock_expiry=10, above=0), project="q")
            await a.reply(Release(job="x", number=1, progress=NOTHING), project="q")
            await a.release()
            await a.token(number=2, job="last")
            await a.release(number=2, job="last")
            async with asyncio.timeout(5):
                assert await anext(notices) == {"last"}

    async def test_a_cancelled_subscription_ends_and_another_one_hears(self, a: Replica, b: Replica) -> None:
        async def listen() -> None:
            async for _ in b.store.notices("p"):
                heard.set()

        heard = asyncio.Event()
        task = asyncio.create_task(listen())
        await heard.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with aclosing(subscription(b)) as notices:
            assert await anext(notices) == frozenset()


def subscription(replica: Replica) -> AsyncGenerator[frozenset[str], None]:
    notices = replica.store.notices("p")
    # It must end when it is told to, not when it is collected: a thread or a connection hangs on it.
    assert isinstance(notices, AsyncGenerator)
    return notices


# -- the same history, the same verdicts ---------------------------------------------------------------------------

JOBS = st.sampled_from(["x", "y"])
NUMBERS = st.integers(1, 5)
OFFSETS = st.one_of(st.none(), st.integers(-5, 5).map(lambda seconds: WALL + seconds * SECOND))
PROGRESS = st.builds(
    Progress,
    tick=OFFSETS,
    done=OFFSETS,
    ended_ago=st.one_of(st.none(), st.sampled_from([0.0, 0.25, 5.0])),
    settled=OFFSETS,
)
REQUESTS: st.SearchStrategy[Request] = st.one_of(
    st.builds(Acquire, job=JOBS, number=NUMBERS, lock_expiry=st.sampled_from([1.0, 10.0]), above=st.just(0)),
    # Tokens are written as how many terms ago; the real ones go in when it is asked.
    st.builds(Renew, job=JOBS, token=st.integers(0, 2), lock_expiry=st.just(10.0), progress=PROGRESS),
    st.builds(Release, job=JOBS, number=NUMBERS, progress=PROGRESS, off=st.booleans()),
    st.builds(
        ClaimSlot, job=JOBS, token=st.integers(0, 2), slot=st.integers(WALL, WALL + 5), mark=st.sampled_from(["m", "k"])
    ),
)
HISTORY = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.0, 0.5, 3.0, 11.0]),
        st.sampled_from(["n-1", "n-10", "n"]),
        st.sampled_from([None, 0, -1]),
        st.lists(REQUESTS, min_size=1, max_size=4),
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=HISTORY)
def test_sqlite_and_memory_give_the_same_verdicts_to_any_history(
    tmp_path: Path, history: list[tuple[float, str, int | None, list[Request]]]
) -> None:
    async def compare() -> None:
        clock = HandClock()
        memory = MemoryStore(clock)
        path = tmp_path / f"{secrets.token_hex(4)}.db"
        files = {node: SqliteStore(path, clock) for node in ("n-1", "n-10", "n")}
        for node, file in files.items():
            await file.exchange(Batch(project="p", node=node, bound=5.0))
        tokens = [1]
        for wait, node, void, requests in history:
            clock.later(wait)
            batch = Batch(
                project="p",
                node=node,
                bound=5.0,
                void_at=None if void is None else int(clock.boot() * 1e6) + void,
                requests=tuple(
                    request._replace(token=tokens[-1 - request.token % len(tokens)])
                    if isinstance(request, Renew | ClaimSlot)
                    else request
                    for request in requests
                ),
            )
            expected = await memory.exchange(batch)
            assert await files[node].exchange(batch) == expected
            tokens += [verdict.token for verdict in expected.verdicts if isinstance(verdict, Granted)]
        for file in files.values():
            await file.close()

    asyncio.run(compare())
