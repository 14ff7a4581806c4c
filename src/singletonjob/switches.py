"""The live switch of a job, `is_enabled` or a callable `enabled`: asked once per heartbeat."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .journal import Journal

__all__ = ["follow_switch"]


async def follow_switch(
    job: str, ask: Callable[[], object], interval: float, turn: Callable[[bool], None], journal: Journal
) -> None:
    """Call `turn` with each new answer of `ask`, sync or async, for ever; until the first one the job does not compete.

    What `ask` raises keeps the last answer; before there is one, it counts as on.
    """
    last: bool | None = None
    task = asyncio.current_task()
    while True:
        try:
            answer = ask()
            on = bool(await answer if inspect.isawaitable(answer) else answer)
            if task is not None and task.cancelling():
                raise asyncio.CancelledError  # the switch swallowed it
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # ours; any other came out of the switch
            on = last if last is not None else True
            journal.switch_failed(job, error, kept=on)
        if on != last:
            turn(on)
            if last is not None or not on:
                journal.switched(job, on=on)
            last = on
        await asyncio.sleep(interval)
