"""`Sleeper`: where a task sleeps, and from where a timer lets it go on without a turn of the loop in between."""

from __future__ import annotations

from asyncio import CancelledError
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator
    from contextvars import Context

__all__ = ["Sleeper"]


class Sleeper:
    """Where one task sleeps until a timer rings, or somebody wakes it: `await sleeper`, as often as it likes.

    A future that takes no detour. Who awaits a future goes on in the next turn of the loop, one look at all descriptors
    later; `ring`, which is for timers, lets the task go on at once. It is what asyncio takes for a future
    (`asyncio.isfuture` in its documentation), as far as a task needs one; a future without `get_loop` is asked for its
    `_loop`, and that costs no call.
    """

    __slots__ = ("_asyncio_future_blocking", "_cancelled", "_context", "_loop", "_resume", "_soon")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._asyncio_future_blocking = False
        self._cancelled = False
        self._loop = loop
        self._resume: Callable[[Sleeper], object] | None = None  # the task's, while it sleeps
        self._context: Context
        self._soon: asyncio.Handle | None = None

    def __await__(self) -> Generator[Sleeper, None, None]:
        self._cancelled = False
        self._asyncio_future_blocking = True
        yield self

    def ring(self) -> None:
        """Let the task go on, now. Not to be called by a task, which would run within another; else see `wake`."""
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        resume, self._resume = self._resume, None
        if resume is not None:
            self._context.run(resume, self)

    def wake(self) -> None:
        """Let the task go on, soon."""
        if self._resume is not None and self._soon is None:
            self._soon = self._loop.call_soon(self.ring)

    # -- what a task asks of it ------------------------------------------------------------------------------------

    def add_done_callback(self, resume: Callable[[Sleeper], object], *, context: Context) -> None:
        self._resume, self._context = resume, context

    def cancel(self, msg: object = None) -> bool:  # noqa: ARG002 - the task knows it
        if self._resume is None or self._soon is not None:
            return False
        self._cancelled = True
        self.wake()
        return True

    def result(self) -> None:
        if self._cancelled:
            raise CancelledError
