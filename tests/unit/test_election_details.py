"""The elector's lesser rules: what its notes say, how its counts begin and end, and what changes nothing.

Each of these was written because a mutant of `_election.py` had survived without it; see docs/mutation-testing.md.
"""

from __future__ import annotations

from math import inf

import pytest

from elector_driver import CLOCK, STATE, Driver, leading
from singletonjob._core.elector import ClaimAnswered, Ended, LogEvent
from singletonjob.stores.protocol import (
    Acquire,
    Claimed,
    ClaimSlot,
    Failed,
    Granted,
    NotClaimed,
    Refused,
    Release,
    Released,
    Renew,
    Renewed,
)

BEAT = 3 * 0.95  # the length of a heartbeat when the random number is 0.5
LATER = Refused(holder="n-2", expires_in=8.0)


# -- ends and drains -----------------------------------------------------------------------------------------------


def test_a_drain_lasts_for_the_grace_and_the_margin_and_not_less() -> None:
    driver = leading(shutdown_grace=2)
    driver.elector.stop(1.0)
    driver.poll(3.9)
    assert driver.of(Ended) == []
    assert driver.elector.abandoned == []
    assert driver.wake_at == 4.0


def test_a_job_that_nobody_vouches_for_ends_also_behind_one_that_leads() -> None:
    driver = Driver("a", "b")
    driver.poll(0.0)
    driver.receive(0.1, Granted(token=7, state=STATE), Granted(token=8, state=STATE))
    driver.liveness.until["b"] = 1.0
    driver.poll(1.0)
    assert driver.of(Ended) == [Ended("b", 8, "stuck")]


def test_slots_of_the_time_that_a_job_was_disabled_are_not_owed_though_it_is_enabled_before_its_body_ended() -> None:
    driver = leading()
    driver.elector.set_enabled(1.0, "a", enabled=False)
    driver.elector.set_enabled(1.1, "a", enabled=True)
    driver.elector.drained(1.2, "a", 7)
    released = driver.one(1.2)
    assert isinstance(released, Release)
    assert released.off


def test_an_abandoned_body_that_ends_after_all_is_abandoned_no_more_and_its_lease_is_released() -> None:
    driver = leading(shutdown_grace=2)
    driver.elector.stop(1.0)
    driver.poll(4.0)
    driver.receive(4.0, Renewed())
    assert driver.elector.abandoned == ["a"]
    assert driver.of(LogEvent) == [LogEvent("run-did-not-stop", "a", token=7)]
    assert driver.poll(4.1) is None
    assert driver.wake_at == inf
    driver.elector.drained(5.0, "a", 7)
    assert driver.elector.abandoned == []
    assert not driver.elector.finished
    assert isinstance(driver.one(5.0), Release)
    driver.receive(5.1, Released(True))
    assert driver.elector.finished


def test_a_term_whose_task_died_is_resigned_and_its_job_asked_for_half_a_second_later() -> None:
    driver = leading()
    driver.elector.drained(1.0, "a", 7, died=True)
    assert isinstance(driver.one(1.0), Release)
    assert driver.of(Ended) == [Ended("a", 7, "resigned")]
    driver.receive(1.1, Released(True))
    assert driver.poll(1.4) is None
    assert driver.wake_at == 1.5
    assert isinstance(driver.one(1.5), Acquire)


def wait_after_resigning(driver: Driver, now: float) -> float:
    driver.lead(now)
    driver.elector.resign("a", 7)
    driver.elector.drained(now, "a", 7)
    assert isinstance(driver.one(now), Release)
    driver.receive(now, Released(True))
    driver.poll(now)
    return driver.wake_at - now


def test_terms_resigned_in_a_row_wait_longer_each_time_until_one_ends_otherwise() -> None:
    driver = Driver(max_backoff_delay=60)
    assert wait_after_resigning(driver, 0.0) == pytest.approx(6.0)
    assert wait_after_resigning(driver, 10.0) == pytest.approx(12.0)
    driver.lead(30.0)
    driver.one(33.0)
    driver.receive(33.0, Refused(holder="n-2", expires_in=8.0))
    driver.elector.drained(33.0, "a", 7)
    assert wait_after_resigning(driver, 50.0) == pytest.approx(6.0)


