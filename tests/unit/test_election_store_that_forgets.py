"""The elector and a store that lost a lease, or whose clock is wrong. Nothing here sleeps: time is an argument."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import pytest

from elector_driver import CLOCK, STATE, Driver, leading, options
from singletonjob._core.elector import Began, Elector, Ended, LogEvent
from singletonjob.stores.protocol import (
    NO_PROGRESS,
    Acquire,
    Barred,
    Granted,
    JobState,
    Progress,
    Refused,
    Release,
    Released,
    Renew,
    Reply,
)

if TYPE_CHECKING:
    from singletonjob.stores.protocol import Batch

RELEASED = JobState(wall=1, released=8)


def following(expires_in: float = 8.0, *jobs: str, foreign: bool = False) -> Driver:
    """One that was refused at 0.2, by an answer to what it sent at 0.1."""
    driver = Driver(*jobs)
    driver.elector.subscribed(0.0)
    driver.one(0.1)
    driver.receive(0.2, Refused(holder="n-2", expires_in=expires_in, foreign=foreign))
    return driver


def granted(driver: Driver, now: float, state: JobState = STATE, token: int = 9) -> None:
    """Told of a change at `now`, it asks, and is granted."""
    driver.elector.notice(now, ["a"])
    assert isinstance(driver.one(now), Acquire)
    driver.receive(now, Granted(token=token, state=state))


# -- probation -----------------------------------------------------------------------------------------------------


def test_s8_a_lease_that_is_free_before_its_holders_time_is_over_and_not_released_is_held_without_a_term() -> None:
    driver = following()
    granted(driver, 3.0)
    assert driver.of(Began) == []
    assert driver.notes()[-1] == "probation"
    assert driver.poll(3.1) is None
    assert driver.wake_at == pytest.approx(3.0 + 3 * 0.95)  # it is kept like any lease, once per heartbeat


def test_s8_the_term_begins_when_the_lost_one_must_be_over_and_by_a_grant_that_was_asked_for_after_that() -> None:
    driver = following()
    granted(driver, 3.0)
    sent: list[float] = []
    while not driver.of(Began):
        driver.poll(sent[-1] + 0.01 if sent else 3.0)
        sent.append(driver.wake_at)
        assert isinstance(driver.one(sent[-1]), Acquire)
        driver.receive(sent[-1] + 0.01, Granted(token=10 + len(sent), state=STATE))
    assert sent[-1] == pytest.approx(3.0 + 10.1)
    assert [began.term.sent for began in driver.of(Began)] == [sent[-1]]
    assert max(later - before for before, later in zip([3.0, *sent], sent, strict=False)) <= 3.0


def test_s6_the_next_term_runs_nothing_that_was_due_before_the_store_lost_the_lease() -> None:
    driver = following()
    granted(driver, 3.0)
    begins = 13.2
    driver.poll(begins)
    driver.receive(begins, Granted(token=10, state=JobState(wall=100_000_000, slot=5)))
    (began,) = driver.of(Began)
    assert began.state.up_from == 100_000_000 - 10_200_000


def test_s8_a_lease_that_was_given_back_is_used_at_once_also_where_no_notice_was_heard() -> None:
    driver = following(8.0)
    driver.poll(0.2)
    look = driver.wake_at
    assert look < 8.0
    driver.one(look)
    driver.receive(look + 0.01, Granted(token=9, state=RELEASED))
    assert [began.term.token for began in driver.of(Began)] == [9]


def test_s8_a_lease_that_ended_in_its_time_is_used_at_once() -> None:
    driver = following(0.7)
    driver.poll(0.2)
    end = driver.wake_at
    driver.one(end)
    driver.receive(end, Granted(token=9, state=STATE))
    assert [began.term.token for began in driver.of(Began)] == [9]


def test_s8_a_follower_looks_before_the_holders_time_is_over_so_that_a_renewed_lease_that_was_lost_shows() -> None:
    driver = following(10.0)
    driver.poll(0.2)
    look = driver.wake_at
    driver.one(look)  # the holder has renewed meanwhile; then the store forgot all
    driver.receive(look + 0.3, Granted(token=9, state=STATE))
    assert driver.of(Began) == []
    assert driver.notes()[-1] == "probation"


def test_s8_a_replica_without_a_refusal_has_nothing_to_wait_for() -> None:
    driver = Driver()
    driver.lead()
    assert len(driver.of(Began)) == 1


@pytest.mark.parametrize("refused", [Refused("x", 8.0, foreign=True), Refused("n-2", None)])
def test_s8_a_holder_that_marks_no_release_or_whose_lease_has_no_end_is_waited_for_by_nobody(refused: Refused) -> None:
    driver = Driver()
    driver.elector.subscribed(0.0)
    driver.one(0.1)
    driver.receive(0.2, refused)
    granted(driver, 1.0)
    assert len(driver.of(Began)) == 1


def test_s8_either_clock_shows_that_a_lease_was_lost_each_at_its_shortest() -> None:
    for arrived, step, begins in ((5.04, 0.0, False), (5.06, 0.0, True), (5.04, 60.0, False), (5.06, -60.0, False)):
        driver = following(5.0)  # by an answer to what was sent at 0.1; clocks may differ by 1 %
        driver.elector.notice(5.0, ["a"])
        driver.one(5.0)
        clock = CLOCK + int((arrived + 0.1 + step) * 1e6)
        driver.elector.receive(arrived, Reply(clock=clock, verdicts=(Granted(token=9, state=STATE),)))
        assert any(isinstance(effect, Began) for effect in driver.elector.take_effects()) is begins, (arrived, step)


def test_s8_a_call_that_takes_until_after_the_end_of_the_lease_shows_no_loss() -> None:
    driver = following(8.0)
    driver.poll(0.2)
    driver.one(driver.wake_at)  # half a margin before the end; then the store is frozen for a while
    driver.receive(8.4, Granted(token=9, state=STATE))
    assert len(driver.of(Began)) == 1


def refused(driver: Driver, now: float, expires_in: float, token: int) -> None:
    driver.elector.notice(now, ["a"])
    driver.one(now)
    driver.receive(now, Refused(holder="n-2", expires_in=expires_in, token=token))


def test_s8_a_store_that_went_back_to_an_old_lease_does_not_hide_the_one_that_it_lost() -> None:
    for expires_in, token in ((2.0, 7), (0.5, 7), (9.0, 6)):  # of an old renewal; nearly over; of an earlier term
        driver = Driver()
        driver.elector.subscribed(0.0)
        refused(driver, 0.1, 9.0, 7)
        refused(driver, 1.0, expires_in, token)
        assert driver.notes() == ["following", "probation"], (expires_in, token)
        granted(driver, 4.0)
        granted(driver, 11.0)
        assert driver.of(Began) == [], (expires_in, token)
        granted(driver, 14.2)
        assert len(driver.of(Began)) == 1, (expires_in, token)


def test_s8_the_release_of_an_earlier_term_says_nothing_about_the_lease_that_was_lost() -> None:
    for released, begins in ((6, 0), (7, 1), (8, 1)):
        driver = Driver()
        driver.elector.subscribed(0.0)
        refused(driver, 0.1, 9.0, 7)
        granted(driver, 4.0, JobState(wall=1, released=released))
        assert len(driver.of(Began)) == begins, released


def test_l2_a_lease_that_ends_a_little_early_because_the_stores_clock_stepped_as_far_as_it_may_is_no_loss() -> None:
    driver = Driver()
    driver.elector.subscribed(0.0)
    refused(driver, 0.1, 9.0, 7)
    refused(driver, 8.1, 0.6, 7)  # 0.4 s earlier than it was: half a margin is allowed
    driver.poll(8.1)
    end = driver.wake_at
    driver.one(end)
    driver.receive(end, Granted(token=9, state=STATE))
    assert len(driver.of(Began)) == 1


def test_s8_a_refusal_by_another_holder_does_not_shorten_the_wait_for_the_term_that_was_lost() -> None:
    driver = following()
    granted(driver, 3.0)  # until 13.1 the lost term may be alive
    driver.elector.notice(4.0, ["a"])
    driver.one(4.0)
    driver.receive(4.0, Refused(holder="n-3", expires_in=9.0))
    granted(driver, 5.0, RELEASED)
    assert driver.of(Began) == []
    granted(driver, 13.2, RELEASED)
    assert len(driver.of(Began)) == 1


def test_s8_a_lease_that_was_held_on_probation_is_given_back_without_the_mark_of_a_release() -> None:
    driver = following()
    granted(driver, 3.0)
    driver.elector.stop(4.0)
    assert driver.one(4.0) == Release("a", 2, Progress(ended_ago=4.0), unused=True)
    driver.receive(4.0, Released(True))
    assert driver.elector.finished


def test_s8_a_grant_of_a_lost_lease_that_comes_too_late_is_given_back_without_the_mark_of_a_release() -> None:
    driver = following()
    driver.elector.notice(0.3, ["a"])
    driver.one(0.3)
    driver.elector.stop(0.4)
    driver.receive(0.5, Granted(token=9, state=STATE))
    assert driver.one(0.5) == Release("a", 2, Progress(ended_ago=0.5), unused=True)


def test_s8_a_grant_whose_answer_never_came_may_be_of_a_lost_lease_and_is_released_without_the_mark() -> None:
    driver = following()
    driver.elector.notice(0.3, ["a"])
    driver.one(0.3)
    driver.fail(2.3)
    driver.elector.stop(2.3)
    driver.reading(2.4)
    assert driver.one(2.4) == Release("a", 2, Progress(ended_ago=2.4), unused=True)


def test_s8_a_grant_after_a_release_is_given_back_with_the_mark_of_one() -> None:
    driver = following()
    driver.elector.notice(0.3, ["a"])
    driver.one(0.3)
    driver.elector.stop(0.4)
    driver.receive(0.5, Granted(token=9, state=RELEASED))
    assert driver.one(0.5) == Release("a", 2, Progress(ended_ago=0.5))


def test_s8_a_pause_ends_probation_and_gives_the_lease_back() -> None:
    driver = following()
    granted(driver, 3.0)
    driver.elector.notice(4.0, ["a"])
    driver.one(4.0)
    driver.receive(4.0, Barred("paused", None, mine=True))
    assert driver.one(4.0) == Release("a", 3, Progress(ended_ago=4.0), off=True, unused=True)


def test_s8_a_term_of_our_own_leaves_no_refusal_behind() -> None:
    driver = following(8.0)
    granted(driver, 3.0, RELEASED)
    driver.one(5.9)
    driver.receive(6.0, Refused(None, None))  # the key was deleted under us
    driver.elector.drained(6.0, "a", 9)
    driver.one(6.0)
    driver.receive(6.0, Granted(token=11, state=STATE))
    assert [began.term.token for began in driver.of(Began)] == [9, 11]


# -- the store's clock ---------------------------------------------------------------------------------------------


def test_l2_a_refusal_is_slept_out_for_no_longer_than_ones_own_lease_lasts() -> None:
    driver = following(70.0)  # the store's clock was set back by a minute
    driver.poll(0.2)
    assert 9.0 < driver.wake_at < 10.1


def stepped(driver: Driver, now: float, step: float) -> list[float]:
    """What is told when the store's clock has moved by `step` at `now`."""
    reply = Reply(clock=CLOCK + int((now + step) * 1e6), verdicts=(Refused("n-2", 8.0),))
    driver.one(now)
    driver.elector.receive(now, reply)
    driver.effects += driver.elector.take_effects()
    return [note.number for note in driver.of(LogEvent) if note.event == "store-stepped"]


