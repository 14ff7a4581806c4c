"""A machine that is suspended with a run in flight: on real loops, in real time, at the default settings.

To a process, a suspend is a jump of the boot clock that its loops know nothing of. Here the clock is made to jump; that
the clock and the fence's timer are those which count a suspend is asked of the kernel.
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uvloop

from singletonjob import Run, SingletonJobs
from singletonjob._core.values import Now
from singletonjob._runtime.lease import Fence
from singletonjob._system.clock import BOOT_CLOCK, SystemClock
from singletonjob._system.timerfd import TimerFd
from singletonjob.stores.memory import MemoryStore
from singletonjob.stores.protocol import Acquire, Batch, Granted, Progress, Refused, Renew, Renewed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from singletonjob.stores.protocol import JobView, Reply, Request, Verdict

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
on_both_loops = pytest.mark.parametrize("loop", LOOPS)

SLEPT = 60.0
"""Far longer than the lease, which lasts 10 s."""

HALF_MARGIN = 0.5
"""Within so many seconds of the resume the run must have been told to end."""

NOISE = 1.0
"""What a busy machine may add. The next beat, which would end the term too, is due 2.7 s after the run's start."""


class Clock:
    """The machine's clocks, and how long it has been suspended."""

    def __init__(self) -> None:
        self._real = SystemClock()
        self.slept = 0.0

    def boot(self) -> float:
        return self._real.boot() + self.slept

    def wall(self) -> int:
        return self._real.wall() + round(self.slept * 1e6)

    def now(self) -> Now:
        return Now(self.wall(), self.boot())


class Noted:
    """A store that keeps what it was asked."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.requests: list[Request] = []

    async def exchange(self, batch: Batch) -> Reply:
        self.requests += batch.requests
        return await self._store.exchange(batch)

    def notices(self, project: str) -> AsyncIterator[frozenset[str]]:
        return self._store.notices(project)

    async def peek(self, project: str) -> tuple[JobView, ...]:
        return await self._store.peek(project)

    async def close(self) -> None:
        """The store is the test's."""


class Machine:
    """An app with one job of each kind, whose bodies run until they are told to end, and note when that was."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.leases = MemoryStore(self.clock)
        self.store = Noted(self.leases)
        self.app = SingletonJobs("p", store=self.store)
        self.app._clock = self.clock
        self.tokens: dict[str, list[int]] = {"async": [], "sync": []}
        self.ended: dict[str, float] = {}
        self.app.interval(3600, name="async")(self.on_loop)
        self.app.interval(3600, name="sync")(self.in_thread)

    async def on_loop(self, run: Run) -> None:
        self.tokens["async"].append(run.token)
        try:
            await asyncio.sleep(1000)
        finally:
            self.ended.setdefault("async", time.monotonic())

    def in_thread(self, run: Run) -> None:
        self.tokens["sync"].append(run.token)
        assert run.wait(1000)
        self.ended.setdefault("sync", time.monotonic())

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Both runs are in flight."""
        async with self.app:
            await until(lambda: all(self.tokens.values()))
            yield

    async def sleep_and_resume(self) -> None:
        """Be suspended, and see both runs end; what the other machines did meanwhile is already done."""
        resumed = time.monotonic()
        assert not self.app.is_leader("async"), "a look at the clock, not at a remembered flag"
        assert not self.app.is_leader("sync")
        await until(lambda: len(self.ended) == 2)
        for kind, when in self.ended.items():
            assert when - resumed < HALF_MARGIN + NOISE, kind


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not happened():
            await asyncio.sleep(0.002)


def run(loop: str, main: Coroutine[None, None, None]) -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(main)


@on_both_loops
def test_a_run_in_flight_ends_within_half_a_margin_of_the_resume_and_its_term_is_never_renewed(loop: str) -> None:
    async def main() -> None:
        machine = Machine()
        async with machine.at_work():
            before = len(machine.store.requests)
            machine.clock.slept += SLEPT
            await machine.sleep_and_resume()
            # It leads again in new terms, for which it asked; those that ended were neither renewed nor gone on with.
            await until(lambda: machine.app.is_leader("async") and machine.app.is_leader("sync"))
            ended = {token for tokens in machine.tokens.values() for token in tokens[:1]}
            renewed = {one.token for one in machine.store.requests[before:] if isinstance(one, Renew)}
            assert not renewed & ended

    run(loop, main())


@on_both_loops
def test_who_took_over_while_the_machine_slept_is_not_disturbed_by_its_resume(loop: str) -> None:
    async def main() -> None:
        machine = Machine()

        async def other(request: Request) -> Verdict:
            batch = Batch(project="p", node="other", bound=5.0, requests=(request,))
            return (await machine.leases.exchange(batch)).verdicts[0]

        async with machine.at_work():
            machine.clock.slept += SLEPT
            taken = await other(Acquire(job="async", number=1, lock_expiry=60.0, above=0))
            assert isinstance(taken, Granted)
            assert taken.token > machine.tokens["async"][0]
            before = len(machine.store.requests)
            await machine.sleep_and_resume()
            await until(lambda: any(isinstance(one, Acquire) and one.job == "async" for one in asked(machine, before)))
            await asyncio.sleep(0.1)
            assert not machine.app.is_leader("async")
            assert len(machine.tokens["async"]) == 1
            assert await other(Renew("async", taken.token, 60.0, Progress())) == Renewed()
            assert isinstance(await other(Acquire("async", 1, 60.0, 0)), Refused)

    run(loop, main())


def asked(machine: Machine, since: int) -> list[Request]:
    return machine.store.requests[since:]


@pytest.mark.skipif(sys.platform != "linux", reason="CLOCK_BOOTTIME and timerfd are Linux's")
@on_both_loops
def test_the_fence_of_a_running_app_waits_on_the_clock_that_counts_a_suspend(loop: str) -> None:
    async def main() -> None:
        app = SingletonJobs("p", store=MemoryStore(), shutdown_grace=0)
        started = asyncio.Event()

        @app.interval(3600)
        async def job() -> None:
            started.set()
            await asyncio.sleep(1000)

        async with app:
            await asyncio.wait_for(started.wait(), 30)
            assert app._service is not None
            timers = app._service._timers._boot
            callbacks = [timer.callback for _, _, timer in timers.heap]
            assert any(isinstance(getattr(callback, "__self__", None), Fence) for callback in callbacks)
            assert isinstance(timers.alarm, TimerFd)
            about = Path(f"/proc/self/fdinfo/{timers.alarm._fd}").read_text()
            assert isinstance(app._service._clock, SystemClock)
            assert BOOT_CLOCK == time.CLOCK_BOOTTIME
            if "clockid" not in about:
                pytest.skip("this kernel does not tell a timer's clock")
            assert f"clockid: {time.CLOCK_BOOTTIME}\n" in about

    run(loop, main())