def test_the_word_that_a_term_has_drained_counts_once() -> None:
    driver = Driver()
    driver.elector.subscribed(0.0)
    driver.lead()
    driver.elector.set_enabled(1.0, "a", False)
    driver.elector.drained(1.0, "a", 7)
    driver.one(1.0)
    driver.receive(1.1, Released(True))
    driver.elector.set_enabled(2.0, "a", True)
    driver.one(2.0)
    driver.receive(2.1, LATER)
    driver.elector.drained(3.0, "a", 7)
    assert driver.poll(3.0) is None
    assert driver.wake_at > 9.0


def test_a_drain_without_a_stop_has_no_end_also_in_a_later_term() -> None:
    driver = Driver()
    for begun in (0.0, 5.0):
        driver.lead(begun)
        driver.elector.set_enabled(begun + 1, "a", False)
        assert driver.poll(begun + 2) is None
        driver.elector.drained(begun + 3, "a", 7)
        driver.one(begun + 3)
        driver.receive(begun + 3, Released(True))
        driver.elector.set_enabled(begun + 4, "a", True)
    assert driver.elector.abandoned == []


def test_a_stopped_replica_has_finished_when_the_last_of_its_bodies_has_ended_and_its_lease_is_released() -> None:
    driver = Driver("a", "b")
    driver.poll(0.0)
    driver.receive(0.0, Granted(token=7, state=STATE), Granted(token=8, state=STATE))
    driver.elector.stop(1.0)
    assert not driver.elector.finished
    driver.elector.drained(1.0, "a", 7)
    assert isinstance(driver.one(1.0), Release)
    driver.receive(1.0, Released(True))
    assert driver.poll(1.0) is None
    assert not driver.elector.finished
    driver.elector.drained(2.0, "b", 8)
    assert isinstance(driver.one(2.0), Release)
    driver.receive(2.0, Released(True))
    assert driver.elector.finished


def test_at_stop_a_reading_on_its_way_is_awaited() -> None:
    driver = Driver(read=False)
    driver.poll(0.0)
    driver.elector.stop(0.1)
    assert not driver.elector.finished
    driver.fail(0.2)
    assert driver.elector.finished


def test_a_second_stop_does_not_lengthen_the_first() -> None:
    driver = leading(shutdown_grace=2)
    driver.elector.stop(1.0)
    driver.elector.stop(3.0)
    driver.poll(3.5)
    assert driver.wake_at == 4.0


def test_a_replica_that_never_asked_leaves_without_a_word() -> None:
    driver = Driver()
    assert not driver.elector.finished
    driver.elector.stop(0.0)
    assert driver.poll(0.0) is None
    assert driver.elector.finished


def test_s3_the_elector_wakes_for_the_earliest_deadline_of_all_its_terms() -> None:
    driver = leading("a", "b", enabled=("a",))
    driver.elector.set_enabled(1.0, "b", True)
    driver.one(1.0)
    driver.receive(1.0, Granted(token=8, state=STATE))
    driver.poll(3.0)
    assert driver.poll(3.1) is None  # a call is on its way
    assert driver.wake_at == 9.0
    driver.poll(9.0)
    assert driver.of(Ended) == [Ended("a", 7, "expired")]
    assert driver.wake_at == 10.0


def test_s7_a_term_ends_at_the_very_moment_at_which_its_vouching_ends() -> None:
    driver = leading()
    driver.liveness.until["a"] = 2.5
    driver.poll(2.5)
    assert driver.of(Ended) == [Ended("a", 7, "stuck")]


# -- the switch ----------------------------------------------------------------------------------------------------


