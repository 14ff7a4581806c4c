"""The elector's rules, one by one. Nothing here sleeps: time is an argument."""

from __future__ import annotations

import itertools
import random
from math import inf

import pytest

from elector_driver import CLOCK, STATE, Driver, leading
from singletonjob._core.elector import Began, ClaimAnswered, Draining, Ended, Extended, Leadership, LogEvent
from singletonjob.stores.protocol import (
    Acquire,
    Batch,
    Claimed,
    ClaimSlot,
    Failed,
    Granted,
    JobState,
    NotClaimed,
    Progress,
    Refused,
    Release,
    Released,
    Renew,
    Renewed,
    Reply,
)

# -- terms and deadlines -------------------------------------------------------------------------------------------


def test_the_first_exchange_on_a_connection_reads_the_stores_clock_and_asks_for_nothing() -> None:
    driver = Driver(read=False)
    batch = driver.poll(0.0)
    assert batch == Batch(project="p", node="n-1", bound=2.0)


def test_a_grant_begins_a_term_whose_deadline_counts_from_before_the_request_was_sent() -> None:
    driver = Driver()
    driver.lead(5.0, after=1.5)
    assert driver.of(Began) == [Began("a", Leadership(7, sent=5.0, deadline=5.0 + 10 - 1), STATE)]


def test_a_renewal_moves_the_deadline_from_its_own_sending_and_not_from_the_reply() -> None:
    driver = leading()
    renewal = driver.one(3.0)
    assert renewal == Renew(job="a", token=7, lock_expiry=10.0, progress=Progress(ended_ago=3.0))
    driver.receive(4.9, Renewed())
    assert driver.of(Extended) == [Extended("a", Leadership(7, sent=3.0, deadline=12.0))]


def test_a_beat_is_due_one_heartbeat_after_the_last_was_sent_or_a_little_earlier_never_later() -> None:
    driver = Driver()
    driver.lead(0.0, after=1.0)
    assert driver.poll(1.0) is None
    assert 2.7 <= driver.wake_at <= 3.0


def test_the_deadline_ends_the_term_at_that_moment_with_the_call_still_hanging() -> None:
    driver = leading()
    driver.one(3.0)
    assert driver.poll(8.999) is None
    assert driver.of(Ended) == []
    assert driver.wake_at == 9.0
    driver.poll(9.0)
    assert driver.of(Ended) == [Ended("a", 7, "expired")]


def test_a_renewal_that_arrives_after_the_deadline_does_not_bring_the_term_back() -> None:
    driver = leading()
    driver.one(3.0)
    driver.receive(9.0, Renewed())
    assert driver.of(Ended) == [Ended("a", 7, "expired")]
    assert driver.of(Extended) == []
    assert driver.poll(9.5) is None  # a body may still run: neither renewed nor asked for


def test_a_grant_that_arrives_after_its_own_deadline_is_not_used_but_given_back_and_asked_for_anew() -> None:
    driver = Driver()
    driver.one(0.0)
    driver.receive(9.0, Granted(token=7, state=STATE))
    assert driver.of(Began) == []
    assert driver.one(9.0) == Release(job="a", number=1, progress=Progress(ended_ago=9.0))
    driver.receive(9.1, Released(True))
    assert driver.one(9.1) == Acquire(job="a", number=2, lock_expiry=10.0, above=7)


def test_a_refused_renewal_is_a_lost_lease() -> None:
    driver = leading()
    driver.one(3.0)
    driver.receive(3.1, Refused(holder="n-2", expires_in=8.0))
    assert driver.of(Ended) == [Ended("a", 7, "lost")]


@pytest.mark.parametrize("failed", [3.2, 4.0])  # soon, as an idle connection that was closed; later, as an outage
def test_an_unknown_outcome_moves_no_deadline_and_ends_no_term(failed: float) -> None:
    driver = leading()
    driver.one(3.0)
    driver.fail(failed)
    assert driver.of(Ended) == []
    assert driver.of(Extended) == []
    driver.poll(9.0)
    assert driver.of(Ended) == [Ended("a", 7, "expired")]


