"""What the rules of a round say to stamps made by hand: two workers, a and b, that run one job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chaos.observed import DELETED, FLUSHED, FORGETS, STALE, Recorder
from chaos.plan import draw_plan
from chaos.rules import excused_overlaps, overlaps, repeated_slots, violation
from chaos.worker import BEAT
from singletonjob._core.values import Now

if TYPE_CHECKING:
    from pathlib import Path

    from chaos.observed import Observed
    from simulation.sim_case import Found

PLAN = draw_plan("rules", "redis")
EPOCH = 1_800_000_000_000_000
FIRST, SECOND = 0.5, 3.0
"""When the two leases were granted: their tokens say so."""
THIRD = 6.0
"""When a lease was granted that the server had lost."""
HEARD = PLAN.heartbeat_interval + PLAN.call_timeout
"""An old leader hears so long after the next grant that its lease was lost."""


def at(boot: float) -> Now:
    return Now(EPOCH + round(boot * 1e6), boot)


class Round:
    """Two workers, whose loops turn for ten seconds but where they are told not to."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lines: dict[str, list[str]] = {"a": [], "b": []}
        self._still: list[tuple[str, float, float]] = []
        self.recorder = Recorder(PLAN, directory, begun=0.0, epoch=EPOCH)
        for worker in self._lines:
            self.recorder.joined(worker, 0)

    def run(self, worker: str, job: str, begin: float, end: float, *, granted: float, due: float | None = None) -> None:
        instant = EPOCH + round(1e6 * (begin if due is None else due))
        tick = "" if job != "tick" else instant // 100_000
        number, token = len(self._lines[worker]), EPOCH + round(granted * 1e6)
        started = EPOCH + round(begin * 1e6)
        self.stamp(worker, begin, "start", job, f"{number}:{token}:{instant}:{tick}:quick:{started}")
        self.stamp(worker, end, "end", job, str(number))

    def stamp(self, worker: str, at: float, kind: str, job: str, detail: str) -> None:
        self._lines[worker].append(f"{at:.6f} {kind} {job} {detail}")

    def loses(self, kind: str, job: str = "") -> None:
        """The running server loses its leases, just before `THIRD`."""
        self.recorder.store_forgot(kind, job, at(THIRD - 0.02), at(THIRD - 0.01), slots=kind == FLUSHED)

    def stands_still(self, worker: str, begin: float, end: float) -> None:
        self._still.append((worker, begin, end))

    def finish(self) -> tuple[Found | None, Observed]:
        for worker, lines in self._lines.items():
            beats = [number * BEAT for number in range(int(10 / BEAT))]
            still = [(begin, end) for name, begin, end in self._still if name == worker]
            lines += [f"{at:.6f} beat loop -" for at in beats if not any(begin < at < end for begin, end in still)]
            lines.sort(key=lambda line: float(line.split()[0]))
            (self._directory / f"{worker}.stamps").write_text("\n".join(lines) + "\n")
            self.recorder.left(worker, None)
        history = self.recorder.finish(9.0, 10.0)
        return violation(PLAN, history), history


@pytest.fixture
def made(tmp_path: Path) -> Round:
    return Round(tmp_path)


def test_runs_of_two_processes_one_after_the_other_are_fine(made: Round) -> None:
    made.run("a", "tick", 1.0, 1.1, granted=FIRST)
    made.run("b", "tick", 3.2, 3.3, granted=SECOND)
    found, history = made.finish()
    assert found is None
    assert not excused_overlaps(PLAN, history)


def test_two_bodies_at_once_are_a_violation_where_nothing_stood_still(made: Round) -> None:
    made.run("a", "tick", 1.0, 4.0, granted=FIRST)
    made.run("b", "tick", 3.2, 3.3, granted=SECOND)
    found, _ = made.finish()
    assert found is not None
    assert found.rule == "S1"


def test_the_run_that_a_process_was_frozen_in_may_overlap(made: Round) -> None:
    made.run("a", "tick", 1.0, 4.02, granted=FIRST)
    made.stands_still("a", 1.5, 4.0)
    made.run("b", "tick", 3.2, 3.3, granted=SECOND)
    found, history = made.finish()
    assert found is None
    assert excused_overlaps(PLAN, history) == {"stalled": 1}


