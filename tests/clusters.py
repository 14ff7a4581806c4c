"""A real Cluster on free loopback ports, for tests: masters of one kind, each with a part of the slots; replicas."""

from __future__ import annotations

import time
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING, Any

from redis.crc import key_slot

from servers import OLDEST, Server, free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Self

    import redis

__all__ = ["Cluster"]

SLOTS = 16384


class Cluster:
    """A context manager that starts the masters, joins them and ends them. A dead one takes no other with it.

    `nodes` are those that were masters in the beginning; each of the first ones has one of the `replicas`. With `tls`,
    options of that kind, all speak TLS to each other, and without it to tests: each has a port for either.
    """

    def __init__(
        self,
        directory: Path,
        kind: str = OLDEST,
        masters: int = 3,
        replicas: int = 0,
        *,
        tls: Mapping[str, str] | None = None,
    ) -> None:
        self.nodes: list[Server] = []
        self.replicas: list[Server] = []
        for number in range(masters + replicas):
            place = directory / str(number)
            place.mkdir()
            options = {"cluster-enabled": "yes", "cluster-node-timeout": "1000", "cluster-require-full-coverage": "no"}
            if tls is not None:
                options |= {"tls-port": str(free_port()), "tls-cluster": "yes", "tls-replication": "yes", **tls}
            node = Server(kind, place, options)
            (self.nodes if number < masters else self.replicas).append(node)

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    @property
    def tls_url(self) -> str:
        return "rediss+cluster://" + ",".join(f"127.0.0.1:{_known_as(node)}" for node in self.nodes)

    def __enter__(self) -> Self:
        try:
            for number, node in enumerate(self._all):
                node.start()
                if node in self.nodes:
                    part = range(number * SLOTS // len(self.nodes), (number + 1) * SLOTS // len(self.nodes))
                    self.run(node, "CLUSTER", "ADDSLOTS", *part)
                if number:
                    self.run(node, "CLUSTER", "MEET", "127.0.0.1", _known_as(self.nodes[0]))
            self._wait(self._is_complete, *self._all)
            for master, replica in zip(self.nodes, self.replicas, strict=False):
                self.run(replica, "CLUSTER", "REPLICATE", self.name_of(master))  # it is a replica from now on
            self.wait_for_replicas()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self._all:
            node.kill()

    def run(self, node: Server, *command: str | int | bytes) -> Any:
        """What one node answers."""
        with node.client(decode_responses=True) as client:
            return client.execute_command(*command)

    def facts(self, node: Server) -> dict[str, str]:
        """What CLUSTER INFO says on that node."""
        told: str = self.run(node, "CLUSTER", "INFO")
        return dict(line.split(":") for line in told.split())

    def flush(self) -> None:
        """Forget all keys, and what was published before: a node may tell it much later than its neighbour did."""
        for node in self._all:
            if self.is_master(node):
                self.run(node, "FLUSHALL")
        with ExitStack() as stack:
            clients = [stack.enter_context(node.client()) for node in self._all]
            told = [stack.enter_context(client.pubsub()) for client in clients]
            for subscription in told:
                subscription.subscribe("flushed")
                subscription.get_message(timeout=10)
            unheard = [set(range(len(clients))) for _ in told]  # by each node, of whom
            deadline = time.monotonic() + 10
            while any(unheard):  # what is published while nodes connect to one that came back is lost
                assert time.monotonic() < deadline, f"nodes do not tell what others publish: {unheard}"
                for publisher in set().union(*unheard):
                    clients[publisher].publish("flushed", publisher)
                for publishers, subscription in zip(unheard, told, strict=True):
                    while publishers and (message := subscription.get_message(timeout=0.1)):
                        publishers.discard(int(message["data"]))

    def is_master(self, node: Server) -> bool:
        return bool(self.run(node, "INFO", "replication")["role"] == "master")

    def wait_for_replicas(self) -> None:
        """Return when each replica has its master's data, and all nodes take all others for well."""
        # One that was a master and comes back takes itself for one until the others have told it.
        self._wait(lambda _: sum(self.is_master(node) for node in self._all) == len(self.nodes), self.nodes[0])
        self._wait(self._follows, *self._all)
        self._wait(self._is_complete, *self._all)

    def name_of(self, node: Server) -> str:
        return str(self.run(node, "CLUSTER", "MYID"))

    def owner(self, key: str) -> Server:
        """The node that serves the key, as the first live one knows."""
        return self._owner(key, self._slots())

    def project_on(self, node: Server) -> str:
        """The name of a project whose keys lie on that node."""
        slots = self._slots()
        return next(name for at in count() if self._owner(f"{{{(name := f'p{at}')}}}", slots) is node)

    def client(self, key: str) -> redis.Redis:
        """A client of the node that serves the key; close it."""
        return self.owner(key).client(decode_responses=True)

    def begin_move(self, key: str, to: Server) -> None:
        """The key's slot is on its way from now on; its keys are where they were."""
        slot, source = key_slot(key.encode()), self.owner(key)
        self.run(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", self.name_of(source))
        self.run(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", self.name_of(to))

    def move_keys(self, key: str, to: Server) -> list[str]:
        """All keys of the key's slot go over; their names."""
        slot, source = key_slot(key.encode()), self.owner(key)
        keys: list[str] = self.run(source, "CLUSTER", "GETKEYSINSLOT", slot, 1000)
        if keys:
            self.run(source, "MIGRATE", "127.0.0.1", to.port, "", 0, 5000, "KEYS", *keys)
        return keys

    def end_move(self, key: str, to: Server) -> None:
        """The slot is the other node's, and all know."""
        slot, name = key_slot(key.encode()), self.name_of(to)
        for node in (to, *(node for node in self._all if node is not to)):
            if self.is_master(node):  # a replica refuses it, and hears of it from its master
                self.run(node, "CLUSTER", "SETSLOT", slot, "NODE", name)

    @property
    def _all(self) -> list[Server]:
        return [*self.nodes, *self.replicas]

    def _wait(self, condition: Callable[[Server], bool], *nodes: Server) -> None:
        deadline = time.monotonic() + 30
        while not all(condition(node) for node in nodes):
            assert time.monotonic() < deadline, "the Cluster does not form"
            time.sleep(0.02)

    def _is_complete(self, node: Server) -> bool:
        facts = self.facts(node)
        complete = facts["cluster_state"] == "ok" and facts["cluster_slots_ok"] == str(SLOTS)
        return complete and facts["cluster_known_nodes"] == str(len(self._all))

    def _follows(self, node: Server) -> bool:
        facts = self.run(node, "INFO", "replication")
        return bool(facts["role"] == "master" or facts["master_link_status"] == "up")

    def _slots(self) -> list[tuple[int, int, int]]:
        live = next(node for node in self._all if node.process is not None)
        return _ranges(self.run(live, "CLUSTER", "SLOTS"))

    def _owner(self, key: str, slots: list[tuple[int, int, int]]) -> Server:
        slot = key_slot(key.encode())
        port = next(port for first, last, port in slots if first <= slot <= last)
        return next(node for node in self._all if node.port == port)


def _known_as(node: Server) -> int:
    """The port by which the others know it."""
    return int(node.options.get("tls-port", node.port))


def _ranges(slots: Any) -> list[tuple[int, int, int]]:
    """First and last slot and the master's port, in whatever form the client gives it."""
    if isinstance(slots, dict):
        return [(first, last, found["primary"][1]) for (first, last), found in slots.items()]
    return [(int(first), int(last), int(master[1])) for first, last, master, *_ in slots]
