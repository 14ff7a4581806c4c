"""What the checks of fail-overs share: a fleet whose server may be another one tomorrow, and what its runs show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redis_replicas import RedisFleet

if TYPE_CHECKING:
    from pathlib import Path

    from replicas import LeaseRow
    from servers import Server

__all__ = ["MovingFleet", "both_led", "longest_gap", "renewed"]


class MovingFleet(RedisFleet):
    """A fleet whose store is at `url`, and its lease on `server` until `look_at` names another one.

    `tagged`: the store is a Cluster, where the project is a hash tag in the names of its keys.
    """

    def __init__(self, directory: Path, server: Server, url: str, *, tagged: bool = False) -> None:
        super().__init__(directory, server)
        self.store = url
        self._tagged = tagged

    def look_at(self, server: Server) -> None:
        self.client.close()
        self.client = server.client(decode_responses=True)

    def lease(self, job: str = "tick", project: str = "pricing") -> LeaseRow:
        return super().lease(job, f"{{{project}}}" if self._tagged else project)


def renewed(fleet: MovingFleet, expires: float, token: int) -> bool:
    """Whether the lease that is looked at was granted or renewed since its end was `expires`, of the term `token`."""
    row = fleet.lease()
    return row.expires is not None and (row.token != token or row.expires > expires + 0.1)


def both_led(fleet: RedisFleet, began: float) -> float:
    """For how many seconds two led, at most: from the first run of who led later to the last one of who led before."""
    runs = [run for run in fleet.runs() if run.start > began and run.end is not None]
    spans = sorted(
        (
            min(run.start for run in runs if run.worker == worker),
            max(run.end or 0 for run in runs if run.worker == worker),
        )
        for worker in {run.worker for run in runs}
    )
    return max([0.0, *(spans[at][1] - spans[at + 1][0] for at in range(len(spans) - 1))])


def longest_gap(fleet: RedisFleet, began: float) -> float:
    """The longest time without the start of a run, in seconds."""
    starts = fleet.starts(after=began - 1)
    return max(later - earlier for earlier, later in zip(starts, starts[1:], strict=False))
