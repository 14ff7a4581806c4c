"""What this replica knows of a Cluster: which node serves which slot, and the connections to the nodes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ..._core.errors import StoreError, StoreUnavailable
from .cluster_node import Node
from .cluster_slots import owners, redirect
from .errors import code_of, refusal, translated
from .warnings import Warnings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..._system.clock import Clock
    from .cluster_address import NodeAddress, Where

__all__ = ["ClusterMap"]


class ClusterMap:
    """Knows nothing until `learn` has asked one of the `seeds`."""

    def __init__(self, seeds: Sequence[NodeAddress], clock: Clock) -> None:
        self._seeds = seeds
        self._clock = clock
        self._owners: list[Where | None] = []
        self._nodes: dict[Where, Node] = {}
        self._order = [seed.where for seed in seeds]  # of asking for the map
        self._listened = 0
        self.warnings: Warnings = Warnings(clock)

    def __str__(self) -> str:
        return f"the Cluster of {', '.join(map(str, self._seeds))}"

    @property
    def known(self) -> bool:
        return bool(self._owners)

    @property
    def masters(self) -> list[Where]:
        """Those that serve a slot, each once."""
        return list(dict.fromkeys(where for where in self._owners if where is not None))

    def owner(self, slot: int) -> Where | None:
        return self._owners[slot]

    def move(self, slot: int, where: Where) -> None:
        """A node said that this one serves the slot from now on."""
        self._owners[slot] = where

    def node(self, where: Where) -> Node:
        """The node, which may not be connected."""
        if where not in self._nodes:
            self._nodes[where] = Node(self._seeds[0].at(where), self._clock, self.warnings)
        return self._nodes[where]

    def demote(self, where: Where) -> None:
        """Ask this one last."""
        if where in self._order:
            self._order.remove(where)
            self._order.append(where)

    def next_address(self) -> NodeAddress:
        """The nodes' addresses in turn."""
        self._listened += 1
        return self._seeds[0].at(self._order[self._listened % len(self._order)])

    async def learn(self, seconds: float) -> bool:
        """Ask one node after the other for the map, until one answers, within `seconds`; whether that tells its
        up-time. The one that answered comes late the next time: it may be cut off from the others, and not know.

        Raises the first node's `StoreError` if none answers.
        """
        first: StoreError | None = None
        deadline = self._clock.boot() + seconds
        for where in tuple(self._order):
            left = deadline - self._clock.boot()
            if left <= 0:
                break
            node = self.node(where)
            self.demote(where)
            try:
                with translated(node.address, "CLUSTER SLOTS"):
                    # Half of what is left for each, so that those after a silent one have their turn.
                    async with asyncio.timeout(left / 2):
                        (reply,) = await node.call([(b"CLUSTER", b"SLOTS")], left)
                    self._take(node, reply)
            except StoreError as error:
                first = first or error
                continue
            return node.tells_up_time
        raise first or StoreUnavailable(f"redis store: {self}: no node was asked in time")

    async def ask(self, slot: int, commands: Sequence[Sequence[bytes]], seconds: float) -> list[Any]:
        """The replies to commands on keys of one slot, errors among them; all are sent again if the slot moves.

        Raises `StoreError`. It takes no longer than `seconds`.
        """
        where, asking = self.owner(slot), False
        replies: list[Any] = []
        for _ in range(2):
            if where is None:
                raise StoreUnavailable(f"redis store: {self}: no node serves the slot {slot}")
            node = self.node(where)
            sent = [part for command in commands for part in ([(b"ASKING",), command] if asking else [command])]
            with translated(node.address, commands[0][0].decode()):
                async with asyncio.timeout(seconds / 2):
                    replies = (await node.call(sent, seconds))[1 if asking else 0 :: 2 if asking else 1]
            to = next((to for reply in replies if (to := redirect(reply, node.address.host))), None)
            if to is None:
                break
            where, asking = to
            if not asking:
                self.move(slot, where)
        return replies

    def abort(self) -> None:
        """Drop all connections at once, for good."""
        for node in self._nodes.values():
            node.abort()

    def _take(self, node: Node, reply: Any) -> None:
        if isinstance(reply, Exception):
            if code_of(reply) == "ERR" or not code_of(reply):
                raise StoreError(
                    f"redis store: the server at {node.address} is no node of a Cluster ({reply});"
                    f" write redis://{node.address}/0"
                )
            raise refusal(node.address, reply, "CLUSTER SLOTS")
        self._owners = owners(reply, node.address.host)
        masters = self.masters
        kept = dict.fromkeys([*masters, *(seed.where for seed in self._seeds)])
        self._order = [*(where for where in kept if where not in self._order), *(w for w in self._order if w in kept)]
        for where in [where for where in self._nodes if where not in kept]:
            self._nodes.pop(where).abort()
