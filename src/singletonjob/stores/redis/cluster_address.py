"""Where a Redis Cluster is: what its URL says, read and checked without a connection."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from ..._core.errors import ConfigError
from .address import Address
from .url import database_of, url_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["NodeAddress", "Where", "cluster_from_url"]

EXAMPLE = "redis+cluster://user:password@host1:6379,host2:6379"

Where: TypeAlias = tuple[str, int]
"""Host and port of a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAddress(Address):
    """One node of a Cluster, and who to be there."""

    login: ClassVar[str] = f"write {EXAMPLE}"
    primary: ClassVar[str] = "ask again: the Cluster is changing"

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def where(self) -> Where:
        return self.host, self.port

    def at(self, where: Where) -> NodeAddress:
        """Another node of the same Cluster."""
        return replace(self, host=where[0], port=where[1])


def cluster_from_url(url: str) -> Sequence[NodeAddress]:
    """Read `redis+cluster://user:password@host1:6379,host2:6379`: some nodes of the Cluster, through which the others
    are found. `rediss`, `valkey` or `valkeys` may stand in front as in a plain URL, with the same query keys for TLS;
    user and password are those of every node.

    Raises `ConfigError`; its text never holds what might be a password.
    """
    parts = url_parts(url, known=(), example=EXAMPLE)
    database = parts.path.removeprefix("/")
    if database_of(database, example=EXAMPLE) != 0:
        raise ConfigError(f"store: a Cluster has no database but 0, not {database}; write {EXAMPLE}")
    return tuple(
        NodeAddress(
            host=host or "localhost", port=port or 6379, username=parts.username, password=parts.password, tls=parts.tls
        )
        for host, port in parts.hosts
    )