def test_c02_an_unknown_outcome_never_makes_a_leader() -> None:
    driver = Driver()
    driver.one(0.0)
    driver.fail(0.5)
    assert driver.of(Began) == []


def test_the_replica_asks_again_only_when_the_body_of_the_ended_term_has_ended() -> None:
    driver = leading()
    driver.one(3.0)
    driver.receive(3.1, Refused(holder="n-2", expires_in=0.5))
    assert driver.poll(20.0) is None
    driver.elector.drained(20.0, "a", 7)
    assert isinstance(driver.one(20.0), Acquire)


def test_while_a_body_of_the_ended_term_runs_neither_a_notice_nor_another_jobs_beat_asks_for_the_lease() -> None:
    driver = Driver("a", "b")
    driver.poll(0.0)
    driver.receive(0.0, Granted(token=7, state=STATE), Granted(token=8, state=STATE))
    driver.poll(3.0)
    driver.receive(3.1, Refused(holder="n-2", expires_in=0.1), Renewed())
    driver.elector.notice(3.2, ["a"])
    assert driver.poll(3.3) is None
    assert (driver.one(6.0).job, driver.wake_at) == ("b", 12.0)  # b's deadline: nothing wakes it for a
    driver.receive(6.1, Renewed())
    driver.elector.drained(6.2, "a", 7)
    assert isinstance(driver.one(6.2), Acquire)


def test_a_word_about_another_term_is_ignored() -> None:
    driver = leading()
    driver.elector.drained(1.0, "a", 6)
    driver.elector.resign("a", 6)
    assert driver.poll(1.0) is None
    assert driver.of(Ended) + driver.of(Draining) == []


def test_the_fence_may_see_the_deadline_pass_before_the_elector_does() -> None:
    driver = leading()
    driver.one(8.9)
    driver.receive(8.95, Renewed())  # in time by our clock; the job loop read its own a moment after 9.0
    driver.elector.drained(9.001, "a", 7)
    driver.effects += driver.elector.take_effects()
    assert driver.of(Ended) == [Ended("a", 7, "expired")]
    assert isinstance(driver.one(9.001), Release)


def test_each_acquisition_carries_a_higher_number_and_the_highest_token_seen() -> None:
    driver = Driver("a", "b")
    batch = driver.poll(0.0)
    assert batch is not None
    assert [(r.job, r.number, r.above) for r in batch.requests if isinstance(r, Acquire)] == [("a", 1, 0), ("b", 2, 0)]
    driver.receive(0.1, Granted(token=70, state=STATE), Refused(holder="n-2", expires_in=1.0))
    asked = driver.poll(1.2)
    assert asked is not None
    (request,) = asked.requests
    assert isinstance(request, Acquire)
    assert (request.number, request.above) == (3, 70)


# -- leaving -------------------------------------------------------------------------------------------------------


def test_a_stop_drains_and_the_release_goes_out_when_the_body_has_ended_and_not_before() -> None:
    driver = leading()
    driver.elector.stop(1.0)
    assert driver.poll(1.0) is None
    assert driver.of(Draining) == [Draining("a", 7, "shutdown")]
    assert isinstance(driver.one(3.0), Renew)  # the body still runs, so the lease is kept
    driver.receive(3.1, Renewed())
    driver.elector.drained(4.0, "a", 7)
    assert isinstance(driver.one(4.0), Release)
    assert not driver.elector.finished
    driver.receive(4.1, Released(True))
    assert driver.poll(30.0) is None  # never a renewal after a release
    assert driver.elector.finished
    assert "released" in driver.notes()


def test_a_body_that_outlives_grace_and_margin_leaves_the_lease_to_expire() -> None:
    driver = leading(shutdown_grace=2)
    driver.elector.stop(1.0)
    driver.poll(3.5)
    driver.receive(3.5, Renewed())
    driver.poll(4.0)
    assert driver.of(Ended) == [Ended("a", 7, "shutdown")]
    assert driver.notes()[-1] == "run-did-not-stop"
    assert driver.elector.finished
    assert driver.elector.abandoned == ["a"]
    assert driver.poll(30.0) is None


