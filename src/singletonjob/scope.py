"""`Scope`: calls on the loop that can be ended from outside, by the fence or at a limit of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import Task

__all__ = ["Scope"]


class Scope:
    """What `asyncio.timeout` is, for one call of a task after the other, without a timer and at no cost while unused.

    `cancel` cancels the task that makes the call; `close`, in that task after the call, takes it back and says whether
    the `CancelledError` that came out is this scope's. Nobody else's cancellation is swallowed: tasks count theirs
    (`asyncio.Task.uncancel`). A task that somebody else has cancelled must make no further call.
    """

    __slots__ = ("_task", "ended")

    def __init__(self, task: Task[None]) -> None:
        self._task = task
        self.ended: bool = False

    def cancel(self) -> None:
        """End the call, once."""
        if not self.ended:
            self.ended = True
            self._task.cancel()

    def close(self) -> bool:
        """Whether the call was ended by us, and by us alone; False when asked again."""
        ended, self.ended = self.ended, False
        return ended and self._task.uncancel() == 0
