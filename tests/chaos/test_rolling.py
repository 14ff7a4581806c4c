"""A rolling upgrade and the way back, on each store: workers of the previous release and of this tree, side by side.

One by one the workers are replaced under load, by SIGTERM and by SIGKILL, until all run on this tree, and then until
all run on the previous release again. `sh scripts/soak rolling` goes on for minutes, and takes any release.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, get_args

import pytest

from chaos.conductor import SRC, play
from chaos.plan import StoreKind, draw_plan
from chaos.releases import NoHistory, export, previous

if TYPE_CHECKING:
    from pathlib import Path

OLD, NEW = 0, 1


@pytest.fixture
def old(tmp_path: Path) -> Path:
    try:
        return export(previous(), tmp_path / "old")
    except NoHistory as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("store", get_args(StoreKind))
async def test_two_releases_share_a_store_during_a_rolling_upgrade(store: StoreKind, old: Path, tmp_path: Path) -> None:
    plan = draw_plan(f"day {int(time.time() / 86400)}", store)
    result = await play(plan, tmp_path, 0.0, trees=[old, SRC])
    assert result.found is None, result.complaint
    assert result.history.counts.total() == 2 * plan.machines
    assert result.history.counts.keys() <= {"term", "kill"}
    hand_overs = result.hand_overs()
    assert hand_overs[OLD, NEW] > 0, hand_overs
    assert hand_overs[NEW, OLD] > 0, hand_overs