def test_a_follower_that_is_switched_off_and_on_drains_nothing_and_asks_at_once() -> None:
    driver = Driver()
    driver.elector.subscribed(0.0)
    driver.one(0.05)
    driver.receive(0.1, LATER)
    driver.elector.set_enabled(1.0, "a", False)
    assert driver.poll(1.0) is None
    assert driver.wake_at == inf
    assert driver.effects == []
    driver.elector.set_enabled(2.0, "a", True)
    assert isinstance(driver.one(2.0), Acquire)


def test_the_switch_of_a_job_that_already_stands_so_changes_nothing() -> None:
    driver = Driver()
    driver.elector.subscribed(0.0)
    driver.one(0.05)
    driver.receive(0.1, LATER)
    driver.elector.set_enabled(1.0, "a", True)
    assert driver.poll(1.0) is None


def test_s4_a_switch_that_goes_off_and_on_while_the_body_of_an_ended_term_runs_releases_nothing() -> None:
    driver = leading()
    driver.poll(9.0)
    assert driver.of(Ended) == [Ended("a", 7, "expired")]
    driver.elector.set_enabled(9.1, "a", False)
    driver.elector.set_enabled(9.2, "a", True)
    assert driver.poll(9.5) is None
    driver.elector.drained(10.0, "a", 7)
    assert isinstance(driver.one(10.0), Release)


def test_s4_a_job_that_is_switched_off_gives_back_what_an_unanswered_acquisition_may_have_got() -> None:
    driver = Driver()
    driver.one(0.0)
    driver.fail(2.0)
    driver.elector.set_enabled(3.0, "a", False)
    driver.reading(3.0)
    assert isinstance(driver.one(3.0), Release)


def test_a_job_that_is_switched_off_while_it_drains_is_not_renewed_out_of_turn() -> None:
    driver = leading()
    driver.elector.resign("a", 7)
    driver.elector.set_enabled(1.0, "a", False)
    assert driver.poll(1.0) is None
    assert driver.wake_at == pytest.approx(BEAT)


# -- releases ------------------------------------------------------------------------------------------------------


def test_what_a_refusal_shows_to_be_held_is_released_and_that_is_tried_for_two_calls_from_then() -> None:
    driver = Driver()
    driver.one(0.0)
    driver.elector.stop(0.1)
    driver.receive(1.9, Refused(holder="n-1", expires_in=9.0))
    assert isinstance(driver.one(1.9), Release)
    driver.fail(3.9)
    assert driver.poll(3.9) is not None
    driver.fail(5.8)
    driver.poll(5.8)
    assert not driver.elector.finished
    driver.fail(5.9)
    driver.poll(5.9)
    assert driver.elector.finished


def test_a_release_by_a_replica_that_stays_is_tried_for_as_long_as_the_lease_may_last() -> None:
    driver = leading()
    driver.elector.set_enabled(1.0, "a", False)
    driver.elector.drained(1.0, "a", 7)
    now = 1.0
    while driver.poll(now) is not None:
        driver.fail(now + 0.1)
        driver.poll(now + 0.1)
        if "release-failed" in driver.notes():
            break
        now = driver.wake_at
    assert driver.of(LogEvent)[-1] == LogEvent("release-failed", "a", token=7)
    assert now + 0.1 >= 11.0


def test_a_release_is_repeated_quickly_while_the_lease_lasts_and_backs_off_afterwards() -> None:
    driver = leading()
    driver.elector.set_enabled(5.0, "a", False)
    driver.elector.drained(5.0, "a", 7)
    driver.one(5.0)
    driver.fail(6.0)
    driver.poll(6.0)
    assert driver.wake_at == pytest.approx(6.3)
    driver.poll(9.99)
    driver.fail(10.0)  # sent at 0, the lease has ended
    driver.poll(10.0)
    assert driver.wake_at > 12.0


def test_a_release_that_backs_off_is_given_up_when_its_time_is_over_and_not_at_its_next_turn() -> None:
    driver = Driver()
    driver.one(100.0)
    driver.fail(102.0)
    driver.elector.set_enabled(102.0, "a", False)
    driver.poll(102.06)
    driver.fail(103.0)
    assert driver.poll(103.0) is None
    assert driver.wake_at == 112.0