def test_a_run_that_goes_on_long_after_its_process_woke_is_a_violation(made: Round) -> None:
    made.run("a", "tick", 1.0, 4.0 + 2 * PLAN.margin, granted=FIRST)
    made.stands_still("a", 1.5, 4.0)
    made.run("b", "tick", 3.2, 3.3, granted=SECOND)
    found, _ = made.finish()
    assert found is not None
    assert found.rule == "S1"


def test_a_run_that_begins_in_an_old_term_after_waking_is_a_violation(made: Round) -> None:
    made.stands_still("a", 1.5, 4.0)
    made.run("b", "tick", 3.2, 3.3, granted=SECOND)
    made.run("a", "tick", 4.01, 4.02, granted=FIRST)
    found, _ = made.finish()
    assert found is not None
    assert found.rule == "S5"


def test_a_run_frozen_between_its_check_and_its_first_line_began_before(made: Round) -> None:
    made.stands_still("a", 1.5, 4.0)
    made.run("b", "tick", 3.2, 3.3, granted=SECOND)
    token, started, due = (EPOCH + round(at * 1e6) for at in (FIRST, 1.49, 1.4))
    made.stamp("a", 4.001, "start", "tick", f"1:{token}:{due}:{due // 100_000}:quick:{started}")
    made.stamp("a", 4.02, "end", "tick", "1")
    found, _ = made.finish()
    assert found is None


@pytest.mark.parametrize("ended", ["by nothing", "cut off", "lost by the store"])
def test_a_sync_body_whose_term_is_over_may_go_on_only_if_something_can_have_ended_it(made: Round, ended: str) -> None:
    made.run("a", "sweep", 1.0, 4.0, granted=FIRST)
    made.stamp("a", 2.5, "over", "sweep", "0")
    made.run("b", "sweep", 3.2, 3.3, granted=SECOND)
    if ended == "cut off":
        made.recorder.fault("held", "a", 1.6, 3.0)
    elif ended == "lost by the store":
        made.recorder.store_forgot(DELETED, "sweep", at(2.0), at(2.1), slots=False)
    found, history = made.finish()
    assert (found is None) == (ended != "by nothing")
    assert len(history.unexplained) == (1 if ended == "by nothing" else 0)


def test_a_sync_body_must_know_that_its_term_is_over_before_another_one_runs(made: Round) -> None:
    made.run("a", "sweep", 1.0, 4.0, granted=FIRST)
    made.recorder.fault("held", "a", 1.6, 3.0)
    made.run("b", "sweep", 3.2, 3.3, granted=SECOND)
    made.stamp("a", 3.5, "over", "sweep", "0")
    found, _ = made.finish()
    assert found is not None
    assert found.rule == "S1"


@pytest.mark.parametrize(("job", "rule"), [("close", "S6"), ("tick", "ticks")])
def test_a_slot_and_a_tick_run_once_also_when_the_store_forgot(made: Round, job: str, rule: str) -> None:
    made.run("a", job, 1.0, 1.1, granted=FIRST, due=1.0)
    made.recorder.server_started(at(1.5), forgot=True)
    made.run("b", job, 4.2, 4.3, granted=4.1, due=1.0)
    found, _ = made.finish()
    assert found is not None
    assert found.rule == rule


def test_a_store_that_was_just_started_grants_nothing(made: Round) -> None:
    made.recorder.server_started(at(SECOND - PLAN.lock_expiry / 2), forgot=False)
    made.run("b", "tick", 3.2, 3.3, granted=SECOND)
    found, _ = made.finish()
    assert found is not None
    assert found.rule == "S8"


@pytest.mark.parametrize("kind", sorted(FORGETS))
def test_two_terms_at_once_are_a_violation_where_the_next_leader_had_been_following(made: Round, kind: str) -> None:
    made.run("a", "tick", 5.5, THIRD + 0.2, granted=FIRST)
    made.loses(kind)
    made.run("b", "tick", THIRD + 0.1, THIRD + 0.15, granted=THIRD)
    found, history = made.finish()
    assert found is not None
    assert found.rule == "S1"
    broken, unguarded = overlaps(PLAN, history)
    assert broken == [pytest.approx(0.05)]
    assert unguarded == []


