"""A fleet of real replicas in a few processes, on a real server: what it costs, and how its jobs change hands."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from benchmarks.fleet_costs import cpu_of
from benchmarks.heat import settings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping
    from types import TracebackType
    from typing import Self

    from servers import Server

__all__ = ["FALSE", "Fleet", "Window"]

PROJECT = "market"
FALSE = ("lost", "expired", "stuck")
"""Why a term ends that nobody asked to end."""

FOREIGN_FOR = 6.0
"""Seconds that somebody else holds a job's lease while a fleet starts whose leases are to be spread out."""

APART = 0.2
"""Seconds from the end of one such lease to the next, so that each job has a race of its own."""

PATIENCE = 60.0

IN_SCRIPT = re.compile(rb'^\+(\d+)\.(\d+) \[\d+ lua\] "(DEL|SET)" "([^"]+)"')
"""What MONITOR tells of a lock that a script deletes or sets."""


class Window(NamedTuple):
    """What happened in `seconds`. CPU times are in seconds, of the whole server and of all processes of replicas;
    `heartbeat_cpu` of their heartbeat threads; `script_time` what the server says it spent in scripts.
    """

    seconds: float
    calls: int
    commands: int
    pings: int
    script_time: float
    server_cpu: float
    client_cpu: float
    heartbeat_cpu: float
    bytes_in: int
    bytes_out: int
    memory: int
    connections: int
    leaders: int
    terms: int
    stepped_down: int


