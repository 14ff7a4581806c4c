"""Leases in Redis or Valkey: one script call per heartbeat for all jobs of a replica, and notices by pub/sub.

`wire` defines the keys, and `exchange.lua` the rules. A lease ends by the expiry of its key, so the server's clock
decides, and the clocks of replicas do not matter. There is one connection (`link`) for the calls and one for the
notices. The client library is imported when the first connection is opened.
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
"""The number of requests in one call of the script. The call takes about 1 ms and blocks all other clients."""

PING_INTERVAL = 3.0


class RedisStore:
    """The store on the server at `address`, for any number of replicas and for programs that use the same lock keys.

    The connection of the subscription is checked every `ping_interval` seconds, and dropped if there is no answer for
    that time.
    """

    def __init__(self, address: Place, *, ping_interval: float = PING_INTERVAL) -> None:
        self._address = address
        self._ping_interval = ping_interval
        self._idle: dict[str, Link] = {}  # by project
        self._links: set[Link] = set()  # all open ones
        self._closed = False
        self._eviction_told = False
        self._warnings = Warnings()

    def __repr__(self) -> str:
        return f"RedisStore({self._address!r})"

    async def exchange(self, batch: Batch) -> Reply:
        """See `LeaseStore.exchange`. Raises `StoreUnavailable` if there is no answer within `batch.bound`."""
        self._check_open()
        batch = batch._replace(project=self._prefix(batch.project))
        # Removed while it is in use, because an abandoned call may still unwind when the next call begins.
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
            # In doubt: a late answer would be taken for the answer to the next call.
            if link is not None:
                self._drop(link)
            raise
        self._idle[batch.project] = link
        return reply

    async def notices(self, project: str) -> AsyncGenerator[frozenset[str], None]:
        """See `LeaseStore.notices`. Reports releases and orders; the death of a holder shows only by the expiry."""
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
        """See `LeaseStore.close`. The leases do not change."""
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
        """Raise `StoreUnavailable` if the project is on another server now: the answer does not count (S1)."""
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
        if missing:  # after a restart, a fail-over or a flush; the server keeps the text from now on
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
        """Raise an error that concerns all jobs, for example of a server that accepts no writes."""
        if any(changes(verdict) for verdict in verdicts):
            return
        for failed in verdicts:
            if isinstance(failed, Failed):
                command, _, text = failed.error.partition(": ")
                if code_of(text) in SERVER_WIDE:
                    raise refusal(self._address, text, command)

    def _tell(self, notice: bytes, names: bytes) -> None:
        """Log errors of the notice and of the set of names, which do not affect the verdicts."""
        if notice:
            self._warnings.not_published(self._address, notice.decode(errors="replace"))
        if names:
            self._warnings.not_named(self._address, names.decode(errors="replace"))
