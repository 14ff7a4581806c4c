"""Precise wake-ups: never early, on either loop, on the system's clocks or on an injected one."""

from __future__ import annotations

import asyncio
import errno
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest
import uvloop
from hypothesis import example, given
from hypothesis import strategies as st

from singletonjob._system.clock import BOOT_CLOCK, SystemClock
from singletonjob._system.timerfd import TimerFd
from singletonjob._system.timers import LONGEST_SLEEP, Timer, Timers
from virtual_loop import VirtualClock, run_virtually, the_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

T = TypeVar("T")

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="timerfd is Linux's")
on_both_loops = pytest.mark.parametrize("loop", LOOPS)

CLOCK = SystemClock()


def nothing() -> None:
    """What a timer calls whose time does not come here."""


def run(loop: str, main: Callable[[Timers], Coroutine[Any, Any, T]]) -> T:
    """What `main` returns, with the timers of a loop of that kind."""

    async def with_timers() -> T:
        timers = Timers(asyncio.get_running_loop(), CLOCK, longest_boot_sleep=0.5)
        try:
            return await main(timers)
        finally:
            timers.close()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(with_timers())


# -- on the system's clocks ----------------------------------------------------------------------------------------


@on_both_loops
def test_no_timer_fires_early_and_each_fires_once(loop: str) -> None:
    numbers = random.Random(1)

    async def main(timers: Timers) -> None:
        done = asyncio.Event()
        boot: dict[int, list[float]] = {}
        wall: dict[int, list[int]] = {}
        due_boot = {n: CLOCK.boot() + numbers.uniform(-0.01, 0.2) for n in range(300)}
        due_wall = {n: CLOCK.wall() + int(numbers.uniform(-1e4, 2e5)) for n in range(300)}
        for n, at in due_boot.items():
            timers.at_boot(at, lambda n=n: boot.setdefault(n, []).append(CLOCK.boot()))  # type: ignore[misc]  # binds it
        for n, instant in due_wall.items():
            timers.at_wall(instant, lambda n=n: wall.setdefault(n, []).append(CLOCK.wall()))  # type: ignore[misc]  # binds it
        timers.at_boot(CLOCK.boot() + 0.3, done.set)
        await asyncio.wait_for(done.wait(), 10)
        assert boot.keys() == due_boot.keys()
        assert wall.keys() == due_wall.keys()
        assert {len(fired) for fired in boot.values()} == {len(fired) for fired in wall.values()} == {1}
        assert all(boot[n][0] >= due_boot[n] for n in due_boot)
        assert all(wall[n][0] >= due_wall[n] for n in due_wall)

    run(loop, main)


@on_both_loops
def test_timers_fire_in_the_order_of_their_times_whatever_the_order_of_their_setting(loop: str) -> None:
    async def main(timers: Timers) -> None:
        fired: list[int] = []
        done = asyncio.Event()
        base = CLOCK.boot() + 0.03
        for n in (5, 1, 9, 3, 7, 0, 2, 8, 4, 6):
            timers.at_boot(base + n * 0.002, lambda n=n: fired.append(n))  # type: ignore[misc]  # binds it
        timers.at_boot(base + 0.03, done.set)
        await asyncio.wait_for(done.wait(), 10)
        assert fired == list(range(10))

    run(loop, main)


@on_both_loops
def test_a_cancelled_timer_never_fires_also_when_it_is_cancelled_by_one_that_is_due_with_it(loop: str) -> None:
    async def main(timers: Timers) -> None:
        fired: list[str] = []
        done = asyncio.Event()
        at = CLOCK.boot() + 0.02
        early = timers.at_boot(at - 0.01, lambda: fired.append("early"))
        early.cancel()
        early.cancel()
        victims: list[Timer] = []

        def cancel() -> None:
            fired.append("canceller")
            victims[0].cancel()

        timers.at_boot(at, cancel)
        victims.append(timers.at_boot(at, lambda: fired.append("victim")))
        timers.at_boot(at + 0.02, done.set)
        await asyncio.wait_for(done.wait(), 10)
        assert fired == ["canceller"]
        victims[0].cancel()  # after its time it is no error either

    run(loop, main)


@on_both_loops
def test_a_timer_may_set_the_next_one_and_the_past_means_now(loop: str) -> None:
    async def main(timers: Timers) -> int:
        done = asyncio.Event()
        count = 0

        def again() -> None:
            nonlocal count
            count += 1
            if count < 500:
                timers.at_boot(CLOCK.boot() - 1, again)
            else:
                done.set()

        again()
        await asyncio.wait_for(done.wait(), 10)
        return count

    assert run(loop, main) == 500


