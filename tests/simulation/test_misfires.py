"""What becomes of slots that do not run when due: `misfire` by what was in their way, a test per cell.

Each test says what runs, and what is reported: by whom, with which cause, count, first and last slot; in events, stats
and log alike. Default settings; the job has a slot each ten seconds unless it says otherwise, slots are numbered by
their seconds past noon, and `catch_up` runs two at most. No slot runs later than its limit, which only `skip` has by
default.

    in the way                            cause        skip                     fire_once         catch_up
    the job's own previous run            overlap      none of them             the newest        the newest two
    a loop that is late, also asleep      late         the newest, in its limit the newest        the newest two
    a clock that is set forward           late         the newest, in its limit the newest        the newest two
    ... by more than ten minutes          late, clock  none: the store knows better, for all three
    nobody led, or all were down          no_leader    the newest, in its limit the newest        the newest two
    the replica slept past its lease      no_leader    the newest, in its limit the newest        the newest two
    a claim without an answer             late         till the slot's limit, for all three
    ... until its term is over            stopped      the next leader finds it missed, or interrupted, for all three
    a run whose leader was killed         interrupted  reported, never run again, for all three
    a stored slot that lies far ahead     clock        reported, and ignored, for all three
    a changed expression, a disabled job  -            nothing is owed, for all three

Over 300 lines, because the table is read as one: a section per line of it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from simulation.scenario import BEAT, TRAVEL, Fleet, Job, micros
from singletonjob import Misfired
from singletonjob._core.values import instant
from singletonjob.stores.protocol import ClaimSlot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from simulation.scenario import Fate, Replica
    from singletonjob import Run
    from singletonjob._core.values import Event, MisfireCause, MisfirePolicy
    from singletonjob.stores.protocol import Batch

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
TENS = "*/10 * * * * *"


@dataclass(frozen=True)
class Missed:
    """`first` and `last` in seconds past noon."""

    cause: MisfireCause
    first: int
    last: int
    count: int


Cell: TypeAlias = "tuple[MisfirePolicy, list[int], list[Missed]]"
"""A policy, the slots that run late or not at all when due, and what is reported."""

policy = pytest.mark.parametrize("misfire", ["skip", "fire_once", "catch_up"])


def cells(*rows: Cell) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("misfire", "runs", "missed"), rows, ids=[f"{row[0]}-{row[1]}" for row in rows])


def slot(second: int) -> int:
    return micros(NOON) + second * 1_000_000


def second(instant: int) -> int:
    """The slot of an instant, which is none between two seconds."""
    seconds, rest = divmod(instant - micros(NOON), 1_000_000)
    assert rest == 0
    return seconds


async def brief(_run: Run, _replica: Replica) -> None:
    await asyncio.sleep(0.01)


class Scene(Fleet):
    """A fleet with one cron job, whose misfires are listened to on each replica."""

    def __init__(
        self,
        misfire: MisfirePolicy,
        expression: str = TENS,
        body: Callable[[Run, Replica], Any] = brief,
        options: Mapping[str, Any] = {},
        **more: Any,
    ) -> None:
        job = Job("job", "cron", expression, body, misfire, {"catch_up_limit": 2, **more})
        # The simulated loop's own timers stand still while a machine sleeps, and hear of no clock that is set; a
        # timerfd does. With this beside it, the job looks at the clock as soon as with one.
        super().__init__(job, Job("look", "fixed", 0.2), begin=NOON, **options)
        self.told: dict[str, list[Misfired]] = {}

    def start(self, name: str, *, ahead: float = 0.0, **options: Any) -> Replica:
        replica = super().start(name, ahead=ahead, **options)
        events = self.told[name] = []

        def hear(event: Event) -> None:
            if isinstance(event, Misfired):
                events.append(event)

        replica.service.callbacks.append(hear)
        return replica

    def ran(self, *, since: float) -> list[int]:
        return [second(run.scheduled) for run in self.runs("job", since=since)]

    def missed(self, replica: Replica) -> list[Missed]:
        return [Missed(one.cause, second(one.first), second(one.last), one.count) for one in self.told[replica.name]]

    def assert_told(self, replica: Replica, missed: list[Missed]) -> None:
        """This replica reported that, and no other one anything: in events, stats and log."""
        assert self.missed(replica) == missed
        for name, other in self.replicas.items():
            events = self.told[name]
            assert not events or other is replica
            assert other.service.runners["job"].counts.misfired == sum(event.count for event in events)
            lines = self.said("misfired", other)
            assert len(lines) == len({event.cause for event in events}), "once per cause; a summary a minute later"
            for line in lines:
                event = next(event for event in events if event.cause == line.reason)
                assert (line.levelname, line.job) == ("WARNING", "job")
                assert instant(event.first).isoformat() in line.getMessage()
                if event.cause == "clock":
                    assert line.getMessage().count("+00:00") == 2, "the slot, and the time that it is held against"
                if event.count > 1:
                    assert f"{event.count} slots" in line.getMessage()
                    assert instant(event.last).isoformat() in line.getMessage()


# -- the job's own previous run ----------------------------------------------------------------------------------------


@cells(
    ("skip", [], [Missed("overlap", 30, 80, 6)]),
    ("fire_once", [80], [Missed("overlap", 30, 70, 5)]),
    ("catch_up", [70, 80], [Missed("overlap", 30, 60, 4)]),
)
def test_slots_during_the_job_s_own_run_are_dropped_or_run_after_it(
    misfire: MisfirePolicy, runs: list[int], missed: list[Missed]
) -> None:
    async def once_long(run: Run, _replica: Replica) -> None:
        await asyncio.sleep(63 if micros(run.scheduled_at) == slot(20) else 0.01)

    with Scene(misfire, body=once_long) as scene:
        a, _b = scene.start_in_turn("a", "b")
        scene.until(95)
        assert scene.ran(since=15) == [20, *runs, 90]
        assert all(83 <= run.started < 83 + 1 for run in scene.runs("job") if second(run.scheduled) in runs)
        scene.assert_told(a, missed)


# -- a replica that is late --------------------------------------------------------------------------------------------


@cells(
    ("skip", [50], [Missed("late", 20, 40, 3)]),
    ("fire_once", [50], [Missed("late", 20, 40, 3)]),
    ("catch_up", [40, 50], [Missed("late", 20, 30, 2)]),
)
def test_slots_over_which_the_loop_was_blocked_are_late(
    misfire: MisfirePolicy, runs: list[int], missed: list[Missed]
) -> None:
    with Scene(misfire) as scene:
        a, _b = scene.start_in_turn("a", "b")
        scene.until(15)
        a.freeze("blocked", 39, whole=False)
        scene.until(65)
        assert scene.ran(since=15) == [*runs, 60]
        scene.assert_told(a, missed)


def test_skip_runs_none_of_them_when_the_newest_is_later_than_its_limit() -> None:
    with Scene("skip", late_limit="3s") as scene:
        a, _b = scene.start_in_turn("a", "b")
        scene.until(15)
        a.freeze("blocked", 39, whole=False)
        scene.until(65)
        assert scene.ran(since=15) == [60]
        scene.assert_told(a, [Missed("late", 20, 50, 4)])


@cells(
    ("skip", [26], [Missed("late", 22, 24, 2)]),
    ("fire_once", [26], [Missed("late", 22, 24, 2)]),
    ("catch_up", [24, 26], [Missed("late", 22, 22, 1)]),
)
def test_slots_of_a_sleep_that_the_lease_outlived_are_late(
    misfire: MisfirePolicy, runs: list[int], missed: list[Missed]
) -> None:
    with Scene(misfire, "*/2 * * * * *") as scene:
        a, _b = scene.start_in_turn("a", "b")
        scene.until(20.5)
        a.suspend(6)
        scene.until(28.5)
        assert scene.ran(since=20.5) == [*runs, 28]
        assert len(scene.leases("job")) == 1
        scene.assert_told(a, missed)


@cells(
    ("skip", [70], [Missed("no_leader", 20, 60, 5)]),
    ("fire_once", [70], [Missed("no_leader", 20, 60, 5)]),
    ("catch_up", [60, 70], [Missed("no_leader", 20, 50, 4)]),
)
def test_slots_of_a_sleep_that_outlasted_the_lease_had_no_leader(
    misfire: MisfirePolicy, runs: list[int], missed: list[Missed]
) -> None:
    with Scene(misfire, late_limit="15s") as scene:
        (a,) = scene.start_in_turn("a")
        scene.until(15)
        a.suspend(56)
        scene.until(85)
        assert scene.ran(since=15) == [*runs, 80]
        assert 71 < scene.runs("job", since=15)[0].started < 71 + BEAT + 1
        scene.assert_told(a, missed)


@policy
def test_a_replica_that_slept_while_another_one_led_reports_nothing(misfire: MisfirePolicy) -> None:
    """Found on the way: awake again, it said that slots were missed which the other one had run."""
    with Scene(misfire, late_limit="8s") as scene:
        a, _b = scene.start_in_turn("a", "b")
        scene.until(15)
        a.suspend(56)
        scene.until(85)
        assert scene.ran(since=15) == [20, 30, 40, 50, 60, 70, 80]
        assert scene.missed(a) == []


# -- a clock that is set forward ---------------------------------------------------------------------------------------


@cells(
    ("skip", [70], [Missed("late", 20, 60, 5)]),
    ("fire_once", [70], [Missed("late", 20, 60, 5)]),
    ("catch_up", [60, 70], [Missed("late", 20, 50, 4)]),
)
def test_slots_that_the_clock_jumped_over_are_late(
    misfire: MisfirePolicy, runs: list[int], missed: list[Missed]
) -> None:
    """Once, by the new clock: they do not come again for a follower whose clock is right."""
    with Scene(misfire) as scene:
        a, b = scene.start_in_turn("a", "b")
        scene.until(15)
        a.step_clock(57)
        scene.until(20)
        assert scene.ran(since=15) == runs
        scene.assert_told(a, missed)
        a.stop()
        scene.until(95)
        assert [(run.process, second(run.scheduled)) for run in scene.runs("job", since=20)] == [("b", 80), ("b", 90)]
        assert scene.missed(b) == []


@cells(
    ("skip", [], [Missed("late", 20, 3610, 360), Missed("clock", 3620, 3620, 1)]),
    ("fire_once", [], [Missed("late", 20, 3610, 360), Missed("clock", 3620, 3620, 1)]),
    ("catch_up", [], [Missed("late", 20, 3600, 359), *(Missed("clock", late, late, 1) for late in (3610, 3620))]),
)
def test_a_slot_more_than_ten_minutes_ahead_of_the_store_is_not_run(
    misfire: MisfirePolicy, runs: list[int], missed: list[Missed]
) -> None:
    """The clock is wrong by an hour. Set right again, or with a leader whose clock is right, all is well at once."""
    with Scene(misfire) as scene:
        a, b = scene.start_in_turn("a", "b")
        scene.until(15)
        a.step_clock(3608)
        scene.until(19)
        assert scene.ran(since=15) == runs
        scene.assert_told(a, missed)
        (line,) = [line for line in scene.said("misfired", a) if line.reason == "clock"]
        assert "ahead of 2026-03-02T12:00:15" in line.getMessage(), "by the store's clock"
        a.stop()
        scene.until(35)
        assert [(run.process, second(run.scheduled)) for run in scene.runs("job", since=19)] == [("b", 20), ("b", 30)]
        assert scene.missed(b) == []


# -- nobody led --------------------------------------------------------------------------------------------------------


@cells(
    ("skip", [30], [Missed("no_leader", 26, 28, 2)]),
    ("fire_once", [30], [Missed("no_leader", 26, 28, 2)]),
    ("catch_up", [28, 30], [Missed("no_leader", 26, 26, 1)]),
)
def test_slots_between_a_crash_and_the_next_leader_had_none(
    misfire: MisfirePolicy, runs: list[int], missed: list[Missed]
) -> None:
    with Scene(misfire, "10,20,26,28,30,40 * * * * *", late_limit="6s") as scene:
        a, b = scene.start_in_turn("a", "b")
        scene.until(25)
        a.kill()
        scene.until(45)
        assert scene.ran(since=15) == [20, *runs, 40]
        assert {run.process for run in scene.runs("job", since=25)} == {"b"}
        scene.assert_told(b, missed)


@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
@cells(
    ("skip", [70], [Missed("no_leader", 30, 60, 4)]),
    ("fire_once", [70], [Missed("no_leader", 30, 60, 4)]),
    ("catch_up", [60, 70], [Missed("no_leader", 30, 50, 3)]),
)
def test_slots_while_all_replicas_were_down_had_no_leader(
    misfire: MisfirePolicy, runs: list[int], missed: list[Missed], how: str
) -> None:
    with Scene(misfire) as scene:
        replicas = scene.start_in_turn("a", "b")
        scene.until(25)
        for replica in replicas:
            if how == "SIGTERM":
                replica.stop()
            else:
                replica.kill()
        scene.until(73)
        c = scene.start("c")
        scene.until(85)
        assert scene.ran(since=15) == [20, *runs, 80]
        scene.assert_told(c, missed)


def test_skip_runs_none_of_them_when_a_leader_comes_later_than_the_limit_of_the_newest() -> None:
    with Scene("skip") as scene:
        (a,) = scene.start_in_turn("a")
        scene.until(25)
        a.stop()
        scene.until(77)
        c = scene.start("c")
        scene.until(85)
        assert scene.ran(since=15) == [20, 80]
        scene.assert_told(c, [Missed("no_leader", 30, 70, 5)])


# -- a claim without an answer -----------------------------------------------------------------------------------------


def claims(fate: Fate) -> Callable[[Batch], Fate]:
    """That becomes of calls that claim a slot."""
    return lambda batch: fate if any(isinstance(request, ClaimSlot) for request in batch.requests) else None


@pytest.mark.parametrize("fate", ["request lost", "reply lost"])
@cells(("skip", [20], []), ("fire_once", [20], []), ("catch_up", [20], []))
def test_a_claim_without_an_answer_is_asked_again_and_then_runs(
    misfire: MisfirePolicy, runs: list[int], missed: list[Missed], fate: Fate
) -> None:
    with Scene(misfire) as scene:
        a, _b = scene.start_in_turn("a", "b")
        scene.until(19.5)
        a.client.fate = claims(fate)
        scene.until(23)
        a.heal()
        scene.until(35)
        assert scene.ran(since=15) == [*runs, 30]
        assert 23 < scene.runs("job", since=15)[0].started < 25
        scene.assert_told(a, missed)


@pytest.mark.parametrize("fate", ["request lost", "reply lost"])
@policy
def test_a_claim_that_has_no_answer_within_the_limit_of_its_slot_is_given_up(
    misfire: MisfirePolicy, fate: Fate
) -> None:
    with Scene(misfire, late_limit="3s") as scene:
        a, _b = scene.start_in_turn("a", "b")
        scene.until(19.5)
        a.client.fate = claims(fate)
        scene.until(23.5)
        a.heal()
        scene.until(35)
        assert scene.ran(since=15) == [30]
        scene.assert_told(a, [Missed("late", 20, 20, 1)])


@pytest.mark.parametrize(
    ("fate", "late", "missed"), [("request lost", [20], []), ("reply lost", [], [Missed("interrupted", 20, 20, 1)])]
)
@policy
def test_a_claim_that_has_no_answer_until_its_term_is_over_is_the_next_leader_s(
    misfire: MisfirePolicy, fate: Fate, late: list[int], missed: list[Missed]
) -> None:
    """The old leader says that it was stopped, and cannot know whether it was heard.

    If not, the slot is one that nobody led through. If it was, the next one cannot know whether the old one ran it.
    """
    with Scene(misfire, late_limit="15s") as scene:
        a, b = scene.start_in_turn("a", "b")
        scene.until(19.5)
        a.client.fate = claims(fate)
        scene.until(21)
        a.cut()
        scene.until(45)
        runs = [(run.process, second(run.scheduled)) for run in scene.runs("job", since=15)]
        assert runs == [("b", slot) for slot in (*late, 30, 40)]
        assert scene.missed(a) == [Missed("stopped", 20, 20, 1)]
        assert scene.missed(b) == missed


@cells(
    ("skip", [30], [Missed("no_leader", 20, 20, 1)]),
    ("fire_once", [30], [Missed("no_leader", 20, 20, 1)]),
    ("catch_up", [20, 30], []),
)
def test_a_slot_that_comes_when_the_lease_was_stolen_is_the_next_leader_s(
    misfire: MisfirePolicy, runs: list[int], missed: list[Missed]
) -> None:
    """The old leader learns of it by its claim; it says that it was stopped."""
    with Scene(misfire, late_limit="15s") as scene:
        a, b = scene.start_in_turn("a", "b")
        scene.until(19.9)
        scene.steal("job", 12)
        scene.until(45)
        told = scene.runs("job", since=15)
        assert [second(run.scheduled) for run in told] == [*runs, 40]
        assert len({run.process for run in told}) == 1  # whoever asks first when the stolen lease ends
        stopped = Missed("stopped", 20, 20, 1)
        by_next = [one for one in (*scene.missed(a), *scene.missed(b)) if one != stopped]
        assert scene.missed(a)[0] == stopped
        assert by_next == missed


# -- a run that was cut short ------------------------------------------------------------------------------------------


@policy
def test_a_slot_whose_leader_was_killed_in_its_run_is_reported_once_and_not_run_again(misfire: MisfirePolicy) -> None:
    async def long(_run: Run, _replica: Replica) -> None:
        await asyncio.sleep(4)

    with Scene(misfire, body=long, late_limit="9s") as scene:
        a, b = scene.start_in_turn("a", "b")
        scene.until(22)
        a.kill()
        scene.until(55)
        assert [(run.process, second(run.scheduled)) for run in scene.runs("job", since=15)] == [
            ("a", 20),
            *(("b", slot) for slot in (30, 40, 50)),
        ]
        scene.assert_told(b, [Missed("interrupted", 20, 20, 1)])
        b.stop()
        scene.start("c")
        scene.until(75)
        scene.assert_told(b, [Missed("interrupted", 20, 20, 1)])


# -- what the store remembers ------------------------------------------------------------------------------------------


@cells(
    ("skip", [70], [Missed("clock", 3600, 3600, 1), Missed("no_leader", 30, 60, 4)]),
    ("fire_once", [70], [Missed("clock", 3600, 3600, 1), Missed("no_leader", 30, 60, 4)]),
    ("catch_up", [60, 70], [Missed("clock", 3600, 3600, 1), Missed("no_leader", 30, 50, 3)]),
)
def test_a_stored_slot_from_a_wrong_clock_is_reported_and_ignored(
    misfire: MisfirePolicy, runs: list[int], missed: list[Missed]
) -> None:
    """What was settled before it is known all the same."""
    with Scene(misfire) as scene:
        (a,) = scene.start_in_turn("a")
        scene.until(25)
        a.stop()
        scene.until(73)
        scene.store._records["job"].slot = slot(3600)
        c = scene.start("c")
        scene.until(85)
        assert scene.ran(since=15) == [20, *runs, 80]
        scene.assert_told(c, missed)


@policy
@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
def test_after_a_change_of_the_expression_nothing_is_owed(misfire: MisfirePolicy, how: str) -> None:
    """Neither of the old one's slots nor of the new one's; nor is a run that was cut short."""

    async def long(_run: Run, _replica: Replica) -> None:
        await asyncio.sleep(8)

    with Scene(misfire, body=long) as scene:
        (a,) = scene.start_in_turn("a")
        scene.until(25)
        if how == "SIGTERM":
            a.stop()
        else:
            a.kill()
        scene.until(73)
        scene.jobs["job"] = scene.jobs["job"]._replace(every="*/15 * * * * *")
        c = scene.start("c")
        scene.until(100)
        assert scene.ran(since=15) == [20, 75, 90]
        assert scene.runs("job", since=75)[0].started < 75 + TRAVEL
        scene.assert_told(c, [])


@policy
def test_slots_while_the_job_was_disabled_are_not_missed(misfire: MisfirePolicy) -> None:
    on = True
    with Scene(misfire, enabled=lambda: on) as scene:
        a, _b = scene.start_in_turn("a", "b")
        scene.until(25)
        on = False
        scene.until(73)
        on = True
        scene.until(105)
        assert scene.ran(since=15) == [20, 80, 90, 100]
        scene.assert_told(a, [])


@policy
def test_a_job_never_seen_before_owes_nothing(misfire: MisfirePolicy) -> None:
    with Scene(misfire) as scene:
        scene.until(73)
        (a,) = scene.start_in_turn("a")
        scene.until(95)
        assert scene.ran(since=0) == [80, 90]
        scene.assert_told(a, [])