@pytest.mark.parametrize("why", ["started late", "cut off", "store slow", "stood still", "had led", "no time"])
def test_two_terms_at_once_for_a_heartbeat_and_a_call_are_counted_where_the_next_leader_had_not_been_following(
    made: Round, why: str
) -> None:
    made.run("a", "tick", 5.5, THIRD + HEARD, granted=5.4 if why == "no time" else FIRST)
    if why == "started late":
        made.stands_still("b", -1, THIRD - 0.5)
    elif why == "stood still":
        made.stands_still("b", THIRD - 1, THIRD - 0.5)
    elif why == "had led":
        made.run("b", "tick", 5.3, 5.4, granted=0.2)
    elif why != "no time":
        made.recorder.fault("held", "b" if why == "cut off" else "", THIRD - 1, THIRD - 0.5)
    made.loses(DELETED, "tick")
    made.run("b", "tick", THIRD + 0.1, THIRD + 0.15, granted=THIRD)
    made.run("b", "tick", THIRD + 0.2, THIRD + 1.5, granted=THIRD)
    made.run("a", "sweep", 5.5, THIRD + HEARD, granted=FIRST)
    found, history = made.finish()
    assert found is None
    broken, unguarded = overlaps(PLAN, history)
    assert broken == []
    assert unguarded == [pytest.approx(HEARD - 0.1)]


@pytest.mark.parametrize("lost", ["nothing", "before the first term", "the lease of another job", "the lease"])
def test_two_terms_at_once_are_a_violation_unless_that_lease_was_lost_and_they_are_short(
    made: Round, lost: str
) -> None:
    if lost == "before the first term":
        made.recorder.store_forgot(DELETED, "tick", at(FIRST - 0.2), at(FIRST - 0.1), slots=False)
    elif lost != "nothing":
        made.loses(DELETED, "tick" if lost == "the lease" else "sweep")
    long = THIRD + HEARD + PLAN.margin if lost == "the lease" else THIRD + 0.2
    made.run("a", "tick", 5.5, long, granted=FIRST)
    made.stands_still("b", -1, THIRD - 0.5)
    made.run("b", "tick", THIRD + 0.1, long, granted=THIRD)
    found, history = made.finish()
    assert found is not None
    assert found.rule in {"S1", "S5"}
    broken, unguarded = overlaps(PLAN, history)
    assert broken == [pytest.approx(long - THIRD - 0.1)]
    assert unguarded == []


def test_an_old_leader_that_is_cut_off_may_run_until_its_own_deadline_beside_one_that_had_not_been_following(
    made: Round,
) -> None:
    made.run("a", "tick", 5.5, THIRD + PLAN.lock_expiry - PLAN.margin, granted=FIRST)
    made.recorder.fault("held", "a", THIRD - 0.1, THIRD + 2)
    made.stands_still("b", -1, THIRD - 0.5)
    made.loses(FLUSHED)
    made.run("b", "tick", THIRD + 0.1, THIRD + 0.15, granted=THIRD)
    found, _ = made.finish()
    assert found is None


@pytest.mark.parametrize("unwound", [True, False])
def test_an_old_leader_whose_loop_stands_still_when_it_would_hear_of_the_loss_ends_its_run_when_it_wakes(
    made: Round, unwound: bool
) -> None:
    woke = THIRD + HEARD + 1.5
    end = woke + (0.02 if unwound else 2 * PLAN.margin)
    made.run("a", "tick", 5.5, end, granted=FIRST)
    made.stands_still("a", THIRD + 0.2, woke)  # after the new leader began: only its hearing is put off
    made.stands_still("b", -1, THIRD - 0.5)
    made.loses(FLUSHED)
    made.run("b", "tick", THIRD + 0.1, end, granted=THIRD)
    found, _ = made.finish()
    assert (found is None) == unwound


@pytest.mark.parametrize("kind", sorted(FORGETS))
def test_a_slot_runs_again_only_where_a_running_server_went_back_to_an_old_state(made: Round, kind: str) -> None:
    made.run("a", "close", 1.0, 1.1, granted=FIRST, due=1.0)
    made.loses(kind)
    made.run("b", "close", 6.2, 6.3, granted=THIRD, due=1.0)
    found, history = made.finish()
    if kind == STALE:
        assert found is None
        assert repeated_slots(PLAN, history) == 1
    else:
        assert found is not None
        assert found.rule == "S6"


def test_a_slot_from_before_a_loss_may_run_again_where_the_server_then_went_back_to_an_old_state(made: Round) -> None:
    made.run("a", "close", 1.0, 1.1, granted=FIRST, due=1.0)
    made.recorder.store_forgot(FLUSHED, "", at(3.0), at(3.1), slots=True)
    made.loses(STALE)
    made.run("b", "close", 6.2, 6.3, granted=THIRD, due=1.0)
    found, _ = made.finish()
    assert found is None
