"""The simulated store, and the network between it and each replica.

It keeps leases by `stores.rules`, as every store does, on a clock of its own. What it grants, renews and loses it tells
the history: the checker compares the bodies' runs with that. A request of a connection that was made before the store
restarted never runs; any other may run however late.

Over 300 lines: the store and the way to it fail together.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from copy import copy
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Literal, TypeAlias

from simulation.sim_time import EPOCH
from singletonjob._core.errors import StoreUnavailable
from singletonjob._core.orders import Ordered
from singletonjob._core.protocol import (
    Acquire,
    Batch,
    Claimed,
    ClaimSlot,
    Failed,
    Granted,
    Refused,
    Released,
    Renew,
    Renewed,
    Reply,
    TakeTrigger,
)
from singletonjob.stores.rules import Record, apply, is_news, view

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from simulation.sim_history import History
    from simulation.sim_time import SimLoop, World
    from singletonjob._core.orders import Order
    from singletonjob._core.protocol import JobView, Request, Verdict

__all__ = ["Network", "SimClient", "SimStore"]

Mode: TypeAlias = Literal["up", "refuses", "frozen", "silent"]

LEFT = 0.2
"""With less of its time left than this, as part of `lock_expiry`, a lease ends soon anyway: the largest `margin`."""

KEPT = 8
"""So many old states are kept for a restart to come back with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """How likely each mishap of one exchange is, from 0 to 1. `slow` and `late` are the longest, in seconds."""

    lost_request: float = 0.0
    lost_reply: float = 0.0
    reset: float = 0.0  # the connection ends, and the request still arrives
    duplicated: float = 0.0
    slow_request: float = 0.0
    slow_reply: float = 0.0
    last_moment: float = 0.0  # the reply comes in the last hundredth of the time that the call has
    slow: float = 1.0
    late: float = 0.0  # a duplicate comes up to so much later
    deaf: float = 0.0  # a notice does not come through


