"""What the tests of the store contract stand on: the hooks of a store, and replicas that ask it."""

# ruff: noqa: S101 - asserts are what tests are made of

from __future__ import annotations

import asyncio
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import pytest

from ..._core.protocol import NO_PROGRESS, Acquire, Batch, ClaimSlot, Granted, Progress, Release, Renew

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import TypeAlias

    from ..._core.protocol import JobView, Reply, Request, Verdict
    from ...stores import LeaseStore

    MakeStore: TypeAlias = Callable[[], LeaseStore]

__all__ = ["SECOND", "Replica", "StoreTests", "expect", "on_a_loop"]

SECOND = 1_000_000

P = ParamSpec("P")
Self = TypeVar("Self")
V = TypeVar("V", bound="Verdict")


class Replica:
    """The requests of one replica to its store, each in a separate exchange, after a reading for each project."""

    def __init__(self, store: LeaseStore, node: str) -> None:
        self.store = store
        self.node = node
        self._read: set[str] = set()  # the projects for which a reading was made

    async def reply(self, *requests: Request, void_at: int | None = None, project: str = "p") -> Reply:
        if requests and project not in self._read:
            await self.reply(project=project)
        reply = await self.store.exchange(Batch(project, self.node, 5.0, void_at, requests))
        self._read.add(project)
        return reply

    async def ask(self, request: Request) -> Verdict:
        (verdict,) = (await self.reply(request)).verdicts
        return verdict

    async def acquire(self, number: int = 1, lock_expiry: float = 10, above: int = 0, job: str = "j") -> Verdict:
        return await self.ask(Acquire(job=job, number=number, lock_expiry=lock_expiry, above=above))

    async def granted(self, number: int = 1, lock_expiry: float = 10, job: str = "j") -> Granted:
        return expect(Granted, await self.acquire(number, lock_expiry, job=job))

    async def token(self, number: int = 1, job: str = "j") -> int:
        return (await self.granted(number, job=job)).token

    async def renew(self, token: int, progress: Progress = NO_PROGRESS, job: str = "j") -> Verdict:
        return await self.ask(Renew(job=job, token=token, lock_expiry=10, progress=progress))

    async def release(
        self, number: int = 1, progress: Progress = NO_PROGRESS, off: bool = False, job: str = "j"
    ) -> Verdict:
        return await self.ask(Release(job=job, number=number, progress=progress, off=off))

    async def claim(self, token: int, slot: int, mark: str = "m") -> Verdict:
        return await self.ask(ClaimSlot(job="j", token=token, slot=slot, mark=mark))

    async def view(self, job: str = "j") -> JobView | None:
        """The job, as somebody sees it who looks into the store."""
        return next((view for view in await self.store.peek("p") if view.job == job), None)


def expect(kind: type[V], verdict: Verdict) -> V:
    """The verdict, which must be of that kind."""
    assert isinstance(verdict, kind), verdict
    return verdict


def on_a_loop(test: Callable[Concatenate[Self, P], Coroutine[Any, Any, None]]) -> Callable[Concatenate[Self, P], None]:
    """An asynchronous test as a plain one, which needs no plugin; the stores of its replicas are closed after it."""

    @wraps(test)
    def run(self: Self, /, *args: P.args, **fixtures: P.kwargs) -> None:
        async def main() -> None:
            try:
                await test(self, *args, **fixtures)
            finally:
                for value in fixtures.values():
                    if isinstance(value, Replica):
                        await value.store.close()

        asyncio.run(main())

    return run


class StoreTests:
    """The hooks: override `make_store`, and `later` where the store's time can be moved."""

    short: float = 0.2
    """The length in seconds of a lease that a test waits for to end. It must outlast a call or two."""

    @pytest.fixture
    def make_store(self) -> MakeStore:
        """Hook: what makes a store, each time another replica's way to the same leases, new for each test.

        For the tests with processes it must be picklable: a `functools.partial` of a class or of a module's function.
        """
        raise NotImplementedError(f"{type(self).__name__}: override the fixture make_store; return a callable")

    async def later(self, seconds: float) -> None:
        """Hook: let that time pass for the store."""
        await asyncio.sleep(seconds)

    @pytest.fixture
    def a(self, make_store: MakeStore) -> Replica:
        return Replica(make_store(), "a")

    @pytest.fixture
    def b(self, make_store: MakeStore) -> Replica:
        return Replica(make_store(), "b")
