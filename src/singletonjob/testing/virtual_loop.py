"""A loop whose time is virtual: it never sleeps, and hours pass in milliseconds."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from .._core.values import Now

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ["LONGEST", "LoopClock", "VirtualLoop", "run_virtually"]

T = TypeVar("T")

LONGEST = 4e8
"""Up to here a float of seconds is finer than `A_MOMENT`: more than twelve years."""

A_MOMENT = 1e-7
"""What is due within so many seconds is due: less than the clock shows, and more than the rounding of its time."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Never sleeps: when nothing is ready, time jumps to the next timer.

    `busy` counts the threads that are at work: while there are any, time stands still. Calls of `run_in_executor`, and
    so of `asyncio.to_thread`, count by themselves.
    """

    def __init__(self) -> None:
        self._virtual = 0.0
        self._until = inf
        self.busy: int = 0
        super().__init__()
        selector: Any = getattr(self, "_selector")  # noqa: B009 - asyncio declares it nowhere
        self._select: Callable[[float], list[Any]] = selector.select
        selector.select = self._jump
        self._clock_resolution = A_MOMENT

    def time(self) -> float:
        return self._virtual

    def advance(self, seconds: float) -> None:
        """Let time pass without anything running: a body that blocks the loop."""
        self._virtual += seconds

    def run_to(self, when: float) -> None:
        """Let everything happen up to and at that moment, and stop there; or before, at a call of `stop`."""
        self._until = when
        try:
            self.run_forever()
        finally:
            self._until = inf

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]  # looser
        future = super().run_in_executor(executor, func, *args)
        self.busy += 1
        future.add_done_callback(self._rest)
        return future

    def _rest(self, _future: object) -> None:
        self.busy -= 1

    def _jump(self, timeout: float | None) -> list[Any]:
        if self.busy > 0 and timeout != 0:
            return self._select(0.0002)
        if timeout is None or timeout > 0:
            then = inf if timeout is None else self._virtual + timeout
            if then > self._until + A_MOMENT:
                self._virtual = max(self._virtual, self._until)
                self.stop()
            elif timeout is None:
                raise RuntimeError("everything waits for something that never comes")
            else:
                self._virtual = then
        return self._select(0)

    def _write_to_self(self) -> None:
        """Nobody sleeps in the selector, so nobody need be woken; this keeps the order of things deterministic."""


class LoopClock:
    """The clocks of a machine on a loop's time, at whose zero the wall clock showed `zero`, in microseconds."""

    __slots__ = ("_loop", "_zero")

    def __init__(self, loop: asyncio.AbstractEventLoop, zero: int) -> None:
        self._loop = loop
        self._zero = zero

    def boot(self) -> float:
        return self._loop.time()

    def wall(self) -> int:
        return self._zero + round(self._loop.time() * 1e6)

    def now(self) -> Now:
        seconds = self._loop.time()
        return Now(self._zero + round(seconds * 1e6), seconds)


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """What `main` returns, run on a virtual loop."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
