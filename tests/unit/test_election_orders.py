"""What an operator orders, as the elector takes it: it drains, stays away, and hands a trigger on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest

from elector_driver import STATE, Driver, leading
from singletonjob._core.elector import ClaimAnswered, Draining, Ended, Triggered
from singletonjob.stores.protocol import (
    Acquire,
    Barred,
    Claimed,
    ClaimSlot,
    Granted,
    NotClaimed,
    Refused,
    Release,
    Released,
    Renew,
    Renewed,
    TakeTrigger,
)

if TYPE_CHECKING:
    from singletonjob.stores.protocol import Verdict

Word = Literal["paused", "resigned"]
WORDS: tuple[Word, ...] = ("paused", "resigned")


@pytest.mark.parametrize("word", WORDS)
def test_a_leader_that_is_told_to_end_drains_renews_until_its_body_has_ended_and_then_releases(word: Word) -> None:
    driver = leading()
    assert isinstance(driver.one(3.0), Renew)
    driver.receive(3.0, Renewed(order=word))
    assert driver.of(Draining) == [Draining("a", 7, word)]
    assert driver.notes() == [word]
    assert isinstance(driver.one(6.0), Renew)  # a body may still run
    driver.receive(6.0, Renewed(order=word))
    assert driver.of(Ended) == []
    assert driver.notes() == [word]  # said once
    driver.elector.drained(7.0, "a", 7)
    release = driver.one(7.0)
    assert isinstance(release, Release)
    assert release.off == (word == "paused")  # slots of a pause are not owed; those of a hand-over are


@pytest.mark.parametrize("word", WORDS)
def test_a_body_that_does_not_end_in_its_grace_and_margin_is_left_with_its_lease(word: Word) -> None:
    driver = leading()
    assert isinstance(driver.one(3.0), Renew)
    driver.receive(3.0, Renewed(order=word))
    for beat in range(2, 8):
        assert isinstance(driver.one(3.0 * beat), Renew)
        driver.receive(3.0 * beat, Renewed(order=word))
    assert driver.poll(24.0) is None  # 3 + 20 of grace + 1 of margin
    assert driver.of(Ended) == [Ended("a", 7, word)]
    assert driver.elector.abandoned == ["a"]


def test_a_pause_is_known_from_what_the_store_says_and_so_is_its_end() -> None:
    driver = Driver()
    assert isinstance(driver.one(0.0), Acquire)
    driver.receive(0.0, Barred("paused", None, mine=False))
    assert driver.elector.standings["a"].paused
    assert isinstance(driver.one(10.0), Acquire)
    driver.receive(10.0, Refused("n-2", 10.0))
    assert not driver.elector.standings["a"].paused


def test_a_follower_says_once_that_it_found_the_job_paused_and_again_of_the_next_pause() -> None:
    driver = Driver()
    paused, led, resigned = (
        Barred("paused", None, mine=False),
        Refused("n-2", 1.0),
        Barred("resigned", 1.0, mine=False),
    )
    answers: tuple[Verdict, ...] = (paused, paused, led, resigned, paused)
    said: list[int] = []
    for number, answer in enumerate(answers):
        assert isinstance(driver.one(20.0 * number), Acquire)
        driver.receive(20.0 * number, answer)
        said.append(driver.notes().count("paused"))
    assert said == [1, 1, 1, 1, 2]


def test_a_leader_that_was_paused_does_not_say_so_again_as_a_follower() -> None:
    driver = leading()
    assert isinstance(driver.one(3.0), Renew)
    driver.receive(3.0, Renewed(order="paused"))
    driver.elector.drained(4.0, "a", 7)
    assert isinstance(driver.one(4.0), Release)
    driver.receive(4.0, Released(mine=True))
    assert isinstance(driver.one(5.0), Acquire)
    driver.receive(5.0, Barred("paused", None, mine=False))
    assert driver.notes().count("paused") == 1


def test_one_that_is_barred_asks_again_when_its_time_is_over_or_at_a_notice() -> None:
    driver = Driver()
    driver.elector.subscribed(0.0)
    assert isinstance(driver.one(1.0), Acquire)
    driver.receive(1.0, Barred("resigned", 4.0, mine=False))
    assert driver.poll(5.0) is None
    assert 5.0 < driver.wake_at <= 5.005
    assert isinstance(driver.one(5.005), Acquire)
    driver.receive(5.005, Barred("paused", None, mine=False))
    driver.elector.notice(6.0, ["a"])
    assert isinstance(driver.one(6.0), Acquire)


@pytest.mark.parametrize(("notices", "wait"), [(True, 10.0), (False, 3.0)])
def test_a_pause_without_an_end_is_looked_at_once_per_lease_or_once_per_beat_without_notices(
    notices: bool, wait: float
) -> None:
    driver = Driver(draw=0.0)
    if notices:
        driver.elector.subscribed(0.0)
    assert isinstance(driver.one(1.0), Acquire)
    driver.receive(1.0, Barred("paused", None, mine=False))
    driver.poll(1.0)
    assert driver.wake_at == 1.0 + wait


def test_a_notice_that_came_while_the_question_was_on_its_way_makes_one_that_is_barred_ask_again_at_once() -> None:
    driver = Driver()
    driver.elector.subscribed(0.0)
    assert isinstance(driver.one(0.0), Acquire)
    driver.elector.notice(0.001, ["a"])
    driver.receive(0.002, Barred("paused", None, mine=False))
    driver.poll(0.002)
    assert driver.wake_at <= 0.02  # the shortest gap between two asks


def test_a_key_that_names_us_from_before_is_given_back_when_we_are_barred() -> None:
    driver = Driver()
    assert isinstance(driver.one(0.0), Acquire)
    driver.receive(0.0, Barred("paused", None, mine=True))
    release = driver.one(0.0)
    assert release == Release(job="a", number=1, progress=release.progress, off=True)
    driver.receive(0.0, Released(mine=True))
    assert isinstance(driver.one(0.02), Acquire)


def test_a_release_that_is_due_does_not_wait_for_the_end_of_a_bar_or_of_another_lease() -> None:
    for verdict in (Barred("paused", None, mine=False), Refused("n-2", 9.0)):
        driver = Driver()
        assert isinstance(driver.one(0.0), Acquire)
        driver.elector.stop(0.001)
        driver.receive(0.002, verdict)
        assert isinstance(driver.one(0.002), Release), verdict
        driver.receive(0.003, Released(mine=False))
        assert driver.elector.finished


def test_a_late_word_of_a_term_that_is_over_orders_nothing() -> None:
    driver = leading()
    assert isinstance(driver.one(3.0), Renew)
    driver.poll(9.0)  # the deadline
    driver.receive(9.1, Renewed(order="paused", trigger="id"))
    assert driver.of(Draining) == driver.of(Triggered) == []


def test_a_trigger_is_told_with_each_renewal_until_it_is_taken_and_asked_for_until_the_store_answers() -> None:
    driver = leading()
    for now in (3.0, 6.0):
        assert isinstance(driver.one(now), Renew)
        driver.receive(now, Renewed(trigger="id"))
    assert driver.of(Triggered) == [Triggered("a", 7, "id")] * 2
    take = TakeTrigger("a", 7, "id")
    driver.elector.claim(6.1, take)
    batch = driver.poll(6.1)
    assert batch is not None
    assert take in batch.requests
    driver.fail(6.2)
    driver.reading(6.5)
    batch = driver.poll(6.6)
    assert batch is not None
    assert take in batch.requests
    driver.receive(6.7, *[Claimed() if request == take else Renewed() for request in batch.requests])
    assert driver.of(ClaimAnswered) == [ClaimAnswered("a", take, Claimed())]


def test_the_end_of_an_extra_run_is_reported_at_once_also_if_a_renewal_is_on_its_way() -> None:
    driver = leading()
    driver.elector.report(1.0, "a")
    assert isinstance(driver.one(1.0), Renew)
    driver.elector.report(1.1, "a")  # what ended after the renewal was made is not in it
    driver.receive(1.2, Renewed())
    assert isinstance(driver.one(1.2), Renew)
    driver.receive(1.3, Renewed())
    assert driver.poll(1.4) is None


def test_a_report_of_a_term_that_is_over_asks_for_nothing() -> None:
    driver = leading()
    driver.poll(9.0)  # the deadline
    driver.elector.report(9.1, "a")
    assert driver.poll(9.2) is None


def test_a_trigger_for_a_job_that_drains_is_not_told() -> None:
    driver = leading()
    driver.elector.set_enabled(1.0, "a", False)
    assert isinstance(driver.one(3.0), Renew)
    driver.receive(3.0, Renewed(trigger="id"))
    assert driver.of(Triggered) == []


def test_that_a_run_is_in_flight_is_not_said_over_a_claim_that_waits_for_its_answer() -> None:
    driver = leading()
    claim = ClaimSlot("a", 7, 1, "m")
    driver.elector.claim(1.0, claim)
    driver.elector.claim(1.0, TakeTrigger("a", 7, "id", busy=True))
    batch = driver.poll(1.0)
    assert batch is not None
    assert claim in batch.requests
    assert not any(isinstance(request, TakeTrigger) for request in batch.requests)
    driver.receive(1.1, *[NotClaimed("taken", 1) if request == claim else Renewed() for request in batch.requests])
    assert driver.of(ClaimAnswered) == [ClaimAnswered("a", claim, NotClaimed("taken", 1))]


def test_one_that_stepped_down_at_an_operators_word_competes_again_after_a_heartbeat() -> None:
    driver = leading()
    driver.elector.subscribed(0.0)
    assert isinstance(driver.one(3.0), Renew)
    driver.receive(3.0, Renewed(order="resigned"))
    driver.elector.drained(3.0, "a", 7)
    assert isinstance(driver.one(3.0), Release)
    driver.receive(3.0, Released(mine=True))
    driver.elector.notice(3.1, ["a"])  # its own release, which it hears too
    assert driver.poll(3.2) is None
    assert isinstance(driver.one(driver.wake_at), Acquire)
    assert driver.wake_at >= 3.0 + 3.0 * 0.8
    driver.receive(7.0, Granted(9, STATE))
