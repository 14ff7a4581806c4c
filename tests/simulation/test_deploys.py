"""How often a job changes hands in a deploy: what docs/deploys.md says of it, on a few drawn deploys each."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

import pytest

from simulation.deploys import VARIANTS, Variant, blue_green, expected, recreate, rollout

PAGE = (Path(__file__).parents[2] / "docs/deploys.md").read_text()


@pytest.mark.parametrize("variant", VARIANTS, ids=[variant.name for variant in VARIANTS])
def test_a_deploy_hands_a_job_over_once_at_least_and_once_for_each_old_pod_at_most(variant: Variant) -> None:
    for seed in range(5):
        assert 1 <= variant.of(4, seed).hand_overs <= 4
    assert f"| {variant.name} | 10 |" in PAGE


@pytest.mark.parametrize("pods", [1, 3, 10])
def test_at_worst_it_is_once_for_each_old_pod(pods: int) -> None:
    assert rollout(pods, surge=1, unavailable=0, order="worst").hand_overs == pods


@pytest.mark.parametrize("pods", [2, 3, 10])
def test_where_the_leader_is_stopped_last_there_is_one_hand_over(pods: int) -> None:
    assert [rollout(pods, surge=1, unavailable=0, order="leader last", seed=seed).hand_overs for seed in range(5)] == [
        1
    ] * 5


def test_one_by_one_the_mean_is_what_an_even_draw_of_the_next_leader_comes_to() -> None:
    assert expected(1) == 1
    assert round(expected(10**6), 2) == 1.72
    counts = [rollout(3, surge=1, unavailable=0, seed=seed).hand_overs for seed in range(60)]
    assert expected(3) - 0.3 < mean(counts) < expected(3) + 0.3


def test_no_deploy_but_recreate_leaves_out_more_than_a_tick_or_two() -> None:
    assert max(rollout(4, surge=1, unavailable=0, seed=seed).gap for seed in range(5)) < 0.35
    assert max(blue_green(4, seed=seed).gap for seed in range(5)) < 0.35
    assert min(recreate(4, seed=seed).gap for seed in range(5)) > 1
