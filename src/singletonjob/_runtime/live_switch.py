"""The live switch of a job, `is_enabled` or a callable `enabled`, which is called once per heartbeat."""

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
    """Call `turn` with each new answer of the switch `ask`, sync or async. The job competes from the first answer on.

    If `ask` raises, the last answer holds; before the first answer the job counts as enabled. `ask` is called on the
    loop even if the job has a sync body, because in the thread of that body it would wait for a run in flight.
    """
    last: bool | None = None
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine of a task
    while True:
        try:
            # In a copy of the context, so that variables that one call sets are not there in the next call.
            on = bool(await in_own_task(ask, contextvars.copy_context()))
        except BaseException as error:
            if is_foreign(error, task):
                raise
            on = last if last is not None else True
            journal.switch_failed(job, error, kept=on)
        if task.cancelling():
            raise asyncio.CancelledError  # the switch swallowed the cancellation
        if on != last:
            turn(on)
            if last is not None or not on:
                journal.switched(job, on=on)
            last = on
        await asyncio.sleep(interval)
