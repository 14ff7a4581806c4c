"""`LoneService`: the service of the only replica there is, which leads each of its jobs and never has to renew a lease.

Elector, heartbeat, runners and the rules of a store are the ones of production. The leases outlast every test, so the
heartbeat acts only when a term begins or ends, when a slot is claimed, and when somebody stops the app.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any

from .._core.protocol import Granted
from .._jobs.handles import Run
from .._jobs.options import AppOptions
from .._runtime.service import Service
from ..stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .._core.protocol import Batch, Reply
    from .._core.values import Event
    from .._jobs.definition import JobDefinition
    from .._jobs.options import JobOptions
    from .._jobs.sheets import OptionNote
    from .._runtime.heartbeat import Heartbeat
    from .._system.clock import Clock
    from .._system.worker_threads import DaemonWorker

__all__ = ["LoneService", "LoneStore", "with_remaining"]

NODE = "test-00000000"
"""The node id of the only replica."""

FOREVER = 2e9
"""Seconds. One third of it, the time that a call to the store may take, is longer than a virtual world lasts."""

LEFT_BEHIND_AFTER = 0.5
"""Seconds that a run has for its end after its test has given up waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options(AppOptions):
    """The options of an app, with leases that outlast every test."""

    def of_job(self, name: str, own: Mapping[str, object]) -> JobOptions:
        return replace(AppOptions.of_job(self, name, own), lock_expiry=FOREVER)


class LoneStore(MemoryStore):
    """A store in memory for one replica. With `token`, each term gets that fencing token."""

    def __init__(self, clock: Clock, token: int | None = None) -> None:
        super().__init__(clock)
        self._token = token

    async def exchange(self, batch: Batch) -> Reply:
        reply = await super().exchange(batch)
        if self._token is None:
            return reply
        for request, verdict in zip(batch.requests, reply.verdicts, strict=False):
            if isinstance(verdict, Granted):
                self._records[batch.project, request.job].token = self._token
        return reply._replace(
            verdicts=tuple(
                verdict._replace(token=self._token) if isinstance(verdict, Granted) else verdict
                for verdict in reply.verdicts
            )
        )


class LoneService(Service):
    """Runs `jobs` on the running loop, whose time `clock` must show. `record` gets each event at once."""

    def __init__(
        self,
        project: str,
        jobs: Iterable[JobDefinition],
        *,
        store: LoneStore,
        clock: Clock,
        record: Callable[[Event], None],
        worker: Callable[[str], DaemonWorker] | None = None,
        callbacks: list[Callable[[Event], None]] | None = None,
        values: Mapping[str, object] | None = None,
        notes: tuple[OptionNote, ...] = (),
    ) -> None:
        options = _Options(project=project, store=store, stall_limit=FOREVER, layers=(values or {},), notes=notes)
        super().__init__(
            options,
            list(jobs),
            callbacks=[] if callbacks is None else callbacks,
            clock=clock,
            start_heartbeat=self._beat_here,
            node=NODE,
            draw=lambda: 0.5,  # so that a back-off takes its nominal time
            worker=worker,
        )
        publish = self.tell

        def tell(event: Event) -> None:
            record(event)
            publish(event)

        self.tell: Callable[[Event], None] = tell
        self.callbacks: list[Callable[[Event], None]] = [
            record
        ]  # otherwise events are made only while somebody subscribes

    def start(self) -> None:
        """Begin to lead, without what would wake the loop again and again: beats, signs of life and cut sleeps."""
        super().start()
        if self._settings:
            self._stamp_timer.cancel()
        timers: Any = self._timers
        for queue in (timers._boot, timers._wall):  # noqa: SLF001 - the clocks cannot step away from the loop's time
            queue.alarm._longest = inf  # noqa: SLF001 - as above
        heartbeat: Any = self._heartbeat
        heartbeat._interval = FOREVER  # noqa: SLF001 - the option stays as written for back-offs and live switches
        elector: Any = self._elector
        elector._beat = _never  # noqa: SLF001 - as above

    def _beat_here(self, heartbeat: Heartbeat) -> None:
        def ended(task: asyncio.Task[None]) -> None:
            self.heartbeat_ended(None if task.cancelled() else task.exception())

        heartbeat.start_here().add_done_callback(ended)

    async def stop_at_once(self) -> None:
        """Stop as where the loop is torn down: runs in flight are cancelled, and left behind if they go on."""
        stopping = self._begin_stop()
        await asyncio.sleep(0)  # a task that is cancelled before its first step does nothing at all
        self._heartbeat.post(self._shorten_drains)
        stopping.cancel()
        await asyncio.wait({stopping})

    def _shorten_drains(self, now: float) -> None:
        elector: Any = self._elector
        for job in elector._jobs.values():  # noqa: SLF001 - the grace of a job is what its options say
            job.drain_by = min(job.drain_by, now + LEFT_BEHIND_AFTER)

    def lose(self, job: str) -> None:
        """End the job's term as if the lease were somebody else's from this moment on."""
        lease = self.leases.get(job)
        if lease is not None:
            lease.end("lost")
            self.runners[job].end("lost", lease.token)

    def count_drops(self) -> None:
        """Count the ticks that the runs in flight have dropped so far."""
        for runner in self.runners.values():
            runner.refresh()


def _never(_seat: object) -> float:
    """Return how long a job's next beat is away."""
    return FOREVER


class _Shown(Run):
    """A run on a lease that looks as if it were renewed all the time."""

    __slots__ = ("_usable",)

    def __init__(self, run: Run, usable: float, previous: int | None) -> None:
        its: Any = run
        shown = its._lease, its._signal, its._scheduled, its._started, its._tick  # noqa: SLF001 - what a run consists of
        super().__init__(*shown, previous or its._previous)  # noqa: SLF001 - as above
        self._usable = usable

    @property
    def remaining(self) -> float:
        return min(self._usable, super().remaining)


def with_remaining(body: Callable[[Run], Any], usable: float, previous: int | None = None) -> Callable[[Run], Any]:
    """The body, which sees `usable` seconds of lease at each moment of the term, and `previous` as `previous_end`."""
    return lambda run: body(_Shown(run, usable, previous))