class SimStore:
    """The one store of a simulation. `rate` and `offset` as those of a replica's clock."""

    def __init__(self, world: World, history: History, *, rate: float, offset: int) -> None:
        self._world = world
        self._history = history
        self._rate = rate
        self._offset = offset
        self._records: defaultdict[str, Record] = defaultdict(Record)
        self._old: list[dict[str, Record]] = []
        self._waiting: list[tuple[SimClient, Batch, _Connection, asyncio.Future[Reply] | None]] = []
        self.mode: Mode = "up"
        self.started: float = -1000.0
        self._stepped = 0.0  # since then, which its up-time counts
        self.life: int = 0  # grows with each restart that ends connections
        self.tells_up_time: bool = True
        self.halves: bool = False  # the second half of a batch comes too late
        self.foreigners: set[str] = set()  # holders of another implementation
        self.clients: list[SimClient] = []

    def wall(self) -> int:
        return EPOCH + self._offset + int(self._world.now * self._rate * 1e6)

    def holder(self, job: str) -> str | None:
        record = self._records[job]
        live = record.expires is not None and record.expires > self.wall()
        return record.holder if live else None

    # -- faults ----------------------------------------------------------------------------------------------------

    def set_mode(self, mode: Mode) -> None:
        """From "up", an outage; back to "up", its end. What a frozen store was asked meanwhile, it does then."""
        self.mode = mode
        if mode == "up":
            waiting, self._waiting = self._waiting, []
            for one in waiting:
                self.arrive(*one, self._world.now)
        else:
            for client in self.clients:
                client.lose_subscription(at_once=mode == "refuses")

    def keep_state(self) -> None:
        """Write down the state, for a restart to come back with."""
        self._old = [*self._old[1 - KEPT :], {job: copy(record) for job, record in self._records.items()}]

    def restart(self, *, old: bool, hidden: bool = False, ahead: float = 0.0) -> None:
        """Come back at once, empty or with a state from some time ago. `hidden`: behind a proxy, which keeps the
        connections. `ahead`: its clock was so far ahead when it started, and has been set right since."""
        self.started, self._stepped = self._world.now, -ahead
        self._lose(old=old, how="restarted", told=self.tells_up_time and not hidden)
        if not hidden:
            self._end_connections()

    def flush(self) -> None:
        """FLUSHALL: all is gone, and nothing else happens."""
        self._lose(old=False, how="flushed", told=False)

    def fail_over(self, seconds: float) -> None:
        """Another server takes over, with a state from some time ago and a clock that is so far ahead of this one's.

        But not behind the newest token: then tokens could be given twice, which is not promised.
        """
        newest = max((token for _, token in self._history.leases), default=0)
        seconds = max(seconds, min((newest - self.wall()) / 1e6, 0.0))
        self._offset += round(seconds * 1e6)
        self._history.jumped(self._world.now, seconds / self._rate)
        self._lose(old=True, how="failed over", told=False)
        self._end_connections()

    def delete(self, jobs: Iterable[str]) -> None:
        """DEL of lock keys, or their eviction: what is beside them stays."""
        for job in jobs:
            self._records[job].holder = self._records[job].expires = None
            self._history.say(self._world.now, f"store: the lock of {job} is gone")
        self._note_what_is_left(told=False)

    def step(self, seconds: float, *, promised: bool = True) -> None:
        """Its wall clock, on which leases end, jumps; `promised`: forward, and by no more than half a margin."""
        self._offset += round(seconds * 1e6)
        self._stepped += seconds
        if promised:
            self._history.store_stepped(self._world.now, seconds / self._rate)
        else:
            self._history.jumped(self._world.now, seconds / self._rate)
            self._note_what_is_left(told=False)

    def hide_up_time(self, since: float) -> None:
        """Tell it no more: what was lost since then cannot be known."""
        self.tells_up_time = False
        self._history.untold(since)

    def _lose(self, *, old: bool, how: str, told: bool) -> None:
        states = self._old if old else []
        state = states[self._world.random.randrange(len(states))] if states else {}
        self._records = defaultdict(Record, {job: copy(record) for job, record in state.items()})
        self._history.store_lost(self._world.now, self.wall(), how, told=told)
        self._note_what_is_left(told=told)

    def _note_what_is_left(self, *, told: bool) -> None:
        now, wall = self._world.now, self.wall()
        left = {
            (job, record.holder, record.token): now + (record.expires - wall) / 1e6 / self._rate
            for job, record in self._records.items()
            if record.holder is not None and record.expires is not None and record.expires > wall
        }
        self._history.kept(now, left, told=told)

    def _end_connections(self) -> None:
        self.life += 1
        self._waiting.clear()
        for client in self.clients:
            client.lose_subscription(at_once=True)

    def record(self, job: str) -> Record:
        """What it keeps of a job, for another implementation to change."""
        return self._records[job]

    # -- service ---------------------------------------------------------------------------------------------------

    def arrive(
        self,
        client: SimClient,
        batch: Batch,
        connection: _Connection,
        future: asyncio.Future[Reply] | None,
        _when: float,
    ) -> None:
        """A request is here."""
        if self.mode == "frozen":
            self._waiting.append((client, batch, connection, future))
        elif self.mode == "refuses":
            client.deliver(future, StoreUnavailable("refused"))
        elif self.mode == "up":
            if connection.life is None and not batch.requests:
                connection.life = self.life
            if connection.life != self.life:
                client.deliver(future, StoreUnavailable("connection reset"))
            else:
                client.deliver(future, self._serve(batch), batch.bound)

    def _serve(self, batch: Batch) -> Reply:
        clock, now = self.wall(), self._world.now
        if not batch.requests:
            seconds = int((now - self.started) * self._rate + self._stepped)  # by its wall clock, as Redis counts it
            return Reply(clock=clock, up_for=float(max(seconds, 0)) if self.tells_up_time else None)
        if batch.void_at is not None and clock > batch.void_at:
            return Reply(clock=clock, void=True)
        verdicts: list[Verdict] = []
        news: set[str] = set()
        served = (len(batch.requests) + 1) // 2 if self.halves else len(batch.requests)
        for request in batch.requests[:served]:
            record = self._records[request.job]
            verdict = apply(record, request, node=batch.node, clock=clock, wall=clock)
            if isinstance(verdict, Refused) and verdict.holder in self.foreigners:
                verdict = verdict._replace(foreign=True)
            verdicts.append(verdict)
            if isinstance(verdict, Granted | Renewed):
                assert record.expires is not None
                ends = now + (record.expires - clock) / 1e6 / self._rate
                kind = "granted" if isinstance(verdict, Granted) else "renewed"
                self._history.leased(kind, now, request.job, batch.node, record.token, ends)
            elif isinstance(verdict, Claimed) and isinstance(request, ClaimSlot):
                self._history.claimed(now, request.job, batch.node, request.token, request.slot)
            elif isinstance(verdict, Released) and verdict.mine:
                self._history.released(now, request.job, batch.node, record.token)
            elif isinstance(verdict, Claimed) and isinstance(request, TakeTrigger) and not request.busy:
                self._history.took(now, request.job, batch.node, request.token, request.id)
            elif isinstance(verdict, Ordered):
                self._history.ordered(now, request.job, type(request).__name__, verdict.outcome)
            if is_news(verdict):
                news.add(request.job)
        verdicts += [Failed(error="this part of a long batch came too late")] * (len(batch.requests) - served)
        for client in self.clients if news else ():
            client.hear(frozenset(news))
        return Reply(clock=clock, verdicts=tuple(verdicts))

    def order(self, order: Order) -> None:
        """An operator's order arrives, unless the store is out of reach."""
        if self.mode == "up":
            self._serve(Batch(project="sim", node="operator", bound=1.0, requests=(order,)))

    def heard(self, request: Request, verdict: Verdict, node: str, sent: float) -> None:
        """A replica has heard whose a lease is, from a reply to what it sent then."""
        now = self._world.now
        if isinstance(verdict, Granted):
            self._history.heard(request.job, verdict.token, sent, now)
        elif isinstance(verdict, Renewed) and isinstance(request, Renew):
            self._history.heard(request.job, request.token, sent, now)
        elif isinstance(verdict, Refused) and isinstance(request, Acquire) and verdict.holder not in {None, node}:
            assert verdict.holder is not None
            until, left = -inf, verdict.expires_in
            # With less than a margin left the holder has passed its own deadline, or is about to.
            if left is not None and left > request.lock_expiry * LEFT and not verdict.foreign:
                until = sent + min(left, request.lock_expiry) * 0.99 / 1.01
            self._history.refused(request.job, node, now, verdict.holder, until)

    def peek(self) -> tuple[JobView, ...]:
        wall = self.wall()
        views = [view(job, record, clock=wall, wall=wall) for job, record in self._records.items()]
        return tuple(sorted(one for one in views if one is not None))


