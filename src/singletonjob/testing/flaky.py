"""`FlakyStore`: a store that fails when it is told to, to see how an app takes an outage."""

from __future__ import annotations

import asyncio
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from .._core.errors import ConfigError, StoreUnavailable
from .._jobs.duration import duration
from ..stores import from_url

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from .._core.protocol import Batch, JobView, Reply
    from .._jobs.duration import Duration
    from ..stores import LeaseStore

__all__ = ["Fault", "FlakyStore"]

Fault: TypeAlias = Literal["ok", "fail", "lose", "hang"]
"""What becomes of an exchange: nothing bad; refused at once; carried out, and the reply lost; never answered."""


class FlakyStore:
    """`store`, a `LeaseStore` or a URL, behind a connection that fails on command; without one, new leases in memory.

    Each exchange takes the first of these that says something: `down`, what was ordered by `fail_next` and the like,
    `rule`. All of it may be called from any thread, at any time. Several replicas that share leases each need a
    `FlakyStore` of their own, on one `MemoryStore` or on one URL.

    `rule(batch)` is asked before each exchange and says what becomes of it. `delay` is what each exchange takes before
    it is carried out. Raises `ConfigError` for a bad value.
    """

    def __init__(
        self,
        store: LeaseStore | str | None = None,
        *,
        delay: Duration = 0,
        rule: Callable[[Batch], Fault] | None = None,
    ) -> None:
        if store is None:
            from ..stores.memory import MemoryStore

            store = MemoryStore()
        self.rule = rule
        self.counts: dict[Fault, int] = {"ok": 0, "fail": 0, "lose": 0, "hang": 0}
        """What became of the exchanges so far."""
        self._store = from_url(store) if isinstance(store, str) else store
        self._delay = duration(delay, "delay")
        self._lock = Lock()
        self._down: Fault | None = None
        self._ordered: list[Fault] = []
        self._cuts: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()  # of who hears notices

    # -- commands ---------------------------------------------------------------------------------------------------

    def down(self, how: Fault = "fail") -> None:
        """Be gone until `up`: every exchange fails, or hangs; notices end."""
        if how not in ("fail", "hang"):
            raise ConfigError(f"down: {how!r} is no outage; write 'fail' or 'hang'")
        with self._lock:
            self._down = how
            cuts, self._cuts = self._cuts, set()
        for loop, cut in cuts:
            loop.call_soon_threadsafe(cut.set)

    def up(self) -> None:
        """Answer again. What hangs goes on hanging until its caller gives it up."""
        with self._lock:
            self._down = None

    def fail_next(self, count: int = 1) -> None:
        """Refuse so many exchanges: nothing of them is carried out."""
        self._order("fail", count)

    def lose_next(self, count: int = 1) -> None:
        """Carry out so many exchanges, and lose the reply: the app cannot know."""
        self._order("lose", count)

    def hang_next(self, count: int = 1) -> None:
        """Never answer so many exchanges; nothing of them is carried out."""
        self._order("hang", count)

    def delay_by(self, delay: Duration) -> None:
        """What each exchange takes from now on, before it is carried out."""
        self._delay = duration(delay, "delay_by")

    def _order(self, fault: Fault, count: int) -> None:
        with self._lock:
            self._ordered.extend(fault for _ in range(count))

    def _next(self, batch: Batch) -> Fault:
        with self._lock:
            fault = self._down or (self._ordered.pop(0) if self._ordered else None)
        if fault is None:
            fault = "ok" if self.rule is None else self.rule(batch)
        with self._lock:
            self.counts[fault] += 1
        return fault

    # -- the store --------------------------------------------------------------------------------------------------

    async def exchange(self, batch: Batch) -> Reply:
        """See `LeaseStore.exchange`. Raises `StoreUnavailable` where it is told to fail or to lose the reply."""
        fault = self._next(batch)
        if fault == "hang":
            await asyncio.Event().wait()
        if self._delay:
            await asyncio.sleep(self._delay)
        if fault == "fail":
            raise StoreUnavailable("FlakyStore: it was told to fail")
        reply = await self._store.exchange(batch)
        if fault == "lose":
            raise StoreUnavailable("FlakyStore: it was told to lose the reply")
        return reply

    async def notices(self, project: str) -> AsyncGenerator[frozenset[str], None]:
        """See `LeaseStore.notices`. Raises `StoreUnavailable` while it is down."""
        cut = asyncio.Event()
        mine = asyncio.get_running_loop(), cut
        with self._lock:
            if self._down is not None:
                raise StoreUnavailable("FlakyStore: it is down")
            self._cuts.add(mine)
        heard: Any = self._store.notices(project)
        ending = asyncio.ensure_future(cut.wait())
        try:
            while True:
                hearing: asyncio.Task[frozenset[str]] = asyncio.ensure_future(anext(heard))
                try:
                    await asyncio.wait({hearing, ending}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not hearing.done():
                        hearing.cancel()
                        await asyncio.wait({hearing})
                if ending.done():
                    raise StoreUnavailable("FlakyStore: it went down")
                try:
                    jobs = hearing.result()
                except StopAsyncIteration:
                    return
                yield jobs
        finally:
            ending.cancel()
            with self._lock:
                self._cuts.discard(mine)
            await heard.aclose()

    async def peek(self, project: str) -> tuple[JobView, ...]:
        """See `LeaseStore.peek`. Raises `StoreUnavailable` while it is down."""
        if self._down is not None:
            raise StoreUnavailable("FlakyStore: it is down")
        return await self._store.peek(project)

    async def close(self) -> None:
        """See `LeaseStore.close`."""
        await self._store.close()
