"""Events on their way to subscribers: a bounded queue, so that a slow one never delays a tick or a beat."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from typing import TYPE_CHECKING

from .._jobs.user_code import UserCode, is_foreign

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._core.values import Event
    from .log_lines import Journal

__all__ = ["EventQueue"]

KEPT = 1000
"""Events that wait for a slow subscriber; the oldest go first."""


class EventQueue:
    """Hands events to `callbacks`, which may change at any time. Used on the job loop alone."""

    def __init__(self, callbacks: list[Callable[[Event], None]], journal: Journal) -> None:
        self._callbacks = callbacks
        self._journal = journal
        self._user_code = UserCode()
        self._waiting: deque[Event] = deque(maxlen=KEPT)

    def put(self, event: Event) -> None:
        if not self._callbacks:
            return
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._dispatch)
        self._waiting.append(event)

    def _dispatch(self) -> None:
        """Hand on one event per turn of the loop, so that ticks come in between."""
        event = self._waiting.popleft()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._dispatch)
        for callback in tuple(self._callbacks):
            try:
                with self._user_code:
                    contextvars.copy_context().run(callback, event)
            except BaseException as error:
                if is_foreign(error, None):
                    raise
                self._journal.subscriber_failed(error)
