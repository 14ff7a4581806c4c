"""A term's lease and the handles on it: what they say while the term lives, and for ever after it ended."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta
from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from singletonjob import LeadershipLost
from singletonjob._core.elector import Leadership
from singletonjob._core.values import Now, instant
from singletonjob._jobs.handles import Run, StopSignal, Term
from singletonjob._runtime.lease import Fence, Lease
from singletonjob._system.clock import SystemClock
from singletonjob._system.timers import Timers
from virtual_loop import VirtualClock, run_virtually, the_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class HandClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at = 100.0

    def boot(self) -> float:
        return self.at

    def wall(self) -> int:
        return int(self.at * 1e6)

    def now(self) -> Now:
        return Now(self.wall(), self.boot())


def make_lease(clock: object, deadline: float, token: int = 7) -> Lease:
    return Lease(
        clock,  # type: ignore[arg-type]  # all that a lease asks of one
        project="pricing",
        job="tick",
        node="pod-1",
        leadership=Leadership(token, sent=deadline - 9.0, deadline=deadline),
    )


def renew(lease: Lease, deadline: float) -> None:
    lease.leadership = lease.leadership._replace(deadline=deadline)


def make_run(
    lease: Lease, *, signal: StopSignal | None = None, tick: int | None = None, previous: int | None = None
) -> Run:
    return Run(
        lease,
        signal or StopSignal(None),
        scheduled=1_795_000_000_500_000,
        started=1_795_000_000_600_000,
        tick=tick,
        previous=previous,
    )


# -- handles -------------------------------------------------------------------------------------------------------


def test_a_term_tells_job_token_node_and_the_seconds_of_usable_lease() -> None:
    clock = HandClock()
    term = Term(make_lease(clock, 109.0))
    assert (term.job, term.token, term.node_id) == ("tick", 7, "pod-1")
    assert term.remaining == 9.0
    clock.at = 108.5
    assert term.remaining == 0.5
    clock.at = 109.5
    assert term.remaining == 0.0


def test_a_run_tells_its_times_as_aware_utc_datetimes() -> None:
    run = make_run(make_lease(HandClock(), 109.0), tick=42, previous=1_794_999_999_000_001)
    assert run.project == "pricing"
    assert run.scheduled_at == datetime.fromtimestamp(1_795_000_000.5, UTC)
    assert run.started_at - run.scheduled_at == timedelta(milliseconds=100)
    assert run.scheduled_at.tzinfo is UTC
    assert run.tick == 42
    assert run.previous_end == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=1_794_999_999, microseconds=1)
    assert make_run(make_lease(HandClock(), 109.0)).previous_end is None


def test_an_instant_keeps_every_microsecond() -> None:
    assert instant(1_795_000_000_123_457).microsecond == 123_457
    assert instant(0) == datetime(1970, 1, 1, tzinfo=UTC)


def test_a_renewal_is_seen_by_handles_that_were_given_out_before_it() -> None:
    clock = HandClock()
    lease = make_lease(clock, 109.0)
    run = make_run(lease)
    clock.at = 108.0
    renew(lease, 117.0)
    clock.at = 112.0
    assert run.remaining == 5.0
    assert not run.stopping
    run.check()


def test_at_the_deadline_itself_the_term_is_over() -> None:
    clock = HandClock()
    run = make_run(make_lease(clock, 109.0))
    clock.at = 109.0
    assert run.stopping
    assert run.remaining == 0.0
    with pytest.raises(LeadershipLost, match="tick: the term with token 7 is over"):
        run.check()


def test_a_handle_of_an_ended_term_stays_ended_whatever_a_late_renewal_writes() -> None:
    clock = HandClock()
    lease = make_lease(clock, 109.0)
    run, term = make_run(lease), Term(lease)
    lease.end("lost")
    renew(lease, 200.0)
    assert run.stopping
    assert run.remaining == term.remaining == 0.0
    assert not lease.valid()
    with pytest.raises(LeadershipLost):
        run.check()


def test_a_stop_is_told_but_the_term_still_holds() -> None:
    lease = make_lease(HandClock(), 109.0)
    signal = StopSignal(None)
    run = make_run(lease, signal=signal)
    assert not run.stopping
    signal.give()
    assert run.stopping
    run.check()
    assert run.remaining == 9.0


def test_a_draining_term_tells_all_its_runs_to_end() -> None:
    lease = make_lease(HandClock(), 109.0)
    run = make_run(lease)
    lease.drain("shutdown")
    assert run.stopping
    run.check()


def test_of_a_new_term_nothing_is_known_yet_but_when_it_was_asked_for() -> None:
    lease = make_lease(HandClock(), 109.0)
    assert lease.leadership.sent == 100.0
    assert lease.limit == inf  # no run in flight, so none that anybody need vouch for
    assert (lease.state, lease.reason, lease.in_thread) == ("valid", None, False)
    assert {lease.run_started, lease.warned_at, lease.tick, lease.done, lease.settled, lease.ended_at} == {None}


def test_a_stop_wakes_a_body_that_waits_in_its_thread() -> None:
    event = threading.Event()
    signal = StopSignal(event)
    assert not event.is_set()
    signal.give()
    assert signal.given
    assert event.is_set()


# -- wait ----------------------------------------------------------------------------------------------------------


def real_run(seconds: float, signal: StopSignal) -> Run:
    clock = SystemClock()
    return make_run(make_lease(clock, clock.boot() + seconds), signal=signal)


def test_wait_sleeps_its_time_and_says_that_nobody_asks_to_stop() -> None:
    run = real_run(30, StopSignal(threading.Event()))
    begun = time.monotonic()
    assert run.wait(0.15) is False
    assert time.monotonic() - begun >= 0.149


def test_wait_returns_at_once_when_the_run_is_told_to_end() -> None:
    signal = StopSignal(threading.Event())
    run = real_run(30, signal)
    threading.Timer(0.05, signal.give).start()
    begun = time.monotonic()
    assert run.wait(20) is True
    assert time.monotonic() - begun < 5
    assert run.wait(20) is True


def test_wait_returns_when_the_deadline_passes_although_nobody_says_so() -> None:
    run = real_run(0.1, StopSignal(threading.Event()))
    begun = time.monotonic()
    assert run.wait(20) is True
    assert 0.09 <= time.monotonic() - begun < 5


def test_wait_outlasts_the_deadline_if_the_lease_is_renewed_meanwhile() -> None:
    clock = SystemClock()
    lease = make_lease(clock, clock.boot() + 0.1)
    run = make_run(lease, signal=StopSignal(threading.Event()))

    threading.Timer(0.03, lambda: renew(lease, clock.boot() + 30)).start()
    assert run.wait(0.3) is False


def test_wait_works_without_an_event_too() -> None:
    assert real_run(30, StopSignal(None)).wait(0.02) is False


def test_wait_of_no_time_only_looks() -> None:
    assert real_run(30, StopSignal(threading.Event())).wait(0) is False
    assert real_run(0, StopSignal(threading.Event())).wait(0) is True


class MovingEvent(threading.Event):
    """Nobody sets it; to wait for it moves the clock, and is written down."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__()
        self._clock = clock
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        assert len(self.waits) < 10, "it would wait for ever"
        self.waits.append(timeout)
        self._clock.at += timeout
        return False


