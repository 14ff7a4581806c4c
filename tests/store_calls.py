"""What one replica, `me` of project `p`, says to a store about its job `j`, call by call."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from singletonjob import StoreError
from singletonjob.stores import from_url
from singletonjob.stores.protocol import Acquire, Batch, Granted, Progress, Release, Renew
from singletonjob.stores.redis.address import address_from_url
from singletonjob.stores.redis.cluster import cluster_from_url
from singletonjob.stores.redis.sentinel import service_from_url
from singletonjob.stores.redis.store import RedisStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from singletonjob.stores import LeaseStore
    from singletonjob.stores.protocol import Reply, Request, Verdict
    from singletonjob.stores.redis.address import Place

__all__ = ["acquire", "ask", "fails", "opened", "read", "release", "renew", "token_of", "unread"]


def acquire(number: int = 1, lock_expiry: float = 60) -> Acquire:
    return Acquire(job="j", number=number, lock_expiry=lock_expiry, above=0)


def renew(token: int) -> Renew:
    return Renew(job="j", token=token, lock_expiry=60, progress=Progress())


def release(number: int = 1) -> Release:
    return Release(job="j", number=number, progress=Progress())


async def read(store: LeaseStore, bound: float = 5.0) -> Reply:
    return await store.exchange(Batch(project="p", node="me", bound=bound))


async def ask(
    store: LeaseStore, request: Request, bound: float = 5.0, *, node: str = "me", void_at: int | None = None
) -> Verdict:
    batch = Batch(project="p", node=node, bound=bound, void_at=void_at, requests=(request,))
    (verdict,) = (await store.exchange(batch)).verdicts
    return verdict


async def token_of(store: LeaseStore, number: int = 1) -> int:
    verdict = await ask(store, acquire(number))
    assert isinstance(verdict, Granted), verdict
    return verdict.token


async def fails(store: LeaseStore, request: Request, bound: float = 5.0) -> StoreError:
    with pytest.raises(StoreError) as raised:
        await ask(store, request, bound)
    return raised.value


@asynccontextmanager
async def opened(url: str, **options: float) -> AsyncIterator[RedisStore]:
    """A store on a server, on the one that a Sentinel names or on a Cluster, that has made its reading."""
    kinds: dict[str, Callable[[str], Place]] = {"redis+cluster": cluster_from_url, "redis+sentinel": service_from_url}
    store = RedisStore(kinds.get(url.partition(":")[0], address_from_url)(url), **options)
    try:
        await read(store)
        yield store
    finally:
        await store.close()


async def unread(url: str, bound: float = 5.0) -> StoreError:
    """Why there is no reading; in one line, and not after `bound` by much."""
    store = from_url(url)
    began = time.monotonic()
    with pytest.raises(StoreError) as raised:
        await read(store, bound)
    assert time.monotonic() - began < bound + 2
    await store.close()
    assert "\n" not in str(raised.value)
    return raised.value
