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
from math import inf
from typing import TYPE_CHECKING, Literal, TypeAlias

from ._errors import LeadershipLost
from ._lease import Fence, Run, StopSignal, Term, instant
from ._model import Elected, Misfired, RunFinished, RunStarted, SteppedDown, TicksDropped
from ._schedule import Wake
from .stats import Counts
from .stores.protocol import Claimed, ClaimSlot
from .threads import DaemonWorker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ._clock import Clock
    from ._election import Elector
    from ._heartbeat import Heartbeat
    from ._lease import Lease
    from ._model import MisfireCause, Now, Outcome, Reason
    from ._schedule import Due, Take, Ticker
    from ._service import Service
    from ._timer import Timer, Timers
    from .jobs.definition import JobDefinition
    from .jobs.options import JobOptions
    from .journal import Journal
    from .stores.protocol import JobState, NotClaimed

__all__ = ["Runner"]

HELD_BACK = 0.05
"""How long a sync run that must not start yet waits before it looks again, in seconds."""

Result: TypeAlias = "tuple[Outcome, BaseException | None] | None"
"""How a call of the user's code ended; None: it was not made, because the term did not allow it."""


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
        self.counts = Counts()
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
        self._scope: asyncio.Timeout | None = None  # around the user's code, while it runs on the loop
        self._signal: StopSignal | None = None  # of the run in flight
        self._timer: Timer | None = None  # its end by timeout or grace
        self._waiter: asyncio.Future[None] | None = None
        self._answer: asyncio.Future[Claimed | NotClaimed] | None = None
        self._in_flight: tuple[Lease, Due, Ticker] | None = None
        self._previous_end: int | None = None
        self._worker: DaemonWorker | None = None

    # -- what the heartbeat and the app tell -----------------------------------------------------------------------

    def begin(self, lease: Lease, state: JobState) -> None:
        """A term began."""
        last, self._last = self._last, lease
        if last is not None:  # the end of a run that outlived its term could not be written any more
            lease.tick, lease.done, lease.ended_at = last.tick, last.done, last.ended_at
        self.lease, self._state, self._reason, self._grace_until = lease, state, None, inf
        self._wake()

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
                self._account(lease, ticker.ended(due, self._clock.now()), "overlap")

    def _stop_run(self) -> None:
        if self._signal is not None:
            self._signal.give()
        if self._scope is not None and self._grace_until < inf:
            self._limit_run()
        if self.lease is not None and self.lease.over and self._answer is not None and not self._answer.done():
            self._answer.cancel()
        self._wake()

    # -- the task --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve one term after the other, until cancelled."""
        try:
            while True:
                if self.lease is None:
                    await self._pause()
                else:
                    await self._reign(self.lease)
        finally:
            if self._worker is not None:
                self._worker.stop()
                self._worker = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _pause(self, wake: Wake | None = None) -> None:
        """Sleep until something happens, or until that moment."""
        timer: Timer | None = None
        self._waiter = asyncio.get_running_loop().create_future()
        if wake is not None and wake.boot is not None:
            timer = self._timers.at_boot(wake.boot, self._wake)
        elif wake is not None and wake.wall is not None:
            timer = self._timers.at_wall(wake.wall, self._wake)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    async def _reign(self, lease: Lease) -> None:
        fence = Fence(self._timers, lease, partial(self.end, "expired"))
        self.counts.terms += 1
        if self._service.listening:
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
            if self._service.listening:
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
            due = await self._next(lease, ticker)
            if due is not None and (due.slot is None or await self._claim(lease, due)):
                await self._execute(lease, due, ticker)
            # Only now: a slot that is given out but not claimed yet would be lost in a crash, and unseen.
            lease.settled = ticker.settled

    async def _next(self, lease: Lease, ticker: Ticker) -> Due | None:
        wake = ticker.wake(self._clock.now())
        if wake == Wake():
            self._journal.warn("no-future-slot", "the schedule has no future slot; nothing will run", self.job.name)
        await self._pause(wake)
        if self._reason is not None:
            return None
        take = ticker.take(self._clock.now())
        self._account(lease, take, "late")
        return take.due

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
            if _being_ended():
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
            self._misfired(lease, 1, due.slot, due.slot, "clock" if verdict.why == "ahead" else "taken")
        return False

    def _too_late(self) -> None:
        """The claim got no answer in time; a step of the wall clock wakes us too, and then the claim is as late."""
        if self._answer is not None and not self._answer.done():
            self._answer.cancel()

    # -- one run ---------------------------------------------------------------------------------------------------

    async def _execute(self, lease: Lease, due: Due, ticker: Ticker) -> None:
        name, claimed = self.job.name, due.slot is not None
        while lease.valid() and (claimed or not lease.stopping):
            started = self._clock.now()
            if not self.job.is_async and self._overdue(lease):
                if due.tick is not None:
                    break
                await self._pause(Wake(boot=started.boot + HELD_BACK))
                continue
            lateness = (started.wall - due.scheduled) / 1e6
            signal = self._signal = StopSignal(None if self.job.is_async else threading.Event())
            if self._reason is not None:
                signal.give()  # a claimed slot starts although a stop arrived meanwhile
            run = Run(
                lease, signal, scheduled=due.scheduled, started=started.wall, tick=due.tick, previous=self._previous_end
            )
            if due.tick is not None:
                lease.tick = due.scheduled
            if self.options.timeout is not None:
                lease.limit = started.boot + self.options.timeout + self.options.shutdown_grace
            lease.run_started = started.boot
            self._journal.run_started(name, lease.token, lateness)
            if self._service.listening:
                self._service.tell(
                    RunStarted(job=name, token=lease.token, scheduled=due.scheduled, tick=due.tick, lateness=lateness)
                )
            try:
                self._in_flight, self._cut = (lease, due, ticker), None
                call = self._on_loop if self.job.is_async else self._in_thread
                result = await call(lease, partial(self.job.body, run), claimed=claimed)
            finally:
                self._in_flight = None
                self._signal = None
                lease.run_started = None
                lease.limit = inf
            if result is not None:
                self._finished(lease, due, started, ticker, *result)
                if _being_ended():
                    raise asyncio.CancelledError  # the body swallowed it
                return
            if due.tick is not None:
                break
        if due.slot is not None:
            self._misfired(lease, 1, due.slot, due.slot, "stopped")
        elif due.tick is not None:
            self.counts.dropped_late += 1
            self._dropped(lease, 1, "late")

    def _finished(
        self, lease: Lease, due: Due, started: Now, ticker: Ticker, outcome: Outcome, error: BaseException | None
    ) -> None:
        name, counts, now = self.job.name, self.counts, self._clock.now()
        seconds = now.boot - started.boot
        lease.ended_at = now.boot
        lease.done = due.slot
        self._previous_end = now.wall
        counts.runs += 1
        self._journal.tick_ran(name)
        self._journal.run_ended(name, lease.token, outcome, seconds)
        if outcome == "ok":
            counts.ok += 1
            counts.last_ok = now.wall
        elif outcome == "failed" and error is not None:
            counts.failed += 1
            self._journal.run_failed(name, lease.token, error)
        elif outcome == "timeout":
            counts.timeout += 1
            self._journal.warn("run-timeout", f"run ended at its timeout of {self.options.timeout:g} s", name)
        else:
            counts.cancelled += 1
            self._journal.run_cancelled(name, lease.token, self._cut or self._reason or "lost")
        if self._service.listening:
            self._service.tell(RunFinished(job=name, token=lease.token, outcome=outcome, duration=seconds, error=error))
        self._account(lease, ticker.ended(due, now), "overlap")

    def _overdue(self, lease: Lease) -> bool:
        """Whether a renewal is: what cannot be cancelled must not start on a lease that is about to be lost."""
        return self._clock.boot() - lease.sent > self.options.heartbeat_interval + self.options.call_timeout

    async def _on_loop(self, lease: Lease, call: Callable[[], object], *, claimed: bool) -> Result:
        """Call the user's code inside the fence; the check is the last thing before it."""
        scope = asyncio.timeout(None)
        self._cut = None
        try:
            async with scope:
                self._scope = scope
                self._limit_run()
                if not lease.valid() or (lease.stopping and not claimed):
                    return None
                answer = call()
                if inspect.isawaitable(answer):
                    await answer
            return "ok", None
        except BaseException as error:
            return self._ended_by(error, lease, scope)
        finally:
            self._scope = None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    async def _in_thread(self, lease: Lease, call: Callable[[], object], *, claimed: bool) -> Result:
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
                return True, context.run(call)
            finally:
                lease.in_thread = False
                if orphaned:
                    self._drained(lease, died=True)

        if self._worker is None:
            self._worker = DaemonWorker(f"singletonjob-{self.job.name}")
        if self._timeout_at() < inf:
            self._timer = self._timers.at_boot(self._timeout_at(), self._time_out)
        lease.in_thread = True
        try:
            called, answer = await self._worker.run(call_in_thread)
        except asyncio.CancelledError as error:
            if not _being_ended():
                return "failed", error
            # A body that has begun goes on, and says when it has ended.
            if turn.acquire(blocking=False):
                lease.in_thread = False
            orphaned = True
            raise
        except BaseException as error:
            return self._ended_by(error, lease, None)
        finally:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        if not called:
            return None
        if inspect.isawaitable(answer):
            return await self._on_loop(lease, partial(_identity, answer), claimed=True)
        return ("timeout" if self._cut == "timeout" else "ok"), None

    def _ended_by(self, error: BaseException, lease: Lease, scope: asyncio.Timeout | None) -> Result:
        """What an exception out of the user's code means. An end of our own task, from outside, goes on its way."""
        if isinstance(error, GeneratorExit) or (isinstance(error, asyncio.CancelledError) and _being_ended()):
            raise error
        if isinstance(error, TimeoutError) and scope is not None and scope.expired():
            return ("timeout" if self._cut == "timeout" else "cancelled"), None
        if isinstance(error, LeadershipLost) and not lease.valid():
            return "cancelled", None
        return "failed", error

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
        if self._signal is not None:
            self._signal.give()
        self._cancel()

    def _cancel(self) -> None:
        if self._scope is not None and not self._scope.expired():
            self._cut = self._cut or self._reason
            self._scope.reschedule(asyncio.get_running_loop().time())

    # -- hooks -----------------------------------------------------------------------------------------------------

    async def _elected(self, lease: Lease) -> bool:
        """Whether the term may start its runs; a hook that raises gives it up."""
        hook = self.job.on_elected
        if hook is None:
            return True
        lease.run_started = self._clock.boot()
        try:
            result = await self._on_loop(lease, partial(hook, Term(lease)), claimed=False)
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

    def _account(self, lease: Lease, take: Take, cause: str) -> None:
        if take.late:
            if cause == "overlap":
                self.counts.dropped_overlap += take.late
                self._dropped(lease, take.late, "overlap")
            else:
                self.counts.dropped_late += take.late
                self._dropped(lease, take.late, "late")
        for missed in take.missed:
            self._misfired(lease, missed.count, missed.first, missed.last, missed.cause)

    def _dropped(self, lease: Lease, count: int, cause: Literal["overlap", "late"]) -> None:
        self._journal.dropped(self.job.name, lease.token, count, cause)
        if self._service.listening:
            self._service.tell(TicksDropped(job=self.job.name, count=count, cause=cause))

    def _misfired(self, lease: Lease, count: int, first: int, last: int, cause: MisfireCause) -> None:
        self.counts.misfired += count
        self._journal.misfired(
            self.job.name, lease.token, count, cause, instant(first).isoformat(), instant(last).isoformat()
        )
        if self._service.listening:
            self._service.tell(Misfired(job=self.job.name, count=count, first=first, last=last, cause=cause))


def _being_ended() -> bool:
    """Whether somebody from outside wants this task to end."""
    current = asyncio.current_task()
    return current is not None and current.cancelling() > 0


def _identity(answer: Awaitable[object]) -> Awaitable[object]:
    return answer
