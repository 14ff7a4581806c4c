"""A real Cluster on free loopback ports, for tests: some masters of one kind, each with a part of the slots."""

from __future__ import annotations

import time
from itertools import count, islice
from typing import TYPE_CHECKING, Any

from redis.crc import key_slot

from servers import OLDEST, Server, free_port

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    import redis

__all__ = ["Cluster"]

SLOTS = 16384


class Cluster:
    """A context manager that starts the masters, joins them and ends them. A dead one takes no other with it."""

    def __init__(self, directory: Path, kind: str = OLDEST, masters: int = 3) -> None:
        self.nodes: list[Server] = []
        for number in range(masters):
            place = directory / str(number)
            place.mkdir()
            options = {"cluster-enabled": "yes", "cluster-node-timeout": "1000", "cluster-require-full-coverage": "no"}
            self.nodes.append(Server(kind, place, options, free_port(55_000)))

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def __enter__(self) -> Self:
        try:
            for number, node in enumerate(self.nodes):
                node.start()
                part = range(number * SLOTS // len(self.nodes), (number + 1) * SLOTS // len(self.nodes))
                self.run(node, "CLUSTER", "ADDSLOTS", *part)
                if number:
                    self.run(node, "CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port)
            deadline = time.monotonic() + 30
            while not all(self._is_complete(node) for node in self.nodes):
                assert time.monotonic() < deadline, "the Cluster does not form"
                time.sleep(0.02)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes:
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
        for node in self.nodes:
            self.run(node, "FLUSHALL")

    def name_of(self, node: Server) -> str:
        return str(self.run(node, "CLUSTER", "MYID"))

    def owner(self, key: str) -> Server:
        """The node that serves the key, as the first live one knows."""
        return self._owner(key, self._slots())

    def job_on(self, node: Server, project: str = "p", number: int = 0) -> str:
        """The name of a job whose lock lies on that node, and is not that of another number."""
        slots = self._slots()
        jobs = (job for at in count() if self._owner(f"{project}:{(job := f'j{at}')}:lock", slots) is node)
        return next(islice(jobs, number, None))

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
        for node in (to, *(node for node in self.nodes if node is not to)):
            self.run(node, "CLUSTER", "SETSLOT", slot, "NODE", name)

    def _is_complete(self, node: Server) -> bool:
        facts = self.facts(node)
        complete = facts["cluster_state"] == "ok" and facts["cluster_slots_assigned"] == str(SLOTS)
        return complete and facts["cluster_known_nodes"] == str(len(self.nodes))

    def _slots(self) -> list[tuple[int, int, int]]:
        live = next(node for node in self.nodes if node.process is not None)
        return _ranges(self.run(live, "CLUSTER", "SLOTS"))

    def _owner(self, key: str, slots: list[tuple[int, int, int]]) -> Server:
        slot = key_slot(key.encode())
        port = next(port for first, last, port in slots if first <= slot <= last)
        return next(node for node in self.nodes if node.port == port)


def _ranges(slots: Any) -> list[tuple[int, int, int]]:
    """First and last slot and the master's port, in whatever form the client gives it."""
    if isinstance(slots, dict):
        return [(first, last, found["primary"][1]) for (first, last), found in slots.items()]
    return [(int(first), int(last), int(master[1])) for first, last, master, *_ in slots]
