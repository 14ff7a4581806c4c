"""One node of a Cluster: the connection to it, its clock, and the requests for its slots."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..._core.errors import StoreError, StoreUnavailable
from ..._core.protocol import Acquire, Failed, Granted, Verdict
from .cluster_clock import NodeClock
from .cluster_slots import Redirect, redirect
from .errors import code_of, refusal
from .reading import read
from .script import lacks_script, script
from .warnings import evicts
from .wire import pack, script_call, verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..._core.protocol import Batch, Request
    from ..._system.clock import Clock
    from .cluster_address import NodeAddress
    from .link import Command, Link
    from .warnings import Warnings

__all__ = ["ClusterDown", "Group", "Node", "Outcome"]

Outcome: TypeAlias = "Verdict | Redirect | StoreError"
"""What came of one request. An error: the node did not serve it, and it is not this job's fault."""

ASKING = pack((b"ASKING",))

LATE = Failed(error="it came too late to the node of the Cluster that keeps it; nothing was done")


class ClusterDown(StoreUnavailable):
    """A node says that the whole Cluster serves nothing."""


class Group(NamedTuple):
    """The requests of a batch whose jobs share a slot, by their place in it: one call of the script.

    `asking`: an ASK sent them here; the slot is not this node's yet.
    """

    places: tuple[int, ...]
    asking: bool = False