def test_at_stop_the_call_in_flight_is_awaited_and_then_what_it_may_have_got_is_released() -> None:
    driver = Driver()
    driver.one(0.0)
    driver.elector.stop(0.1)
    assert driver.poll(0.1) is None
    assert not driver.elector.finished
    driver.receive(0.2, Granted(token=7, state=STATE))
    assert driver.of(Began) == []
    release = driver.one(0.2)
    assert isinstance(release, Release)
    assert release.number == 1
    driver.receive(0.3, Released(True))
    assert driver.elector.finished


def test_at_stop_an_acquisition_without_an_answer_is_released_too() -> None:
    driver = Driver()
    driver.one(0.0)
    driver.fail(2.0)
    driver.elector.stop(2.1)
    driver.reading(2.1)
    assert isinstance(driver.one(2.1), Release)
    driver.receive(2.2, Released(False))
    assert driver.elector.finished


def test_an_acquisition_without_an_answer_is_released_only_when_it_cannot_run_any_more() -> None:
    driver = Driver()
    driver.one(0.0)
    driver.fail(0.1)
    driver.elector.stop(0.2)
    assert driver.poll(2.0) is None  # it was good for 2 s, and our clock may be 1 % faster than the store's
    assert driver.wake_at == pytest.approx(2.06)
    driver.reading(2.06)
    assert isinstance(driver.one(2.06), Release)


def test_a_refused_follower_has_nothing_to_release() -> None:
    driver = Driver()
    driver.one(0.0)
    driver.receive(0.1, Refused(holder="n-2", expires_in=9.0))
    driver.elector.stop(0.2)
    assert driver.poll(0.2) is None
    assert driver.elector.finished


def test_a_release_is_tried_for_two_call_timeouts_and_its_failure_is_told() -> None:
    driver = leading()
    driver.elector.stop(1.0)
    driver.elector.drained(1.0, "a", 7)
    driver.one(1.0)
    driver.fail(3.0)
    batch = driver.poll(3.0)
    assert batch is not None
    driver.fail(5.0)
    driver.poll(5.0)
    assert "release-failed" in driver.notes()
    assert "released" not in driver.notes()
    assert driver.elector.finished


def test_a_disabled_job_is_released_and_an_enabled_one_competes_at_once() -> None:
    driver = leading()
    driver.elector.set_enabled(1.0, "a", False)
    assert driver.poll(1.0) is None
    assert driver.of(Draining) == [Draining("a", 7, "disabled")]
    driver.elector.drained(1.1, "a", 7)
    release = driver.one(1.1)
    assert isinstance(release, Release)
    assert release.off
    driver.receive(1.2, Released(True))
    assert driver.poll(5.0) is None
    driver.elector.set_enabled(5.0, "a", True)
    assert isinstance(driver.one(5.0), Acquire)


def test_disabled_during_a_drain_for_another_reason_it_is_released_as_one_that_is_off() -> None:
    driver = leading()
    driver.elector.resign("a", 7)
    driver.elector.set_enabled(0.1, "a", False)
    driver.elector.drained(0.2, "a", 7)
    release = driver.one(0.2)
    assert isinstance(release, Release)
    assert release.off  # the slots that come while it is off are not owed


def test_enabled_during_a_drain_it_is_released_first_and_then_competes() -> None:
    driver = leading()
    driver.elector.set_enabled(1.0, "a", False)
    driver.elector.set_enabled(1.5, "a", True)
    driver.elector.drained(2.0, "a", 7)
    assert isinstance(driver.one(2.0), Release)
    driver.receive(2.1, Released(True))
    assert isinstance(driver.one(2.1), Acquire)


def test_a_job_that_is_not_enabled_never_asks() -> None:
    driver = Driver(enabled=(), read=False)
    assert driver.poll(0.0) is None
    assert driver.wake_at == inf


def test_a_term_given_up_by_its_hook_is_released_and_asked_for_after_a_back_off() -> None:
    driver = leading()
    driver.elector.resign("a", 7)
    driver.elector.drained(0.1, "a", 7)
    driver.effects += driver.elector.take_effects()
    assert driver.of(Ended) == [Ended("a", 7, "resigned")]
    assert isinstance(driver.one(0.1), Release)
    driver.receive(0.2, Released(True))
    assert driver.poll(3.0) is None
    assert driver.wake_at == pytest.approx(0.1 + 6.0)


