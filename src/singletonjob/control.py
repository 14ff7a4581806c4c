"""What an operator does from any host that reaches the store: pause, resume, step down, trigger, forget.

Whoever may write the project's keys may do this. No replica is asked: an order is kept beside the lease, a notice tells
of it, and who leads reads it at once, or with its next beat if the notice is lost.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

from ._core.errors import ConfigError, StoreUnavailable
from ._core.orders import RAN, FollowTrigger, Forget, Look, Ordered, Pause, Resume, StepDown, Trigger
from ._core.protocol import Batch, Failed
from ._jobs.duration import positive
from ._system.clock import SystemClock
from .stores import from_url
from .stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import Self, TypeAlias

    from ._core.orders import Order, OrderOutcome, Paused
    from ._core.protocol import JobView
    from ._jobs.duration import Duration
    from ._jobs.sources import Resolved
    from .stores import LeaseStore

    Outcome: TypeAlias = Literal[OrderOutcome, "handed-over", "idle", "failed"]

__all__ = ["Control", "OrderResult", "control_of"]

BOUND = 2.0
"""Seconds that one exchange may take."""

LOOK_EVERY = 0.02
"""Seconds between two looks at what became of an order."""

GOOD = frozenset({"paused", "resumed", "not-paused", "handed-over", "idle", "started", "ran-ok", "forgotten"})

LONGEST_TEXT = 200
"""Characters of a reason: it stands beside the lease until somebody resumes the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderResult:
    """What came of an order for one job.

    `outcome` is `paused`, `resumed` or `not-paused`; `is-paused` (the job is paused already, so nothing was done);
    `handed-over` (another replica leads, `holder`), `idle` (the leader gave its term up and nobody else took the job in
    the time given), `asked` (it has not yet given it up); `started` or `withdrawn` (nobody took the trigger in time),
    `busy` (a run was in flight), `pending` (another trigger is waiting), `ran-ok`, `ran-failed`, `ran-cancelled` or
    `ran-timeout` (how the run ended); `forgotten`, `led` or `recent` (it is led, or it was led or ran within ten
    minutes, so it was not forgotten); `nobody` (there is no leader who could), `foreign` (the leader is another
    implementation, which reads no orders); `failed` (the store cannot serve this job: `error`).

    `holder` leads the job now, as far as was seen; `seconds` is what it took from the order until the outcome was seen.
    `pause` is in force now, and `was` until this order replaced or ended it.
    """

    job: str
    outcome: Outcome
    holder: str | None = None
    seconds: float = 0.0
    error: str = ""
    pause: Paused | None = None
    was: Paused | None = None

    @property
    def good(self) -> bool:
        """Whether what was wanted holds now."""
        return self.outcome in GOOD