@pytest.mark.parametrize("step", [60.0, -60.0, 0.7, -0.7])
def test_a_step_of_the_stores_clock_is_told_with_its_length(step: float) -> None:
    assert stepped(Driver(), 2.0, step) == [pytest.approx(step, abs=0.05)]


@pytest.mark.parametrize("step", [0.4, -0.4, 0.019])
def test_what_slewing_and_a_slow_answer_explain_is_no_step(step: float) -> None:
    assert stepped(Driver(), 2.0, step) == []


def test_a_fail_over_to_a_server_with_another_clock_is_told_as_a_step() -> None:
    driver = leading()
    driver.one(3.0)
    driver.fail(3.2)
    driver.poll(3.2)
    driver.elector.receive(3.3, Reply(clock=CLOCK + 33_300_000, up_for=inf))
    (note,) = driver.elector.take_effects()
    assert isinstance(note, LogEvent)
    assert note.event == "store-stepped"
    assert note.number == pytest.approx(30, abs=0.5)


def test_a_token_far_above_the_stores_clock_is_told() -> None:
    driver = Driver()
    driver.one(0.0)
    driver.receive(0.0, Granted(token=3_600_000_001, state=STATE))
    assert driver.of(LogEvent) == [LogEvent("token-ahead", "a", number=3600.0, token=3_600_000_001)]
    driver = Driver()
    driver.lead()
    assert driver.of(LogEvent) == []


