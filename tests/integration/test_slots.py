"""Twelve hand-overs of cron jobs on each store, each day other ones; `sh scripts/soak slots` does 200."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from chaos.slots import OPTIONS, Account, Report, play
from chaos.slots_worker import JOBS
from redis_replicas import RedisFleet
from replicas import Fleet
from servers import OLDEST, Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TIMES = 12


@pytest.fixture
def redis_fleet(tmp_path: Path) -> Iterator[Fleet]:
    with Server(OLDEST, tmp_path) as server, RedisFleet(tmp_path, server, **OPTIONS) as fleet:
        yield fleet


@pytest.fixture
def sqlite_fleet(tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(tmp_path, **OPTIONS) as fleet:
        yield fleet


@pytest.mark.parametrize("store", ["redis", "sqlite"])
def test_in_hand_overs_between_wrong_clocks_no_slot_runs_twice_and_none_is_lost(
    store: str, request: pytest.FixtureRequest
) -> None:
    fleet: Fleet = request.getfixturevalue(f"{store}_fleet")
    account = play(fleet, f"day {int(time.time() / 86400)} {store}", TIMES, pause=0.2)
    assert account.hand_overs == {"SIGTERM": TIMES / 2, "SIGKILL": TIMES / 2}
    assert account.twice == []
    assert account.lost == []
    assert account.overlaps == 0
    assert account.ran >= 2 * len(JOBS), "each job ran before the first hand-over, and after the last one"


def test_the_account_finds_a_slot_that_ran_twice_and_one_that_was_lost() -> None:
    account = Account()
    account.add("skip", [0, 1_000_000, 1_000_000, 5_000_000], [Report.of("no_leader:2:2000000:3000000")])
    assert account.slots == 6
    assert account.ran == 3
    assert account.twice == ["skip 1000000: ran 2 times"]
    assert account.lost == ["skip 4000000"]
    assert account.missed == {"no_leader": 2}
    assert not account.good
