"""A Sentinel service on the loopback: a primary with two replicas, and three sentinels that watch them."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from redis.exceptions import ResponseError

from replicas import boot
from servers import Server, free_port
from waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Self

__all__ = ["SERVICE", "Sentinel", "SentinelService"]

SERVICE = "cache"


class Sentinel(Server):
    """A sentinel of a server of the same kind, which watches whoever listens on `primary`.

    It takes a server for dead that is silent for a second: with less, a busy machine has fail-overs of its own.
    """

    def __init__(
        self,
        kind: str,
        directory: Path,
        primary: int,
        *,
        service: str = SERVICE,
        sentinel_password: str = "",
        tls: Mapping[str, str] | None = None,
    ) -> None:
        port = free_port()
        super().__init__(kind, directory, port=port)
        lines = [
            "bind 127.0.0.1",
            f"port {port}",
            f"dir {directory}",
            f"sentinel monitor {service} 127.0.0.1 {primary} 2",
            f"sentinel down-after-milliseconds {service} 1000",
            f"sentinel failover-timeout {service} 1000",
        ]
        if sentinel_password:
            lines += [f"requirepass {sentinel_password}", f"sentinel sentinel-pass {sentinel_password}"]
        self.tls_port = free_port()
        if tls is not None:
            lines += [f"tls-port {self.tls_port}", *(f"{name} {value}" for name, value in tls.items())]
        self.file = directory / "sentinel.conf"  # it writes into it what it learns
        self.file.write_text("\n".join(lines) + "\n")

    def command(self) -> list[str]:
        return [self.binary, str(self.file), "--sentinel"]


class SentinelService:
    """All six processes; a context manager. `options` are the servers'.

    In the beginning the first one of `servers` is the primary. With `tls`, options of that kind, all six speak TLS to
    each other, and without it to tests: each has a port for either.
    """

    def __init__(
        self,
        kind: str,
        directory: Path,
        options: Mapping[str, str] | None = None,
        *,
        tls: Mapping[str, str] | None = None,
    ) -> None:
        self._stack = ExitStack()
        self.servers: list[Server] = []
        self.sentinels: list[Sentinel] = []
        self._directory = directory
        self._kind = kind
        self._options = {**(options or {}), **(tls or {})}
        self._tls = tls

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for number in range(3):
                where = self._directory / f"server{number}"
                where.mkdir()
                server = Server(self._kind, where, dict(self._options))
                if self._tls is not None:
                    server.options["tls-port"] = str(free_port())
                if self.servers:
                    server.options["replicaof"] = f"127.0.0.1 {self._known_as(self.servers[0])}"
                self.servers.append(stack.enter_context(server))
            self.wait_for_replicas(self.servers[0])
            for number in range(3):
                where = self._directory / f"sentinel{number}"
                where.mkdir()
                sentinel = Sentinel(self._kind, where, self._known_as(self.servers[0]), tls=self._tls)
                self.sentinels.append(stack.enter_context(sentinel))
            self.wait_until_ready()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}/0"

    def ask(self, sentinel: Sentinel, *words: object) -> Any:
        """The raw answer of a sentinel to `SENTINEL words`."""
        with sentinel.client(decode_responses=True) as client:
            client.response_callbacks.clear()
            return client.execute_command("SENTINEL", *words)

    def primary(self) -> Server:
        """The server that all sentinels name and that says so, too; waited for."""
        found: set[int] = set()

        def agreed() -> bool:
            nonlocal found
            found = {int(self.ask(one, "get-master-addr-by-name", SERVICE)[1]) for one in self.sentinels}
            return len(found) == 1 and self._role(self._at(*found)) == "master"

        wait_for(agreed, what="a primary that all sentinels name")
        return self._at(*found)

    def wait_until_ready(self) -> None:
        """Return when each sentinel knows the other two and both replicas: then they can fail over."""

        def ready(sentinel: Sentinel) -> bool:
            flat = self.ask(sentinel, "master", SERVICE)
            facts = dict(zip(flat[::2], flat[1::2], strict=True))
            replicas = [dict(zip(one[::2], one[1::2], strict=True)) for one in self.ask(sentinel, "replicas", SERVICE)]
            return (
                facts["flags"] == "master"
                and facts["num-other-sentinels"] == "2"
                and [one["flags"] for one in replicas] == ["slave", "slave"]
            )

        for sentinel in self.sentinels:
            wait_for(lambda one=sentinel: ready(one), 40, "a sentinel that knows all others")  # type: ignore[misc]  # binds it

    def wait_for_replicas(self, primary: Server | None = None) -> None:
        """Return when both replicas have the primary's data and follow it; the one that the sentinels name by default.

        That may take the sentinels ten seconds and more, if they have to tell a former primary that it is none.
        """

        def followed() -> bool:
            with (primary or self.primary()).client() as client:
                info: dict[str, Any] = client.info("replication")
                return [info.get(f"slave{number}", {}).get("state") for number in (0, 1)] == ["online", "online"]

        wait_for(followed, 40, "two replicas that follow")

    def fail_over(self) -> tuple[Server, float]:
        """Have a sentinel promote another server; which one, and when it was the primary."""
        self.wait_until_ready()
        old = self.primary()
        for _ in range(10):
            with suppress(ResponseError):  # one is on its way, or no replica is good enough just now
                self.ask(self.sentinels[0], "failover", SERVICE)
            with suppress(AssertionError):  # on a busy machine a sentinel may give it up
                return self.promoted(old, 5)
        return self.promoted(old)

    def kill_primary(self) -> tuple[Server, Server, float]:
        """`kill -9`: which one it was, which one was promoted, and when it was the primary."""
        old = self.primary()
        old.kill()
        return (old, *self.promoted(old))

    def promoted(self, old: Server, seconds: float = 30) -> tuple[Server, float]:
        """The server in the place of `old`, waited for, and when it first said so and a sentinel named it."""
        deadline = boot() + seconds
        while True:
            for sentinel in self.sentinels:
                server = self._at(int(self.ask(sentinel, "get-master-addr-by-name", SERVICE)[1]))
                if server is not old and self._role(server) == "master":
                    return server, boot()
            assert boot() < deadline, "no replica was promoted"
            time.sleep(0.002)

    def bring_back(self, server: Server) -> None:
        """Start a server that was killed as a replica of the primary, and wait until all are ready again."""
        server.options["replicaof"] = f"127.0.0.1 {self._known_as(self.primary())}"
        server.start()
        self.wait_for_replicas()
        self.wait_until_ready()

    def _known_as(self, server: Server) -> int:
        """The port by which the others know it."""
        return int(server.options.get("tls-port", server.port))

    def _at(self, port: int) -> Server:
        (found,) = [server for server in self.servers if self._known_as(server) == port]
        return found

    def _role(self, server: Server) -> str:
        with server.client() as client:
            info: dict[str, str] = client.info("replication")
            return info["role"]
