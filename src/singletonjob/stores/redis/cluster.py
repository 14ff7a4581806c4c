"""The node of a Cluster that serves a project.

All keys of a project begin with one hash tag, so they share one slot, and the Cluster is an address that can move, like
the service of a Sentinel. While a slot is being moved, the old node answers ASK or TRYAGAIN and the new one MOVED, so
that neither grants a lease. Such an exchange has no usable answer, and is not sent to the other node: that node has its
own clock and up-time, which must be read first, on a new connection (S4, S8).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from ..._core.errors import ConfigError, StoreError, StoreUnavailable
from .errors import code_of, refusal
from .link import Address
from .moving import MovingPlace, asked
from .url import database_of, url_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Cluster", "Node", "cluster_from_url", "master_of", "slot_of"]

EXAMPLE = "redis+cluster://user:password@host1:6379,host2:6379"

SLOTS = "CLUSTER SLOTS"
"""CLUSTER SHARDS is not there in Redis 6.2."""


def cluster_from_url(url: str) -> Cluster:
    """Read `redis+cluster://user:password@host1:6379,host2:6379`, which names some nodes of the Cluster.

    The other nodes are found through them. `rediss`, `valkey` and `valkeys` are allowed as in a plain URL, with the
    same query keys for TLS. User and password are the same on all nodes. Raises `ConfigError`; its text never shows
    what may be a password.
    """
    parts = url_parts(url, known=(), example=EXAMPLE)
    database = parts.path.removeprefix("/")
    if database_of(database, example=EXAMPLE) != 0:
        raise ConfigError(f"store: a Cluster has no database but 0, not {database}; write {EXAMPLE}")
    login = Node(username=parts.username, password=parts.password, tls=parts.tls)
    return Cluster([replace(login, host=host or "localhost", port=port or 6379) for host, port in parts.hosts])


@dataclass(frozen=True, slots=True, kw_only=True)
class Node(Address):
    """One node of a Cluster, with user and password."""

    login: ClassVar[str] = f"write {EXAMPLE}"
    primary: ClassVar[str] = "the Cluster's nodes are asked again for each new connection"
    cluster: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Cluster(MovingPlace):
    """A `Place`: the node that serves the slot of a project in the Cluster of the `seeds`.

    The masters are asked for it, or the seeds if no master is known or answers. The named node must agree.
    """

    login: ClassVar[str] = Node.login
    primary: ClassVar[str] = Node.primary
    cluster: ClassVar[bool] = True

    def __init__(self, seeds: Sequence[Node]) -> None:
        super().__init__(seeds, seeds[0])
        self.seeds: tuple[Node, ...] = tuple(seeds)
        self.unnamed: str = "no node of the Cluster tells who serves the project"

    def __str__(self) -> str:
        return f"the Cluster of {', '.join(map(str, self.seeds))}"

    def __repr__(self) -> str:
        return f"Cluster({self.seeds!r})"

    async def _named_by(self, guide: Address, project: str, seconds: float) -> Address:
        reply = await asked(guide, SLOTS.encode().split(), SLOTS, seconds)
        if isinstance(reply, Exception):
            if code_of(reply) in {"", "ERR"}:
                raise StoreError(
                    f"redis store: the server at {guide} is no node of a Cluster ({reply}); write redis://{guide}/0"
                )
            raise refusal(guide, reply, SLOTS)
        masters = {where: replace(self.server, host=where[0], port=where[1]) for where in _masters(reply, guide.host)}
        # A master that did not answer stays behind the others. The seeds come last, because a seed may be another name
        # of the owner, and the owner does not know whether it was replaced.
        known = [one for one in self._guides if one.where in masters]
        others = [one for one in masters.values() if one not in known]
        self._guides = [*known, *others, *(one for one in self.seeds if one.where not in masters)]
        slot = slot_of(project)
        where = master_of(slot, reply, guide.host)
        if where is None:
            raise StoreUnavailable(f"redis store: {guide}: no node serves the slot {slot} of {project}:*")
        return masters[where]

    async def _denies(self, found: Address, project: str, seconds: float) -> bool:
        # The other nodes learn of a moved slot seconds later than the old and the new owner.
        try:
            return (await self._named_by(found, project, seconds)).where != found.where
        except StoreError:
            return False


def slot_of(key: str) -> int:
    """Return the slot of a key (redis.io, "Redis cluster specification")."""
    from redis.crc import key_slot

    return int(key_slot(key.encode()))


def master_of(slot: int, reply: Any, host: str) -> tuple[str, int] | None:
    """Return host and port of the master of a slot, from the reply to CLUSTER SLOTS; None if there is none.

    `host` is the host of the node that replied, because a node may not know its own name.
    """
    return next(iter(_masters([part for part in reply if part[0] <= slot <= part[1]], host)), None)


def _masters(reply: Any, host: str) -> list[tuple[str, int]]:
    """Return the masters of all slots, each of them once."""
    told = [((master[0] or b"").decode(), int(master[1])) for _, _, master, *_ in reply]
    return list(dict.fromkeys((host if name in {"", "?"} else name, port) for name, port in told))
