"""Cases from the field as scenarios: what the store says, fails to say, or says to nobody. Default settings."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from redis.exceptions import BusyLoadingError, ResponseError

from simulation.scenario import BEAT, CALL_TIMEOUT, EXPIRY, NOTICED, TRAVEL, USABLE, Fate, Fleet, Job
from singletonjob import StoreError, StoreUnavailable
from singletonjob.stores.protocol import Acquire, Failed, Renew

if TYPE_CHECKING:
    from collections.abc import Callable

    from singletonjob.stores.protocol import Batch

EVERY = 0.1
TICK = Job("tick", "fixed", EVERY)


# -- what a store may answer -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fate",
    [
        ConnectionError("reset"),
        TimeoutError(),
        StoreError("READONLY You can't write against a read only replica."),
        StoreError("OOM command not allowed when used memory > 'maxmemory'."),
        "reply lost",
        lambda _reply: None,
        lambda reply: reply._replace(verdicts=(Failed(error="WRONGTYPE"),)),
    ],
    ids=["ConnectionError", "TimeoutError", "READONLY", "OOM", "silence", "nothing", "WRONGTYPE"],
)
def test_c02_anything_but_an_explicit_grant_is_no_leadership_not_even_of_a_free_lease(fate: Fate) -> None:
    """A text or a list in the place of verdicts: the Redis store's own tests, which turn those into errors."""
    with Fleet(TICK) as fleet:
        a, b = fleet.start_in_turn("a", "b")
        b.client.fate = lambda batch: fate if batch.requests else None
        fleet.wait(60)
        assert len(b.client.asked(Acquire)) >= 5
        a.kill()
        fleet.wait(60)
        assert fleet.runs("tick", b) == []
        assert not b.leads("tick")
        asked = b.client.asked(Acquire)
        assert max(later - earlier for earlier, later in pairwise(asked)) < 1.2 * 10 + CALL_TIMEOUT + TRAVEL

        healed = fleet.now
        b.heal()
        fleet.wait(60)
        # It may have been granted what it was not told of: asked again, the store gives it a new term.
        assert fleet.first_start("tick", b) < healed + 1.2 * 10 + CALL_TIMEOUT + EVERY + TRAVEL


def test_c03_a_leader_whose_key_names_somebody_else_notices_within_a_heartbeat_and_leaves_the_key_alone() -> None:
    with Fleet(TICK) as fleet:
        (a,) = fleet.start_in_turn("a")
        fleet.until(21.3)
        fleet.steal("tick", 60)
        stolen, expires = fleet.now, fleet.store._records["tick"].expires
        for _ in range(599):
            fleet.wait(0.1)
            assert fleet.store._records["tick"].holder == "somebody-else"
            assert fleet.store._records["tick"].expires == expires
        after = fleet.runs("tick", a, since=stolen)
        assert after[-1].started < stolen + BEAT + TRAVEL
        assert [record.reason for record in fleet.said("lost", a)] == ["lost"]

        fleet.wait(1)
        again = next(run for run in fleet.runs("tick", a) if run.started > stolen + BEAT + TRAVEL)
        assert stolen + 60 <= again.started < stolen + 60 + NOTICED + EVERY + TRAVEL
        assert again.token > after[-1].token


def odd_errors(fleet: Fleet) -> Callable[[], BaseException]:
    """Errors of many types, one after the other by chance."""
    makers: list[Callable[[], BaseException]] = [
        lambda: OSError(104, "Connection reset by peer"),
        lambda: BrokenPipeError(32, "Broken pipe"),
        lambda: TimeoutError(),
        lambda: EOFError(),
        lambda: StoreUnavailable("refused"),
        lambda: StoreError("NOAUTH"),
        lambda: ResponseError("LOADING"),
        lambda: BusyLoadingError("LOADING"),
        lambda: asyncio.CancelledError(),
        lambda: asyncio.InvalidStateError(),
        lambda: asyncio.IncompleteReadError(b"", 7),
        lambda: asyncio.LimitOverrunError("too long", 7),
        lambda: RuntimeError("Event loop is closed"),
        lambda: KeyError("clock"),
        lambda: TypeError("NoneType"),
        lambda: RecursionError(),
        lambda: MemoryError(),
        lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        lambda: ExceptionGroup("several", [ValueError("one")]),
    ]
    return lambda: fleet.world.random.choice(makers)()


def test_c07_200_errors_of_any_type_out_of_the_store_end_nothing() -> None:
    with Fleet(TICK) as fleet:
        (a,) = fleet.start_in_turn("a")
        error = odd_errors(fleet)
        raised: list[BaseException] = []

        def fail(_batch: Batch) -> Fate:
            if len(raised) == 200:
                return None
            raised.append(error())
            return raised[-1]

        a.client.fate = fail
        fleet.wait_for(lambda: len(raised) == 200, within=200 * 12, step=1)
        healed = fleet.now
        assert len({type(one) for one in raised}) >= 15
        fleet.wait(20)
        assert fleet.runs("tick", a, since=healed)[0].started < healed + 1.2 * 10 + CALL_TIMEOUT
        assert a.leads("tick")


def test_c07_after_an_outage_of_20_s_and_a_restart_runs_resume_in_the_same_processes() -> None:
    """The store comes back empty: nobody acquires from it before it has been up for 11 s, and then at once."""
    with Fleet(TICK) as fleet:
        replicas = fleet.start_in_turn("a", "b")
        fleet.until(20)
        fleet.store.set_mode("refuses")
        fleet.wait(20)
        assert fleet.runs("tick", since=20 + EXPIRY) == []
        restarted = fleet.now
        fleet.store.restart(old=False)
        fleet.store.set_mode("up")
        fleet.wait(60)
        resumed = fleet.runs("tick", since=restarted)
        # The store tells its up-time in whole seconds.
        assert restarted + 11 <= resumed[0].started < restarted + 12 + NOTICED + EVERY
        assert len({run.process for run in resumed}) == 1
        assert all(replica.alive for replica in replicas)
        assert len(fleet.said("heartbeat-error")) >= 2
        assert len(fleet.said("store-up")) == 2