@on_both_loops
def test_timers_that_are_set_and_cancelled_with_every_run_do_not_pile_up(loop: str) -> None:
    async def main(timers: Timers) -> None:
        fired: list[int] = []
        done = asyncio.Event()
        far = CLOCK.boot() + 3600
        for n in range(20_000):
            timers.at_boot(far + n, lambda: fired.append(1)).cancel()
        assert len(timers._boot.heap) < 500
        timers.at_boot(CLOCK.boot() + 0.01, done.set)
        await asyncio.wait_for(done.wait(), 10)
        assert not fired

    run(loop, main)


@on_both_loops
def test_a_callback_that_raises_costs_no_other_its_call(loop: str) -> None:
    async def main(timers: Timers) -> None:
        raised: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context["exception"]))
        fired: list[str] = []
        done = asyncio.Event()
        at = CLOCK.boot() + 0.01

        def fail() -> None:
            raise KeyError

        timers.at_boot(at, lambda: fired.append("before"))
        timers.at_boot(at, fail)
        timers.at_boot(at, lambda: fired.append("after"))
        timers.at_boot(at + 0.01, done.set)
        await asyncio.wait_for(done.wait(), 10)
        assert fired == ["before", "after"]
        assert [type(error) for error in raised] == [KeyError]

    run(loop, main)


@on_both_loops
def test_ten_thousand_timers_of_one_moment_all_fire(loop: str) -> None:
    async def main(timers: Timers) -> None:
        fired: list[int] = []
        at = CLOCK.boot() + 0.05
        for n in range(10_000):
            timers.at_boot(at, lambda n=n: fired.append(n))  # type: ignore[misc]  # binds it
        done = asyncio.Event()
        timers.at_boot(at, done.set)
        await asyncio.wait_for(done.wait(), 10)
        assert fired == list(range(10_000))

    run(loop, main)


@on_both_loops
def test_after_a_step_of_the_wall_clock_every_sleeper_of_that_clock_looks_anew_and_no_other(loop: str) -> None:
    async def main(timers: Timers) -> None:
        woken: list[str] = []
        timers.at_wall(CLOCK.wall() + 3_600_000_000, lambda: woken.append("in an hour"))
        timers.at_wall(CLOCK.wall() + 60_000_000, lambda: woken.append("in a minute"))
        cancelled = timers.at_wall(CLOCK.wall() + 60_000_000, lambda: woken.append("cancelled"))
        cancelled.cancel()
        timers.at_boot(CLOCK.boot() + 60, lambda: woken.append("on the boot clock"))
        timers._wall.fire(stepped=True)
        assert woken == ["in a minute", "in an hour"]
        done = asyncio.Event()
        timers.at_wall(CLOCK.wall() + 20_000, done.set)
        await asyncio.wait_for(done.wait(), 10)

    run(loop, main)


@on_linux
@on_both_loops
def test_a_step_that_the_kernel_tells_of_when_an_alarm_is_set_wakes_every_sleeper_too(loop: str) -> None:
    # timerfd_settime(2) sets the timer and fails with ECANCELED, if the clock was set since the last look.
    async def main(timers: Timers) -> None:
        woken: list[str] = []
        done = asyncio.Event()
        timers.at_wall(CLOCK.wall() + 3_600_000_000, lambda: woken.append("in an hour"))
        alarm = timers._wall.alarm
        assert isinstance(alarm, TimerFd)
        settime = alarm._settime

        def told_once(when: int) -> None:
            alarm._settime = settime
            settime(when)
            raise OSError(errno.ECANCELED, "timerfd_settime")

        alarm._settime = told_once
        timers.at_wall(CLOCK.wall() + 60_000_000, lambda: woken.append("in a minute"))
        timers.at_boot(CLOCK.boot() + 0.02, done.set)
        await asyncio.wait_for(done.wait(), 10)
        assert woken == ["in a minute", "in an hour"]

    run(loop, main)


