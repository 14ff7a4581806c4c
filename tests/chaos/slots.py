"""Hand-overs of cron jobs between real processes whose wall clocks differ, and an account of each slot.

Three processes; at a random moment the leader of a job gets SIGTERM or SIGKILL, and a new process takes its place. What
became of the slots is read from what the processes stamped, bodies and reports alike.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from chaos.slots_worker import JOBS
from replicas import hand_over
from singletonjob.cli.demo_report import overlaps
from waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from replicas import Fleet, HandOver

__all__ = ["OFF", "OPTIONS", "Account", "Report", "play"]

APP = """
import chaos.slots_worker
app = chaos.slots_worker.make(name, options, stamps)
"""

OPTIONS = {"lock_expiry": "1s", "heartbeat_interval": "300ms", "max_backoff_delay": "500ms", "shutdown_grace": "2s"}
"""A tenth of the defaults."""

REPLICAS = 3
OFF = 2.0
"""So many seconds is a clock off, at most."""
SECOND = 1_000_000


@dataclass
class Account:
    """What became of the slots of all jobs, from the first that ran to the last. `missed` counts slots by cause.

    A slot is in `missed` once for each cause that it was reported with. `twice` names slots that ran more than once,
    `lost` those that neither ran nor were reported.
    """

    hand_overs: Counter[str] = field(default_factory=Counter[str])
    slots: int = 0
    ran: int = 0
    missed: Counter[str] = field(default_factory=Counter[str])
    ran_and_missed: Counter[str] = field(default_factory=Counter[str])
    twice: list[str] = field(default_factory=list[str])
    lost: list[str] = field(default_factory=list[str])
    overlaps: int = 0

    @property
    def good(self) -> bool:
        return not self.twice and not self.lost and not self.overlaps and self.ran > 0

    def add(self, job: str, ran: list[int], reports: list[Report]) -> None:
        """The slots of one job: those that bodies began for, and the reports."""
        causes: dict[int, set[str]] = {}
        for report in reports:
            for slot in report.slots():
                causes.setdefault(slot, set()).add(report.cause)
        runs = Counter(ran)
        every = range(min(runs), max(runs) + SECOND, SECOND)
        self.slots += len(every)
        self.ran += len(runs)
        self.twice += [f"{job} {slot}: ran {count} times" for slot, count in runs.items() if count > 1]
        self.lost += [f"{job} {slot}" for slot in every if slot not in runs and slot not in causes]
        for slot in every:
            self.missed += Counter(causes.get(slot, ()))
            if slot in runs:
                self.ran_and_missed += Counter(causes.get(slot, ()))


@dataclass(frozen=True, slots=True)
class Report:
    """Slots that a process said were not run, a slot being due each second."""

    cause: str
    count: int
    first: int
    last: int

    @classmethod
    def of(cls, detail: str) -> Report:
        cause, *numbers = detail.split(":")
        return cls(cause, *map(int, numbers))

    def slots(self) -> range:
        found = range(self.first, self.last + SECOND, SECOND)
        assert len(found) == self.count, f"{self}: there are {len(found)} slots from first to last"
        return found


def play(
    fleet: Fleet, seed: str, times: int, *, pause: float, tell: Callable[[HandOver], None] | None = None
) -> Account:
    """So many hand-overs, each up to `pause` seconds after the last, then the account."""
    random = Random(f"slots {seed}")
    account = Account()

    def start() -> None:
        fleet.start(APP, seed=seed, offset=round(random.uniform(-OFF, OFF), 3))

    for _ in range(REPLICAS):
        start()
    for job in JOBS:
        wait_for(lambda job=job: fleet.runs(job), what="the first run")  # type: ignore[misc]  # binds it
    kinds = [signal.SIGTERM, signal.SIGKILL] * (times // 2)
    random.shuffle(kinds)
    for kind in kinds:
        time.sleep(random.uniform(0, pause))
        job = random.choice(JOBS)
        wait_for(lambda job=job: _led(fleet, job), what=f"a leader of {job}")  # type: ignore[misc]  # binds it
        done = hand_over(fleet, kind, job=job)
        start()
        fleet.replicas[done.old].end()
        account.hand_overs[kind.name] += 1
        if tell is not None:
            tell(done)
    _settle(fleet)
    for job in JOBS:
        workers = fleet.replicas.values()
        ran = [int(stamp.detail.split(":")[1]) for worker in workers for stamp in worker.stamps("start", job)]
        reports = [Report.of(stamp.detail) for worker in workers for stamp in worker.stamps("missed", job)]
        account.add(job, ran, reports)
        account.overlaps += len(overlaps(fleet.runs(job)))
    return account


def _led(fleet: Fleet, job: str) -> bool:
    """Whether a process that lives holds the lease: a killed one's ends at another moment for each of its jobs."""
    holder = fleet.lease(job).holder
    return holder is not None and fleet.replicas[holder].process.poll() is None


def _settle(fleet: Fleet) -> None:
    """Let each job run on under its newest leader, then end all processes in good order.

    So the account takes in what the last hand-over left out. Where clocks are 4 s apart, that takes as long.
    """
    replicas = fleet.replicas
    before: dict[tuple[str, str], int] = {
        (job, name): len(one.stamps("start", job)) for job in JOBS for name, one in replicas.items()
    }

    def runs_on(job: str) -> bool:
        holder = fleet.lease(job).holder
        return holder is not None and len(replicas[holder].stamps("start", job)) > before[job, holder]

    for job in JOBS:
        wait_for(lambda job=job: runs_on(job), what=f"a run of {job}")  # type: ignore[misc]  # binds it
    for replica in replicas.values():
        if replica.process.poll() is None:
            replica.signal(signal.SIGTERM)
    for replica in replicas.values():
        replica.end()