class Node:
    """The node at `address`. Nothing is connected before it is needed, and nothing is sent twice."""

    def __init__(self, address: NodeAddress, clock: Clock, warnings: Warnings) -> None:
        self.address = address
        self._clock = clock
        self._warnings = warnings
        self._time = NodeClock(0, 0.0)  # of the newest connection
        self._link: Link | None = None
        self._links: set[Link] = set()  # all that are open
        self._eviction_told = False
        self._closed = False

    @property
    def tells_up_time(self) -> bool:
        """Whether the last reading told for how long the node has been up."""
        return self._time.up_since > -inf

    async def call(self, commands: Sequence[Command], seconds: float) -> list[Any]:
        """Send commands in one go; one reply for each, where an error of the server is a reply, too.

        Connects within `seconds` if need be; the caller bounds the whole. Raises `StoreError`, the client's errors and
        `OSError`; after one of them, or a cancellation, the connection is dropped.
        """
        link = await self._taken(seconds)
        try:
            replies = await link.call(commands)
        except BaseException:
            self._drop(link)
            raise
        self._give_back(link)
        return replies

    async def serve(
        self, batch: Batch, groups: Iterable[Group], seconds: float, *, until: float | None, guard: bool
    ) -> dict[int, Outcome]:
        """What came of the requests in `groups`, by their place in the batch.

        None is carried out when it is later than `until` here, a moment on the boot clock. `guard`: no acquisition
        goes to a node that may have forgotten a lease. Raises as `call` does.
        """
        link = await self._taken(seconds)
        try:
            outcomes = await self._serve(link, batch, groups, until, guard)
        except BaseException:
            # In doubt: an answer may still come, and would be taken for that to the next call.
            self._drop(link)
            raise
        self._give_back(link)
        return outcomes

    def abort(self) -> None:
        """Drop all connections at once, for good."""
        self._closed = True
        for link in tuple(self._links):
            self._drop(link)
        self._link = None

    async def _taken(self, seconds: float) -> Link:
        """The connection, out of reach of others while it is in use: a call that was given up may still unwind."""
        link, self._link = self._link, None
        if link is not None and link.usable:
            return link
        if link is not None:
            self._drop(link)
        link = await self.address.connect(seconds)
        self._links.add(link)
        try:
            if self._closed:
                raise StoreUnavailable(f"redis store: {self.address}: closed")
            reading = await read(link)
        except BaseException:
            self._drop(link)
            raise
        now = self._clock.boot()
        self._time = NodeClock(reading.clock, now, -inf if reading.up_for is None else now - reading.up_for)
        if reading.evicts and not self._eviction_told:
            self._eviction_told = True
            evicts(self.address, reading.evicts)
        return link

    def _give_back(self, link: Link) -> None:
        if self._link is None and not self._closed:
            self._link = link
        else:  # two callers at once, or closed meanwhile
            self._drop(link)

    def _drop(self, link: Link) -> None:
        self._links.discard(link)
        link.abort()

    async def _serve(
        self, link: Link, batch: Batch, groups: Iterable[Group], until: float | None, guard: bool
    ) -> dict[int, Outcome]:
        outcomes: dict[int, Outcome] = {}
        sent = self._clock.boot()
        asked: list[Group] = []
        for group in groups:
            held = {place for place in group.places if guard and self._holds_back(batch.requests[place], sent)}
            outcomes |= dict.fromkeys(held, self._young())
            if len(held) < len(group.places):
                asked.append(group._replace(places=tuple(place for place in group.places if place not in held)))
        late = asked
        # Twice, because the time on the node may be known so roughly that it calls late what is not: it says its time.
        for _ in range(2):
            if not late or (until is not None and self._clock.boot() >= until):
                break
            replies = await self._run(link, batch, late, until)
            again: list[Group] = []
            for group, reply in zip(late, replies, strict=True):
                if isinstance(reply, Exception):
                    outcomes |= dict.fromkeys(group.places, self._refusal(reply))
                elif len(reply) == 1:
                    again.append(group)
                else:
                    outcomes |= self._verdicts(batch, group, reply, sent)
            late = again
        for group in late:
            outcomes |= dict.fromkeys(group.places, LATE)
        return outcomes

    async def _run(self, link: Link, batch: Batch, groups: Sequence[Group], until: float | None) -> list[Any]:
        """Call the script for each group, all in one go."""
        text, digest = script()
        timed = batch._replace(void_at=None if until is None else self._time.at(until))
        parts = [[batch.requests[at] for at in group.places] for group in groups]
        by_name = [script_call(b"EVALSHA", digest, timed, part, names=False) for part in parts]
        replies = await self._send(link, by_name, groups)
        missing = [number for number, reply in enumerate(replies) if lacks_script(reply)]
        if missing:
            # The text goes with the first; the node knows it when it comes to the others.
            first, *others = missing
            commands = [script_call(b"EVAL", text, timed, parts[first], names=False)]
            commands += [by_name[number] for number in others]
            again = await self._send(link, commands, [groups[number] for number in missing])
            for number, reply in zip(missing, again, strict=True):
                replies[number] = reply
        for reply in replies:
            if not isinstance(reply, Exception):
                # An old reading makes calls void that are in time; the arrival is later than the truth for each.
                self._time = self._time._replace(wall=int(reply[0]), arrived=self._clock.boot())
        return replies

    async def _send(self, link: Link, commands: Sequence[bytes], groups: Sequence[Group]) -> list[Any]:
        """Send one command for each group; one reply for each."""
        sent: list[bytes] = []
        for group, command in zip(groups, commands, strict=True):
            sent += [ASKING, command] if group.asking else [command]
        replies = await link.call(sent)
        return [reply for command, reply in zip(sent, replies, strict=True) if command is not ASKING]

    def _verdicts(self, batch: Batch, group: Group, reply: list[bytes], sent: float) -> dict[int, Outcome]:
        if reply[1]:
            self._warnings.not_published(self.address, reply[1].decode(errors="replace"))
        wall = int(reply[0])
        found: dict[int, Outcome] = {}
        for place, packed in zip(group.places, reply[3].split(b"\n"), strict=True):
            one = verdict(packed, wall, batch.project, batch.requests[place].job)
            if isinstance(one, Granted):
                one = one._replace(state=one.state._replace(up_from=self._time.up_from(wall, sent)))
            found[place] = one
        return found

    def _refusal(self, error: Exception) -> Redirect | StoreError:
        told = redirect(error, self.address.host) or refusal(self.address, error, "EVALSHA")
        return ClusterDown(str(told)) if code_of(error) == "CLUSTERDOWN" else told

    def _holds_back(self, request: Request, now: float) -> bool:
        return isinstance(request, Acquire) and self._time.may_have_forgotten(now, request.lock_expiry)

    def _young(self) -> Failed:
        text = "was started less than lock_expiry + 1 s ago and may have forgotten leases; it is asked for none so far"
        return Failed(error=f"redis store: the node {self.address} {text}")
