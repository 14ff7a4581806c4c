"""What a fleet costs a Redis server, reckoned: docs/sizing.md tells it in words, `sh scripts/bench fleet` measures it.

Everything is the mean of a fleet in peace, where nobody comes, goes or dies; what a hand-over costs is told apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

__all__ = ["Cost", "Load", "Shape", "load", "table"]

CHUNK = 100
"""Jobs in one call of the script: `CHUNK` of the Redis store."""

PING_EVERY = 3.0
"""Seconds between two PINGs on a subscription: `PING_INTERVAL` of the Redis store."""

JITTER = 0.1
"""The part of a heartbeat by which a beat may come early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """So many replicas, each with all of the jobs, of which `leaders` lead at least one. Times in seconds."""

    replicas: int
    jobs: int
    leaders: float
    heartbeat: float = 3.0
    expiry: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The server's CPU time in seconds, all that the kernel does for its sockets included, and bytes, both ways.

    `idle` is per second, the others per act: a script call, a job in it, a PING, a notice to one subscriber. The times
    are those of the machine of benchmarks/results.md, a slow one, by `fleet_costs`; the bytes those of a lock's name
    of 25 characters.
    """

    idle: float = 800e-6
    call: float = 100e-6
    request: float = 10e-6
    ping: float = 45e-6
    message: float = 6e-6
    call_bytes: int = 190
    request_bytes: int = 140
    ping_bytes: int = 36


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Per second: script calls, jobs in them, PINGs, bytes both ways; `cpu` is the part of one core of the server's.

    `hand_over` is the server's time in seconds for one release: the notices, and an ask of each who hears one.
    """

    calls: float
    requests: float
    pings: float
    cpu: float
    bandwidth: float
    connections: int
    hand_over: float


def beat(shape: Shape) -> float:
    """Seconds between two beats of a process that leads: with more jobs the earliest of more draws of the jitter."""
    led = max(1.0, shape.jobs / shape.leaders)
    return shape.heartbeat * (1 - JITTER * led / (led + 1))


def cycle(shape: Shape) -> float:
    """Seconds between two requests of a follower for one job.

    The last renewal that it was told of was half a beat old on average. It asks again half a margin before the lease
    would have ended, with 1 % less for clocks that disagree.
    """
    return 0.99 * (shape.expiry - beat(shape) / 2) - shape.expiry / 20


def follower_asks(shape: Shape) -> float:
    """Seconds between two calls of a process that leads nothing.

    The leases of one leader end together. Those of several end apart; what would end within half a heartbeat is asked
    for in the same call, and then the next one is waited for.
    """
    return cycle(shape) if shape.leaders == 1 else shape.heartbeat / 2 + cycle(shape) / shape.leaders


def load(shape: Shape, cost: Cost | None = None) -> Load:
    """The model itself."""
    cost = cost or Cost()
    followers = shape.replicas - shape.leaders
    beats = shape.leaders / beat(shape)
    # A beat carries all jobs. What a follower asks for it asks once for each job and cycle, in however many calls.
    asked = followers * shape.jobs / cycle(shape)
    asks = max(followers / follower_asks(shape), asked / CHUNK)
    calls = beats * ceil(shape.jobs / CHUNK) + asks
    requests = beats * shape.jobs + asked
    pings = shape.replicas / PING_EVERY
    released = max(1.0, shape.jobs / shape.leaders)
    return Load(
        calls=calls,
        requests=requests,
        pings=pings,
        cpu=cost.idle + calls * cost.call + requests * cost.request + pings * cost.ping,
        bandwidth=calls * cost.call_bytes + requests * cost.request_bytes + pings * cost.ping_bytes,
        connections=2 * shape.replicas,
        hand_over=shape.replicas * (cost.message + cost.call + released * cost.request),
    )


def table() -> str:
    """The table of docs/sizing.md: 20 jobs at the default settings."""
    lines = [
        "| replicas | of them lead | script calls/s | PINGs/s | server CPU | kB/s | connections | one hand-over |",
        "| --: | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for replicas in (10, 100, 1000, 10_000):
        for leaders in (1, min(replicas, 20)):
            found = load(Shape(replicas=replicas, jobs=20, leaders=leaders))
            lines.append(
                f"| {replicas:,} | {leaders} | {_short(found.calls)} | {_short(found.pings)} |"
                f" {_short(100 * found.cpu)} % | {_short(found.bandwidth / 1000)} | {found.connections:,} |"
                f" {_short(1000 * found.hand_over)} ms |"
            )
    return "\n".join(lines)


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.1f}"
