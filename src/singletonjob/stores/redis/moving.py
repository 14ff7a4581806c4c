"""A server that other servers name, and that may be another one tomorrow: the base of Sentinel and Cluster.

The guides are asked before each new connection, so a fail-over looks like an outage: the connection to the old server
breaks, is in doubt or is refused, and is dropped; the next one leads to the server that the guides name then.

That alone would make two leaders, because an old server that was cut off or frozen goes on as if nothing had happened,
with its connections, until somebody tells it. So after each exchange one guide is asked whether the server that
answered still is the one.
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
"""So many silent guides leave time for one that answers, and for the server, within one call."""


async def asked(guide: Address, command: Sequence[bytes], name: str, seconds: float) -> Any:
    """The reply of a guide on a connection of its own; an error of the server is a reply, too.

    Raises `StoreError`, in which the command has this name.
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
    """The base of a `Place`: the server that the first of the guides names that can be reached."""

    unnamed: str
    """The error when no guide names a server."""

    def __init__(self, guides: Sequence[Address], server: Address) -> None:
        self.server: Address = server
        self._guides = list(guides)  # the next one to be asked comes first

    @property
    def username(self) -> str | None:
        return self.server.username

    @property
    def password(self) -> str | None:
        return self.server.password

    async def connect(self, project: str, seconds: float) -> Link:
        """See `Place.connect`. Each guide has an equal share of the time, and the server at least as much."""
        share = seconds / (min(len(self._guides), SHARES) + 1)
        failed: list[StoreError] = []
        for guide in tuple(self._guides):
            # Before it is asked: if it is the one that uses up the caller's time, another one is the next to be asked.
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
        """See `Place.moved`. One guide is asked; if it does not tell, another one is the next time."""
        guide = next((one for one in self._guides if one.where != link.address.where), None)
        if guide is None:  # there is one server in all
            return False
        try:
            found = await self._named_by(guide, project, seconds)
        except StoreError:
            self._put_last(guide)
            return False
        return found.where != link.address.where and not await self._denies(found, project, seconds)

    async def _named_by(self, guide: Address, project: str, seconds: float) -> Address:
        """The server that this guide names. Raises `StoreError`."""
        raise NotImplementedError

    async def _denies(self, found: Address, project: str, seconds: float) -> bool:  # noqa: ARG002 - for a subclass
        """Whether the named server itself says that it is another one. False if it does not tell."""
        return False

    async def _opened(self, found: Address, seconds: float) -> Link:
        with translated(found, LOG_IN):
            return await Link.open(found, seconds)

    def _trust(self, guide: Address) -> None:
        """The server that this guide named can be reached."""

    def _put_last(self, guide: Address) -> None:
        if guide in self._guides:
            self._guides.remove(guide)
        self._guides.append(guide)