class Control:
    """Orders for the jobs of `project`, whose leases are in `store`: a URL, or a store of its own.

    `known` are names of jobs that may never have been led yet; all others are looked up in the store. `heartbeat`
    tells a job's heartbeat interval in seconds. Every method is a coroutine, opens its own connection, and raises
    `ConfigError` for a name that is no job's, `StoreError` where the store does not answer: then it is not known
    whether the order was given.
    """

    def __init__(
        self,
        project: str,
        store: str | LeaseStore,
        *,
        known: Collection[str] = (),
        heartbeat: Callable[[str], float] = lambda _job: 3.0,
    ) -> None:
        self._project = project
        self._store = store
        self._known = frozenset(known)
        self._heartbeat = heartbeat
        self._clock = SystemClock()

    async def jobs(self) -> tuple[JobView, ...]:
        """How each job stands in the store, in the order of their names. Raises `StoreError`."""
        async with self._desk() as desk:
            return await desk.store.peek(self._project)

    async def pause(
        self,
        jobs: str,
        *,
        reason: str = "",
        lasting: Duration | None = None,
        by: str | None = None,
        replace: bool = False,
    ) -> tuple[OrderResult, ...]:
        """Let nobody run the job, or all whose names match the pattern `jobs` (`'price-*'`, `'*'`).

        Who leads gives its lease back once the run in flight has ended, within its `shutdown_grace`. The pause outlives
        every replica. It ends after `lasting`, on the store's clock, or else with `resume`. `by` is who says so
        (default: this user and host). A job that is paused already stays as it is (outcome `is-paused`), unless
        `replace` is true. One result for each job. Raises `ConfigError`, also for a `lasting` that is no
        duration above 0, and `StoreError`.
        """
        seconds = None if lasting is None else positive(lasting, "pause: lasting")
        who, why = _plain(by or _whoami(), ";"), _plain(reason)
        return await self._order(jobs, lambda job: Pause(job, who, why, seconds, replace))

    async def resume(self, jobs: str) -> tuple[OrderResult, ...]:
        """End the pause of the job, or of all whose names match the pattern `jobs`. Raises as `pause` does."""
        return await self._order(jobs, Resume)

    async def step_down(self, job: str) -> OrderResult:
        """Hand the job over to another replica.

        Who leads gives its lease back once the run in flight has ended, and stays away until another term began, or
        until its lease would have ended. Waits for that long to see who leads then. Raises `ConfigError`, also for a
        pattern, and `StoreError`.
        """
        async with self._desk() as desk:
            begun = self._clock.boot()
            await desk.names(_exact(job))
            first = await desk.ask(StepDown(job))
            if not isinstance(first, Ordered) or first.outcome != "asked":
                return self._result(job, first, begun)
            until, seen_free = begun + (first.expires_in or 10.0), False
            while True:
                now = await desk.ask(Look(job))
                if isinstance(now, Failed) or now.holder not in (None, first.holder):
                    outcome: Outcome = "handed-over"
                    break
                seen_free = seen_free or now.holder is None
                if self._clock.boot() >= until:
                    outcome = "idle" if seen_free else "asked"
                    break
                await asyncio.sleep(LOOK_EVERY)
            return self._result(job, now, begun, outcome)

    async def trigger(self, job: str, *, wait: Duration | None = None, wait_end: bool = False) -> OrderResult:
        """Have the leader run the job once more, now. At most once, and not while a run is in flight.

        What was not begun within `wait` (default: two heartbeats of the job) is withdrawn, and never begins. Returns
        when the run has begun, or will not begin; with `wait_end`, when it has ended. If its leader goes before it has
        reported the end, the outcome is `started`: the end is not known. Raises as `step_down` does.
        """
        seconds = 2 * self._heartbeat(job) if wait is None else positive(wait, "trigger: wait")
        async with self._desk() as desk:
            begun = self._clock.boot()
            await desk.names(_exact(job))
            name = secrets.token_hex(4)
            answer = await desk.ask(Trigger(job, name, seconds))
            if isinstance(answer, Ordered) and answer.outcome == "asked":
                answer = await desk.ask(FollowTrigger(job, name))
                while isinstance(answer, Ordered) and answer.outcome == "pending":
                    await asyncio.sleep(LOOK_EVERY)
                    answer = await desk.ask(FollowTrigger(job, name, withdraw=self._clock.boot() >= begun + seconds))
                if not wait_end and isinstance(answer, Ordered) and answer.outcome in RAN.values():
                    answer = answer._replace(outcome="started")  # its run has ended already
                leader = answer.holder if isinstance(answer, Ordered) else None
                while wait_end and isinstance(answer, Ordered) and answer[:2] == ("started", leader):
                    await asyncio.sleep(LOOK_EVERY)
                    answer = await desk.ask(FollowTrigger(job, name))
            return self._result(job, answer, begun)

    async def forget(self, jobs: str) -> tuple[OrderResult, ...]:
        """Delete what the store keeps of the job, or of all whose names match the pattern `jobs`: of a job that was
        renamed or removed.

        Refused for a job that is led, paused, or known to this control (`known`), and for one that was led or ran
        within the last ten minutes: a replica with a slow clock could repeat its last slot. Raises as `pause` does.
        """
        async with self._desk() as desk:
            used = sorted(self._known & set(await desk.names(jobs)))
        if used:
            raise ConfigError(f"the app has the job {', '.join(used)}; remove it from the code first")
        return await self._order(jobs, Forget)

    def _desk(self) -> _Desk:
        return _Desk(self._project, self._store, self._known)

    async def _order(self, jobs: str, order: Callable[[str], Order]) -> tuple[OrderResult, ...]:
        async with self._desk() as desk:
            begun = self._clock.boot()
            names = await desk.names(jobs)
            answers = await desk.ask_all([order(name) for name in names])
            return tuple(self._result(name, answer, begun) for name, answer in zip(names, answers, strict=True))

    def _result(self, job: str, answer: Ordered | Failed, begun: float, outcome: Outcome | None = None) -> OrderResult:
        seconds = self._clock.boot() - begun
        if isinstance(answer, Failed):
            return OrderResult(job=job, outcome="failed", seconds=seconds, error=answer.error)
        found = outcome or answer.outcome
        return OrderResult(
            job=job, outcome=found, holder=answer.holder, seconds=seconds, pause=answer.pause, was=answer.was
        )