@pytest.mark.parametrize(
    ("lasts", "seconds", "waits", "stopping"),
    [
        (30.0, 2.5, [1.0, 1.0, 0.5], False),  # a second at most, since the deadline may move
        (30.0, 0.0, [], False),
        (0.25, 20.0, [0.25], True),  # not beyond the deadline
        (2**-12, 20.0, [0.001], True),  # and no shorter than a thread can sleep
        (0.0, 20.0, [], True),
    ],
)
def test_wait_sleeps_in_pieces_up_to_its_time_or_the_deadline(
    lasts: float, seconds: float, waits: list[float], stopping: bool
) -> None:
    clock = HandClock()
    event = MovingEvent(clock)
    run = make_run(make_lease(clock, clock.at + lasts), signal=StopSignal(event))
    assert run.wait(seconds) is stopping
    assert event.waits == waits


# -- the fence -----------------------------------------------------------------------------------------------------


class Fenced:
    """A fence before a lease of 9 s, on the loop's time, and when it closed."""

    def __init__(self) -> None:
        self.clock = VirtualClock(the_loop())
        self.timers = Timers(the_loop(), self.clock, longest_boot_sleep=0.5)
        self.lease = make_lease(self.clock, self.clock.boot() + 9)
        self.closed: list[float] = []
        self.fence = Fence(self.timers, self.lease, lambda: self.closed.append(the_loop().time()))


def run_fenced(main: Callable[[Fenced], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        fenced = Fenced()
        await main(fenced)
        fenced.timers.close()

    run_virtually(whole())


def test_the_fence_closes_at_the_deadline_that_holds_then_and_only_once() -> None:
    async def main(fenced: Fenced) -> None:
        await asyncio.sleep(3)
        renew(fenced.lease, fenced.lease.leadership.deadline + 3)
        await asyncio.sleep(3)
        renew(fenced.lease, fenced.lease.leadership.deadline + 3)
        await asyncio.sleep(60)
        assert fenced.closed == [pytest.approx(15, abs=0.001)]

    run_fenced(main)


def test_the_fence_of_a_term_that_has_ended_closes_at_its_deadline_all_the_same() -> None:
    async def main(fenced: Fenced) -> None:
        await asyncio.sleep(3)
        fenced.lease.end("lost")  # by the heartbeat, whose message to the runner comes by another way
        await asyncio.sleep(7)
        assert fenced.closed == [pytest.approx(9, abs=0.001)]

    run_fenced(main)


def test_an_opened_fence_says_nothing_any_more() -> None:
    async def main(fenced: Fenced) -> None:
        await asyncio.sleep(8)
        fenced.fence.close()
        await asyncio.sleep(60)
        assert fenced.closed == []

    run_fenced(main)


def test_after_a_suspend_the_fence_closes_within_half_a_margin() -> None:
    async def main(fenced: Fenced) -> None:
        await asyncio.sleep(2)
        fenced.clock.slept += 600
        await asyncio.sleep(0.51)
        assert len(fenced.closed) == 1

    run_fenced(main)
