"""One job of each shape. Each prints a line per run: its name, the term's token, when the run started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from singletonjob import CronJob, FixedRateJob, IntervalJob

if TYPE_CHECKING:
    from singletonjob import Run

    from .feed import Feed

__all__ = ["Poll", "Report", "Snapshot"]


def told(name: str, run: Run) -> str:
    return f"{name} {run.token} {run.started_at.timestamp():.6f}"


class Snapshot(FixedRateJob, every="100ms"):
    """Its constructor needs an argument: `make` builds it."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    async def execute(self, run: Run) -> None:
        self._feed.publish(told("snapshot", run))


class Poll(IntervalJob, every="200ms"):
    """A sync body, in a thread."""

    def execute(self, run: Run) -> None:
        print(told("poll", run), flush=True)  # noqa: T201 - it is a program


class Report(CronJob, expression="* * * * * *", tz="Asia/Singapore"):
    """Each second; the zone is there to show that its data were frozen too."""

    async def execute(self, run: Run) -> None:
        print(told("report", run), flush=True)  # noqa: T201 - it is a program
