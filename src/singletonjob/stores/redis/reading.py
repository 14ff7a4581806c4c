"""The reading of a server on a new connection: its time, its up-time, and its eviction policy."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .link import Link

__all__ = ["Reading", "read"]

UP_TIME = re.compile(rb"^uptime_in_seconds:(-?\d+)", re.MULTILINE)
LIMIT = re.compile(rb"^maxmemory:(\d+)", re.MULTILINE)
POLICY = re.compile(rb"^maxmemory_policy:(\S+)", re.MULTILINE)


class Reading(NamedTuple):
    """`clock` in microseconds. `up_for` in full seconds; None if not known. `evicts`: a policy that evicts leases.

    A server whose clock was set back since its start has a negative up-time: it may have started just now.
    """

    clock: int
    up_for: int | None
    evicts: str


async def read(link: Link) -> Reading:
    """Return the reading. Raises the client's errors and `OSError`."""
    time, info = await link.call([(b"TIME",), (b"INFO",)])
    if isinstance(time, Exception):
        raise time
    # The up-time is unknown if the user lacks the right to INFO, or a proxy does not support it.
    found = UP_TIME.search(info) if isinstance(info, bytes) else None
    return Reading(
        clock=int(time[0]) * 1_000_000 + int(time[1]),
        up_for=max(0, int(found[1])) if found else None,
        evicts=_evicts(info) if isinstance(info, bytes) else "",
    )


def _evicts(info: bytes) -> str:
    """Return the policy by which the server may evict a lease; empty if it does not.

    A lease has an expiry, so the `volatile-*` policies evict it, too, if there is a limit for memory.
    """
    limit, policy = LIMIT.search(info), POLICY.search(info)
    name = policy[1].decode() if policy else ""
    bounded = limit is not None and int(limit[1]) > 0
    return name if name.startswith("allkeys-") or (bounded and name.startswith("volatile-")) else ""
