"""The runner: one task per job on the job loop, which waits, checks, runs the body, and drains.

A term reaches it as `begin`; `drain` and `end` tell it to stop, as section "a run in flight" of the documentation
tabulates. When no body of the term runs any more it says so to the elector, exactly once per term: only then is the
lease released, or asked for again.

Over 300 lines: how a run starts, how it is stopped and how it ends are one subject, and each reads what another writes.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from functools import partial
from logging import DEBUG
from math import inf
from types import CoroutineType
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from ._errors import LeadershipLost
from ._lease import Fence, Run, StopSignal, Term, instant
from ._model import Elected, Misfired, RunFinished, RunStarted, SteppedDown, TicksDropped
from .scope import Scope
from .sleeper import Sleeper
from .stats import Counts
from .stores.protocol import Claimed, ClaimSlot

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ._clock import Clock
    from ._election import Elector
    from ._heartbeat import Heartbeat
    from ._lease import Lease
    from ._model import MisfireCause, Now, Outcome, Reason
    from ._schedule import Due, Missed, Ticker
    from ._service import Service
    from ._timer import Timer, Timers
    from .jobs.definition import JobDefinition
    from .jobs.options import JobOptions
    from .journal import Journal
    from .stores.protocol import JobState, NotClaimed
    from .threads import DaemonWorker

__all__ = ["Runner"]

HELD_BACK = 0.05
"""How long a sync run that must not start yet waits before it looks again, in seconds."""

H = TypeVar("H")

Result: TypeAlias = "tuple[Outcome, BaseException | None] | None"
"""How a call of the user's code ended; None: it was not made, because the term did not allow it."""

RAN_WELL: Result = ("ok", None)