def test_a_replica_that_leaves_repeats_its_release_quickly_although_the_lease_is_over() -> None:
    driver = Driver()
    driver.one(0.0)
    driver.fail(20.0)
    driver.elector.stop(20.0)
    driver.reading(20.0)
    driver.one(20.0)
    driver.fail(20.1)
    driver.poll(20.1)
    assert driver.wake_at == pytest.approx(20.4)


def test_after_a_release_that_rode_along_the_replica_asks_anew_at_once() -> None:
    driver = Driver("a", "b")
    driver.poll(0.0)
    driver.receive(0.0, Granted(token=7, state=STATE), Granted(token=8, state=STATE))
    driver.elector.set_enabled(0.5, "a", False)
    driver.elector.set_enabled(0.6, "a", True)
    driver.elector.drained(1.0, "a", 7)
    driver.one(1.0)
    driver.receive(1.05, Failed("WRONGTYPE"))  # to be tried again at 1.35
    driver.elector.notice(1.1, ["b"])
    batch = driver.poll(1.1)
    assert batch is not None
    assert [type(request) for request in batch.requests] == [Release, Renew]
    driver.receive(1.15, Released(True), Renewed())
    assert isinstance(driver.one(1.15), Acquire)


def test_a_release_that_failed_does_not_keep_its_replica_from_asking_anew() -> None:
    driver = leading()
    driver.elector.set_enabled(1.0, "a", False)
    driver.elector.set_enabled(1.1, "a", True)
    driver.elector.drained(2.0, "a", 7)
    driver.one(2.0)
    driver.fail(12.0)
    driver.reading(12.0)
    assert driver.of(LogEvent)[-1] == LogEvent("release-failed", "a", token=7)
    assert isinstance(driver.one(12.0), Acquire)


@pytest.mark.parametrize(
    ("reason", "told"), [("resigned", True), ("lost", False), ("expired", False), ("stuck", False)]
)
def test_a_failed_release_is_told_unless_the_term_had_ended_anyway(reason: str, told: bool) -> None:
    driver = leading()
    if reason == "resigned":
        driver.elector.resign("a", 7)
    elif reason == "lost":
        driver.one(3.0)
        driver.receive(3.0, Refused(holder="n-1", expires_in=9.0))  # its own key, but another term's
    elif reason == "stuck":
        driver.liveness.until["a"] = 3.0
    if driver.poll(9.0 if reason == "expired" else 3.0) is not None:
        driver.receive(3.0, Renewed())
    driver.elector.drained(9.0, "a", 7)
    assert [end.reason for end in driver.of(Ended)] == ([] if reason == "resigned" else [reason])
    assert isinstance(driver.one(9.0), Release)
    driver.fail(19.0)
    driver.poll(19.0)
    assert ("release-failed" in driver.notes()) == told


def test_what_was_released_is_told_of_and_not_released_again() -> None:
    driver = leading()
    driver.elector.set_enabled(1.0, "a", False)
    driver.elector.drained(1.0, "a", 7)
    driver.one(1.0)
    driver.receive(1.1, Released(True))
    assert driver.of(LogEvent) == [LogEvent("released", "a", token=7)]
    driver.elector.stop(2.0)
    assert driver.poll(2.0) is None
    assert driver.elector.finished


# -- notices -------------------------------------------------------------------------------------------------------


def test_a_notice_of_a_job_that_is_not_ours_does_not_hide_the_next() -> None:
    driver = Driver()
    driver.elector.subscribed(0.0)
    driver.one(0.05)
    driver.receive(0.1, LATER)
    driver.elector.notice(1.0, ["another", "a"])
    assert isinstance(driver.one(1.0), Acquire)


def test_a_notice_right_after_a_leaders_call_was_sent_waits_for_the_gap() -> None:
    driver = Driver()
    driver.lead(5.0)
    driver.elector.notice(5.01, ["a"])
    assert driver.poll(5.01) is None
    assert driver.wake_at == pytest.approx(5.02)
    driver.one(5.03)
    driver.receive(5.04, Renewed())
    driver.elector.notice(5.04, ["a"])
    assert driver.poll(5.04) is None
    assert driver.wake_at == pytest.approx(5.05)


