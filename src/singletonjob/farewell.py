"""`say_farewell`: the user's hook at the end of a term, and how long it may take."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._lease import Lease
    from ._model import Reason
    from .jobs.definition import JobDefinition
    from .jobs.options import JobOptions
    from .journal import Journal

__all__ = ["say_farewell"]


async def say_farewell(
    job: JobDefinition, lease: Lease, reason: Reason, options: JobOptions, stop_by: float, journal: Journal
) -> None:
    """Call the job's `on_stepped_down`, if it has one; return when it has ended.

    The lease is given back only then. So the hook is cancelled after what is left of a stop, which is to be over at
    `stop_by`, and the lease is not vouched for much longer, should it not heed that.
    """
    hook = job.on_stepped_down
    if hook is None:
        return
    now = lease.clock.boot()
    seconds = min(options.shutdown_grace, stop_by - now) + options.margin / 2  # a run may have used all of its grace
    lease.limit = now + seconds + options.margin / 2
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            answer = hook(reason)
            if inspect.isawaitable(answer):
                await answer
    except Exception as error:
        if limit.expired() and isinstance(error, TimeoutError):
            what = f"on_stepped_down was cancelled after {seconds:.3g} s"
            text = f"{what}: its shutdown_grace, or what a stop has left of it"
            journal.warn("hook-failed", text, job.name, lease.token)
        else:
            journal.hook_failed(job.name, lease.token, "on_stepped_down", error)
