"""The rules of one job's record, without a store around them."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from singletonjob.stores.orders import Pause, StepDown
from singletonjob.stores.protocol import (
    Acquire,
    Claimed,
    ClaimSlot,
    Granted,
    NotClaimed,
    Progress,
    Refused,
    Release,
    Released,
    Renew,
    Renewed,
    Request,
    Verdict,
)
from singletonjob.stores.rules import AHEAD, Record, apply, changes

T = TypeVar("T", bound=Verdict)

SECOND = 1_000_000
WALL = 1_800_000_000 * SECOND
NOTHING = Progress()


class Desk:
    """One record, and clocks that only move when told to."""

    def __init__(self) -> None:
        self.record = Record()
        self.clock = 50 * SECOND
        self.wall = WALL

    def ask(self, node: str, request: Request) -> Verdict:
        return apply(self.record, request, node=node, clock=self.clock, wall=self.wall)

    def later(self, seconds: float) -> None:
        self.clock += round(seconds * SECOND)
        self.wall += round(seconds * SECOND)

    def acquire(self, node: str, number: int = 1, lock_expiry: float = 10, above: int = 0) -> Verdict:
        return self.ask(node, Acquire(job="j", number=number, lock_expiry=lock_expiry, above=above))

    def granted(self, node: str, number: int = 1, lock_expiry: float = 10, above: int = 0) -> Granted:
        return expect(Granted, self.acquire(node, number, lock_expiry, above))

    def renew(self, node: str, token: int, progress: Progress = NOTHING, lock_expiry: float = 10) -> Verdict:
        return self.ask(node, Renew(job="j", token=token, lock_expiry=lock_expiry, progress=progress))

    def release(self, node: str, number: int = 1, progress: Progress = NOTHING, off: bool = False) -> Verdict:
        return self.ask(node, Release(job="j", number=number, progress=progress, off=off))

    def claim(self, node: str, token: int, slot: int, mark: str = "m") -> Verdict:
        return self.ask(node, ClaimSlot(job="j", token=token, slot=slot, mark=mark))


def expect(kind: type[T], verdict: Verdict) -> T:
    assert isinstance(verdict, kind), verdict
    return verdict


@pytest.fixture
def desk() -> Desk:
    return Desk()


# -- acquire -------------------------------------------------------------------------------------------------------


def test_a_free_lease_goes_to_who_asks(desk: Desk) -> None:
    token = desk.granted("a").token
    assert (desk.record.holder, desk.record.token, desk.record.expires) == ("a", token, desk.clock + 10 * SECOND)
    assert desk.record.since == WALL


def test_a_held_lease_is_refused_with_its_holder_and_the_time_it_has_left(desk: Desk) -> None:
    token = desk.granted("a").token
    desk.later(3)
    before = replace(desk.record)
    assert desk.acquire("b") == Refused(holder="a", expires_in=7.0, token=token)
    assert desk.record == before


def test_c36_the_expiry_that_the_holder_set_counts_not_that_of_who_asks(desk: Desk) -> None:
    desk.granted("a", lock_expiry=30)
    desk.later(29.9)
    assert isinstance(desk.acquire("b", lock_expiry=1), Refused)
    desk.later(0.1)
    assert isinstance(desk.acquire("b", lock_expiry=1), Granted)


def test_a_lease_is_free_at_the_instant_it_expires(desk: Desk) -> None:
    desk.granted("a")
    desk.later(10)
    assert isinstance(desk.acquire("b"), Granted)


def test_my_own_lease_under_a_higher_number_is_a_new_term(desk: Desk) -> None:
    first = desk.granted("a", number=1)
    desk.later(2)
    second = desk.granted("a", number=2)
    assert second.token > first.token
    assert desk.record.expires == desk.clock + 10 * SECOND
    assert desk.renew("a", first.token) == Refused(holder="a", expires_in=10.0, token=second.token)


@pytest.mark.parametrize("number", [3, 2])
def test_my_own_lease_under_the_same_or_a_lower_number_changes_nothing(desk: Desk, number: int) -> None:
    token = desk.granted("a", number=3).token
    desk.later(2)
    before = replace(desk.record)
    assert desk.acquire("a", number=number) == Refused(holder="a", expires_in=8.0, token=token)
    assert desk.record == before


@pytest.mark.parametrize(("mine", "asking"), [("n-1", "n-10"), ("n-10", "n-1"), ("n", "n "), ("n ", "n"), ("N", "n")])
def test_c23_only_the_whole_name_is_the_holder(desk: Desk, mine: str, asking: str) -> None:
    token = desk.granted(mine).token
    assert isinstance(desk.acquire(asking, number=9), Refused)
    assert isinstance(desk.renew(asking, token), Refused)
    assert desk.claim(asking, token, WALL) == NotClaimed(why="lost", wall=WALL)
    assert desk.release(asking, number=9) == Released(mine=False)
    assert desk.record.holder == mine


# -- tokens --------------------------------------------------------------------------------------------------------


def test_a_first_token_is_the_wall_clock_so_that_it_exceeds_those_of_lost_data(desk: Desk) -> None:
    assert desk.granted("a").token == WALL


def test_a_token_exceeds_the_last_one_even_if_the_wall_clock_went_back(desk: Desk) -> None:
    first = desk.granted("a").token
    desk.release("a")
    desk.wall -= 3600 * SECOND
    assert desk.granted("b").token == first + 1


def test_a_token_exceeds_the_highest_that_the_replica_has_seen(desk: Desk) -> None:
    assert desk.granted("a", above=WALL + 5).token == WALL + 6


# -- renew ---------------------------------------------------------------------------------------------------------


def test_a_renewal_extends_from_the_moment_it_arrives(desk: Desk) -> None:
    token = desk.granted("a").token
    desk.later(9)
    assert desk.renew("a", token) == Renewed()
    assert desk.record.expires == desk.clock + 10 * SECOND


def test_a_renewal_that_comes_after_the_expiry_does_not_revive(desk: Desk) -> None:
    token = desk.granted("a").token
    desk.later(10)
    assert desk.renew("a", token) == Refused(holder=None, expires_in=None)
    assert isinstance(desk.acquire("b"), Granted)


def test_a_renewal_never_acquires(desk: Desk) -> None:
    assert desk.renew("a", 1) == Refused(holder=None, expires_in=None)
    token = desk.granted("a").token
    desk.release("a")
    assert desk.renew("a", token) == Refused(holder=None, expires_in=None)


def test_a_renewal_of_an_earlier_term_is_refused(desk: Desk) -> None:
    token = desk.granted("a").token
    desk.later(10)
    later = desk.granted("b").token
    assert desk.renew("a", token) == Refused(holder="b", expires_in=10.0, token=later)


# -- release -------------------------------------------------------------------------------------------------------


def test_c38_a_release_is_idempotent_and_never_ends_a_later_term(desk: Desk) -> None:
    desk.granted("a")
    assert desk.release("a") == Released(mine=True)
    assert desk.release("a") == Released(mine=False)
    desk.granted("b")
    assert desk.release("a", number=99) == Released(mine=False)
    assert desk.record.holder == "b"


def test_a_release_covers_acquisitions_up_to_its_number_only(desk: Desk) -> None:
    desk.granted("a", number=4)
    assert desk.release("a", number=3) == Released(mine=False)
    assert desk.record.holder == "a"
    assert desk.release("a", number=5) == Released(mine=True)


def test_a_release_after_the_expiry_gives_nothing_back_and_tells_nothing(desk: Desk) -> None:
    desk.granted("a")
    desk.later(10)
    assert desk.release("a", progress=Progress(tick=WALL), off=True) == Released(mine=False)
    assert (desk.record.slot, desk.record.off) == (None, WALL)


# -- progress ------------------------------------------------------------------------------------------------------


def test_progress_rides_along_and_only_grows(desk: Desk) -> None:
    token = desk.granted("a").token
    desk.renew("a", token, Progress(tick=WALL + 5, done=WALL + 3, ended_ago=1.0))
    desk.renew("a", token, Progress(tick=WALL + 4, done=WALL + 2, ended_ago=9.0))
    desk.later(2)
    desk.release("a", progress=NOTHING)
    state = desk.granted("b").state
    assert (state.slot, state.slot_token, state.done, state.ended_ago) == (WALL + 5, token, WALL + 3, 3.0)
    assert state.wall == desk.wall


def test_a_release_carries_the_last_tick(desk: Desk) -> None:
    desk.granted("a")
    desk.release("a", progress=Progress(tick=WALL + 7))
    assert desk.granted("b").state.slot == WALL + 7


def test_the_time_since_the_last_run_is_never_negative(desk: Desk) -> None:
    desk.granted("a")
    desk.release("a", progress=Progress(ended_ago=0.0))
    desk.wall -= 60 * SECOND
    assert desk.granted("b").state.ended_ago == 0.0


def test_a_refused_renewal_reports_no_progress(desk: Desk) -> None:
    token = desk.granted("a").token
    desk.renew("b", token, Progress(tick=WALL))
    desk.renew("a", token - 1, Progress(tick=WALL))
    assert desk.record.slot is None


# -- what is owed --------------------------------------------------------------------------------------------------


def test_a_job_never_seen_before_owes_nothing(desk: Desk) -> None:
    assert desk.granted("a").state.off == WALL


def test_the_first_sight_is_remembered_across_terms(desk: Desk) -> None:
    desk.granted("a")
    desk.later(100)
    assert desk.granted("b").state.off == WALL


def test_a_job_whose_slots_are_known_does_not_count_as_new(desk: Desk) -> None:
    desk.record.slot = WALL - 5
    assert desk.granted("a").state.off is None


def test_what_one_leader_settled_the_next_does_not_owe(desk: Desk) -> None:
    token = desk.granted("a").token
    desk.later(5)
    desk.renew("a", token, Progress(settled=WALL + 4 * SECOND))
    desk.renew("a", token, Progress(settled=WALL + 2 * SECOND))
    desk.release("a", progress=Progress(settled=WALL + 5 * SECOND))
    assert desk.granted("b").state.off == WALL + 5 * SECOND


def test_nothing_is_settled_by_a_wrong_clock_or_in_a_pause(desk: Desk) -> None:
    token = desk.granted("a").token
    desk.renew("a", token, Progress(settled=WALL + AHEAD + 1))
    assert desk.record.off == WALL
    desk.ask("an operator", Pause(job="j", by="ann"))
    desk.renew("a", token, Progress(settled=WALL + 1))
    assert desk.record.off == -WALL


def test_slots_while_switched_off_are_not_owed(desk: Desk) -> None:
    desk.granted("a")
    desk.later(1)
    desk.release("a", off=True)
    assert desk.record.off == -(WALL + SECOND)
    desk.later(500)
    assert desk.granted("b").state.off == desk.wall


def test_a_plain_release_leaves_what_is_owed_alone(desk: Desk) -> None:
    desk.granted("a")
    desk.later(1)
    desk.release("a")
    assert desk.granted("b").state.off == WALL


# -- slots ---------------------------------------------------------------------------------------------------------


def test_a_slot_is_claimed_once_and_again_only_by_the_same_term(desk: Desk) -> None:
    first = desk.granted("a").token
    assert desk.claim("a", first, WALL) == Claimed()
    assert desk.claim("a", first, WALL) == Claimed()
    desk.release("a")
    second = desk.granted("b").token
    assert desk.claim("b", second, WALL) == NotClaimed(why="taken", wall=WALL)
    assert desk.claim("b", second, WALL + 1) == Claimed()
    assert (desk.record.slot, desk.record.slot_token, desk.record.mark) == (WALL + 1, second, "m")


def test_a_slot_before_the_newest_one_is_taken(desk: Desk) -> None:
    token = desk.granted("a").token
    desk.claim("a", token, WALL)
    assert desk.claim("a", token, WALL - 1) == NotClaimed(why="taken", wall=WALL)


def test_a_claim_needs_the_term_in_force(desk: Desk) -> None:
    token = desk.granted("a").token
    assert desk.claim("a", token - 1, WALL) == NotClaimed(why="lost", wall=WALL)
    desk.later(10)
    assert desk.claim("a", token, WALL) == NotClaimed(why="lost", wall=desk.wall)
    assert desk.record.slot is None


def test_a_slot_more_than_ten_minutes_ahead_is_refused(desk: Desk) -> None:
    token = desk.granted("a").token
    assert desk.claim("a", token, WALL + AHEAD + 1) == NotClaimed(why="ahead", wall=WALL)
    assert desk.claim("a", token, WALL + AHEAD) == Claimed()


def test_a_stored_slot_from_a_wrong_clock_bars_nothing_and_is_shown_to_the_next_leader(desk: Desk) -> None:
    desk.record.slot = WALL + 2 * AHEAD
    granted = desk.granted("a")
    assert granted.state.slot == WALL + 2 * AHEAD
    assert desk.claim("a", granted.token, WALL) == Claimed()
    assert desk.record.slot == WALL


# -- in general ----------------------------------------------------------------------------------------------------

NODES = st.sampled_from(["a", "b", "ab"])
NUMBERS = st.integers(1, 6)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.sampled_from([0.0, 0.5, 3.0, 10.0, 700.0]), st.integers(-5, 5)),
        st.tuples(st.just("acquire"), NODES, NUMBERS),
        st.tuples(st.just("renew"), NODES, st.integers(0, 3)),
        st.tuples(st.just("release"), NODES, NUMBERS),
        st.tuples(st.just("claim"), NODES, st.integers(-4, 4)),
    ),
    max_size=60,
)


@given(STEPS)
def test_whatever_is_asked_there_is_one_term_tokens_grow_and_slots_are_claimed_once(
    steps: list[tuple[str, str, int]] | list[tuple[str, float, int]],
) -> None:
    desk = Desk()
    tokens: list[int] = []
    holder: str | None = None
    until = 0
    claimed: dict[int, int] = {}
    for kind, who, number in steps:
        if isinstance(who, float):
            desk.clock += round(who * SECOND)
            desk.wall = WALL - 50 * SECOND + desk.clock + number * 60 * SECOND  # a store's clock that errs by minutes
            continue
        held = holder if until > desk.clock else None
        before = replace(desk.record)
        if kind == "acquire":
            verdict = desk.acquire(who, number)
            if isinstance(verdict, Granted):
                assert held in (None, who)
                assert not tokens or verdict.token > tokens[-1]
                tokens.append(verdict.token)
                holder, until = who, desk.clock + 10 * SECOND
        elif kind == "renew":
            token = tokens[-1 - number] if number < len(tokens) else 1
            verdict = desk.renew(who, token)
            assert isinstance(verdict, Renewed) == (held == who and token == tokens[-1])
            if isinstance(verdict, Renewed):
                until = desk.clock + 10 * SECOND
        elif kind == "release":
            verdict = desk.release(who, number)
            assert isinstance(verdict, Released)
            assert not verdict.mine or held == who
            holder = None if verdict.mine else holder
        else:
            slot = WALL + number * SECOND
            verdict = desk.claim(who, tokens[-1] if tokens else 1, slot)
            if isinstance(verdict, Claimed):
                assert held == who
                assert claimed.setdefault(slot, tokens[-1]) == tokens[-1]
        if not changes(verdict):
            lapsed = before.expires is not None and before.expires <= desk.clock
            assert desk.record == (replace(before, holder=None, expires=None) if lapsed else before)


def test_an_end_of_a_run_that_is_later_than_the_stores_clock_counts_as_now_and_is_replaced() -> None:
    desk = Desk()
    token = desk.granted("a").token
    desk.renew("a", token, Progress(ended_ago=5.0))
    desk.later(20)
    desk.wall -= 3600 * SECOND  # the clock was an hour ahead, and is set right
    state = desk.granted("b").state
    assert state.ended_ago == 0
    assert desk.record.ended == desk.wall
    desk.later(9)
    assert desk.granted("b", number=2).state.ended_ago == 9


def test_an_end_of_a_run_that_is_later_than_the_stores_clock_gives_way_to_any_report() -> None:
    desk = Desk()
    token = desk.granted("a").token
    desk.renew("a", token, Progress(ended_ago=0.0))
    desk.wall -= 3600 * SECOND
    desk.renew("a", token, Progress(ended_ago=2.0))
    assert desk.record.ended == desk.wall - 2 * SECOND


def test_an_order_to_step_down_that_outlasts_any_lease_came_from_a_wrong_clock_and_bars_nobody() -> None:
    desk = Desk()
    desk.granted("a")
    desk.ask("operator", StepDown(job="j"))
    desk.later(10)
    assert isinstance(desk.acquire("a", number=2), Granted)  # by then it is over
    desk.ask("operator", StepDown(job="j"))
    desk.later(10.001)
    desk.wall -= 3600 * SECOND
    assert isinstance(desk.acquire("a", number=3), Granted)