def test_once_notices_are_lost_each_refusal_waits_for_one_heartbeat() -> None:
    driver = Driver()
    driver.elector.subscribed(0.0)
    driver.elector.notices_lost(0.5)
    driver.one(1.0)
    driver.receive(1.1, LATER)
    driver.poll(1.1)
    assert driver.wake_at == pytest.approx(1.1 + BEAT)


def test_a_notice_in_the_very_instant_of_the_question_may_have_come_after_it() -> None:
    driver = Driver()
    driver.elector.subscribed(0.0)
    driver.one(1.0)
    driver.elector.notice(1.0, ["a"])
    driver.receive(1.1, LATER)
    assert isinstance(driver.one(1.1), Acquire)


def test_a_refusal_that_names_this_node_means_ask_again_at_once_also_where_the_question_rode_along() -> None:
    driver = Driver("a", "b")
    driver.elector.subscribed(0.0)
    driver.poll(0.5)
    driver.receive(0.6, LATER, Granted(token=8, state=STATE))
    driver.poll(3.4)
    driver.receive(3.5, Refused(holder="n-1", expires_in=9.0), Renewed())
    request = driver.one(3.5)
    assert isinstance(request, Acquire)
    assert request.job == "a"


@pytest.mark.parametrize(("draw", "delay"), [(0.0, 0.001), (0.5, 0.003), (0.75, 0.004)])
def test_l2_a_follower_asks_a_few_milliseconds_after_the_end_and_never_before(draw: float, delay: float) -> None:
    driver = Driver(draw=draw)
    driver.elector.subscribed(0.0)
    driver.one(0.5)
    driver.receive(1.0, Refused(holder="n-2", expires_in=0.7))
    driver.poll(1.0)
    assert driver.wake_at - 1.7 == pytest.approx(delay, abs=1e-5)


def test_a_job_that_was_resigned_does_not_ride_along_with_another_jobs_beat_before_its_back_off_is_over() -> None:
    driver = Driver("a", "b")
    driver.poll(0.0)
    driver.receive(0.0, Granted(token=7, state=STATE), Granted(token=8, state=STATE))
    driver.elector.resign("a", 7)
    driver.elector.drained(0.1, "a", 7)
    assert isinstance(driver.one(0.1), Release)
    driver.receive(0.1, Released(True))
    assert isinstance(driver.one(3.0), Renew)


# -- back-off and counts -------------------------------------------------------------------------------------------


def test_a_back_off_doubles_with_each_error() -> None:
    driver = Driver(read=False, max_backoff_delay="10m")
    now, waits = 0.0, []
    for _ in range(5):
        driver.poll(now)
        driver.fail(now)
        driver.poll(now)
        waits.append(driver.wake_at - now)
        now = driver.wake_at
    assert waits == [pytest.approx(3.0 * 2**n) for n in range(1, 6)]


def numbers(driver: Driver, event: str) -> list[float]:
    return [note.number for note in driver.of(LogEvent) if note.event == event]


@pytest.mark.parametrize("end", ["answer", "subscription"])
def test_errors_are_counted_anew_after_a_good_answer_or_a_confirmed_subscription(end: str) -> None:
    driver = Driver()
    driver.one(0.0)
    driver.fail(1.0)
    driver.reading(10.0)
    driver.one(10.0)
    driver.fail(11.0)
    if end == "answer":
        driver.reading(40.0)
        driver.one(40.0)
        driver.receive(40.0, Refused(holder="n-2", expires_in=1.0))
    else:
        driver.elector.subscribed(40.0)
    driver.poll(42.0)
    driver.fail(43.0)
    assert numbers(driver, "heartbeat-error") == [1, 2, 1]


def test_a_failure_says_what_went_wrong_and_how_often() -> None:
    driver = Driver()
    driver.one(0.0)
    driver.fail(1.0)
    assert driver.of(LogEvent) == [
        LogEvent("store-down", text="it broke"),
        LogEvent("heartbeat-error", text="it broke", number=1),
    ]


