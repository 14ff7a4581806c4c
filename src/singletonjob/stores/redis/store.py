"""Leases in Redis or Valkey: one script call per beat for all jobs of a replica, and release notices by pub/sub.

The keys are told in `wire`, the rules in `exchange.lua`. A lease ends by the expiry of its key, so the server's
clock counts and those of the replicas do not matter. `link` is the connection: one for the beats, one for the
notices. The client library is imported when the first of them is opened.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ..._core.errors import StoreUnavailable
from ..._core.protocol import Failed, Reply
from ..rules import changes
from .address import address_from_url
from .errors import LOG_IN, SERVER_WIDE, code_of, refusal, translated
from .inspect import inspect
from .peek import look
from .reading import read
from .script import lacks_script, script
from .warnings import Warnings, evicts
from .wire import channel, pack, prefix, script_call, verdict

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ..._core.protocol import Batch, Finding, JobView, Verdict
    from .address import Place
    from .link import Link

__all__ = ["RedisStore", "address_from_url"]

CHUNK = 100
"""So many requests go into one call of the script, which takes a server about 1 ms: nobody else is served meanwhile."""

PING_INTERVAL = 3.0


class RedisStore:
    """The store on the server at `address`, which may be used by any number of replicas, and by programs in other
    languages that keep to the original's lock keys.

    The subscription's connection is tried each `ping_interval` seconds, and given up when that has no answer for as
    long.
    """

    def __init__(self, address: Place, *, ping_interval: float = PING_INTERVAL) -> None:
        self._address = address
        self._ping_interval = ping_interval
        self._idle: dict[str, Link] = {}  # by the project that each was opened for
        self._links: set[Link] = set()  # all that are open
        self._closed = False
        self._eviction_told = False
        self._warnings = Warnings()

    def __repr__(self) -> str:
        return f"RedisStore({self._address!r})"

    async def exchange(self, batch: Batch) -> Reply:
        """See `LeaseStore.exchange`. A batch without an answer within `batch.bound` is a `StoreUnavailable`."""
        self._check_open()
        batch = batch._replace(project=self._prefix(batch.project))
        # Out of reach while it is in use: a call that was given up may still unwind when the next one begins.
        link = self._idle.pop(batch.project, None)
        if link is not None and not link.usable:
            self._drop(link)
            link = None
        if batch.requests and link is None:
            raise StoreUnavailable(f"redis store: {self._address}: not connected; a reading comes first")
        try:
            with translated(self._address if link is None else link.address, "EVALSHA" if batch.requests else "TIME"):
                async with asyncio.timeout(batch.bound) as scope:
                    if link is None:
                        link = await self._opened(batch.project, batch.bound)
                    reply = await (self._run(link, batch) if batch.requests else self._read(link))
                    if batch.requests:
                        left = (scope.when() or 0.0) - asyncio.get_running_loop().time()
                        await self._check_still_there(link, batch.project, min(left / 2, batch.bound / 4))
        except BaseException:
            # In doubt: an answer may still come, and would be taken for that to the next call.
            if link is not None:
                self._drop(link)
            raise
        self._idle[batch.project] = link
        return reply

    async def notices(self, project: str) -> AsyncGenerator[frozenset[str], None]:
        """See `LeaseStore.notices`. Releases only: of a holder that died, the server knows no more than the expiry."""
        self._check_open()
        project = self._prefix(project)
        with translated(self._address, "SUBSCRIBE"):
            async with asyncio.timeout(self._ping_interval):
                link = await self._opened(project, self._ping_interval)
            try:
                await link.send(pack((b"SUBSCRIBE", channel(project).encode())))
                asked = True
                while True:
                    message = await link.read(self._ping_interval)
                    if message is None and asked:
                        raise StoreUnavailable(
                            f"redis store: {self._address}: the subscription is not answered within"
                            f" {self._ping_interval:.3g} s"
                        )
                    asked = message is None
                    if message is None:
                        await self._check_still_there(link, project, self._ping_interval / 2)
                        await link.send(pack((b"PING",)))
                    elif message[0] == b"subscribe":
                        yield frozenset()
                    elif message[0] == b"message":
                        yield frozenset(message[2].decode(errors="replace").split("\n"))
            finally:
                self._drop(link)

    async def peek(self, project: str) -> tuple[JobView, ...]:
        """See `LeaseStore.peek`."""
        return await look(self._address, project)

    async def inspect(self, project: str) -> tuple[Finding, ...]:
        """See `Inspectable.inspect`."""
        return await inspect(self._address, project)

    async def close(self) -> None:
        """See `LeaseStore.close`. The leases stay as they are."""
        self._closed = True
        for link in self._links:
            link.abort()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"redis store: {self._address}: closed")

    def _prefix(self, project: str) -> str:
        return prefix(project, cluster=self._address.cluster)

    async def _opened(self, project: str, seconds: float) -> Link:
        with translated(self._address, LOG_IN):
            link = await self._address.connect(project, seconds)
        self._links.add(link)
        if self._closed:
            self._drop(link)
        self._check_open()
        return link

    async def _check_still_there(self, link: Link, project: str, seconds: float) -> None:
        """What a server says counts only while it is the one that is asked by all."""
        if await self._address.moved(link, project, seconds):
            for one in self._links:
                one.abort()
            raise StoreUnavailable(f"redis store: {self._address}: {link.address} is the server no more")

    def _drop(self, link: Link) -> None:
        self._links.discard(link)
        link.abort()

    async def _read(self, link: Link) -> Reply:
        reading = await read(link)
        if reading.evicts and not self._eviction_told:
            self._eviction_told = True
            evicts(self._address, reading.evicts)
        return Reply(clock=reading.clock, up_for=reading.up_for)

    async def _run(self, link: Link, batch: Batch) -> Reply:
        chunks = [batch.requests[at : at + CHUNK] for at in range(0, len(batch.requests), CHUNK)]
        text, digest = script()
        replies = await link.call([script_call(b"EVALSHA", digest, batch, chunk) for chunk in chunks])
        missing = [number for number, reply in enumerate(replies) if lacks_script(reply)]
        if missing:  # restarted, failed over or flushed; the server keeps the text for the next time
            again = await link.call([script_call(b"EVAL", text, batch, chunks[number]) for number in missing])
            for number, reply in zip(missing, again, strict=True):
                replies[number] = reply
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return self._reply(batch, replies)

    def _reply(self, batch: Batch, replies: list[Any]) -> Reply:
        clock = int(replies[-1][0])
        if all(len(reply) == 1 for reply in replies):
            return Reply(clock=clock, void=True)
        verdicts: list[Verdict] = []
        for reply in replies:
            asked = batch.requests[len(verdicts) : len(verdicts) + CHUNK]
            if len(reply) == 1:
                verdicts += [Failed(error="this part of a long batch came too late; nothing was done")] * len(asked)
                continue
            self._tell(reply[1], reply[2])
            wall = int(reply[0])
            verdicts += [
                verdict(packed, wall, batch.project, request.job)
                for request, packed in zip(asked, reply[3].split(b"\n"), strict=True)
            ]
        self._raise_if_not_about_a_job(verdicts)
        return Reply(clock=clock, verdicts=tuple(verdicts))

    def _raise_if_not_about_a_job(self, verdicts: list[Verdict]) -> None:
        """A server that lets nothing be written is the matter of all jobs, even if it let some be read."""
        if any(changes(verdict) for verdict in verdicts):
            return
        for failed in verdicts:
            if isinstance(failed, Failed):
                command, _, text = failed.error.partition(": ")
                if code_of(text) in SERVER_WIDE:
                    raise refusal(self._address, text, command)

    def _tell(self, notice: bytes, names: bytes) -> None:
        """Both happen after the verdicts, and neither makes one wrong."""
        if notice:
            self._warnings.not_published(self._address, notice.decode(errors="replace"))
        if names:
            self._warnings.not_named(self._address, names.decode(errors="replace"))
