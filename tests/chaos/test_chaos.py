"""A short round of chaos on each store, each day another one; `sh scripts/soak chaos` plays long ones.

Workers are killed, stopped, continued and restarted, so is the server, connections are cut, held and slowed; then what
the bodies stamped is read as the simulation's history is.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, get_args

import pytest

from chaos.conductor import LEAST, play
from chaos.plan import StoreKind, draw_plan

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 5.0


@pytest.mark.parametrize("store", get_args(StoreKind))
async def test_real_processes_keep_the_promises_whatever_is_done_to_them(store: StoreKind, tmp_path: Path) -> None:
    plan = draw_plan(f"day {int(time.time() / 86400)}", store)
    result = await play(plan, tmp_path, SECONDS)
    assert result.found is None, result.complaint
    assert len(result.history.faults) >= LEAST
    assert len(result.history.runs) >= 2 * len(plan.jobs), "each job ran before the first fault, and after the last one"
