"""Replicas that contend for leases as fast as they can, in threads or processes, and what each of them saw.

Two jobs: `counted`, whose leases are given back in order and whose holder adds to a file by reading and writing it
(two holders at once lose an addition), and `hasty`, whose short leases are often left to expire.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, NamedTuple

from ..._core.protocol import Acquire, Batch, Granted, Progress, Release, Renew, Renewed
from ..._system.clock import SystemClock
from .history import Operation

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ..._core.protocol import Request, Verdict
    from ...stores import LeaseStore

__all__ = ["Seen", "contend", "wait_for_the_others"]

SECONDS = 1.0
"""How long each of them takes part."""

LONG, SHORT = 60.0, 0.05


class Seen(NamedTuple):
    """What one replica did: all its questions and answers, and how often it added to the file."""

    history: list[Operation]
    added: int


def contend(make_store: Callable[[], LeaseStore], counter: Path, node: str) -> Seen:
    """Take part for `SECONDS` as the replica `node`."""
    return asyncio.run(_Contender(make_store(), counter, node).run())


def wait_for_the_others(barrier: Callable[[float], object]) -> None:
    """Begin when all have come so far: processes take different times to start."""
    barrier(60.0)


class _Contender:
    def __init__(self, store: LeaseStore, counter: Path, node: str) -> None:
        self._store = store
        self._counter = counter
        self._node = node
        self._clock = SystemClock()
        self._random = random.Random(node)  # noqa: S311 - the same behaviour each time, as far as it is ours
        self._history: list[Operation] = []
        self._number = 0
        self._added = 0

    async def run(self) -> Seen:
        await self._store.exchange(Batch("p", self._node, 5.0))
        until = self._clock.boot() + SECONDS
        while self._clock.boot() < until:
            await (self._count() if self._random.random() < 0.5 else self._be_hasty())
            await asyncio.sleep(self._random.random() * 0.004)
        await self._store.close()
        return Seen(self._history, self._added)

    async def _ask(self, request: Request) -> Verdict:
        begin = self._clock.boot()
        (verdict,) = (await self._store.exchange(Batch("p", self._node, 5.0, None, (request,)))).verdicts
        self._history.append(Operation(self._node, request, verdict, begin, self._clock.boot()))
        return verdict

    async def _acquire(self, job: str, lock_expiry: float) -> int | None:
        self._number += 1
        verdict = await self._ask(Acquire(job, self._number, lock_expiry, 0))
        return verdict.token if isinstance(verdict, Granted) else None

    async def _count(self) -> None:
        token = await self._acquire("counted", LONG)
        if token is None:
            return
        value = int(self._counter.read_text())
        await self._ask(Renew("counted", token, LONG, Progress()))
        await asyncio.sleep(self._random.random() * 0.002)
        self._counter.write_text(str(value + 1))
        self._added += 1
        await self._ask(Release("counted", self._number, Progress()))

    async def _be_hasty(self) -> None:
        token = await self._acquire("hasty", SHORT)
        for _ in range(self._random.randrange(3)):
            if token is None:
                return
            await asyncio.sleep(self._random.random() * SHORT * 1.2)
            if not isinstance(await self._ask(Renew("hasty", token, SHORT, Progress())), Renewed):
                return
        if token is not None and self._random.random() < 0.5:
            await self._ask(Release("hasty", self._number, Progress()))
