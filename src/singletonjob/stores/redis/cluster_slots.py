"""Which node of a Cluster serves which key (redis.io, "Redis cluster specification"). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import code_of
from .wire import lock_key, names_key

if TYPE_CHECKING:
    from .cluster_address import Where

__all__ = ["SLOTS", "Redirect", "owners", "redirect", "slot_of_job", "slot_of_names"]

SLOTS = 16384


class Redirect(NamedTuple):
    """A node's word that another one serves the slot: for good (MOVED), or for this request (ASK)."""

    where: Where
    asking: bool


def slot_of_job(project: str, job: str) -> int:
    """The slot of a job's lock and state."""
    return _slot(lock_key(project, job))


def slot_of_names(project: str) -> int:
    """The slot of the set of job names."""
    return _slot(names_key(project))


def owners(reply: Any, asked: str) -> list[Where | None]:
    """The master of each slot, out of the reply to CLUSTER SLOTS of a node at the host `asked`. None: nobody serves it.

    SLOTS, and not SHARDS, because Redis 6.2 knows only that.
    """
    found: list[Where | None] = [None] * SLOTS
    for first, last, master, *_ in reply:
        where = _host(master[0], asked), int(master[1])
        found[first : last + 1] = [where] * (last + 1 - first)
    return found


def redirect(error: object, asked: str) -> Redirect | None:
    """Where the reply of a node at the host `asked` sends the request; None if it is another one."""
    code = code_of(error) if isinstance(error, Exception) else ""
    if code not in {"ASK", "MOVED"}:
        return None
    host, _, port = str(error).rpartition(" ")[2].rpartition(":")
    return Redirect((_host(host.encode(), asked), int(port)), asking=code == "ASK")


def _slot(key: str) -> int:
    from redis.crc import key_slot

    return int(key_slot(key.encode()))


def _host(told: bytes | None, asked: str) -> str:
    """A node that does not know its own name is where it was asked."""
    name = (told or b"").decode()
    return asked if name in {"", "?"} else name