class Runner:
    """Runs one job while this replica leads it. All of it runs on the job loop, but for sync bodies."""

    def __init__(
        self,
        job: JobDefinition,
        options: JobOptions,
        *,
        clock: Clock,
        timers: Timers,
        elector: Elector,
        heartbeat: Heartbeat,
        journal: Journal,
        service: Service,
    ) -> None:
        self.job = job
        self.options = options
        self.counts = Counts(clock)
        self.lease: Lease | None = None  # of the term in hand, also while its last run ends
        self._clock = clock
        self._timers = timers
        self._elector = elector
        self._heartbeat = heartbeat
        self._journal = journal
        self._service = service
        self._state: JobState
        self._last: Lease | None = None  # of the newest term of this replica
        self._reason: Reason | None = None  # why no more runs start
        self._grace_until = inf  # when the run in flight is cancelled, by our own wish
        self._cut: str | None = None  # why the call in flight was cancelled
        self._scope: Scope
        self._on_call = False  # the user's code runs on the loop, within the scope
        self._signal = StopSignal(None)  # of the run in flight, or of the next one
        self._timer: Timer | None = None  # its end by timeout or grace
        self._task: asyncio.Task[None]
        self._sleeper: Sleeper
        self._answer: asyncio.Future[Claimed | NotClaimed] | None = None
        self._in_flight: tuple[Lease, Due, Ticker] | None = None
        self._previous_end: int | None = None
        self._dropping = False  # the last tick was not run
        self._worker: DaemonWorker | None = None

    # -- what the heartbeat and the app tell -----------------------------------------------------------------------

    def begin(self, lease: Lease, state: JobState) -> None:
        """A term began."""
        last, self._last = self._last, lease
        if last is not None:  # the end of a run that outlived its term could not be written any more
            lease.tick, lease.done, lease.ended_at = last.tick, last.done, last.ended_at
        self.lease, self._state, self._reason, self._grace_until = lease, state, None, inf
        self._sleeper.wake()

    def drain(self, reason: Reason, token: int | None = None) -> None:
        """Start no more runs; let the one in flight end, within its grace."""
        lease = self.lease
        if lease is None or token not in (None, lease.token):
            return
        lease.stopping = True
        self._reason = self._reason or reason
        now = self._clock.boot()
        if reason != "disabled":
            self._grace_until = min(self._grace_until, now + self.options.shutdown_grace)
        elif self.options.cancel_on_lost_leadership:
            self._grace_until = now
        self._stop_run()

    def end(self, reason: Reason, token: int | None = None) -> None:
        """The term is over: what runs now runs without the lease."""
        lease = self.lease
        if lease is None or token not in (None, lease.token):
            return
        if lease.in_thread and not lease.over:
            self._journal.warn("run-without-lease", "a sync run goes on without the lease", self.job.name)
        lease.stopping = lease.over = True
        self._reason = reason
        if self.options.cancel_on_lost_leadership:
            self._grace_until = self._clock.boot()
        self._stop_run()

    def answer(self, claim: ClaimSlot, verdict: Claimed | NotClaimed) -> None:
        """The store's word on a slot."""
        lease = self.lease
        if lease is not None and lease.token == claim.token and self._answer is not None and not self._answer.done():
            self._answer.set_result(verdict)

    def look(self) -> None:
        """Count what the run in flight has dropped so far; asked once a second, since a run that hangs never ends."""
        if self._in_flight is not None:
            lease, due, ticker = self._in_flight
            if due.tick is not None:
                _, late, missed = ticker.ended(due, self._clock.now())
                self._account(lease, late, missed, "overlap")

    def _stop_run(self) -> None:
        if self._in_flight is not None:
            self._signal.give()
        if self._on_call and self._grace_until < inf:
            self._limit_run()
        if self.lease is not None and self.lease.over and self._answer is not None and not self._answer.done():
            self._answer.cancel()
        self._sleeper.wake()

    # -- the task --------------------------------------------------------------------------------------------------

    def start(self) -> asyncio.Task[None]:
        """Serve one term after the other, until cancelled: the task that does."""
        loop = asyncio.get_running_loop()
        self._sleeper = Sleeper(loop)
        self._task = loop.create_task(self._run(), name=f"singletonjob {self.job.name}")
        self._scope = Scope(self._task)
        return self._task

    async def _run(self) -> None:
        try:
            while True:
                if self.lease is None:
                    await self._sleeper
                else:
                    await self._reign(self.lease)
        finally:
            if self._worker is not None:
                self._worker.stop()
                self._worker = None

    async def _reign(self, lease: Lease) -> None:
        fence = Fence(self._timers, lease, partial(self.end, "expired"))
        self.counts.terms += 1
        if self._service.callbacks:
            self._service.tell(Elected(job=self.job.name, token=lease.token))
        died = True
        try:
            if await self._elected(lease):
                try:
                    await self._follow_schedule(lease)
                except Exception as error:  # the user's interval, say; else the key is held for nothing
                    self._journal.failed("schedule-failed", f"giving the term up: {error}", error, self.job.name)
                    self._resign(lease)
                await self._stepped_down(lease)
            died = False
        finally:
            fence.close()
            self.lease = None
            self._service.alive()
            if not lease.in_thread:
                self._drained(lease, died=died)
            if self._service.callbacks:
                self._service.tell(SteppedDown(job=self.job.name, token=lease.token, reason=self._reason or "resigned"))

    def _resign(self, lease: Lease) -> None:
        """Give the term up; this replica asks for the lease again after a back-off."""
        self._reason = self._reason or "resigned"
        self._heartbeat.post(lambda _now: self._elector.resign(lease.job, lease.token))

    def _drained(self, lease: Lease, *, died: bool) -> None:
        self._heartbeat.post(lambda now: self._elector.drained(now, lease.job, lease.token, died=died))

    async def _follow_schedule(self, lease: Lease) -> None:
        state, now = self._state, self._clock.now()
        if lease.ended_at is not None:  # the store may not know of this replica's last run yet
            own = now.boot - lease.ended_at
            state = state._replace(
                done=max(lease.done or 0, state.done or 0) or None,
                ended_ago=own if state.ended_ago is None else min(own, state.ended_ago),
            )
        if state.ended_ago is not None:
            self._previous_end = max(self._previous_end or 0, now.wall - int(state.ended_ago * 1e6))
        ticker = self.job.schedule.ticker(now, state)
        while self._reason is None:
            wall, boot = ticker.wake(now)
            timer: Timer | None = None
            if wall is not None:
                timer = self._timers.at_wall(wall, self._sleeper.ring)
            elif boot is not None:
                timer = self._timers.at_boot(boot, self._sleeper.ring)
            else:
                self._journal.warn("no-future-slot", "the schedule has no future slot; nothing will run", self.job.name)
            await self._sleeper
            if timer is not None:
                timer.cancel()
            if self._reason is not None:
                return
            now = self._clock.now()
            if ticker.settled is not None and not lease.valid():
                # Awake again before the fence. Slots are the next leader's to run or to report; it may be long gone.
                self.end("expired")
                return
            due, late, missed = ticker.take(now)
            if late or missed:
                self._account(lease, late, missed, "late")
            if due is not None:
                if due.slot is None:
                    now = await self._execute(lease, due, ticker, now)
                elif await self._claim(lease, due):
                    now = await self._execute(lease, due, ticker, self._clock.now())
            # Only now: a slot that is given out but not claimed yet would be lost in a crash, and unseen.
            lease.settled = ticker.settled

    async def _claim(self, lease: Lease, due: Due) -> bool:
        """Whether the slot is this term's. Asked until answered, or until it would be too late to run."""
        assert due.slot is not None  # noqa: S101 - only slots are claimed
        claim = ClaimSlot(job=self.job.name, token=lease.token, slot=due.slot, mark=self.job.schedule.mark)
        self._answer = asyncio.get_running_loop().create_future()
        self._heartbeat.post(lambda now: self._elector.claim(now, claim))
        timer = None if due.latest is None else self._timers.at_wall(due.latest, self._too_late)
        try:
            verdict = await self._answer
        except asyncio.CancelledError:
            if self._being_ended():
                raise
            self._heartbeat.post(lambda _now: self._elector.withdraw(self.job.name))
            self._misfired(lease, 1, due.slot, due.slot, "stopped" if lease.over else "late")
            return False
        finally:
            self._answer = None
            if timer is not None:
                timer.cancel()
        if isinstance(verdict, Claimed):
            return True
        if verdict.why != "lost":
            self._misfired(lease, 1, due.slot, due.slot, "clock" if verdict.why == "ahead" else "taken", verdict.wall)
        return False

    def _too_late(self) -> None:
        """The claim got no answer in time; a step of the wall clock wakes us too, and then the claim is as late."""
        if self._answer is not None and not self._answer.done():
            self._answer.cancel()

    # -- one run ---------------------------------------------------------------------------------------------------

    async def _execute(self, lease: Lease, due: Due, ticker: Ticker, started: Now) -> Now:
        """Run the body for what is due, if the term allows it; the moment at which that was over."""
        job, (scheduled, tick, slot, _) = self.job, due
        claimed = slot is not None
        while lease.valid() and (claimed or not lease.stopping):
            wall, boot = started
            if not job.is_async and self._overdue(lease):
                if tick is not None:
                    break
                timer = self._timers.at_boot(boot + HELD_BACK, self._sleeper.ring)
                await self._sleeper
                timer.cancel()
                started = self._clock.now()
                continue
            lateness = (wall - scheduled) / 1e6
            if self._signal.given or not job.is_async:
                self._signal = StopSignal(None if job.is_async else threading.Event())
            if self._reason is not None:
                self._signal.give()  # a claimed slot starts although a stop arrived meanwhile
            run = Run(lease, self._signal, scheduled=scheduled, started=wall, tick=tick, previous=self._previous_end)
            if tick is not None:
                lease.tick = scheduled
            if self.options.timeout is not None:
                # Even without a grace it takes a moment to unwind.
                lease.limit = boot + self.options.timeout + max(self.options.shutdown_grace, self.options.margin)
            lease.run_started = boot
            telling = self._service.callbacks or self._journal.says(DEBUG)
            if telling:
                self._tell_start(lease, due, lateness)
            try:
                self._in_flight, self._cut = (lease, due, ticker), None
                call = self._on_loop if job.is_async else self._in_thread
                result = await call(lease, job.body, run, claimed=claimed)
            finally:
                self._in_flight = None
                lease.run_started = None
                if not lease.in_thread:  # a body that goes on without its task is still held to its time
                    lease.limit = inf
            if result is not None:
                ended = self._clock.now()
                lease.done = slot
                self._previous_end, lease.ended_at = ended
                self.counts.ran(result[0], lateness, lease.ended_at - boot, ended)
                if telling or self._dropping or result is not RAN_WELL:
                    self._tell_end(lease, lease.ended_at - boot, *result)
                _, late, missed = ticker.ended(due, ended)
                if late or missed:
                    self._account(lease, late, missed, "overlap")
                if self._task.cancelling():
                    raise asyncio.CancelledError  # the body swallowed it
                return ended
            if tick is not None:
                break
            started = self._clock.now()
        if slot is not None:
            self._misfired(lease, 1, slot, slot, "stopped")
        elif tick is not None:
            self.counts.dropped_late += 1
            self._dropped(lease, 1, "late")
        return self._clock.now()

    def _tell_start(self, lease: Lease, due: Due, lateness: float) -> None:
        name = self.job.name
        self._journal.run_started(name, lease.token, lateness)
        if self._service.callbacks:
            self._service.tell(
                RunStarted(job=name, token=lease.token, scheduled=due.scheduled, tick=due.tick, lateness=lateness)
            )

    def _tell_end(self, lease: Lease, seconds: float, outcome: Outcome, error: BaseException | None) -> None:
        name = self.job.name
        if self._dropping:
            self._dropping = False
            self._journal.tick_ran(name)
        self._journal.run_ended(name, lease.token, outcome, seconds)
        if error is not None:
            self._journal.run_failed(name, lease.token, error)
        elif outcome == "timeout":
            self._journal.warn("run-timeout", f"run ended at its timeout of {self.options.timeout:g} s", name)
        elif outcome == "cancelled":
            self._journal.run_cancelled(name, lease.token, self._cut or self._reason or "lost")
        if self._service.callbacks:
            self._service.tell(RunFinished(job=name, token=lease.token, outcome=outcome, duration=seconds, error=error))

    def _overdue(self, lease: Lease) -> bool:
        """Whether a renewal is: what cannot be cancelled must not start on a lease that is about to be lost."""
        return self._clock.boot() - lease.sent > self.options.heartbeat_interval + self.options.call_timeout

    async def _on_loop(self, lease: Lease, call: Callable[[H], object], handle: H, *, claimed: bool) -> Result:
        """Call the user's code inside the fence; the check is the last thing before it."""
        self._cut, self._on_call = None, True
        try:
            if self._grace_until < inf or self.options.timeout is not None:
                self._limit_run()
            if not lease.valid() or (lease.stopping and not claimed):
                return None
            answer = call(handle)
            if isinstance(answer, CoroutineType) or inspect.isawaitable(answer):
                await answer
            return RAN_WELL
        except BaseException as error:
            return self._ended_by(error, lease, ours=self._scope.close())
        finally:
            self._on_call = False
            if self._scope.ended:
                self._scope.close()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    async def _in_thread(self, lease: Lease, call: Callable[[H], object], handle: H, *, claimed: bool) -> Result:
        """Call a sync body in its thread; what it returns is awaited on the loop if it can be."""
        context = contextvars.copy_context()
        orphaned = False
        turn = threading.Lock()  # taken by whichever comes first: the thread that begins, or our end from outside

        def call_in_thread() -> tuple[bool, object]:
            if not turn.acquire(blocking=False):
                return False, None
            try:
                if not lease.valid() or self._overdue(lease) or (lease.stopping and not claimed):
                    return False, None
                return True, context.run(call, handle)
            finally:
                lease.in_thread = False
                if orphaned:
                    self._drained(lease, died=True)

        if self._worker is None:
            self._worker = self._service.worker(f"singletonjob-{self.job.name}")
        if self._timeout_at() < inf:
            self._timer = self._timers.at_boot(self._timeout_at(), self._time_out)
        lease.in_thread = True
        try:
            called, answer = await self._worker.run(call_in_thread)
        except asyncio.CancelledError as error:
            if not self._being_ended():
                return "failed", error
            # A body that has begun goes on; it is told to end, and says when it has.
            if turn.acquire(blocking=False):
                lease.in_thread = False
            orphaned = True
            self._stop_run()
            raise
        except BaseException as error:
            return self._ended_by(error, lease)
        finally:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        if not called:
            return None
        if inspect.isawaitable(answer):
            result = await self._on_loop(lease, _identity, answer, claimed=True)
            if result is None and inspect.iscoroutine(answer):
                answer.close()  # the term ended meanwhile; else Python warns of one that was never awaited
            return result or ("cancelled", None)
        return ("timeout", None) if self._cut == "timeout" else RAN_WELL

    def _ended_by(self, error: BaseException, lease: Lease, *, ours: bool = False) -> Result:
        """What an exception out of the user's code means; `ours`: it is the end of our own scope.

        An end of our task, from outside, goes on its way.
        """
        if ours and isinstance(error, asyncio.CancelledError):
            return ("timeout" if self._cut == "timeout" else "cancelled"), None
        if isinstance(error, GeneratorExit) or (isinstance(error, asyncio.CancelledError) and self._being_ended()):
            raise error
        if isinstance(error, LeadershipLost) and not lease.valid():
            return "cancelled", None
        return "failed", error

    def _being_ended(self) -> bool:
        """Whether somebody from outside wants this task to end."""
        return self._task.cancelling() > 0

    # -- limits of the call in flight ------------------------------------------------------------------------------

    def _limit_run(self) -> None:
        """Arm the timer that ends the call on the loop, at the earlier of its grace and its timeout."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        timeout_at = self._timeout_at()
        if self._grace_until < timeout_at:
            self._timer = self._timers.at_boot(self._grace_until, self._cancel)
        elif timeout_at < inf:
            self._timer = self._timers.at_boot(timeout_at, self._time_out)

    def _timeout_at(self) -> float:
        started = None if self.lease is None else self.lease.run_started
        return inf if started is None or self.options.timeout is None else started + self.options.timeout

    def _time_out(self) -> None:
        self._cut = "timeout"
        if self._in_flight is not None:
            self._signal.give()
        self._cancel()

    def _cancel(self) -> None:
        if self._on_call:
            self._cut = self._cut or self._reason
            self._scope.cancel()

    # -- hooks -----------------------------------------------------------------------------------------------------

    async def _elected(self, lease: Lease) -> bool:
        """Whether the term may start its runs; a hook that raises gives it up."""
        hook = self.job.on_elected
        if hook is None:
            return True
        lease.run_started = self._clock.boot()
        try:
            result = await self._on_loop(lease, hook, Term(lease), claimed=False)
        finally:
            lease.run_started = None
        outcome, error = result or ("cancelled", None)
        if outcome == "ok":
            return True
        if error is not None or outcome == "timeout":
            reason = error or TimeoutError(f"it did not end within the timeout of {self.options.timeout:g} s")
            self._journal.hook_failed(self.job.name, lease.token, "on_elected", reason)
        self._resign(lease)
        return False

    async def _stepped_down(self, lease: Lease) -> None:
        hook = self.job.on_stepped_down
        if hook is None:
            return
        try:
            answer = hook(self._reason or "lost")
            if inspect.isawaitable(answer):
                await answer
        except Exception as error:
            self._journal.hook_failed(self.job.name, lease.token, "on_stepped_down", error)

    # -- accounts --------------------------------------------------------------------------------------------------

    def _account(self, lease: Lease, late: int, missed: tuple[Missed, ...], cause: Literal["overlap", "late"]) -> None:
        if late:
            if cause == "overlap":
                self.counts.dropped_overlap += late
            else:
                self.counts.dropped_late += late
            self._dropped(lease, late, cause)
        for slots in missed:
            self._misfired(lease, slots.count, slots.first, slots.last, slots.cause)

    def _dropped(self, lease: Lease, count: int, cause: Literal["overlap", "late"]) -> None:
        self._dropping = True
        self._journal.dropped(self.job.name, lease.token, count, cause)
        if self._service.callbacks:
            self._service.tell(TicksDropped(job=self.job.name, count=count, cause=cause))

    def _misfired(self, lease: Lease, count: int, first: int, last: int, cause: MisfireCause, wall: int = 0) -> None:
        """`wall`: the store's clock, where that is what decided; else it was ours."""
        self.counts.misfired += count
        times = (instant(at).isoformat() for at in (first, last, wall or self._clock.wall()))
        self._journal.misfired(self.job.name, lease.token, count, cause, *times)
        if self._service.callbacks:
            self._service.tell(Misfired(job=self.job.name, count=count, first=first, last=last, cause=cause))


def _identity(answer: Awaitable[object]) -> Awaitable[object]:
    return answer
