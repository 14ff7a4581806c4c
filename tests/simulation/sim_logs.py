"""A log handler in simulated processes that raises, or takes its time, when a fault says so."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from simulation.sim_time import SimLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulation.sim_replica import Process

__all__ = ["Handler"]


class Handler(logging.Handler):
    """The user's handler of the logger `singletonjob`, in all processes at once: a record names its replica."""

    def __init__(self, find: Callable[[str], Process | None]) -> None:
        super().__init__()
        self._find = find

    def emit(self, record: logging.LogRecord) -> None:
        """Raise, or hold up the job loop.

        A real heartbeat's lines are written by a separate thread, which a simulation does not have. So a slow handler
        does not hold up a heartbeat here.
        """
        process = self._find(getattr(record, "node", ""))
        loop = asyncio._get_running_loop()
        if process is None or not isinstance(loop, SimLoop) or loop.dead:
            return
        if process.logging == "raises":
            raise RuntimeError("a log handler that raises")
        if process.logging == "slow" and loop is process.job_loop:
            process.hold_up()