# -- calls ---------------------------------------------------------------------------------------------------------


def two_leases() -> Elector:
    short = options(lock_expiry=1, heartbeat_interval=0.3, margin=0.1)
    jobs = {"a": options(), "b": short}
    return Elector(project="p", node="n-1", jobs=jobs, enabled=jobs, random=lambda: 0.5)


class Vouching:
    def alive_until(self, job: str) -> float:
        return inf

    def progress(self, job: str, now: float) -> Progress:
        return NO_PROGRESS


def sent(elector: Elector, now: float) -> Batch:
    batch = elector.poll(now, Vouching()).batch
    assert batch is not None
    return batch


def test_a_job_with_a_short_lease_does_not_bound_the_calls_of_all_others() -> None:
    elector = two_leases()
    assert sent(elector, 0.0).bound == 2.0
    elector.receive(0.25, Reply(clock=CLOCK, up_for=inf))
    assert sent(elector, 0.25).bound == 2.0
    elector.receive(0.5, Reply(clock=CLOCK, verdicts=(Granted(7, STATE), Granted(8, STATE))))
    renewal = sent(elector, 0.7)
    assert renewal.requests == (Renew("b", 8, 1.0, NO_PROGRESS),)
    assert renewal.bound == pytest.approx(0.2)


def test_no_call_takes_more_than_half_the_time_of_any_living_lease_because_there_is_one_call_at_a_time() -> None:
    elector = two_leases()
    sent(elector, 0.0)
    elector.receive(0.0, Reply(clock=CLOCK, up_for=inf))
    sent(elector, 0.0)
    elector.receive(0.0, Reply(clock=CLOCK, verdicts=(Granted(7, STATE), Granted(8, STATE))))
    sent(elector, 0.3)
    elector.receive(0.4, None, "broken")
    assert sent(elector, 0.5).bound == pytest.approx((0.9 - 0.5) / 2)  # a reading, which carries nothing


