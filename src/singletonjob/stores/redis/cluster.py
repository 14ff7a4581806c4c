"""The node of a Cluster that serves a project. All keys of a project begin with one hash tag, so they share one slot,
and the Cluster is an address that may move, like that of a Sentinel's service.

While a slot is on its way, the old node answers ASK or TRYAGAIN and the new one MOVED, so neither gives a lease. An
exchange is then one without an answer, and is not sent again elsewhere: the new node has a clock and an up-time of its
own, which a reading on the new connection must tell first (S4, S8).
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
"""And not CLUSTER SHARDS, which Redis 6.2 does not know."""


def cluster_from_url(url: str) -> Cluster:
    """Read `redis+cluster://user:password@host1:6379,host2:6379`: some nodes of the Cluster, through which the others
    are found. `rediss`, `valkey` or `valkeys` may stand in front as in a plain URL, with the same query keys for TLS;
    user and password are those of every node.

    Raises `ConfigError`; its text never holds what might be a password.
    """
    parts = url_parts(url, known=(), example=EXAMPLE)
    database = parts.path.removeprefix("/")
    if database_of(database, example=EXAMPLE) != 0:
        raise ConfigError(f"store: a Cluster has no database but 0, not {database}; write {EXAMPLE}")
    login = Node(username=parts.username, password=parts.password, tls=parts.tls)
    return Cluster([replace(login, host=host or "localhost", port=port or 6379) for host, port in parts.hosts])


@dataclass(frozen=True, slots=True, kw_only=True)
class Node(Address):
    """One node of a Cluster, and who to be there."""

    login: ClassVar[str] = f"write {EXAMPLE}"
    primary: ClassVar[str] = "the Cluster's nodes are asked again for each new connection"
    cluster: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Cluster(MovingPlace):
    """A `Place`: the node of the Cluster to which the `seeds` belong that serves the slot of a project.

    The masters are asked for it, and the seeds while no master is known or none answers. The owner itself must agree.
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
        # A master that did not answer stays behind the others. A seed may be another name of the owner, which is not
        # the one to ask whether it still is.
        known = [one for one in self._guides if one.where in masters]
        others = [one for one in masters.values() if one not in known]
        self._guides = [*known, *others, *(one for one in self.seeds if one.where not in masters)]
        slot = slot_of(project)
        where = master_of(slot, reply, guide.host)
        if where is None:
            raise StoreUnavailable(f"redis store: {guide}: no node serves the slot {slot} of {project}:*")
        return masters[where]

    async def _denies(self, found: Address, project: str, seconds: float) -> bool:
        # Others hear of a moved slot seconds later than the two nodes that it concerns.
        try:
            return (await self._named_by(found, project, seconds)).where != found.where
        except StoreError:
            return False


def slot_of(key: str) -> int:
    """The slot of a key (redis.io, "Redis cluster specification")."""
    from redis.crc import key_slot

    return int(key_slot(key.encode()))


def master_of(slot: int, reply: Any, host: str) -> tuple[str, int] | None:
    """Host and port of the master of a slot by the reply to CLUSTER SLOTS, None if there is none.

    `host` is that of the node that replied, which may not know its own name.
    """
    return next(iter(_masters([part for part in reply if part[0] <= slot <= part[1]], host)), None)


def _masters(reply: Any, host: str) -> list[tuple[str, int]]:
    """Those of all slots, each once."""
    told = [((master[0] or b"").decode(), int(master[1])) for _, _, master, *_ in reply]
    return list(dict.fromkeys((host if name in {"", "?"} else name, port) for name, port in told))
