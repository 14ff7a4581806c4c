"""The verbs at default settings, on three `singletonjob run` processes: on a real server, and on SQLite.

The promises: after `pause` no run starts any more within 100 ms on Redis, 250 ms on SQLite; `step-down` moves the lease
within 100 ms, and the next one runs within a tick and 50 ms; `trigger` makes one run.
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from operated import OPERATED, give, many, paused, stepped_down, triggered
from redis_replicas import RedisFleet, old_enough
from replicas import Fleet, boot
from servers import Server
from singletonjob.cli.demo_report import overlaps
from singletonjob.control import Control
from soak._evidence import arguments, conclude, say, spread
from waiting import wait_for

if TYPE_CHECKING:
    from singletonjob.control import OrderResult

TIMES = 20
KIND = "valkey-9"
TICK = 0.1
GAP = TICK + 0.05
JOBS = 200


class Account(NamedTuple):
    """What became of `TIMES` orders of each kind, in seconds."""

    latest: list[float]
    resumed: list[float]
    taken: list[float]
    gaps: list[float]
    spacings: list[float]
    triggers: list[float]
    extra: int
    overlaps: int
    all_paused: float
    good: bool


def orders(fleet: Fleet, *, within: float) -> Account:
    for _ in range(3):
        fleet.start(OPERATED)
    wait_for(lambda: fleet.runs() and fleet.runs("hourly"), what="the first runs")
    time.sleep(1)  # the followers hear notices now
    latest: list[float] = []
    resumed: list[float] = []
    for _ in range(TIMES):
        time.sleep(random.uniform(0, 0.3))
        done = paused(fleet, rest=0.7)
        latest.append(done.latest or 0.0)
        resumed.append(done.resumed)
    say(f"pause: the last start {spread(latest)} after the order; resume: the first {spread(resumed)} after it")
    hand_overs = []
    for _ in range(TIMES):
        time.sleep(random.uniform(3, 4))  # until the one that stepped down follows again
        hand_overs.append(stepped_down(fleet))
    taken, gaps = [one.taken for one in hand_overs], [one.gap for one in hand_overs]
    spacings = [one.spacing for one in hand_overs]
    say(f"step-down: {spread(taken)} to the next leader, {spread(gaps)} to its first run")
    made: list[tuple[OrderResult, list[float]]] = []
    for _ in range(TIMES):
        made.append(triggered(fleet))
        time.sleep(random.uniform(0, 0.3))
    time.sleep(7)  # two beats: a second run of one of them would have come
    extra = len(fleet.runs("hourly")) - 1
    triggers = [starts[0] for _, starts in made]
    say(f"trigger: {spread(triggers)} to the start")
    found = len(overlaps(fleet.runs())) + len(overlaps(fleet.runs("hourly")))
    for replica in fleet.replicas.values():
        replica.process.kill()
        replica.end()
    fleet.start(many(JOBS))
    wait_for(lambda: fleet.lease(f"many-{JOBS - 1}").holder, what="a leader of all")
    given = boot()
    results = give(Control("pricing", fleet.store).pause("many-*"))
    all_paused = boot() - given
    good = (
        max(latest) <= within
        and max(taken) <= 0.1
        and max(gaps) <= GAP
        and extra == TIMES
        and found == 0
        and [result.outcome for result in results] == ["paused"] * JOBS
    )
    return Account(latest, resumed, taken, gaps, spacings, triggers, extra, found, all_paused, good)


def told(kind: str, account: Account, within: float) -> list[str]:
    in_time = sum(gap <= GAP for gap in account.gaps), sum(one <= 0.1 for one in account.taken)
    return [
        (
            f"{kind}: the last start of a run after `pause`: {spread(account.latest)}, promised {within * 1000:.0f} ms;"
            f" the first one after `resume`: {spread(account.resumed)}"
        ),
        (
            f"{kind}: from `step-down` to the next leader: {spread(account.taken)}, {in_time[1]} of {TIMES} within"
            f" 100 ms; to its first run: {spread(account.gaps)}, {in_time[0]} of {TIMES} within a tick and 50 ms;"
            f" between two starts around it: {spread(account.spacings)}; {account.overlaps} overlaps"
        ),
        (
            f"{kind}: from `trigger` to the start: {spread(account.triggers)}; {account.extra} runs after {TIMES}"
            f" triggers; {JOBS} jobs paused by a pattern in one call of {account.all_paused * 1000:.0f} ms"
        ),
    ]


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    lines = [f"three `singletonjob run` processes, defaults, a 100 ms job and an hourly one; each order {TIMES} times"]
    good = True
    with tempfile.TemporaryDirectory() as directory, Server(KIND, Path(directory)) as server:
        with RedisFleet(Path(directory), server) as fleet:
            old_enough(server, 11)
            account = orders(fleet, within=0.1)
        lines += told(KIND, account, 0.1)
        good = good and account.good
    with tempfile.TemporaryDirectory() as directory, Fleet(Path(directory)) as fleet:
        account = orders(fleet, within=0.25)
    lines += told("SQLite", account, 0.25)
    conclude("verbs", lines, good=good and account.good, record=options.record)


if __name__ == "__main__":
    main()
