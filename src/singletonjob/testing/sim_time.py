"""True time, and the loops and clocks of the replicas that live in it. Nothing here ever sleeps.

A `World` owns true time: it is a heap of events, and the earliest goes next. A `SimLoop` is an asyncio loop without a
selector; the world steps it when something is ready or one of its timers is due. A loop that is *frozen* is not
stepped: one of a replica's two loops is a body that blocks, both are a paused process.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any

from .._model import Now

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

__all__ = ["EPOCH", "SimClock", "SimLoop", "World", "set_running"]

EPOCH = 1_795_000_000_000_000
"""The wall clock at true time zero, in microseconds."""

TURN = 0.00002
"""What one turn of a loop takes at least, in seconds; up to ten times as long, by chance."""


def set_running(loop: asyncio.AbstractEventLoop | None) -> None:
    """Make `loop` the running one: what runs tasks must, and only `run_forever` does it by itself."""
    asyncio._set_running_loop(loop)  # noqa: SLF001 - asyncio's own hook for the makers of loops


class World:
    """True time in seconds, and what is to happen in it."""

    __slots__ = ("_count", "_events", "now", "random")

    def __init__(self, random: Random) -> None:
        self.now = 0.0
        self.random = random
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._count = 0

    def at(self, when: float, call: Callable[[float], None]) -> None:
        """Have `call(when)` made at that moment, or now if it has passed."""
        self._count += 1
        heapq.heappush(self._events, (max(when, self.now), self._count, call))

    def run(self, until: float) -> None:
        """Let everything happen up to that moment."""
        events = self._events
        while events and events[0][0] <= until:
            when, _, call = heapq.heappop(events)
            self.now = when
            call(when)
        self.now = until


class SimClock:
    """One machine's clocks. `rate`: its seconds per true second; `offset`: how far its wall clock is ahead, in us."""

    __slots__ = ("_sleeps_until", "_slept", "_world", "offset", "rate")

    def __init__(self, world: World, rate: float, offset: int) -> None:
        self._world = world
        self.rate = rate
        self.offset = offset
        self._slept = 0.0  # suspended so far; a loop's own time does not count it
        self._sleeps_until = 0.0

    def boot(self) -> float:
        return 1000.0 + self._world.now * self.rate

    def wall(self) -> int:
        return EPOCH + self.offset + int(self._world.now * self.rate * 1e6)

    def now(self) -> Now:
        return Now(self.wall(), self.boot())

    def loop_time(self) -> float:
        return self._world.now * self.rate - self._slept

    def true_time(self, loop_time: float) -> float:
        return (loop_time + self._slept) / self.rate

    def suspend(self, seconds: float) -> None:
        """The machine sleeps for so many true seconds from now on; nobody may look at `loop_time` meanwhile."""
        now = self._world.now
        self._slept += max(0.0, now + seconds - max(now, self._sleeps_until)) * self.rate
        self._sleeps_until = max(self._sleeps_until, now + seconds)


class _Handle:
    __slots__ = ("args", "callback", "context", "when")

    def __init__(
        self, callback: Callable[..., Any], args: tuple[Any, ...], context: contextvars.Context | None
    ) -> None:
        self.callback: Callable[..., Any] | None = callback
        self.args = args
        self.context = contextvars.copy_context() if context is None else context

    def cancel(self) -> None:
        self.callback = None

    def cancelled(self) -> bool:
        return self.callback is None


