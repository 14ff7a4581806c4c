"""The stores that need no server: the contract, and the same to the microsecond."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Protocol

import pytest

from singletonjob._core.values import Now
from singletonjob.stores.memory import MemoryStore
from singletonjob.stores.protocol import Acquire, Granted, Progress, Refused, Renewed, Reply
from singletonjob.stores.sqlite.store import SqliteStore
from singletonjob.testing.contract import LeaseStoreContract, LocalStoreContract
from singletonjob.testing.contract.base import SECOND, Replica, expect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from singletonjob.stores import LeaseStore

WALL = 1_800_000_000 * SECOND


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


@pytest.fixture(params=["memory", "sqlite"])
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Ground:
    return MemoryGround() if request.param == "memory" else SqliteGround(tmp_path / "leases.db")


@pytest.fixture
async def a(ground: Ground) -> AsyncIterator[Replica]:
    replica = Replica(ground.store(), "a")
    yield replica
    await replica.store.close()


@pytest.fixture
async def b(ground: Ground) -> AsyncIterator[Replica]:
    replica = Replica(ground.store(), "b")
    yield replica
    await replica.store.close()


# -- the contract ---------------------------------------------------------------------------------------------------


class TestMemoryStore(LocalStoreContract):
    @pytest.fixture
    def make_store(self) -> Callable[[], LeaseStore]:
        store = MemoryStore()
        return lambda: store


class TestSqliteStore(LeaseStoreContract):
    @pytest.fixture
    def make_store(self, tmp_path: Path) -> Callable[[], LeaseStore]:
        return partial(SqliteStore, tmp_path / "leases.db")


# -- to the microsecond, where the clock stands still ---------------------------------------------------------------


async def test_a_reading_tells_the_clock_and_that_nothing_is_forgotten(ground: Ground, a: Replica) -> None:
    assert await a.reply() == Reply(clock=50 * SECOND, up_for=math.inf)
    ground.clock.later(1.5)
    assert (await a.reply()).clock == 51_500_000


async def test_a_batch_is_good_at_the_instant_after_which_it_is_void(ground: Ground, a: Replica, b: Replica) -> None:
    request = Acquire(job="j", number=1, lock_expiry=10, above=0)
    assert await a.reply(request, void_at=50 * SECOND - 1) == Reply(clock=50 * SECOND, void=True)
    assert isinstance(await b.acquire(), Granted)
    ground.clock.later(10)
    assert isinstance((await a.reply(request, void_at=60 * SECOND)).verdicts[0], Granted)


async def test_a_lease_lasts_exactly_as_long_as_its_holder_said(ground: Ground, a: Replica, b: Replica) -> None:
    token = (await a.granted(lock_expiry=30)).token
    ground.clock.later(29)
    assert await b.acquire(lock_expiry=10) == Refused(holder="a", expires_in=1.0, token=token)
    ground.clock.later(1)
    assert isinstance(await b.acquire(lock_expiry=10), Granted)


async def test_what_changes_nothing_does_not_extend_either(ground: Ground, a: Replica, b: Replica) -> None:
    token = await a.token(number=2)
    ground.clock.later(3)
    assert await a.acquire(number=2) == Refused(holder="a", expires_in=7.0, token=token)
    assert await a.acquire(number=1) == Refused(holder="a", expires_in=7.0, token=token)
    assert await a.renew(token - 1) == Refused(holder="a", expires_in=7.0, token=token)
    assert await b.acquire() == Refused(holder="a", expires_in=7.0, token=token)
    assert await a.renew(token) == Renewed()
    assert await b.acquire() == Refused(holder="a", expires_in=10.0, token=token)


async def test_tokens_grow_although_the_wall_clock_goes_back(ground: Ground, a: Replica, b: Replica) -> None:
    tokens = [await a.token(number=1)]
    await a.release(number=1)
    ground.clock.micros -= 3600 * SECOND
    tokens.append(await b.token(number=1))
    ground.clock.later(10)
    tokens.append(await a.token(number=2))
    assert tokens == [WALL, WALL + 1, WALL + 2]


async def test_the_next_leader_reads_when_the_last_run_ended(ground: Ground, a: Replica, b: Replica) -> None:
    token = await a.token()
    ground.clock.later(2)
    await a.renew(token, Progress(ended_ago=0.5))
    await a.release(off=True)
    ground.clock.later(3)
    state = expect(Granted, await b.acquire()).state
    assert (state.ended_ago, state.off, state.wall) == (3.5, ground.clock.micros, ground.clock.micros)
