"""The user's hook at the end of a term, `on_stepped_down`, and its time limit."""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from typing import TYPE_CHECKING

from .._jobs.body import is_async
from .._jobs.user_code import in_own_task, is_foreign

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

    from .._core.values import Reason
    from .._jobs.definition import JobDefinition
    from .._jobs.options import JobOptions
    from .._jobs.thread_calls import JobThread
    from .._reporting.log_lines import Journal
    from .lease import Lease

__all__ = ["call_stepped_down_hook"]


async def call_stepped_down_hook(
    job: JobDefinition,
    lease: Lease,
    reason: Reason,
    options: JobOptions,
    stop_by: float,
    journal: Journal,
    thread: JobThread,
    context: Context,
) -> None:
    """Call the job's `on_stepped_down`, if it has one, in the term's `context`; return when the hook has ended.

    The lease is released only after that. Therefore the hook is cancelled when a stop must be over, at `stop_by`, and
    the lease is renewed only a little longer if the hook ignores that. A sync hook in the `thread` of a sync body
    cannot be cancelled, so this function waits for its end.
    """
    hook = job.on_stepped_down
    if hook is None:
        return
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine of a task
    now = lease.clock.boot()
    seconds = min(options.shutdown_grace, stop_by - now) + options.margin / 2  # a run may have used the complete grace
    lease.limit = now + seconds + options.margin / 2
    limit = asyncio.timeout(seconds)
    try:
        in_thread = not (job.is_async or is_async(hook))
        call: Callable[[], object] = partial(hook, reason)
        answer = await thread.call(lease.threads, call, context) if in_thread else None
        async with limit:
            if not in_thread:
                await in_own_task(call, context)
            elif inspect.isawaitable(answer):
                await in_own_task(lambda: answer, context)
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
        raise asyncio.CancelledError  # the hook swallowed the cancellation
