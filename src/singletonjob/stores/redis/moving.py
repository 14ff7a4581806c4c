"""A server that other servers name, and that can be replaced: the base of Sentinel and Cluster.

The guides are asked before each new connection. So a fail-over looks like an outage: the connection to the old server
breaks, is in doubt or is refused, and the next connection goes to the server that the guides name then.

That alone would allow two leaders, because an old server that was cut off or frozen goes on serving its connections
until it learns that it was replaced. Therefore one guide is asked after each exchange whether the answer came from the
right server (S1).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ..._core.errors import StoreError, StoreUnavailable
from .errors import LOG_IN, translated
from .link import Link

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .link import Address

__all__ = ["MovingPlace", "asked"]

SHARES = 3
"""The number of guides whose silence leaves time for another guide and for the server within one call."""


async def asked(guide: Address, command: Sequence[bytes], name: str, seconds: float) -> Any:
    """Return the reply of a guide on a new connection; an error of the server is a reply, too.

    Raises `StoreError`, which shows `name` for the command.
    """
    with translated(guide, name):
        async with asyncio.timeout(seconds):
            link = await Link.open(guide, seconds)
            try:
                (said,) = await link.call([command])
            finally:
                link.abort()
    return said


class MovingPlace:
    """The base of a `Place`: the server that the first reachable guide names."""

    unnamed: str
    """The error when no guide names a server."""

    def __init__(self, guides: Sequence[Address], server: Address) -> None:
        self.server: Address = server
        self._guides = list(guides)  # in the order in which they are asked

    @property
    def username(self) -> str | None:
        return self.server.username

    @property
    def password(self) -> str | None:
        return self.server.password

    async def connect(self, project: str, seconds: float) -> Link:
        """See `Place.connect`. Each guide gets an equal share of the time, and the server at least as much."""
        share = seconds / (min(len(self._guides), SHARES) + 1)
        failed: list[StoreError] = []
        for guide in tuple(self._guides):
            # Before the request, so that another guide is next if this one uses up the caller's time.
            self._put_last(guide)
            try:
                found = await self._named_by(guide, project, share)
                if await self._denies(found, project, share):
                    raise StoreUnavailable(f"redis store: {guide} named {found}, which says that it is another one")
            except StoreError as error:
                failed.append(error)
                continue
            link = await self._opened(found, seconds)
            self._trust(guide)
            return link
        kind = StoreUnavailable if any(isinstance(error, StoreUnavailable) for error in failed) else StoreError
        why = "; ".join(str(error).removeprefix("redis store: ") for error in failed)
        raise kind(f"redis store: {self.unnamed}: {why}") from failed[-1]

    async def moved(self, link: Link, project: str, seconds: float) -> bool:
        """See `Place.moved`. One guide is asked; if it does not answer, another guide is asked the next time."""
        guide = next((one for one in self._guides if one.where != link.address.where), None)
        if guide is None:  # there is only one server
            return False
        try:
            found = await self._named_by(guide, project, seconds)
        except StoreError:
            self._put_last(guide)
            return False
        return found.where != link.address.where and not await self._denies(found, project, seconds)

    async def _named_by(self, guide: Address, project: str, seconds: float) -> Address:
        """Return the server that this guide names. Raises `StoreError`."""
        raise NotImplementedError

    async def _denies(self, found: Address, project: str, seconds: float) -> bool:  # noqa: ARG002 - for a subclass
        """Return True if the named server itself names another one; False if it does not answer."""
        return False

    async def _opened(self, found: Address, seconds: float) -> Link:
        with translated(found, LOG_IN):
            return await Link.open(found, seconds)

    def _trust(self, guide: Address) -> None:
        """Take note that the server named by this guide can be reached."""

    def _put_last(self, guide: Address) -> None:
        if guide in self._guides:
            self._guides.remove(guide)
        self._guides.append(guide)
