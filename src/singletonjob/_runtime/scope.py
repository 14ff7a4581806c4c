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

    __slots__ = ("_over", "_task", "cancels")

    def __init__(self, task: Task[None]) -> None:
        self._task = task
        self._over = False
        self.cancels: int = 0  # of this call

    def cancel(self, *, over: bool) -> None:
        """End the call, once; and once more when its time is `over`, since it may still be busy with its first end."""
        if not self.cancels or (over and not self._over):
            self._over = over
            self.cancels += 1
            self._task.cancel()

    def close(self) -> bool:
        """Whether the call was ended by us, and by us alone; False when asked again."""
        cancels, self.cancels, self._over = self.cancels, 0, False
        left = [self._task.uncancel() for _ in range(cancels)]
        return left[-1:] == [0]
