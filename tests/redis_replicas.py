"""Real processes on one Redis server, looked at as those of `replicas` are: who leads is read from the server."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as Unreachable
from redis.retry import Retry

from replicas import Fleet, LeaseRow
from singletonjob._system.clock import SystemClock

if TYPE_CHECKING:
    from pathlib import Path

    from servers import Server

__all__ = ["RedisFleet", "lock", "old_enough", "state"]


def old_enough(server: Server, seconds: float) -> None:
    """Wait until a server is up for so long, in whole seconds as it tells it: until then the amnesia guard holds."""
    with server.client() as client:
        info: dict[str, int] = client.info("server")
        while info["uptime_in_seconds"] < seconds:
            time.sleep(0.05)
            info = client.info("server")


def lock(job: str = "tick", project: str = "pricing") -> str:
    return f"{project}:{job}:lock"


def state(job: str = "tick", project: str = "pricing") -> str:
    return f"{lock(job, project)}:state" if project.startswith("{") else f"{{{lock(job, project)}}}:state"


class RedisFleet(Fleet):
    """A fleet whose store is `server`. `client` looks at it, and may interfere."""

    def __init__(self, directory: Path, server: Server, **options: object) -> None:
        super().__init__(directory, **options)
        self.store = server.url
        self.client: Any = server.client(decode_responses=True)  # the client's own annotations are incomplete
        self.client.set_retry(Retry(NoBackoff(), 0))

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self.client.close()

    def calls(self) -> int:
        """How often a script was called on this server so far."""
        stats = self.client.info("commandstats")
        return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha"))

    def lease(self, job: str = "tick", project: str = "pricing") -> LeaseRow:
        """The job's keys as they are on the server now, in one transaction; nobody's while there is no server."""
        clock = SystemClock()
        with self.client.pipeline() as together:
            together.get(lock(job, project)).pttl(lock(job, project)).hmget(state(job, project), "token", "since")
            together.time()
            try:
                holder, left, (token, since), (seconds, microseconds) = together.execute()
            except Unreachable:
                return LeaseRow()
        now, wall = clock.boot(), seconds * 1_000_000 + microseconds
        return LeaseRow(
            holder=None if holder is None else holder.rpartition("-")[0],
            expires=None if left < 0 else now + left / 1000,
            token=int(token or 0),
            since=now - (wall - int(since or 0)) / 1e6,
        )