# -- vouching ------------------------------------------------------------------------------------------------------


def test_a_term_that_nobody_vouches_for_is_neither_renewed_nor_released() -> None:
    driver = leading()
    driver.liveness.until["a"] = 2.9
    assert driver.poll(2.95) is None
    assert driver.of(Ended) == [Ended("a", 7, "stuck")]
    assert driver.elector.standings["a"].stuck
    assert driver.poll(60.0) is None
    driver.liveness.until["a"] = inf
    driver.elector.drained(60.0, "a", 7)
    assert isinstance(driver.one(60.0), Release)
    assert not driver.elector.standings["a"].stuck


def test_the_elector_wakes_when_the_vouching_ends() -> None:
    driver = leading()
    driver.liveness.until["a"] = 1.5
    driver.poll(0.5)
    assert driver.wake_at == 1.5


# -- the follower's asking rule ------------------------------------------------------------------------------------


def follower(expires_in: float | None = 8.0, *, subscribed: bool = True, foreign: bool = False) -> Driver:
    driver = Driver()
    if subscribed:
        driver.elector.subscribed(0.0)
    driver.one(0.1)
    driver.receive(0.2, Refused(holder="n-2", expires_in=expires_in, foreign=foreign))
    driver.poll(0.2)
    return driver


def test_a_follower_asks_half_a_margin_before_the_holders_time_is_over_and_at_its_end() -> None:
    driver = follower(8.0)
    assert driver.wake_at == pytest.approx(0.1 + 0.99 * 8.0 - 0.5)
    asked = driver.wake_at
    driver.one(asked)
    driver.receive(asked, Refused(holder="n-2", expires_in=0.6))
    driver.poll(asked)
    assert 0.6 < driver.wake_at - asked < 0.61


def test_without_notices_a_follower_asks_once_per_heartbeat() -> None:
    driver = follower(8.0, subscribed=False)
    assert driver.wake_at == pytest.approx(0.2 + 3 * 0.95)


def test_a_follower_of_another_implementation_asks_once_per_heartbeat() -> None:
    assert follower(8.0, foreign=True).wake_at == pytest.approx(0.2 + 3 * 0.95)


def test_a_key_without_an_expiry_is_asked_for_once_per_heartbeat_and_told_once() -> None:
    driver = follower(None)
    assert driver.wake_at == pytest.approx(0.2 + 3 * 0.95)
    driver.one(3.1)
    driver.receive(3.2, Refused(holder="n-2", expires_in=None))
    assert driver.notes().count("no-expiry") == 1


def test_a_release_notice_makes_it_ask_at_once() -> None:
    driver = follower()
    driver.elector.notice(4.0, ["a"])
    assert isinstance(driver.one(4.0), Acquire)


def test_a_notice_outlives_the_refusal_of_an_ask_that_was_sent_before_it() -> None:
    driver = follower()
    driver.elector.notice(4.0, ["a"])
    driver.one(4.0)
    driver.elector.notice(4.01, ["a"])
    driver.receive(4.015, Refused(holder="n-2", expires_in=9.0))
    assert driver.poll(4.016) is None
    assert isinstance(driver.one(4.02), Acquire)


def test_two_asks_of_one_process_are_never_closer_than_20_ms() -> None:
    driver = follower()
    driver.elector.notice(4.0, ["a"])
    driver.one(4.0)
    driver.receive(4.001, Refused(holder="n-2", expires_in=9.0))
    driver.elector.notice(4.002, ["a"])
    assert driver.poll(4.002) is None
    assert driver.wake_at == pytest.approx(4.02)


def test_each_confirmed_subscription_counts_as_a_notice_for_all_jobs() -> None:
    driver = follower()
    driver.elector.subscribed(5.0)
    assert isinstance(driver.one(5.0), Acquire)


def test_lost_notices_shorten_the_wait_to_one_heartbeat() -> None:
    driver = follower()
    driver.elector.notices_lost(1.0)
    driver.poll(1.0)
    assert driver.wake_at == pytest.approx(1.0 + 3 * 0.95)