class SimLoop(asyncio.BaseEventLoop):
    """An asyncio loop that the world steps. `failed` gets what would go to the loop's exception handler."""

    def __init__(self, world: World, clock: SimClock, failed: Callable[[str], None]) -> None:
        self._world = world
        self._clock = clock
        self._failed = failed
        self._ready: deque[_Handle] = deque()
        self._timers: list[tuple[float, int, _Handle]] = []
        self._count = 0
        self._planned = inf
        self._stepping = False
        self._frozen_until = 0.0
        self._tasks: list[asyncio.Task[Any]] = []
        self.dead = False
        super().__init__()

    # -- what asyncio asks of a loop; results are looser than declared, since a handle here is not asyncio's --------

    def time(self) -> float:
        return self._clock.loop_time()

    def is_closed(self) -> bool:
        return self.dead

    def is_running(self) -> bool:
        return self._stepping

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]  # looser
        handle = _Handle(callback, args, context)
        self._ready.append(handle)
        if not self._stepping:
            self._plan(self._world.now + TURN * (1 + 9 * self._world.random.random()))
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]  # looser
        if self.dead:
            raise RuntimeError("the loop is closed")
        return self.call_soon(callback, *args, context=context)

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]  # looser
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]  # looser
        handle = _Handle(callback, args, context)
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, handle))
        if not self._stepping:
            self._plan_timer()
        return handle

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> Any:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        if len(self._tasks) > 50:
            self._tasks = [one for one in self._tasks if not one.done()]
        self._tasks.append(task)
        return task

    def call_exception_handler(self, context: Any) -> None:
        if not self.dead:
            self._failed(f"{context.get('message')}: {context.get('exception')!r}")

    # -- what the world and the replica do with it -------------------------------------------------------------------

    def freeze(self, until: float) -> None:
        """Step it no more before that moment of true time."""
        self._frozen_until = max(self._frozen_until, until)

    def block(self, seconds: float) -> asyncio.Future[None]:
        """What `time.sleep` is in a real body: await it at once. What is ready stays so; the body goes on first."""
        future = self.create_future()
        self.freeze(self._world.now + seconds)
        self._ready.appendleft(_Handle(self._unblock, (future,), None))
        return future

    def _unblock(self, future: asyncio.Future[None]) -> None:
        if not future.done():
            before = len(self._ready)
            future.set_result(None)
            self._ready.rotate(len(self._ready) - before)

    def kill(self) -> None:
        """Its process is gone: it is never stepped again."""
        self.dead = True

    def unwind(self) -> None:
        """End what is left in a dead loop's tasks, so that no coroutine is thrown away half way."""
        set_running(self)
        try:
            for _ in range(20):
                for _, _, handle in self._timers:
                    self._ready.append(handle)
                self._timers.clear()
                for _ in range(len(self._ready)):
                    handle = self._ready.popleft()
                    if handle.callback is not None:
                        handle.context.run(handle.callback, *handle.args)
                left = [task for task in self._tasks if not task.done()]
                if not left and not self._ready:
                    return
                for task in left:
                    task.cancel()
        finally:
            set_running(None)

    def _plan(self, when: float) -> None:
        when = max(when, self._frozen_until)
        if when < self._planned and not self.dead:
            self._planned = when
            self._world.at(when, self._step)

    def _plan_timer(self) -> None:
        timers = self._timers
        while timers and timers[0][2].callback is None:
            heapq.heappop(timers)
        if timers:
            # Never early, as timers of real loops on Linux; and up to half a millisecond late.
            self._plan(self._clock.true_time(timers[0][0]) + 1e-6 + 0.0005 * self._world.random.random())

    def _step(self, when: float) -> None:
        if when != self._planned or self.dead:
            return
        self._planned = inf
        if when < self._frozen_until:
            self._plan(self._frozen_until)
            return
        timers, ready, random, now = self._timers, self._ready, self._world.random.random, self._clock.loop_time()
        while timers and timers[0][0] <= now:
            ready.append(heapq.heappop(timers)[2])
        self._stepping = True
        set_running(self)
        try:
            while ready and when >= self._frozen_until and not self.dead:
                self._turn(when)
                if random() < 0.3:  # let others come in between, some of the time
                    break
        finally:
            set_running(None)
            self._stepping = False
        if ready:
            self._plan(when + TURN * (1 + 9 * self._world.random.random()))
        elif timers:
            self._plan_timer()

    def _turn(self, when: float) -> None:
        """Call what is ready, but not what that makes ready."""
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if handle.callback is not None:
                try:
                    handle.context.run(handle.callback, *handle.args)
                except Exception as error:
                    self._failed(f"a callback raised {error!r}")
            if self._frozen_until > when or self.dead:
                return
