"""True time, and the loops and clocks of the replicas that live in it. Nothing here ever sleeps.

A `World` owns true time: it is a heap of events, and the earliest goes next. A `SimLoop` is an asyncio loop without a
selector; the world steps it when something is ready or one of its timers is due. A loop that is *frozen* is not
stepped: one of a replica's two loops is a body that blocks, both are a paused process.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Any

from singletonjob._core.values import Now

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from simulation.sim_threads import SimWorker

__all__ = ["EPOCH", "SimClock", "SimLoop", "World", "set_running"]

EPOCH = 1_795_000_000_000_000
"""The wall clock at true time zero, in microseconds."""

TURN = 0.00002
"""What one turn of a loop takes at least, in seconds; up to ten times as long, by chance."""


set_running: Callable[[asyncio.AbstractEventLoop | None], None] = asyncio._set_running_loop
"""Make a loop the running one: what runs tasks must, and only `run_forever` does it by itself. asyncio's own hook for
the makers of loops."""


class World:
    """True time in seconds, and what is to happen in it. `thread`: the one that has the baton, if it is not ours."""

    __slots__ = ("_count", "_events", "now", "random", "thread")

    def __init__(self, random: Random) -> None:
        self.now: float = 0.0
        self.thread: SimWorker | None = None
        self.random: Random = random
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._count = 0

    def at(self, when: float, call: Callable[[float], None]) -> None:
        """Have `call(when)` made at that moment, or now if it has passed."""
        self._count += 1
        heappush(self._events, (max(when, self.now), self._count, call))

    def run(self, until: float) -> None:
        """Let everything happen up to that moment."""
        events = self._events
        while events and events[0][0] <= until:
            self.now, _, call = heappop(events)
            call(self.now)
        self.now = until


class SimClock:
    """One machine's clocks. `rate`: its seconds per true second; `offset`: how far its wall clock is ahead, in us."""

    __slots__ = ("_sleeps_until", "_slept", "_world", "offset", "rate")

    def __init__(self, world: World, rate: float, offset: int) -> None:
        self._world = world
        self.rate: float = rate
        self.offset: int = offset
        self._slept = 0.0  # suspended so far; a loop's own time does not count it
        self._sleeps_until = 0.0

    def boot(self) -> float:
        world = self._world
        read = 1000.0 + world.now * self.rate
        if world.thread is not None:
            world.thread.reads_clock()
        return read

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


class _Handle(list[Any]):
    """What is to be called, and with what: `[callback, args]`. A list, since a simulation makes thousands of them."""

    __slots__ = ()

    def cancel(self) -> None:
        self[0] = None

    def cancelled(self) -> bool:
        return self[0] is None


class SimLoop(asyncio.BaseEventLoop):
    """An asyncio loop that the world steps. `failed` gets what would go to the loop's exception handler.

    All it calls has one context, whatever `context` is asked for: nothing here hangs on context variables.
    """

    def __init__(self, world: World, clock: SimClock, failed: Callable[[str], None]) -> None:
        self._world = world
        self._clock = clock
        self._failed = failed
        self._draw = world.random.random
        self._ready: deque[_Handle] = deque()
        self._timers: list[tuple[float, int, _Handle]] = []
        self._count = 0
        self._planned = inf
        self._stepping = False
        self._frozen_until = 0.0
        self._tasks: list[asyncio.Task[Any]] = []
        self._context = contextvars.copy_context()
        self.dead: bool = False
        super().__init__()

    # -- what asyncio asks of a loop; results are looser than declared, since a handle here is not asyncio's --------

    get_debug: Any = staticmethod(bool)  # pyright: ignore[reportAssignmentType]  # called without keywords only
    """False, without the price of a call in Python: each future and task asks."""

    def time(self) -> float:
        return self._clock.loop_time()

    def is_closed(self) -> bool:
        return self.dead

    def is_running(self) -> bool:
        return self._stepping

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]  # looser
        handle = _Handle((callback, args))
        self._ready.append(handle)
        if not self._stepping:
            self._plan(self._world.now + TURN + 9 * TURN * self._draw())
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]  # looser
        if self.dead:
            raise RuntimeError("the loop is closed")
        return self.call_soon(callback, *args)

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]  # looser
        handle = _Handle((callback, args))
        self._count += 1
        heappush(self._timers, (self._clock.loop_time() + delay, self._count, handle))
        if not self._stepping:
            self._plan_timer()
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]  # looser
        handle = _Handle((callback, args))
        self._count += 1
        heappush(self._timers, (when, self._count, handle))
        if not self._stepping:
            self._plan_timer()
        return handle

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> Any:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name or "", context=self._context)
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
        self._ready.appendleft(_Handle((self._unblock, (future,))))
        return future

    def _unblock(self, future: asyncio.Future[None]) -> None:
        if not future.done():
            before = len(self._ready)
            future.set_result(None)
            self._ready.rotate(len(self._ready) - before)

    def cancel(self, task: str) -> None:
        """Cancel the tasks of that name."""
        for one in self._tasks:
            if one.get_name() == task:
                one.cancel()

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
                    callback, args = self._ready.popleft()
                    if callback is not None:
                        callback(*args)
                left = [task for task in self._tasks if not task.done()]
                if not left and not self._ready:
                    return
                for task in left:
                    task.cancel()
            for task in self._tasks:  # a runner that is killed is started anew, for ever
                if not task.done():
                    task.get_coro().close()
        finally:
            set_running(None)

    def _plan(self, when: float) -> None:
        if when < self._frozen_until:
            when = self._frozen_until
        if when < self._planned and not self.dead:
            self._planned = when
            self._world.at(when, self._step)

    def _plan_timer(self) -> None:
        timers = self._timers
        while timers and timers[0][2][0] is None:
            heappop(timers)
        if timers:
            # Never early, as timers of real loops on Linux; and up to half a millisecond late.
            self._plan(self._clock.true_time(timers[0][0]) + 1e-6 + 0.0005 * self._draw())

    def _step(self, when: float) -> None:
        if when != self._planned or self.dead:
            return
        self._planned = inf
        if when < self._frozen_until:
            self._plan(self._frozen_until)
            return
        timers, ready, draw = self._timers, self._ready, self._draw
        if timers:
            now = self._clock.loop_time()
            while timers and timers[0][0] <= now:
                ready.append(heappop(timers)[2])
        self._stepping = True
        set_running(self)
        left = len(ready)  # of this turn: what it makes ready is the next one's
        while left:
            callback, args = ready.popleft()
            left -= 1
            if callback is not None:
                try:
                    callback(*args)
                except Exception as error:
                    self._failed(f"a callback raised {error!r}")
                if self._frozen_until > when or self.dead:
                    break
            if not left and draw() >= 0.3:  # let others come in between, some of the time
                left = len(ready)
        set_running(None)
        self._stepping = False
        if ready:
            self._plan(when + TURN + 9 * TURN * draw())
        elif timers:
            self._plan_timer()
