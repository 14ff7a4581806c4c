"""Leases in a Redis or Valkey Cluster: one exchange is one round trip to each node that keeps one of the jobs.

A job's lock and state share a slot, those of different jobs rarely do. So each slot's requests are one call of the
script, all calls for a node go in one go, and all nodes are asked at the same time. What came of a request is told job
by job: a node that is gone costs its own jobs, and the others are served. Whose clock counts is told in
`redis_cluster_clock`.

A MOVED or ASK says that the request was not carried out, so it goes to the other node within the same exchange, once.
Nothing else is sent twice. An acquisition without an answer may still be carried out until its time is over; the
elector knows that of whole exchanges alone, so a release that comes before that is kept back here: else the lease
could be taken, after it, for a replica that has left (S4).

The set of job names lies on a node of its own, and is changed after a grant, a pause or a forgotten job.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from math import inf
from typing import TYPE_CHECKING, Any

from ..._core.errors import StoreError, StoreUnavailable
from ..._core.orders import Ordered
from ..._core.protocol import Acquire, Failed, Granted, Release, Reply
from ..._system.clock import SystemClock
from .cluster_look import inspect, look
from .cluster_map import ClusterMap
from .cluster_node import ClusterDown, Group
from .cluster_slots import Redirect, slot_of_job, slot_of_names
from .errors import translated
from .store import PING_INTERVAL, RedisStore
from .wire import names_key

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Sequence

    from ..._core.protocol import Batch, Finding, JobView
    from ..._system.clock import Clock
    from .cluster_address import NodeAddress, Where
    from .cluster_node import Outcome

__all__ = ["RedisClusterStore"]

FOR_NODES = 0.75
"""The part of an exchange's bound in which the nodes must answer."""

FOR_ALL = 0.9
"""The part in which all is done: the rest is for handing the reply over, which nobody waits for any longer."""

IN_DOUBT = Failed(error="an acquisition without an answer may still be carried out; the lease is released after that")