class Host:
    """One process with some of the replicas."""

    def __init__(self, wanted: dict[str, Any], log: IO[bytes]) -> None:
        self.numbers: frozenset[int] = frozenset(wanted["replicas"])
        self._log = log
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.fleet_host", json.dumps(wanted)],
            env=settings_of("ours"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )

    def ask(self, command: str = "report") -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):  # the answer's absence tells
            self.process.stdin.write(command.encode() + b"\n")
            self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            self._log.seek(0)
            last = self._log.read()[-2000:].decode(errors="replace")
            raise RuntimeError(f"a process of replicas ended with {self.process.wait()}: {last}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        with suppress(OSError, subprocess.TimeoutExpired):
            self.process.communicate(timeout=PATIENCE)
        self.process.kill()
        self.process.wait()


class Fleet:
    """`replicas` of `jobs` each in `processes`, which run every `every` (None: once, and then idle).

    With `spread_out` leases begin on replicas by chance; else all on the one that comes first. `options` go to each
    app. The server must be old enough for the amnesia guard, with nothing in it.
    """

    def __init__(
        self,
        server: Server,
        *,
        replicas: int,
        jobs: int,
        processes: int = 4,
        every: str | None = "1s",
        spread_out: bool = False,
        options: Mapping[str, object] | None = None,
    ) -> None:
        self._server = server
        self._jobs = [f"price-tick-{number}" for number in range(jobs)]
        self._spread_out = spread_out
        self._wanted: dict[str, Any] = {"project": PROJECT, "store": server.url, "jobs": jobs, "every": every}
        self._wanted["options"] = dict(options or {})
        self._shares = [list(range(first, replicas, processes)) for first in range(min(processes, replicas))]
        self._next = replicas
        self.hosts: list[Host] = []
        self.client: Any = server.client(decode_responses=True)  # the client's own annotations are incomplete

    def __enter__(self) -> Self:
        self._log = tempfile.TemporaryFile()
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def _start(self) -> None:
        if self._spread_out:
            for number, job in enumerate(self._jobs):
                self.client.set(_lock(job), "nobody", px=round(1000 * (FOREIGN_FOR + APART * number)))
        for share in self._shares:
            self._host(share)
        self._wait_for(lambda: all(host.ask()["ready"] for host in self.hosts), "the replicas")
        self._wait_for(lambda: self._all_led_but_by(["nobody"]), "a leader for each job")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for host in self.hosts:
            host.end()
        self.client.close()
        self._log.close()

    def add(self) -> Host:
        """One more process with one more replica."""
        self._next += 1
        host = self._host([self._next - 1])
        self._wait_for(lambda: bool(host.ask()["ready"]), "one more replica")
        return host

    def _host(self, numbers: list[int]) -> Host:
        self.hosts.append(Host({**self._wanted, "replicas": numbers}, self._log))
        return self.hosts[-1]

    # -- looking -------------------------------------------------------------------------------------------------------

    def holders(self) -> dict[str, str | None]:
        """Who leads each job, by node id."""
        return dict(zip(self._jobs, self.client.mget([_lock(job) for job in self._jobs]), strict=True))

    def _all_led_but_by(self, nodes: Iterable[str], jobs: Iterable[str] | None = None) -> bool:
        holders = self.holders()
        return not {holders[job] for job in (jobs or self._jobs)} & {None, *nodes}

    def measure(self, seconds: float, of: list[Host] | None = None) -> Window:
        """Look at the server and at all processes, or at those `of` which it is asked, before and after so long."""
        hosts = of or self.hosts
        before = self._counts(hosts)
        time.sleep(seconds)
        after = self._counts(hosts)
        found = {name: after[name] - before[name] for name in before}
        memory = self.client.info("memory")["used_memory"]
        connections = self.client.info("clients")["connected_clients"] - 1  # but for ours
        leaders = len({*self.holders().values()} - {None})
        return Window(**found, memory=memory, connections=connections, leaders=leaders)

    def _counts(self, hosts: list[Host]) -> dict[str, Any]:
        commands, stats = self.client.info("commandstats"), self.client.info("stats")
        reports = [host.ask() for host in hosts]
        assert self._server.process is not None

        def of(key: str, *names: str) -> int:
            return sum(commands.get(f"cmdstat_{name}", {}).get(key, 0) for name in names)

        return {
            "seconds": time.monotonic(),
            "calls": of("calls", "eval", "evalsha"),
            "commands": stats["total_commands_processed"],
            "pings": of("calls", "ping"),
            "script_time": of("usec", "eval", "evalsha") / 1e6,
            "server_cpu": cpu_of(self._server.process.pid),
            "client_cpu": sum(cpu_of(host.process.pid) for host in hosts),
            "heartbeat_cpu": sum(report["heartbeat_cpu"] for report in reports) / 1e9,
            "bytes_in": stats["total_net_input_bytes"],
            "bytes_out": stats["total_net_output_bytes"],
            "terms": sum(report["events"].get("terms", 0) for report in reports),
            "stepped_down": sum(report["events"].get(reason, 0) for report in reports for reason in FALSE),
        }

    def _wait_for(self, condition: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > until:
                raise RuntimeError(f"{what}: not within {PATIENCE:g} s")
            time.sleep(0.02)

    # -- hand-overs ----------------------------------------------------------------------------------------------------

    def stop_a_leader(self) -> list[float]:
        """The replica with most leases leaves in good order. Seconds from each release to the next lease."""
        node, jobs = self._most(lambda node: node)
        number = _number(node)
        host = next(host for host in self.hosts if number in host.numbers)
        with self._monitored() as lines:
            host.ask(f"stop {number}")
            self._wait_for(lambda: self._all_led_but_by([node], jobs), "the next leaders")
        freed: dict[str, float] = {}
        taken: dict[str, float] = {}
        for line in lines:
            if seen := IN_SCRIPT.match(line):
                at = int(seen[1]) + int(seen[2]) / 1e6
                (freed if seen[3] == b"DEL" else taken)[seen[4].decode()] = at
        return [taken[_lock(job)] - freed[_lock(job)] for job in jobs]

    def kill_a_process(self) -> list[float]:
        """SIGKILL to the process with most leases. Seconds from the end of each lease to the begin of the next."""
        host, jobs = self._most(self._host_of)
        nodes = {node for node in self.holders().values() if node is not None and _number(node) in host.numbers}
        host.process.send_signal(signal.SIGKILL)
        host.end()
        self.hosts.remove(host)
        time.sleep(0.05)  # what it had sent has run
        with self.client.pipeline() as together:
            together.time()
            for job in jobs:
                together.pttl(_lock(job))
            (whole, micro), *left = together.execute()
        ends = {job: whole + micro / 1e6 + more / 1000 for job, more in zip(jobs, left, strict=True)}
        self._wait_for(lambda: self._all_led_but_by(nodes, jobs), "the next leaders")
        with self.client.pipeline(transaction=False) as together:
            for job in jobs:
                together.hget(f"{{{_lock(job)}}}:state", "since")
            since = together.execute()
        return [int(began) / 1e6 - ends[job] for job, began in zip(jobs, since, strict=True)]

    def _host_of(self, node: str) -> Host:
        return next(host for host in self.hosts if _number(node) in host.numbers)

    def _most(self, whose: Callable[[str], Any]) -> tuple[Any, list[str]]:
        """Who leads most jobs, and which."""
        jobs: dict[Any, list[str]] = {}
        for job, node in self.holders().items():
            if node is not None:
                jobs.setdefault(whose(node), []).append(job)
        return max(jobs.items(), key=lambda each: len(each[1]))

    @contextmanager
    def _monitored(self) -> Generator[list[bytes]]:
        """The lines of MONITOR for the length of a block: there when it has ended, so that nobody parses meanwhile."""
        lines: list[bytes] = []
        with socket.create_connection(("127.0.0.1", self._server.port), timeout=10) as watch:
            watch.sendall(b"MONITOR\r\n")
            watch.recv(5)
            yield lines
            mark = os.urandom(8).hex()
            self.client.echo(mark)
            text = bytearray()
            while text.find(mark.encode(), -(1 << 20) - 100) < 0:
                text += watch.recv(1 << 20)
            lines += bytes(text).split(b"\r\n")


def _lock(job: str) -> str:
    return f"{PROJECT}:{job}:lock"


def _number(node: str) -> int:
    """Of the replica with that node id."""
    return int(node.partition("-")[0].removeprefix("r"))