class _Connection:
    """`life` is the store's when the connection's first request arrived there."""

    __slots__ = ("life",)

    def __init__(self) -> None:
        self.life: int | None = None


class SimClient:
    """One replica's `LeaseStore`, on its heartbeat loop. `cut` says which direction is cut off."""

    def __init__(self, world: World, store: SimStore, loop: SimLoop, network: Network, ping: float) -> None:
        self._world = world
        self._store = store
        self._loop = loop
        self._ping = ping  # the time after which a dead subscription is noticed at the latest
        self._connection: _Connection | None = None
        self._news: set[str] = set()
        self._told = asyncio.Event()
        self._broken = False
        self._subscribed = False
        self.network = network
        self.cut: Literal["", "both", "requests", "replies"] = ""

    async def exchange(self, batch: Batch) -> Reply:
        world, network, draw = self._world, self.network, self._world.random.random
        if not batch.requests:
            self._connection = _Connection()
        connection = self._connection
        if connection is None:
            raise StoreUnavailable("not connected")
        sent = world.now
        future: asyncio.Future[Reply] = self._loop.create_future()
        takes = 0.0002 + 0.002 * draw()
        if draw() < network.slow_request:
            takes += network.slow * draw()
        if self.cut not in {"both", "requests"} and draw() >= network.lost_request:
            world.at(world.now + takes, partial(self._store.arrive, self, batch, connection, future))
        if draw() < network.reset:
            world.at(world.now + takes * draw(), partial(self._arrived, future, StoreUnavailable("connection reset")))
        if draw() < network.duplicated and not self.cut:
            # Half of the duplicates come while they are still good for something.
            again = world.now + takes + draw() * (network.late if draw() < 0.5 else batch.bound)
            world.at(again, partial(self._store.arrive, self, batch, connection, None))
        try:
            reply = await future
        except BaseException:
            self._connection = None
            raise
        for request, verdict in zip(batch.requests, reply.verdicts, strict=False):
            self._store.heard(request, verdict, batch.node, sent)
        return reply

    def deliver(
        self, future: asyncio.Future[Reply] | None, answer: Reply | StoreUnavailable, bound: float = 0.0
    ) -> None:
        """The store's answer is on its way; nobody waits for that to a duplicate."""
        world, network, draw = self._world, self.network, self._world.random.random
        if future is None or self.cut in {"both", "replies"} or draw() < network.lost_reply:
            return
        takes = 0.0002 + 0.002 * draw()
        if draw() < network.slow_reply:
            takes += network.slow * draw()
        elif draw() < network.last_moment:
            takes = bound * (0.98 + 0.02 * draw())
        world.at(world.now + takes, partial(self._arrived, future, answer))

    def _arrived(self, future: asyncio.Future[Reply], answer: Reply | StoreUnavailable, _when: float) -> None:
        if not self._loop.dead:
            self._loop.call_soon(_settle, future, answer)

    # -- notices ---------------------------------------------------------------------------------------------------

    async def notices(self, project: str) -> AsyncGenerator[frozenset[str]]:
        await asyncio.sleep(0.001)
        if self._store.mode != "up" or self.cut:
            raise StoreUnavailable("cannot subscribe")
        self._broken, self._subscribed = False, True
        self._news.clear()
        yield frozenset()
        while True:
            await self._told.wait()
            self._told.clear()
            if self._broken:
                raise StoreUnavailable("subscription lost")
            news, self._news = frozenset(self._news), set()
            yield news

    def hear(self, jobs: frozenset[str]) -> None:
        """A notice is on its way."""
        draw = self._world.random.random
        if self._subscribed and not self.cut and draw() >= self.network.deaf:
            self._world.at(self._world.now + 0.0002 + 0.002 * draw(), partial(self._heard, jobs))

    def _heard(self, jobs: frozenset[str], _when: float) -> None:
        if not self._loop.dead and self._subscribed:
            self._news |= jobs
            self._loop.call_soon(self._told.set)

    def lose_subscription(self, *, at_once: bool) -> None:
        """The connection is gone; where nobody says so, a ping finds out."""
        self._subscribed = False
        delay = 0.001 if at_once else self._ping * (1 + self._world.random.random())
        self._world.at(self._world.now + delay, self._break)

    def _break(self, _when: float) -> None:
        if not self._loop.dead:
            self._broken = True
            self._loop.call_soon(self._told.set)

    async def peek(self, project: str) -> tuple[JobView, ...]:
        return self._store.peek()

    async def close(self) -> None:
        self._subscribed = False


def _settle(future: asyncio.Future[Reply], answer: Reply | StoreUnavailable) -> None:
    if future.done():
        return
    if isinstance(answer, StoreUnavailable):
        future.set_exception(answer)
    else:
        future.set_result(answer)