class RedisClusterStore:
    """The store on the Cluster to which `seeds` belong, all of them with the same user and password.

    `ping_interval` as for `RedisStore`.
    """

    def __init__(
        self, seeds: Sequence[NodeAddress], *, ping_interval: float = PING_INTERVAL, clock: Clock | None = None
    ) -> None:
        self._clock: Clock = SystemClock() if clock is None else clock
        self._seeds = seeds
        self._map = ClusterMap(seeds, self._clock)
        self._ping_interval = ping_interval
        self._guard = False
        self._in_doubt: dict[tuple[str, str], float] = {}  # acquisitions without an answer, and till when they may run
        self._listening: set[RedisStore] = set()
        self._closed = False

    def __repr__(self) -> str:
        return f"RedisClusterStore({self._seeds!r})"

    async def exchange(self, batch: Batch) -> Reply:
        """See `LeaseStore.exchange`. Raises when no node answers, or the Cluster is down; else each job has a verdict.

        `Reply.clock` is a reading of this machine's boot clock, and `batch.void_at` a moment on it.
        """
        self._check_open()
        begun = self._clock.boot()
        if not batch.requests:
            return await self._read(batch)
        if not self._map.known:
            raise StoreUnavailable(f"redis store: {self._map}: not connected; a reading comes first")
        until = None if batch.void_at is None else batch.void_at / 1e6
        if until is not None and until - begun < batch.bound / 2:
            # Too late, or so nearly that it would be when it arrives: the elector's last reading of our clock is old.
            return Reply(clock=int(begun * 1e6), void=True)
        outcomes = await self._served(batch, until, begun)
        names: dict[bytes, list[str]] = {b"SADD": [], b"SREM": []}
        for request, outcome in zip(batch.requests, outcomes, strict=True):
            if _names(outcome):
                names[b"SADD"].append(request.job)
            elif isinstance(outcome, Ordered) and outcome.outcome == "forgotten":
                names[b"SREM"].append(request.job)
        errors = [outcome for outcome in outcomes if isinstance(outcome, StoreError)]
        left = begun + batch.bound * FOR_ALL - self._clock.boot()
        learned, *_ = await asyncio.gather(
            self._learn_after(outcomes, left),
            *(self._change_names(command, batch.project, jobs, left) for command, jobs in names.items()),
        )
        if len(errors) == len(outcomes) and (not learned or any(isinstance(error, ClusterDown) for error in errors)):
            raise errors[0]
        verdicts = tuple(
            Failed(error=str(outcome)) if isinstance(outcome, StoreError) else _settled(outcome) for outcome in outcomes
        )
        return Reply(clock=int(self._clock.boot() * 1e6), verdicts=verdicts)

    async def notices(self, project: str) -> AsyncGenerator[frozenset[str], None]:
        """See `LeaseStore.notices`. A message is told on every node; each subscription tries another one of them."""
        self._check_open()
        listening = RedisStore(self._map.next_address(), ping_interval=self._ping_interval)
        self._listening.add(listening)
        try:
            async with aclosing(listening.notices(project)) as heard:
                async for jobs in heard:
                    yield jobs
        finally:
            self._listening.discard(listening)
            await listening.close()

    async def peek(self, project: str) -> tuple[JobView, ...]:
        """See `LeaseStore.peek`."""
        return await look(self._seeds, self._clock, project)

    async def inspect(self, project: str) -> tuple[Finding, ...]:
        """See `Inspectable.inspect`."""
        return await inspect(self._seeds, self._clock, project)

    async def close(self) -> None:
        """See `LeaseStore.close`. The leases stay as they are."""
        self._closed = True
        self._map.abort()
        for listening in self._listening:
            await listening.close()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"redis store: {self._map}: closed")

    async def _read(self, batch: Batch) -> Reply:
        self._guard = batch.guard
        tells_up_time = await self._map.learn(batch.bound * FOR_ALL)
        self._check_open()
        return Reply(clock=int(self._clock.boot() * 1e6), up_for=inf if tells_up_time else None)

    # -- requests --------------------------------------------------------------------------------------------------

    async def _served(self, batch: Batch, until: float | None, begun: float) -> list[Outcome]:
        """What came of each request, after at most one redirection."""
        outcomes: dict[int, Outcome] = {}
        self._in_doubt = {job: end for job, end in self._in_doubt.items() if end >= begun}
        for place, request in enumerate(batch.requests):
            if isinstance(request, Release) and (batch.project, request.job) in self._in_doubt:
                outcomes[place] = IN_DOUBT
        slots = [slot_of_job(batch.project, request.job) for request in batch.requests]
        by_slot: dict[int, list[int]] = {}
        for place, slot in enumerate(slots):
            if place not in outcomes:
                by_slot.setdefault(slot, []).append(place)
        todo: dict[Where, list[Group]] = {}
        for slot, places in by_slot.items():
            where = self._map.owner(slot)
            if where is None:
                error = StoreUnavailable(f"redis store: {self._map}: no node serves the slot {slot}")
                outcomes |= dict.fromkeys(places, error)
            else:
                todo.setdefault(where, []).append(Group(tuple(places)))
        for _ in range(2):
            deadline = begun + batch.bound * FOR_NODES
            answers = await asyncio.gather(
                *(self._ask(where, batch, groups, deadline, until) for where, groups in todo.items())
            )
            moved: dict[tuple[Redirect, int], list[int]] = {}
            for answer in answers:
                outcomes |= answer
                for place, outcome in answer.items():
                    if isinstance(outcome, Redirect):
                        moved.setdefault((outcome, slots[place]), []).append(place)
            todo = {}
            for (to, slot), places in moved.items():
                if not to.asking:
                    self._map.move(slot, to.where)
                todo.setdefault(to.where, []).append(Group(tuple(places), to.asking))
        return [outcomes[place] for place in range(len(batch.requests))]

    async def _ask(
        self, where: Where, batch: Batch, groups: Sequence[Group], deadline: float, until: float | None
    ) -> dict[int, Outcome]:
        """What one node made of its groups. Never raises for a node that is gone."""
        node = self._map.node(where)
        places = [place for group in groups for place in group.places]
        seconds = deadline - self._clock.boot()
        try:
            with translated(node.address, "EVALSHA"):
                async with asyncio.timeout(seconds):
                    return await node.serve(batch, groups, seconds, until=until, guard=self._guard)
        except StoreError as error:
            self._map.demote(where)
            # A moment more: a call is void when the node's clock is above its time, not at it.
            end = self._clock.boot() + batch.bound if until is None else until + 0.001
            for place in places:
                if isinstance(batch.requests[place], Acquire):
                    self._in_doubt[batch.project, batch.requests[place].job] = end
            return dict.fromkeys(places, error)

    # -- what follows ----------------------------------------------------------------------------------------------

    async def _learn_after(self, outcomes: Iterable[Outcome], seconds: float) -> bool:
        """After failures and redirections the map is read anew; whether a node told it."""
        if not any(isinstance(outcome, StoreError | Redirect) for outcome in outcomes):
            return False
        try:
            await self._map.learn(seconds)
        except StoreError:
            return False
        return True

    async def _change_names(self, name: bytes, project: str, jobs: Sequence[str], seconds: float) -> None:
        """Nothing depends on it but who is shown by `peek`."""
        if not jobs:
            return
        command = (name, names_key(project).encode(), *(job.encode() for job in jobs))
        try:
            (reply,) = await self._map.ask(slot_of_names(project), [command], seconds)
        except StoreError as error:
            reply = error
        if isinstance(reply, Exception):
            self._map.warnings.not_named(self._seeds[0], str(reply))


def _names(outcome: Outcome) -> bool:
    """Whether the job behind it is one that `peek` is to show from now on."""
    return isinstance(outcome, Granted) or (isinstance(outcome, Ordered) and outcome.outcome == "paused")


def _settled(outcome: Any) -> Any:
    """A request that was sent on twice is not sent a third time."""
    if isinstance(outcome, Redirect):
        return Failed(error="its slot of the Cluster is moving between nodes")
    return outcome