def test_a_refusal_that_names_this_node_means_ask_again_at_once() -> None:
    driver = Driver()
    driver.one(0.0)
    driver.receive(0.1, Refused(holder="n-1", expires_in=9.9))
    assert driver.one(0.1).number == 2


def test_c23_a_holder_whose_id_merely_begins_alike_is_somebody_else() -> None:
    driver = Driver()
    driver.elector.subscribed(0.0)
    driver.one(0.1)
    driver.receive(0.2, Refused(holder="n-10", expires_in=5.0))
    assert driver.poll(1.0) is None
    driver.elector.stop(1.0)
    assert driver.elector.finished


def test_what_is_due_within_half_a_heartbeat_rides_along_and_asks_ride_with_any_renewal() -> None:
    driver = Driver("a", "b", "c")
    driver.elector.subscribed(0.0)
    driver.poll(0.0)
    driver.receive(
        0.1, Granted(token=7, state=STATE), Granted(token=8, state=STATE), Refused(holder="n-2", expires_in=9.0)
    )
    batch = driver.poll(2.9)
    assert batch is not None
    assert [(type(r).__name__, r.job) for r in batch.requests] == [("Renew", "a"), ("Renew", "b"), ("Acquire", "c")]


def test_a_notice_makes_a_leader_exchange_at_once_too() -> None:
    driver = leading()
    driver.elector.notice(1.0, ["a"])
    assert isinstance(driver.one(1.0), Renew)


# -- back-off ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("errors", "least", "most"), [(1, 4.8, 7.2), (2, 8.0, 12.0), (20, 8.0, 12.0)])
def test_p27_a_followers_back_off_doubles_up_to_its_limit_and_never_goes_below_a_heartbeat(
    errors: int, least: float, most: float
) -> None:
    for draw in (0.0, 0.999):
        driver = Driver(read=False)
        driver.elector._random = lambda draw=draw: draw  # type: ignore[misc]  # binds it
        now = 0.0
        for _ in range(errors):
            assert driver.poll(now) is not None
            driver.fail(now)
            driver.poll(now)
            delay, now = driver.wake_at - now, driver.wake_at
        assert least <= delay <= most
        assert delay >= 3.0


def test_a_good_exchange_ends_the_back_off_of_all_jobs_at_once() -> None:
    driver = Driver("a", "b", read=False)
    now = 0.0
    for _ in range(3):
        driver.poll(now)
        driver.fail(now)
        driver.poll(now)
        now = driver.wake_at
    driver.reading(now)
    batch = driver.poll(now)
    assert batch is not None
    assert [r.job for r in batch.requests] == ["a", "b"]


def test_while_the_store_is_down_a_replica_tries_once_per_back_off_however_many_jobs_it_has() -> None:
    driver = Driver(*(f"j{number}" for number in range(50)), read=False)
    numbers = random.Random(0)
    driver.elector._random = numbers.random
    now, tries = 0.0, []
    while now < 300:
        driver.poll(now)
        driver.fail(now)
        driver.poll(now)
        now = driver.wake_at
        tries.append(now)
    # From 8 to 12 s, and spread over all of it: the tries of many replicas do not come together.
    waits = [later - earlier for earlier, later in itertools.pairwise(tries[2:])]
    assert all(8 <= wait <= 12 for wait in waits)
    assert min(waits) < 9
    assert max(waits) > 11


def test_a_confirmed_subscription_ends_the_back_off() -> None:
    driver = Driver()
    driver.one(0.0)
    driver.fail(0.1)
    driver.elector.subscribed(0.5)
    driver.reading(0.5)
    assert isinstance(driver.one(0.5), Acquire)


def test_p28_a_leader_never_backs_off_while_its_lease_lives() -> None:
    driver = leading()
    driver.one(3.0)
    driver.fail(3.001)  # perhaps the connection was idle for too long, so that is asked anew at once
    now = 3.001
    for _ in range(10):
        assert driver.poll(now) is not None
        driver.fail(now + 0.001)
        driver.poll(now + 0.001)
        assert driver.wake_at - now < 0.31
        now = driver.wake_at