class Ticks:
    """A timer that is set `step` microseconds further each time that it fires, `number` times in all."""

    def __init__(self, timers: Timers, number: int, step: int = 2000) -> None:
        self.step = step
        self.left = number
        self.done = asyncio.Event()
        self.late: list[int] = []  # in microseconds
        self.due = CLOCK.wall() + 5000
        self.timer = timers.at_wall(self.due, self.fire)
        alarm = timers._wall.alarm
        assert isinstance(alarm, TimerFd)
        self.alarm = alarm
        self.rung = self.armed = self.before = 0
        ring, settime = alarm._ring, alarm._settime

        def counted_ring(*, stepped: bool = False) -> None:
            self.rung += 1
            ring(stepped=stepped)

        def counted_settime(when: int) -> None:
            self.armed += 1
            settime(when)

        alarm._ring, alarm._settime = counted_ring, counted_settime

    def fire(self) -> None:
        self.late.append(CLOCK.wall() - self.due)
        self.left -= 1
        if self.left:
            self.due += self.next_step()
            self.timer.set(self.due)
        else:
            self.done.set()

    def next_step(self) -> int:
        return self.step

    async def all(self) -> None:
        await asyncio.wait_for(self.done.wait(), 30)
        assert min(self.late) >= 0


@on_linux
@on_both_loops
def test_an_alarm_that_rang_for_the_last_timer_is_silent(loop: str) -> None:
    async def main(timers: Timers) -> None:
        ticks = Ticks(timers, 1)
        await ticks.all()
        await asyncio.sleep(0.05)
        assert ticks.rung == 1

    run(loop, main)


@on_linux
async def test_where_only_one_timerfd_can_be_had_the_loops_own_timers_serve_and_none_is_left_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import singletonjob._system.timerfd

    real = singletonjob._system.timerfd._timerfd

    def boot_only(clock_id: int) -> tuple[Callable[[int], None], int]:
        if clock_id != time.CLOCK_BOOTTIME:
            raise OSError(errno.EMFILE, "timerfd_create")
        return real(clock_id)

    monkeypatch.setattr(singletonjob._system.timerfd, "_timerfd", boot_only)
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    timers = Timers(asyncio.get_running_loop(), CLOCK, longest_boot_sleep=0.5)
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) == before
    done = asyncio.Event()
    timers.at_wall(CLOCK.wall() + 5000, done.set)
    await asyncio.wait_for(done.wait(), 10)
    timers.close()


@on_linux
@on_both_loops
def test_the_clocks_are_those_that_count_suspend_and_that_can_be_stepped(loop: str) -> None:
    assert BOOT_CLOCK == time.CLOCK_BOOTTIME

    async def main(timers: Timers) -> list[str]:
        timers.at_boot(CLOCK.boot() + 100, nothing)
        timers.at_wall(CLOCK.wall() + 100_000_000, nothing)
        alarms = (timers._boot.alarm, timers._wall.alarm)
        return [Path(f"/proc/self/fdinfo/{alarm._fd}").read_text() for alarm in alarms]  # type: ignore[attr-defined]  # where there is a timerfd

    boot, wall = run(loop, main)
    if "clockid" not in boot:
        pytest.skip("this kernel does not tell a timer's clock")
    assert f"clockid: {time.CLOCK_BOOTTIME}\n" in boot
    assert f"clockid: {time.CLOCK_REALTIME}\n" in wall


@on_linux
@on_both_loops
def test_closed_timers_leave_no_descriptor_open(loop: str) -> None:
    async def main(timers: Timers) -> int:
        before = sum(1 for _ in Path("/proc/self/fd").iterdir())
        for _ in range(10):
            more = Timers(asyncio.get_running_loop(), CLOCK, longest_boot_sleep=0.5)
            more.at_boot(CLOCK.boot() + 100, nothing)
            more.close()
        return sum(1 for _ in Path("/proc/self/fd").iterdir()) - before

    assert run(loop, main) == 0


@on_both_loops
def test_a_timer_that_is_set_later_again_and_again_does_not_keep_the_others_waiting(loop: str) -> None:
    # A run's time limit is set so, with each run.
    async def main(timers: Timers) -> float:
        fired = asyncio.get_running_loop().create_future()
        due = CLOCK.boot() + 0.2
        timers.at_boot(due, lambda: fired.set_result(CLOCK.boot() - due))
        limit = timers.at_boot(due - 0.1, nothing)
        for _ in range(40):
            await asyncio.sleep(0.02)
            limit.cancel()
            limit.set(CLOCK.boot() + 0.1)
            if fired.done():
                break
        return await asyncio.wait_for(fired, 10)

    assert 0 <= run(loop, main) < 0.1


# -- on an injected clock, and where there is no timerfd -----------------------------------------------------------