def test_each_outage_is_told_of_when_it_begins_and_when_it_ends() -> None:
    driver = Driver()
    for begun in (10.0, 40.0):
        driver.one(begun)
        driver.fail(begun + 1)
        driver.reading(begun + 20)
        driver.one(begun + 20)
        driver.receive(begun + 20, Refused(holder="n-2", expires_in=1.0))
    told = [(note.event, note.number) for note in driver.of(LogEvent) if note.event.startswith("store")]
    assert told == [("store-down", 0), ("store-up", 20.0)] * 2


def test_a_job_whose_key_is_broken_says_what_went_wrong_and_how_often_in_a_row() -> None:
    driver = Driver("a", max_backoff_delay="10m")
    now, waits = 0.0, []
    for verdict in (Failed("WRONGTYPE"), Failed("WRONGTYPE"), Refused(holder="n-2", expires_in=1.0), Failed("no")):
        driver.one(now)
        driver.receive(now, verdict)
        driver.poll(now)
        waits.append(driver.wake_at - now)
        now = driver.wake_at
    assert driver.of(LogEvent) == [
        LogEvent("job-error", "a", "WRONGTYPE", 1),
        LogEvent("job-error", "a", "WRONGTYPE", 2),
        LogEvent("job-error", "a", "no", 1),
    ]
    del waits[2]
    assert waits == [pytest.approx(6.0), pytest.approx(12.0), pytest.approx(6.0)]


def test_a_renewal_that_could_not_be_served_is_tried_again_after_a_tenth_of_a_heartbeat() -> None:
    driver = leading()
    driver.one(3.0)
    driver.receive(3.1, Failed("WRONGTYPE"))
    driver.poll(3.1)
    assert driver.wake_at == pytest.approx(3.4)


def test_after_an_error_the_first_good_answer_makes_a_job_ask_and_later_ones_do_not() -> None:
    driver = Driver("a", "b")
    driver.elector.subscribed(0.0)
    driver.poll(0.5)
    driver.receive(0.6, Failed("WRONGTYPE"), Refused(holder="n-2", expires_in=1.0))
    assert driver.one(1.7).job == "b"
    driver.receive(1.71, Refused(holder="n-2", expires_in=1.0))
    batch = driver.poll(1.72)
    assert batch is not None
    assert [request.job for request in batch.requests] == ["a", "b"]
    driver.receive(1.73, LATER, Refused(holder="n-2", expires_in=1.0))
    assert driver.one(2.8).job == "b"
    driver.receive(2.81, LATER)
    assert driver.poll(2.9) is None


def test_a_key_without_an_expiry_is_told_at_the_first_refusal_with_its_holder() -> None:
    driver = Driver()
    driver.one(0.0)
    driver.receive(0.1, Refused(holder="n-2", expires_in=None))
    assert driver.of(LogEvent) == [LogEvent("no-expiry", "a", "n-2")]


def test_a_call_that_was_void_does_not_show_that_the_store_serves_again() -> None:
    driver = Driver()
    driver.one(0.0)
    driver.fail(1.0)
    driver.reading(10.0)
    driver.one(10.0)
    driver.receive(11.0, void=True)
    assert "store-up" not in driver.notes()


def test_a_store_that_runs_calls_too_late_is_told_of() -> None:
    driver = Driver()
    driver.one(0.0)
    driver.receive(1.0, void=True)
    driver.one(1.02)
    driver.receive(2.0, void=True)
    text = "the store runs calls later than they are good for"
    assert driver.of(LogEvent)[-1] == LogEvent("heartbeat-error", text=text, number=1)


# -- what a batch carries ------------------------------------------------------------------------------------------


def test_a_batch_names_its_project_and_node() -> None:
    batch = Driver().poll(0.0)
    assert batch is not None
    assert (batch.project, batch.node) == ("p", "n-1")


