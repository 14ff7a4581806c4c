"""The live switch of a job, `is_enabled` or a callable `enabled`: asked once per heartbeat."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING

from .._jobs.user_code import in_own_task, is_foreign

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._reporting.log_lines import Journal

__all__ = ["follow_switch"]


async def follow_switch(
    job: str, ask: Callable[[], object], interval: float, turn: Callable[[bool], None], journal: Journal
) -> None:
    """Call `turn` with each new answer of `ask`, sync or async, for ever; until the first one the job does not compete.

    What `ask` raises keeps the last answer; before there is one, it counts as on. `ask` is called on the loop also for
    a job with a sync body: in the thread of that body it would wait for a run in flight, and a switch must not.
    """
    last: bool | None = None
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine of a task
    while True:
        try:
            # A copy of the context, so that what one call sets does not show in the next one.
            on = bool(await in_own_task(ask, contextvars.copy_context()))
        except BaseException as error:
            if is_foreign(error, task):
                raise
            on = last if last is not None else True
            journal.switch_failed(job, error, kept=on)
        if task.cancelling():
            raise asyncio.CancelledError  # the switch swallowed it
        if on != last:
            turn(on)
            if last is not None or not on:
                journal.switched(job, on=on)
            last = on
        await asyncio.sleep(interval)