def control_of(resolved: Resolved, *, running: bool = True) -> Control:
    """The control of an app whose options are these.

    `running`: the app may run in this process. Raises `ConfigError` if its store cannot be shared then.
    """
    options = resolved.options()
    if running and not isinstance(options.store, str | MemoryStore):
        raise ConfigError(
            "control: the app's store is an object, which only its heartbeat may use; name the store by its URL, or"
            " make a Control(project, store) with a store of its own"
        )
    known = [job.name for job in resolved.jobs]

    def heartbeat(job: str) -> float:
        return (resolved.of_job(job) if job in known else options.of_job(job, {})).heartbeat_interval

    return Control(options.project, options.store, known=known, heartbeat=heartbeat)


class _Desk:
    """One connection to the store, for as long as one method needs it."""

    def __init__(self, project: str, store: str | LeaseStore, known: Collection[str]) -> None:
        self.store = from_url(store) if isinstance(store, str) else store
        self._own = isinstance(store, str)
        self._project = project
        self._known = known
        self._node = f"operator-{secrets.token_hex(8)}"  # holds no lease, ever

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        if self._own:
            await self.store.close()

    async def names(self, pattern: str) -> list[str]:
        """The jobs that a name or a pattern means. Raises `ConfigError` where it means none."""
        if pattern in self._known:
            return [pattern]  # also before anybody used the store
        names = sorted({*self._known, *(view.job for view in await self.store.peek(self._project))})
        found = [name for name in names if fnmatchcase(name, pattern)]
        if not found:
            raise ConfigError(
                f"{pattern!r} is no job of the project {self._project}; its jobs are: {', '.join(names) or 'none yet'}"
            )
        return found

    async def ask(self, order: Order) -> Ordered | Failed:
        (answer,) = await self.ask_all([order])
        return answer

    async def ask_all(self, orders: Sequence[Order]) -> list[Ordered | Failed]:
        reading = await self.store.exchange(Batch(self._project, self._node, BOUND))
        void_at = reading.clock + int(0.99 * BOUND * 1e6)  # what was given up here must not be carried out later
        batch = Batch(self._project, self._node, BOUND, void_at, tuple(orders))
        reply = await self.store.exchange(batch)
        if reply.void:
            raise StoreUnavailable("the store ran the order later than it is good for; nothing was done")
        return [answer for answer in reply.verdicts if isinstance(answer, Ordered | Failed)]


def _exact(job: str) -> str:
    """One job's name, which is no pattern: names hold no such signs."""
    if set(job) & set("*?["):
        raise ConfigError(f"{job!r} is a pattern; name one job")
    return job


def _plain(text: str, unwanted: str = "") -> str:
    """What can stand beside a lease: one line, of no more than `LONGEST_TEXT` characters."""
    kept = "".join(" " if not sign.isprintable() or sign in unwanted else sign for sign in text)
    return kept[:LONGEST_TEXT].strip()


def _whoami() -> str:
    user = str(os.geteuid())
    with suppress(KeyError, OSError, ImportError):  # in a container, a user may have no name
        user = getpass.getuser()
    return f"{user}@{socket.gethostname()}"