def test_s4_the_time_after_which_a_call_is_void_counts_from_the_arrival_of_the_last_reply() -> None:
    driver = Driver(read=False)
    driver.elector.subscribed(0.0)
    driver.reading(4.0)
    batch = driver.poll(10.0)
    assert batch is not None
    assert batch.void_at == CLOCK + 4_000_000 + int(0.99 * (10.0 - 4.0 + 2.0) * 1e6)


def test_s3_a_call_is_bounded_by_the_deadline_of_a_lease_that_only_rides_along() -> None:
    driver = leading("a", "b", enabled=("a",))
    driver.one(7.9)
    driver.receive(7.9, Failed("WRONGTYPE"))
    driver.elector.set_enabled(8.0, "b", True)
    batch = driver.poll(8.0)
    assert batch is not None
    assert [type(request) for request in batch.requests] == [Renew, Acquire]
    assert batch.bound == 0.5


def test_a_call_right_before_a_deadline_may_still_take_ten_milliseconds() -> None:
    driver = leading()
    batch = driver.poll(8.99)
    assert batch is not None
    assert batch.bound == 0.01


# -- a young store -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("up_for", "wait"), [(0.0, [11.0]), (4.0, [7.0]), (10.5, [0.5]), (11.0, []), (11.5, []), (inf, [])]
)
def test_the_wait_for_a_young_store_is_told_with_its_length_and_an_old_one_is_not_told_of(
    up_for: float, wait: list[float]
) -> None:
    driver = Driver(read=False)
    driver.reading(0.0, up_for=up_for)
    assert numbers(driver, "store-restarted") == wait


def test_a_store_that_tells_its_up_time_no_more_is_not_guarded_by_what_it_told_before() -> None:
    driver = leading("a", "b", enabled=("a",))
    driver.one(3.0)
    driver.fail(3.1)
    driver.reading(3.5, up_for=0.2)
    driver.one(3.5)
    driver.fail(3.6)
    driver.reading(4.0, up_for=None)
    driver.elector.set_enabled(4.0, "b", True)
    batch = driver.poll(4.0)
    assert batch is not None
    assert [type(request) for request in batch.requests] == [Renew, Acquire]


def test_a_young_store_is_not_told_of_where_nobody_waits_for_it() -> None:
    off = Driver(read=False, amnesia_guard=False)
    off.reading(0.0, up_for=0.0)
    assert off.notes() == []
    leader = Driver()
    leader.lead()
    leader.one(3.0)
    leader.fail(3.1)
    leader.reading(3.5, up_for=0.0)
    assert "store-restarted" not in leader.notes()


# -- riding along --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("at", "also_a"), [(1.4, False), (1.5, True)])
def test_a_beat_that_is_due_within_half_a_heartbeat_rides_along_and_a_later_one_does_not(
    at: float, also_a: bool
) -> None:
    driver = leading("a", "b", enabled=("a",), draw=0.0)
    assert driver.poll(0.1) is None
    assert driver.wake_at == 3.0
    driver.elector.set_enabled(at, "b", True)
    batch = driver.poll(at)
    assert batch is not None
    assert [request.job for request in batch.requests] == (["a", "b"] if also_a else ["b"])


def test_what_is_due_a_little_less_than_half_a_heartbeat_later_rides_along() -> None:
    driver = leading("a", "b", enabled=("a",), draw=0.0)
    driver.elector.set_enabled(1.4, "b", True)
    driver.one(1.4)
    driver.receive(1.4, Granted(token=8, state=STATE))
    batch = driver.poll(3.0)
    assert batch is not None
    assert [request.job for request in batch.requests] == ["a", "b"]  # b's beat is due at 4.4


