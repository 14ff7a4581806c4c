"""What a server says of itself on a new connection: its time, its up-time, and whether it evicts."""

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
    """`clock` in microseconds; `up_for` in whole seconds, None where it is not told; `evicts`: a policy that does.

    A server whose clock was set back since it started has a negative up-time: it may have started just now.
    """

    clock: int
    up_for: int | None
    evicts: str


async def read(link: Link) -> Reading:
    """Raises the client's errors and `OSError`."""
    time, info = await link.call([(b"TIME",), (b"INFO",)])
    if isinstance(time, Exception):
        raise time
    # No right to INFO, or something between us and the server that does not tell: then there is no up-time.
    found = UP_TIME.search(info) if isinstance(info, bytes) else None
    return Reading(
        clock=int(time[0]) * 1_000_000 + int(time[1]),
        up_for=max(0, int(found[1])) if found else None,
        evicts=_evicts(info) if isinstance(info, bytes) else "",
    )


def _evicts(info: bytes) -> str:
    """The policy by which the server may throw a lease away; empty if it does not.

    A lease has an expiry, so it is among what `volatile-*` throws away, once there is a limit to be reached.
    """
    limit, policy = LIMIT.search(info), POLICY.search(info)
    name = policy[1].decode() if policy else ""
    bounded = limit is not None and int(limit[1]) > 0
    return name if name.startswith("allkeys-") or (bounded and name.startswith("volatile-")) else ""