def test_a_call_that_used_up_its_time_is_repeated_at_once() -> None:
    driver = leading()
    driver.one(3.0)
    driver.fail(5.0)
    assert driver.poll(5.0) is not None


def test_a_call_is_bounded_by_half_the_time_to_the_earliest_deadline_it_carries() -> None:
    driver = leading()
    first = driver.poll(3.0)
    assert first is not None
    assert first.bound == 2.0
    driver.fail(3.1)
    late = driver.poll(7.0)
    assert late is not None
    assert late.bound == pytest.approx(1.0)


def test_a_failed_reading_backs_off_like_any_call() -> None:
    driver = Driver(read=False)
    driver.poll(0.0)
    driver.fail(2.0)
    assert driver.poll(2.1) is None
    assert driver.notes() == ["store-down", "heartbeat-error"]


def test_the_return_of_the_store_is_told_with_the_length_of_the_outage() -> None:
    driver = Driver(read=False)
    driver.poll(1.0)
    driver.fail(3.0)
    driver.poll(3.0)
    back = driver.wake_at
    driver.reading(back)
    assert "store-up" not in driver.notes()  # that it connects is not yet that it serves
    driver.one(back)
    driver.receive(back, Refused(holder="n-2", expires_in=5.0))
    up = [note for note in driver.of(LogEvent) if note.event == "store-up"]
    assert [note.number for note in up] == [pytest.approx(8.0)]


def test_one_job_whose_key_is_broken_backs_off_and_the_others_go_on() -> None:
    driver = Driver("a", "b")
    driver.poll(0.0)
    driver.receive(0.1, Failed("WRONGTYPE"), Granted(token=8, state=STATE))
    assert [b.job for b in driver.of(Began)] == ["b"]
    assert "job-error" in driver.notes()
    batch = driver.poll(2.9)
    assert batch is not None
    assert [type(r).__name__ for r in batch.requests] == ["Acquire", "Renew"]


# -- late calls ----------------------------------------------------------------------------------------------------


def test_every_call_is_void_after_its_time_on_the_stores_clock() -> None:
    driver = Driver()
    driver.elector.subscribed(0.0)
    batch = driver.poll(10.0)
    assert batch is not None
    assert batch.void_at == CLOCK + int(0.99 * (10.0 + 2.0) * 1e6)


def test_a_void_call_changed_nothing_and_is_sent_again_at_once_with_the_new_time() -> None:
    driver = Driver()
    driver.one(0.0)
    driver.elector.receive(1.0, Reply(clock=CLOCK + 900_000_000, void=True))
    batch = driver.poll(1.02)
    assert batch is not None
    assert batch.void_at is not None
    assert batch.void_at > CLOCK + 900_000_000


def test_void_calls_in_a_row_count_as_errors() -> None:
    driver = Driver()
    driver.one(0.0)
    driver.receive(1.0, void=True)
    driver.one(1.02)
    driver.receive(2.0, void=True)
    assert "heartbeat-error" in driver.notes()
    assert driver.poll(2.1) is None


def test_after_an_unknown_outcome_the_stores_clock_is_read_anew() -> None:
    driver = leading()
    driver.one(3.0)
    driver.fail(3.1)
    batch = driver.poll(3.5)
    assert batch is not None
    assert batch.requests == ()


# -- amnesia -------------------------------------------------------------------------------------------------------


def test_nothing_is_acquired_from_a_store_that_restarted_less_than_a_lease_ago() -> None:
    driver = Driver(read=False)
    driver.elector.subscribed(0.0)
    driver.poll(0.0)
    driver.receive(2.0, up_for=4.0)
    assert driver.poll(2.0) is None
    assert driver.wake_at == pytest.approx(2.0 + 10 + 1 - 4)  # from the arrival of the reading
    assert "store-restarted" in driver.notes()
    assert isinstance(driver.one(9.0), Acquire)


def test_a_term_is_told_from_when_on_the_store_has_been_up() -> None:
    driver = Driver(read=False)
    driver.reading(0.0, up_for=60.0)
    assert isinstance(driver.one(5.0), Acquire)
    driver.receive(5.1, Granted(token=7, state=JobState(wall=1_000_000_000)))
    assert driver.of(Began)[0].state.up_from == 1_000_000_000 - 65_000_000
    forever = Driver()
    forever.lead()
    assert forever.of(Began)[0].state.up_from is None


