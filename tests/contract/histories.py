"""Random histories: what a few replicas ask of a store, one batch after the other, as badly as a network can bring it.

A history is made as it goes, from a seed and from what a model of the store has answered so far: who asks blindly is
refused nearly always, and a refusal tells little.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from singletonjob.stores.memory import MemoryStore
from singletonjob.stores.orders import RAN, FollowTrigger, Forget, Look, Pause, Resume, StepDown, Trigger
from singletonjob.stores.protocol import Acquire, Batch, ClaimSlot, Granted, Progress, Release, Renew, TakeTrigger
from singletonjob.stores.rules import AHEAD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from singletonjob._system.clock import Clock
    from singletonjob.stores.protocol import Reply, Request
    from singletonjob.stores.rules import Record

__all__ = ["JOBS", "SECOND", "History"]

SECOND = 1_000_000

NODES = ("n-1", "n-10", "n")
JOBS = ("x", "y", "X")
TRIGGERS = ("1a", "1", "b")

GOOD_FOR = 60 * SECOND
"""A batch that is not meant to be void is good for so long: longer than any real time that a history takes."""


class History:
    """One history, in a project of its own.

    `leases` are the lengths that replicas ask for, in seconds. `model` answers by the rules, on a clock that the
    history's owner moves.
    """

    def __init__(self, seed: int, clock: Clock, *, leases: Sequence[float]) -> None:
        self.project = f"p-{seed}"
        self.model = MemoryStore(clock)
        self._clock = clock
        self._leases = leases
        self._random = Random(seed)
        self._numbers = dict.fromkeys(NODES, 0)
        self._tokens = {job: [1] for job in JOBS}
        self._sent: list[Batch] = []
        self.length = self._random.randint(12, 24)

    def next_batch(self, now: int) -> Batch:
        """What comes next, on a store whose clock says `now`, in microseconds."""
        draw = self._random
        if self._sent and draw.random() < 0.2:
            # Arrived twice, or overtaken by later ones; void now, perhaps.
            return draw.choice(self._sent[-6:])
        first = draw.choice(JOBS)
        node = self.record(first).holder
        if node is None or draw.random() < 0.3:
            node = draw.choice(NODES)
        jobs = [first, *(draw.choice(JOBS) for _ in range(draw.choice((0, 0, 1, 2, 4))))]
        void_at = draw.choice((None, None, *[now + GOOD_FOR] * 7, now, now - 1, now - SECOND))
        requests = tuple(self._request(node, job) for job in jobs)
        return Batch(project=self.project, node=node, bound=5.0, void_at=void_at, requests=requests)

    async def answer(self, batch: Batch) -> Reply:
        """What the model says to it."""
        reply = await self.model.exchange(batch)
        self._sent.append(batch)
        for request, verdict in zip(batch.requests, reply.verdicts, strict=False):
            if isinstance(verdict, Granted):
                self._tokens[request.job].append(verdict.token)
        return reply

    def record(self, job: str) -> Record:
        """What must be kept of a job; a lease that is over has been cleared, which no store needs to write down."""
        record = self.model._records[self.project, job]
        if record.expires is not None and record.expires <= int(self._clock.boot() * 1e6):
            return replace(record, holder=None, expires=None)
        return record

    def expire(self, job: str) -> None:
        """The job's lease ends now."""
        self.model._records[self.project, job].expires = 0

    # -- one request -----------------------------------------------------------------------------------------------

    def _request(self, node: str, job: str) -> Request:
        draw = self._random
        if draw.random() < 0.25:
            return self._order(job)
        kind = draw.choice("AARRRDCCCC") if self.record(job).holder == node else draw.choice("AAAARDC")
        if self.record(job).trigger and draw.random() < 0.5:
            kind = "K"
        if kind == "A":
            if draw.random() < 0.75:
                self._numbers[node] += draw.choice((1, 1, 1, 7))
            above = draw.choice(
                (0, 0, 0, self._tokens[job][-1], self._tokens[job][-1] + 5, self._clock.wall() + SECOND)
            )
            return Acquire(job=job, number=self._number(node), lock_expiry=draw.choice(self._leases), above=above)
        if kind == "R":
            return Renew(
                job=job, token=self._token(job), lock_expiry=draw.choice(self._leases), progress=self._report(job)
            )
        if kind == "D":
            off, unused = draw.random() < 0.3, draw.random() < 0.2
            return Release(job=job, number=self._number(node), progress=self._report(job), off=off, unused=unused)
        if kind == "K":
            return TakeTrigger(job=job, token=self._token(job), id=self._trigger(job), busy=draw.random() < 0.5)
        return ClaimSlot(job=job, token=self._token(job), slot=self._instant(job), mark=draw.choice(("m", "k;:", "")))

    def _order(self, job: str) -> Request:
        draw, record = self._random, self.record(job)
        kinds = "PPSSTTTTFFLD"
        if record.paused:
            kinds += "UUUUUUUU"
        if record.trigger or record.triggered:
            kinds += "FFFFFF"
        match draw.choice(kinds):
            case "P":
                return Pause(
                    job,
                    "ann@host",
                    draw.choice(("", "k;:")),
                    seconds=draw.choice((None, 3.0, 60.0)),
                    replace=draw.random() < 0.5,
                )
            case "U":
                return Resume(job)
            case "S":
                return StepDown(job)
            case "T":
                return Trigger(job, draw.choice(TRIGGERS), seconds=draw.choice((3.0, 600.0, 600.0)))
            case "L":
                return Look(job)
            case "D":
                return Forget(job)
            case _:
                return FollowTrigger(job, self._trigger(job), withdraw=draw.random() < 0.3)

    def _trigger(self, job: str) -> str:
        """The id of the trigger that waits, or of the last one that was seen to, mostly."""
        draw, record = self._random, self.record(job)
        known = [name for name in (record.trigger.partition(";")[2], record.triggered.partition(";")[0]) if name]
        return draw.choice(known) if known and draw.random() < 0.8 else draw.choice(TRIGGERS)

    def _number(self, node: str) -> int:
        """Mostly the newest; else an older one, as in a late or repeated request."""
        newest = self._numbers[node]
        return max(newest - self._random.choice((0, 0, 0, 0, 1, 2, 10)), 0)

    def _token(self, job: str) -> int:
        draw = self._random
        if draw.random() < 0.7:
            return self._tokens[job][-1]
        return draw.choice((*self._tokens[job], self._tokens[draw.choice(JOBS)][-1], self._tokens[job][-1] + 1))

    def _instant(self, job: str) -> int:
        """A slot or tick around now, around the last one, or where only a wrong clock can have it."""
        draw, wall = self._random, self._clock.wall()
        stored = self.record(job).slot
        if stored is not None and draw.random() < 0.4:
            return stored + draw.choice((-1, 0, 0, 1))
        return wall + draw.choice((0, 0, AHEAD)) + draw.choice((-2000, -30, -3, -1, 0, 1, 3, 30)) * SECOND

    def _report(self, job: str) -> Progress:
        draw = self._random

        def perhaps(instant: int) -> int | None:
            return instant if draw.random() < 0.4 else None

        runs = draw.randint(1, 9)
        return Progress(
            tick=perhaps(self._instant(job)),
            done=perhaps(self._instant(job)),
            ended_ago=draw.choice((None, 0.0, 0.25, 5.0, 0.1234567)),
            settled=perhaps(self._instant(job)),
            outcome=draw.choice(("", "ok", "failed", "cancelled", "timeout")),
            runs=runs,
            failures=draw.randint(0, runs),
            good_ago=draw.choice((None, 0.0, 0.25, 5.0, 0.1234567)),
            finished=draw.choice(("", "", *(f"{self._trigger(job)};{outcome}" for outcome in RAN))),
        )