# -- a leader that is cut off ------------------------------------------------------------------------------------------


def test_c06_before_a_silent_store_a_leader_stops_at_its_fence_and_follows_when_it_is_heard_again() -> None:
    """The TCP proxy and the client's own settings: `tests/integration/test_redis_replicas.py`."""
    with Fleet(TICK) as fleet:
        a, b = fleet.start_in_turn("a", "b")
        fleet.until(21.3)
        cut, sent = fleet.now, a.client.answered[-1]
        a.cut()
        fleet.wait(40)
        fleet.assert_stopped_at_its_fence("tick", a, sent)
        ended = fleet.leases("tick")[0].ends
        assert ended <= fleet.first_start("tick", b) < ended + NOTICED + EVERY + TRAVEL

        # Each call has a bound of its own: until its fence it goes on trying, never waiting for longer than that.
        tries = [when for when, _ in a.client.sent if cut <= when < sent + USABLE]
        assert len(tries) >= 3
        assert all(later - earlier < CALL_TIMEOUT + 0.3 for earlier, later in pairwise(tries))

        a.heal()
        healed = fleet.now
        fleet.wait(30)
        assert fleet.runs("tick", a, since=healed) == []
        b.kill()
        fleet.wait(12)
        assert fleet.runs("tick", a, since=healed), "the same process takes part again"


def test_c43_is_leader_is_a_time_check_and_the_hook_is_called_once_while_no_reply_comes_through() -> None:
    with Fleet(TICK) as fleet:
        a, b = fleet.start_in_turn("a", "b")
        fleet.until(21.3)
        sent = a.client.answered[-1]
        a.cut("replies")
        turned = fleet.wait_for(lambda: not a.leads("tick"), within=EXPIRY)
        assert sent + USABLE - 0.001 <= turned <= sent + USABLE + 0.001
        fleet.wait(60)
        ((told, job, reason),) = a.told
        assert (job, reason) == ("tick", "expired")
        assert sent + USABLE - 0.001 <= told < sent + USABLE + TRAVEL
        fleet.assert_stopped_at_its_fence("tick", a, sent)
        # The store heard its renewals up to then, so that long nobody else could lead.
        assert fleet.first_start("tick", b) >= fleet.leases("tick")[0].ends > sent + EXPIRY


@pytest.mark.parametrize("kind", [StoreUnavailable("refused"), "request lost", "reply lost"], ids=str)
@pytest.mark.parametrize("failures", [1, 2])
def test_c40_one_failed_renewal_or_two_cost_no_leadership_and_no_tick(failures: int, kind: Any) -> None:
    with Fleet(TICK) as fleet:
        a, _ = fleet.start_in_turn("a", "b")
        fleet.until(20.05)
        failed: list[Batch] = []

        def fail(batch: Batch) -> Fate:
            if len(failed) == failures or not any(isinstance(request, Renew) for request in batch.requests):
                return None
            failed.append(batch)
            fate: Fate = kind
            return fate

        a.client.fate = fail
        fleet.wait(40)
        assert len(failed) == failures
        assert len(fleet.leases("tick")) == 1
        ticks = [run.tick for run in fleet.runs("tick", a) if run.tick is not None]
        assert ticks == list(range(ticks[0], ticks[0] + len(ticks)))
        assert len(ticks) >= 590


@pytest.mark.parametrize("kind", [StoreUnavailable("refused"), "request lost"], ids=str)
def test_c40_when_every_renewal_fails_the_leader_goes_on_trying_and_stops_at_its_fence(kind: Any) -> None:
    with Fleet(TICK) as fleet:
        a, b = fleet.start_in_turn("a", "b")
        fleet.until(21.3)
        sent = a.client.answered[-1]
        a.client.fate = lambda batch: kind if batch.requests else None
        fleet.wait(30)
        tries = a.client.asked(Renew, since=sent + 0.1)
        assert len(tries) >= 4
        assert sent + USABLE - 1 < tries[-1] < sent + USABLE + 0.001
        fleet.assert_stopped_at_its_fence("tick", a, sent)
        assert sent + EXPIRY <= fleet.first_start("tick", b) < sent + EXPIRY + NOTICED + EVERY + TRAVEL


def test_c39_a_grant_whose_answer_was_lost_is_taken_up_with_the_next_try_and_counted_from_its_sending() -> None:
    with Fleet(TICK) as fleet:
        a = fleet.start("a")
        lost: list[Batch] = []

        def lose_the_first(batch: Batch) -> Fate:
            if lost or not batch.requests:
                return None
            lost.append(batch)
            return "reply lost"

        a.client.fate = lose_the_first
        fleet.wait(0.5)
        b = fleet.start("b")
        assert fleet.holder("tick") == "a"
        assert not a.leads("tick")
        fleet.wait_for(lambda: a.leads("tick"), within=CALL_TIMEOUT + 1.2 * 2 * BEAT + TRAVEL)
        _, second = a.client.asked(Acquire)
        a.cut()
        fleet.wait(20)
        assert second <= fleet.first_start("tick", a) < second + EVERY + TRAVEL
        fleet.assert_stopped_at_its_fence("tick", a, second)
        assert second + EXPIRY <= fleet.first_start("tick", b) < second + EXPIRY + NOTICED + EVERY + TRAVEL
