"""An operator's orders to a fleet of real processes, and what the bodies' stamps say came of them."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from replicas import TICK, boot
from singletonjob.control import Control
from waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any, TypeVar

    from replicas import Fleet
    from singletonjob.control import OrderResult

    T = TypeVar("T")

__all__ = ["OPERATED", "Paused", "SteppedDown", "give", "many", "paused", "stepped_down", "triggered"]

OPERATED = (
    TICK
    + """
@app.interval("1h", name="hourly")
async def hourly() -> None:
    with stamped("hourly"):
        await asyncio.sleep(0.01)
"""
)
"""A tick each 100 ms, and a job that runs once an hour."""


def many(count: int) -> str:
    """An app with so many jobs that run once an hour, named `many-0` and so on."""
    return f"""
app = SingletonJobs("pricing", **options)
for number in range({count}):
    @app.interval("1h", name=f"many-{{number}}")
    async def body() -> None: ...
"""


def give(order: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(order)


def control(fleet: Fleet) -> Control:
    return Control("pricing", fleet.store)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """How a pause went, in seconds after the order was given: `latest` is the last start of a run (None: none came),
    `resumed` the first one after `resume`, counted from that."""

    latest: float | None
    resumed: float


def paused(fleet: Fleet, *, rest: float, job: str = "tick") -> Paused:
    """Pause the job for `rest` seconds, and resume it."""
    given = boot()
    (result,) = give(control(fleet).pause(job, reason="a test", by="ann@host"))
    assert result.outcome == "paused", result
    deadline = given + rest
    wait_for(lambda: boot() >= deadline)
    starts = fleet.starts(job, after=given)
    resumed = boot()
    (result,) = give(control(fleet).resume(job))
    assert result.outcome == "resumed", result
    wait_for(lambda: fleet.starts(job, after=resumed), what="a run after the pause")
    return Paused(latest=starts[-1] - given if starts else None, resumed=fleet.starts(job, after=resumed)[0] - resumed)


@dataclass(frozen=True, slots=True, kw_only=True)
class SteppedDown:
    """Seconds from the order: `taken` until the next leader had the lease, `gap` until its first run. `spacing` is the
    longest time between two starts around that: two ticks, where a grid point fell into the hand-over."""

    old: str
    new: str
    taken: float
    gap: float
    spacing: float


def stepped_down(fleet: Fleet, *, job: str = "tick") -> SteppedDown:
    """Hand the job over once."""
    before, given = fleet.lease(job), boot()
    result = give(control(fleet).step_down(job))
    assert result.outcome == "handed-over", result
    after = fleet.lease(job)
    assert before.holder is not None
    assert after.holder not in (None, before.holder), (before, after)
    new = fleet.replicas[after.holder or ""]
    wait_for(lambda: sum(run.start > given for run in new.runs(job)) > 2, what="runs after the hand-over")
    starts = fleet.starts(job, after=given - 0.3)
    return SteppedDown(
        old=before.holder,
        new=new.name,
        taken=after.since - given,
        gap=min(run.start for run in new.runs(job) if run.start > given) - given,
        spacing=max(later - earlier for earlier, later in itertools.pairwise(starts)),
    )


def triggered(fleet: Fleet, *, job: str = "hourly") -> tuple[OrderResult, list[float]]:
    """Trigger the job; the result, and the seconds from the order to each start that followed."""
    given = boot()
    result = give(control(fleet).trigger(job))
    wait_for(lambda: fleet.starts(job, after=given) or not result.good, what="the extra run")
    return result, [start - given for start in fleet.starts(job, after=given)]
