"""A fleet's leader gets SIGTERM and SIGKILL by turns, `TIMES` times each, and a new process replaces each that left."""

from __future__ import annotations

import random
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from replicas import hand_over
from singletonjob.cli.demo_report import overlaps
from soak._evidence import say, spread
from waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from replicas import Fleet, HandOver

__all__ = ["TIMES", "HandOvers", "hand_overs"]

TIMES = 20


@dataclass(frozen=True, kw_only=True)
class HandOvers:
    """Seconds until the next holder: `released` from the release, `killed` from what the check said; and `to_run`,
    from the signal to the first run of the next leader. `codes` are the exit codes after SIGTERM."""

    released: list[float]
    killed: list[float]
    to_run: dict[int, list[float]]
    codes: set[int]
    runs: int
    overlaps: int

    @property
    def good(self) -> bool:
        return not self.overlaps and self.codes == {0}

    def in_time(self, after_release: float, after_kill: float) -> list[int]:
        """How many of each kind took no longer."""
        return [sum(time <= after_release for time in self.released), sum(time <= after_kill for time in self.killed)]

    def lines(self) -> list[str]:
        return [
            (
                f"from SIGTERM to the next run elsewhere: {spread(self.to_run[signal.SIGTERM])};"
                f" from SIGKILL: {spread(self.to_run[signal.SIGKILL])}"
            ),
            f"{self.runs} runs, {self.overlaps} overlaps; exit codes after SIGTERM: {sorted(self.codes)}",
        ]


def hand_overs(fleet: Fleet, *, within: float, after_kill: Callable[[HandOver], float]) -> HandOvers:
    """Each signal comes at a random moment of the next `within` seconds."""
    took: dict[int, list[float]] = {signal.SIGTERM: [], signal.SIGKILL: []}
    to_run: dict[int, list[float]] = {signal.SIGTERM: [], signal.SIGKILL: []}
    codes: set[int] = set()
    for turn in range(2 * TIMES):
        number = (signal.SIGTERM, signal.SIGKILL)[turn % 2]
        time.sleep(random.uniform(0, within))
        done = hand_over(fleet, number)
        old, new = fleet.replicas[done.old], fleet.replicas[done.new]
        wait_for(lambda new=new: new.runs(), what="a run of the next leader")  # type: ignore[misc]  # binds it
        code = old.end()
        if number == signal.SIGTERM:
            codes.add(code)
        fleet.start_followers(1)
        took[number].append(done.since_release if number == signal.SIGTERM else after_kill(done))
        to_run[number].append(new.runs()[0].start - done.signalled)
        say(f"{turn + 1:2}  {number.name}  {done.old} -> {done.new}  {took[number][-1] * 1000:.1f} ms")
    runs = fleet.runs()
    return HandOvers(
        released=took[signal.SIGTERM],
        killed=took[signal.SIGKILL],
        to_run=to_run,
        codes=codes,
        runs=len(runs),
        overlaps=len(overlaps(runs)),
    )