def test_progress_is_asked_of_the_job_that_it_is_written_for() -> None:
    driver = Driver("a", "b")
    asked: list[str] = []
    progress = driver.liveness.progress

    def liveness(job: str, now: float) -> object:
        asked.append(job)
        return progress(job, now)

    driver.liveness.progress = liveness  # type: ignore[method-assign,assignment]  # watched
    driver.poll(0.0)
    driver.receive(0.1, Granted(token=7, state=STATE), Granted(token=8, state=STATE))
    driver.poll(3.0)
    assert asked == ["a", "b"]
    driver.receive(3.1, Renewed(), Renewed())
    driver.elector.set_enabled(3.2, "b", False)
    driver.elector.drained(3.2, "b", 8)
    driver.one(3.2)
    assert asked == ["a", "b", "b"]


# -- claims --------------------------------------------------------------------------------------------------------


def test_a_claim_that_was_withdrawn_is_asked_no_more_and_its_answer_not_passed_on() -> None:
    driver = leading()
    driver.elector.claim(1.0, ClaimSlot(job="a", token=7, slot=60_000_000, mark="m"))
    driver.poll(1.0)
    driver.elector.withdraw("a")
    driver.receive(1.1, Renewed(), Claimed())
    assert driver.of(ClaimAnswered) == []
    assert isinstance(driver.one(4.0), Renew)


def test_the_answer_to_a_claim_that_was_withdrawn_is_not_taken_for_that_to_a_later_one() -> None:
    driver = leading()
    earlier, later = (ClaimSlot(job="a", token=7, slot=slot, mark="m") for slot in (60_000_000, 120_000_000))
    driver.elector.claim(1.0, earlier)
    batch = driver.poll(1.0)
    assert batch is not None
    assert earlier in batch.requests
    driver.elector.withdraw("a")
    driver.elector.claim(1.05, later)
    driver.receive(1.1, *[Claimed() if request == earlier else Renewed() for request in batch.requests])
    assert driver.of(ClaimAnswered) == []
    batch = driver.poll(1.1)
    assert batch is not None
    assert later in batch.requests


def test_the_answer_to_a_claim_is_not_passed_on_when_the_term_ended_before_it() -> None:
    driver = leading()
    driver.elector.claim(1.0, ClaimSlot(job="a", token=7, slot=60_000_000, mark="m"))
    driver.poll(1.0)
    driver.receive(1.1, Refused(holder="n-2", expires_in=9.0), NotClaimed(why="lost", wall=1))
    assert driver.of(Ended) == [Ended("a", 7, "lost")]
    assert driver.of(ClaimAnswered) == []


def test_a_claim_that_was_refused_is_followed_by_a_renewal_at_once_and_one_that_was_granted_is_not() -> None:
    driver = leading()
    for now, verdict in ((0.5, Claimed()), (1.0, NotClaimed(why="lost", wall=1))):
        claim = ClaimSlot(job="a", token=7, slot=60_000_000, mark="m")
        driver.elector.claim(now, claim)
        batch = driver.poll(now)
        assert batch is not None
        assert batch.requests[1:] == (claim,)
        driver.receive(now + 0.1, Renewed(), verdict)
        batch = driver.poll(now + 0.1)
        assert (batch is not None) == (verdict != Claimed())
    assert batch is not None
    assert [type(request) for request in batch.requests] == [Renew]


def test_a_claim_that_is_made_while_a_renewal_is_on_its_way_goes_out_right_after_the_answer() -> None:
    driver = leading()
    driver.one(3.0)
    claim = ClaimSlot(job="a", token=7, slot=60_000_000, mark="m")
    driver.elector.claim(3.05, claim)
    driver.receive(3.1, Renewed())
    batch = driver.poll(3.1)
    assert batch is not None
    assert claim in batch.requests
    driver.receive(3.2, Renewed(), Failed("WRONGTYPE"))
    assert driver.poll(3.2) is None  # sent before, so it is not due at once
    assert driver.wake_at == pytest.approx(3.5)


def test_a_notice_that_comes_while_a_renewal_is_on_its_way_is_followed_right_after_the_answer() -> None:
    driver = leading()
    driver.one(3.0)
    driver.elector.notice(3.05, ["a"])
    driver.receive(3.1, Renewed())
    assert isinstance(driver.one(3.1), Renew)
    driver.receive(3.2, Renewed())
    assert driver.poll(3.2) is None
