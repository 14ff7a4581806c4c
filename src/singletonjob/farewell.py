"""`say_farewell`: the user's hook at the end of a term, and how long it may take."""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from typing import TYPE_CHECKING

from .user_code import UserCode, is_foreign

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ._lease import Lease
    from ._model import Reason
    from .jobs.options import JobOptions
    from .journal import Journal

__all__ = ["say_farewell"]


async def say_farewell(
    hook: Callable[[Reason], object],
    lease: Lease,
    reason: Reason,
    options: JobOptions,
    stop_by: float,
    journal: Journal,
    in_thread: Callable[[Callable[[], object]], Awaitable[object]] | None,
) -> None:
    """Call `hook`, the `on_stepped_down` of a job, and return when it has ended.

    The lease is given back only then. So the hook is cancelled after what is left of a stop, which is to be over at
    `stop_by`, and the lease is not vouched for much longer, should it not heed that. `in_thread` is given for a sync
    hook that runs in the thread of its job: it is not cancelled, and its end is waited for.
    """
    task, user_code = asyncio.current_task(), UserCode()
    assert task is not None  # noqa: S101 - a coroutine of a task
    now = lease.clock.boot()
    seconds = min(options.shutdown_grace, stop_by - now) + options.margin / 2  # a run may have used all of its grace
    lease.limit = now + seconds + options.margin / 2
    limit = asyncio.timeout(seconds)
    try:
        answer = None if in_thread is None else await in_thread(partial(hook, reason))
        async with limit:
            with user_code:
                if in_thread is None:
                    answer = hook(reason)
                if inspect.isawaitable(answer):
                    await answer
    except BaseException as error:
        if is_foreign(error, task):
            raise
        if limit.expired() and isinstance(error, TimeoutError):
            what = f"on_stepped_down was cancelled after {seconds:.3g} s"
            text = f"{what}: its shutdown_grace, or what a stop has left of it"
            journal.warn("hook-failed", text, lease.job, lease.token)
        else:
            journal.hook_failed(lease.job, lease.token, "on_stepped_down", error)
    if task.cancelling():
        raise asyncio.CancelledError  # the hook swallowed it