def test_a_renewal_is_not_held_back_by_the_guard() -> None:
    driver = leading()
    driver.one(3.0)
    driver.fail(3.1)
    driver.reading(3.5, up_for=0.2)
    assert isinstance(driver.one(3.5), Renew)


def test_a_released_job_is_not_taken_from_a_young_store_either() -> None:
    driver = Driver(read=False)
    driver.reading(0.0, up_for=0.0)
    driver.elector.notice(1.0, ["a"])
    assert driver.poll(1.0) is None


def test_a_job_that_may_be_held_already_is_not_taken_from_a_young_store_either() -> None:
    driver = Driver()
    driver.one(0.0)
    driver.fail(0.1)  # it may have been granted, before the store forgot it
    driver.poll(0.1)
    now = driver.wake_at
    driver.reading(now, up_for=0.5)
    assert driver.poll(now) is None
    assert driver.wake_at == pytest.approx(now + 10 + 1 - 0.5)


def test_the_guard_can_be_switched_off() -> None:
    driver = Driver(read=False, amnesia_guard=False)
    driver.reading(0.0, up_for=0.0)
    assert isinstance(driver.one(0.0), Acquire)


def test_a_store_that_does_not_tell_its_up_time_is_told_of_once_and_not_guarded() -> None:
    driver = Driver(read=False)
    driver.reading(0.0, up_for=None)
    driver.one(0.0)
    driver.fail(0.1)
    driver.poll(0.1)
    driver.reading(driver.wake_at, up_for=None)
    assert driver.notes().count("no-uptime") == 1


# -- slots ---------------------------------------------------------------------------------------------------------


def test_a_claim_goes_out_at_once_and_is_repeated_until_it_is_answered() -> None:
    driver = leading()
    claim = ClaimSlot(job="a", token=7, slot=60_000_000, mark="m")
    driver.elector.claim(1.0, claim)
    batch = driver.poll(1.0)
    assert batch is not None
    assert claim in batch.requests
    driver.fail(3.0)
    driver.reading(3.0)
    again = driver.poll(3.0)
    assert again is not None
    assert again.requests == (Renew(job="a", token=7, lock_expiry=10.0, progress=Progress(ended_ago=3.0)), claim)
    driver.receive(3.1, Renewed(), Claimed())
    assert driver.of(ClaimAnswered) == [ClaimAnswered("a", claim, Claimed())]
    later = driver.poll(6.1)
    assert later is not None
    assert claim not in later.requests


def test_a_claim_of_another_term_is_not_sent() -> None:
    driver = leading()
    driver.elector.claim(1.0, ClaimSlot(job="a", token=6, slot=60_000_000, mark="m"))
    assert driver.poll(1.0) is None


def test_a_refused_claim_is_answered_too() -> None:
    driver = leading()
    claim = ClaimSlot(job="a", token=7, slot=60_000_000, mark="m")
    driver.elector.claim(1.0, claim)
    batch = driver.poll(1.0)
    assert batch is not None
    verdict = NotClaimed(why="taken", wall=1)
    driver.receive(1.1, *(verdict if r == claim else Renewed() for r in batch.requests))
    assert driver.of(ClaimAnswered) == [ClaimAnswered("a", claim, verdict)]


def test_jobs_that_cannot_be_served_do_not_wake_each_other_from_their_back_off() -> None:
    # A store may answer and yet serve none of the jobs, for example because each of them has a broken key.
    driver = Driver("a", "b", enabled=("a",))
    driver.one(0.0)
    driver.receive(0.0, Failed("gone"))
    driver.elector.set_enabled(1.0, "b", True)
    asked, now = 0, 1.0
    while now < 10:
        batch = driver.poll(now)
        assert batch is not None
        asked += 1
        driver.receive(now, *(Failed("gone") for _ in batch.requests))
        assert driver.poll(now) is None
        now = driver.wake_at
    assert asked <= 3
