"""The model of what a fleet costs, against beats and questions drawn one by one, and docs/sizing.md."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fleet_model import Cost, Shape, load, table

SIZING = Path(__file__).parents[2] / "docs" / "sizing.md"


def drawn(leaders: int, jobs_each: int, heartbeat: float, expiry: float, seconds: float) -> tuple[float, float, float]:
    """Beats of one leader, calls of one follower, and its questions per leader, each per second.

    A leader renews after a heartbeat less the greatest of its jobs' jitters. The follower is told at each question how
    long the lease still lasts, and asks again half a margin before it ends, together with what ends within half a
    heartbeat.
    """
    source = random.Random(1)

    def interval() -> float:
        return heartbeat * (1 - 0.1 * max(source.random() for _ in range(jobs_each)))

    renewed = [-source.random() * heartbeat for _ in range(leaders)]
    following = [last + interval() for last in renewed]
    due = [0.0] * leaders
    beats = calls = questions = 0
    while (now := min(due)) < seconds:
        calls += 1
        for leader in range(leaders):
            if due[leader] <= now + heartbeat / 2:
                while following[leader] <= now:
                    renewed[leader] = following[leader]
                    following[leader] += interval()
                    beats += 1
                due[leader] = now + 0.99 * (renewed[leader] + expiry - now) - expiry / 20
                questions += 1
    return beats / leaders / seconds, calls / seconds, questions / leaders / seconds


@pytest.mark.parametrize("leaders", [1, 2, 3, 5, 10, 20, 50])
@pytest.mark.parametrize(("heartbeat", "expiry"), [(3.0, 10.0), (10.0, 35.0)])
def test_calls_and_questions_are_those_of_beats_drawn_one_by_one(leaders: int, heartbeat: float, expiry: float) -> None:
    jobs = 2 * leaders
    beats, calls, questions = drawn(leaders, 2, heartbeat, expiry, 400 * heartbeat)
    model = load(Shape(replicas=leaders + 100, jobs=jobs, leaders=leaders, heartbeat=heartbeat, expiry=expiry))
    assert model.calls == pytest.approx(leaders * beats + 100 * calls, rel=0.35)
    assert model.requests == pytest.approx(leaders * jobs * beats + 100 * jobs * questions, rel=0.1)


def test_of_many_jobs_a_beat_is_one_call_for_each_hundred() -> None:
    few, many = (load(Shape(replicas=1, jobs=jobs, leaders=1)) for jobs in (100, 1000))
    assert few.calls == pytest.approx(1 / 2.7, rel=0.01)
    assert many.calls == pytest.approx(10 * few.calls, rel=0.01)


def test_of_many_jobs_a_followers_question_is_one_call_for_each_hundred() -> None:
    alone, followed = (load(Shape(replicas=replicas, jobs=1000, leaders=1)) for replicas in (1, 2))
    assert followed.calls - alone.calls == pytest.approx(10 / 8.06, rel=0.01)


def test_cost_is_the_sum_of_its_parts() -> None:
    shape = Shape(replicas=100, jobs=20, leaders=20)
    parts = ("idle", "call", "request", "ping")
    nothing: dict[str, Any] = dict.fromkeys((*parts, "message"), 0.0)
    single = [load(shape, Cost(**(nothing | {part: 1.0}))).cpu for part in parts]
    whole = load(shape, Cost(**(nothing | dict.fromkeys(parts, 1.0))))
    assert whole.cpu == pytest.approx(sum(single))
    assert single == pytest.approx([1.0, whole.calls, whole.requests, 100 / 3])


def test_the_table_in_the_docs_is_what_the_model_says() -> None:
    _, _, rest = SIZING.read_text().partition("<!-- fleet-model -->\n")
    written, end, _ = rest.partition("\n<!-- /fleet-model -->")
    assert end
    assert written == table()