def test_the_first_failure_on_a_connection_that_was_idle_is_asked_again_at_once_and_is_no_outage() -> None:
    driver = following(8.0)
    driver.poll(0.2)
    look = driver.wake_at
    driver.one(look)
    driver.fail(look + 0.01)
    driver.reading(look + 0.02)  # on a new connection
    assert driver.notes() == []
    assert isinstance(driver.one(look + 0.04), Acquire)


def test_a_store_that_is_gone_is_told_of_by_the_second_failure_and_not_asked_on_and_on() -> None:
    driver = following(8.0)
    driver.poll(0.2)
    look = driver.wake_at
    driver.one(look)
    driver.fail(look + 0.01)
    driver.poll(look + 0.02)
    driver.fail(look + 0.03)
    assert driver.poll(look + 0.05) is None
    assert driver.notes() == ["store-down", "heartbeat-error"]
    assert driver.wake_at > look + 4


def test_a_failure_on_a_connection_that_was_in_use_a_moment_before_counts() -> None:
    driver = Driver()
    driver.one(0.5)
    driver.fail(0.51)
    assert driver.notes() == ["store-down", "heartbeat-error"]


def test_an_acquisition_that_failed_on_an_idle_connection_is_still_released_only_when_it_cannot_run_any_more() -> None:
    driver = following(8.0)
    driver.poll(0.2)
    look = driver.wake_at
    driver.one(look)
    driver.fail(look + 0.01)
    driver.elector.stop(look + 0.02)
    assert driver.poll(look + 0.5) is None
    driver.reading(look + 2.1)
    assert isinstance(driver.one(look + 2.1), Release)


def test_a_renewal_that_failed_on_an_idle_connection_moves_no_deadline() -> None:
    driver = leading()
    driver.one(3.0)
    driver.fail(3.01)
    driver.poll(3.01)
    driver.fail(3.02)
    driver.poll(9.0)
    assert driver.of(Ended) == [Ended("a", 7, "expired")]