def test_on_an_injected_clock_the_loops_own_timers_serve_and_are_never_early_by_it() -> None:
    async def main() -> None:
        clock = VirtualClock(the_loop(), offset=123.456789)
        timers = Timers(the_loop(), clock, longest_boot_sleep=0.5)
        fired: dict[str, float] = {}
        boot, wall = clock.boot() + 7.0001, clock.wall() + 9_000_001
        timers.at_boot(boot, lambda: fired.update(boot=clock.boot()))
        timers.at_wall(wall, lambda: fired.update(wall=clock.wall()))
        await asyncio.sleep(20)
        timers.close()
        assert boot <= fired["boot"] <= boot + 0.001
        assert wall <= fired["wall"] <= wall + 1000

    run_virtually(main())


@given(
    st.lists(st.tuples(st.integers(0, 4), st.none() | st.integers(-2, 30), st.integers(0, 10)), min_size=1, max_size=60)
)
@example([(0, 10, 0), (1, 5, 0), (1, 20, 0)])  # the second one's old entry is the first of all, and void
def test_there_whatever_is_set_set_again_and_cancelled_each_timer_fires_at_the_time_it_was_last_set_to(
    history: list[tuple[int, int | None, int]],
) -> None:
    async def main() -> None:
        clock = VirtualClock(the_loop())
        timers = Timers(the_loop(), clock, longest_boot_sleep=1e9)
        due: dict[int, float] = {}  # of the timers that are to come
        late: list[float] = []
        started = [timers.at_boot(1e6, lambda n=n: late.append(clock.boot() - due.pop(n))) for n in range(5)]  # type: ignore[misc]  # binds it
        for timer in started:
            timer.cancel()
        for number, delay, wait in history:
            if delay is None:
                started[number].cancel()
                due.pop(number, None)
            else:
                started[number].set(clock.boot() + delay / 10)
                due[number] = clock.boot() + max(delay, 0) / 10
            await asyncio.sleep(wait / 10)
        await asyncio.sleep(4)
        timers.close()
        assert not due
        assert all(0 <= seconds < 1e-6 for seconds in late)

    run_virtually(main())


def test_there_a_suspend_is_noticed_within_the_longest_sleep() -> None:
    async def main() -> None:
        clock = VirtualClock(the_loop())
        timers = Timers(the_loop(), clock, longest_boot_sleep=0.5)
        fired: list[float] = []
        timers.at_boot(clock.boot() + 3000, lambda: fired.append(the_loop().time()))
        timers.at_wall(clock.wall() + 3_000_000_000, lambda: fired.append(the_loop().time()))
        await asyncio.sleep(100)
        assert not fired
        clock.slept += 3600
        await asyncio.sleep(LONGEST_SLEEP)
        timers.close()
        assert fired[0] <= 100.5
        assert fired[1] <= 100 + LONGEST_SLEEP

    run_virtually(main())


def test_there_a_wall_clock_that_is_set_back_is_noticed_within_the_longest_sleep_by_every_sleeper() -> None:
    async def main() -> None:
        clock = VirtualClock(the_loop())
        timers = Timers(the_loop(), clock, longest_boot_sleep=0.5)
        fired: list[tuple[str, float]] = []

        def sleep(name: str, seconds: float) -> None:
            timers.at_wall(clock.wall() + round(seconds * 1e6), lambda: fired.append((name, the_loop().time())))

        sleep("long", 100)
        sleep("longer", 200)
        timers.at_boot(clock.boot() + 400, lambda: fired.append(("boot", the_loop().time())))
        await asyncio.sleep(50)
        clock.offset -= 1000
        sleep("new", 300)  # its instant is the earliest now; it must not hide the others
        await asyncio.sleep(LONGEST_SLEEP)
        assert [name for name, _ in fired] == ["new", "long", "longer"], "each looks anew, and sleeps on if it likes"
        assert fired[-1][1] <= 50 + LONGEST_SLEEP
        await asyncio.sleep(1000)
        timers.close()
        assert [name for name, _ in fired] == ["new", "long", "longer", "boot"]

    run_virtually(main())


def test_there_a_step_that_is_seen_when_a_timer_is_set_is_not_forgotten_when_the_next_one_is() -> None:
    async def main() -> None:
        clock = VirtualClock(the_loop())
        timers = Timers(the_loop(), clock, longest_boot_sleep=0.5)
        woken: list[str] = []
        timers.at_wall(clock.wall() + 3_600_000_000, lambda: woken.append("in an hour"))
        await asyncio.sleep(10)
        clock.offset -= 1000
        timers.at_wall(clock.wall() + 60_000_000, lambda: woken.append("in a minute"))
        timers.at_wall(clock.wall() + 30_000_000, lambda: woken.append("in half a minute"))
        await asyncio.sleep(0.001)
        timers.close()
        assert woken == ["in half a minute", "in a minute", "in an hour"]

    run_virtually(main())
