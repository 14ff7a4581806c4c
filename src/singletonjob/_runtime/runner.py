"""The runner: one task per job on the job loop, which waits for ticks, runs the body, and drains.

A term begins with `begin`. `drain` and `end` stop it, as the section "A run in flight" of the documentation shows. When
no body of the term runs any more, the runner reports that to the heartbeat, exactly once per term. The lease is
released, or acquired again, only after that report (S4).

This file has more than 300 lines because the start, the stop and the end of a run are one subject: each of them reads
what another one writes.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from functools import partial
from logging import DEBUG
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from .._core.errors import LeadershipLost
from .._core.protocol import Claimed, ClaimSlot, NotClaimed, TakeTrigger
from .._core.schedule import Due, Take
from .._jobs.body import is_async
from .._jobs.handles import Run, StopSignal, Term
from .._jobs.thread_calls import JobThread
from .._jobs.user_code import UserCode, is_foreign
from .._reporting.job_counters import Counts
from .._reporting.run_accounting import Ledger
from .hooks import call_stepped_down_hook
from .lease import Fence

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

    from .._core.elector import Claim
    from .._core.protocol import JobState
    from .._core.schedule import Ticker
    from .._core.values import Event, Now, Outcome, Reason
    from .._jobs.definition import JobDefinition
    from .._jobs.options import JobOptions
    from .._reporting.log_lines import Journal
    from .._system.clock import Clock
    from .._system.timers import Timer, Timers
    from .._system.worker_threads import DaemonWorker
    from .lease import Lease

__all__ = ["Orders", "Runner"]

HELD_BACK = 0.05
"""Seconds until a sync run that must not start yet checks again."""

H = TypeVar("H")

Result: TypeAlias = "tuple[Outcome, BaseException | None] | None"
"""How a call of the user's code ended. None: the call was not made, because the term did not allow it."""

RAN_WELL: Result = ("ok", None)


class Orders(Protocol):
    """The requests of a runner to the heartbeat. Safe to call from any thread; an answer comes later, if at all."""

    def claim(self, claim: Claim) -> None:
        """Claim a slot or a trigger. The heartbeat repeats the request until the store answers or the term ends."""
        ...

    def withdraw(self, job: str) -> None:
        """Stop requesting the claim."""
        ...

    def report(self, job: str) -> None:
        """Renew soon, because somebody waits for what the renewal reports."""
        ...

    def resign(self, job: str, token: int) -> None:
        """Give the term up, and compete again after a back-off."""
        ...

    def drained(self, job: str, token: int, *, died: bool) -> None:
        """Report that no body of the term runs any more, and none will start."""
        ...

    def alive(self) -> None:
        """Report that the job loop is alive."""
        ...


class Runner:
    """Runs one job while this replica leads it. Everything runs on the job loop, except sync bodies and sync hooks."""

    def __init__(
        self,
        job: JobDefinition,
        options: JobOptions,
        *,
        clock: Clock,
        timers: Timers,
        orders: Orders,
        journal: Journal,
        callbacks: list[Callable[[Event], None]],
        tell: Callable[[Event], None],
        worker: Callable[[str], DaemonWorker],
    ) -> None:
        self.job = job
        self.options = options
        self.counts = Counts(clock)
        self._ledger = Ledger(*(job.name, self.counts, clock, journal), callbacks=callbacks, tell=tell)
        self.lease: Lease | None = None  # of the current term, until its last run has ended
        self._context: contextvars.Context  # of the term: hooks run in it, each run in a copy of it
        self._clock = clock
        self._timers = timers
        self._orders = orders
        self._journal = journal
        self._callbacks = callbacks
        self._state: JobState
        self._last: Lease | None = None  # of the newest term of this replica
        self._end_handled = False  # of the current term
        self._grace_until = inf  # when the run in flight is cancelled because of a stop
        self._stop_by = inf  # an orderly stop ends by then; a margin later the elector abandons the lease
        self._cancel_reason: str | None = None  # of the call in flight
        self._call: asyncio.Task[Result] | None = None  # of the user's code, while one runs on the loop
        self._cancellations = 0  # of that call by us; the second one follows only when the term is over
        self._signal = StopSignal(None)  # of the run in flight, or of the next one
        self._limit_timer: Timer | None = None  # ends the call by timeout or grace
        self._task: asyncio.Task[None]
        self._wake = asyncio.Event()
        self._requested: Claim | None = None
        self._answer: asyncio.Future[Claimed | NotClaimed] | None = None
        self._trigger = ""  # the id of an operator's trigger to take next
        self._in_flight: tuple[Lease, Due, Ticker] | None = None
        self._previous_end: int | None = None
        self._debug = False  # log each run; see `refresh`
        self._thread = JobThread(lambda: worker(f"singletonjob-{job.name}"))
        self._user_code = UserCode()

    # -- calls of the heartbeat and of the app ---------------------------------------------------------------------

    def begin(self, lease: Lease, state: JobState) -> None:
        """Begin a term."""
        last, self._last = self._last, lease
        if last is not None:  # a run that outlived its term could not report its end to the store
            lease.tick, lease.done, lease.ended_at = last.tick, last.done, last.ended_at
        self.lease, self._state, self._end_handled, self._trigger = lease, state, False, ""
        self._grace_until = self._stop_by = inf
        self._wake.set()

    def drain(self, reason: Reason, token: int | None = None) -> None:
        """Start no more runs, and let the run in flight end within its grace."""
        lease = self.lease
        if lease is None or token not in (None, lease.token):
            return
        lease.drain(reason)
        now = self._clock.boot()
        if reason != "disabled":
            self._stop_by = min(self._stop_by, now + self.options.shutdown_grace)
            self._grace_until = min(self._grace_until, self._stop_by)
        elif self.options.cancel_on_lost_leadership:
            self._grace_until = now
        self._stop_run()

    def end(self, reason: Reason, token: int | None = None) -> None:
        """End the term. A run in flight runs without the lease from now on."""
        lease = self.lease
        if lease is None or token not in (None, lease.token):
            return
        lease.end(reason)
        if lease.in_thread and not self._end_handled:
            self._journal.warn(
                "run-without-lease", "work in a thread goes on without the lease", self.job.name, lease.token
            )
        self._end_handled = True
        if self.options.cancel_on_lost_leadership:
            self._grace_until = self._clock.boot()
        self._stop_run()

    def answer(self, claim: Claim, verdict: Claimed | NotClaimed) -> None:
        """Take the store's answer to a claim."""
        if claim == self._requested and self._answer is not None and not self._answer.done():
            self._answer.set_result(verdict)

    def trigger(self, name: str, token: int) -> None:
        """Take an operator's request for one more run. It comes with each renewal until it is taken or refused."""
        lease = self.lease
        if lease is None or lease.token != token or not lease.may_start() or name == self._trigger:
            return
        if self._in_flight is not None or self._answer is not None:
            busy = TakeTrigger(job=self.job.name, token=token, id=name, busy=True)
            self._orders.claim(busy)
            return
        self._trigger = name
        self._wake.set()

    def refresh(self) -> None:
        """Count what the run in flight has dropped so far, because a run that hangs never ends. Called once a second.

        Read the log level as well, because reading it with each run costs more than all other accounting of a run.
        """
        self._debug = self._journal.says(DEBUG)
        if self._in_flight is not None:
            lease, due, ticker = self._in_flight
            if due.tick is not None:
                self._ledger.lost(lease, ticker.ended(due, self._ledger.within(lease, self._clock.now())), "overlap")

    def _stop_run(self) -> None:
        if self._in_flight is not None:
            self._signal.give()
        if self._call is not None and self._grace_until < inf:
            self._limit_run(min(self._grace_until, self._timeout_at()))
        if self.lease is not None and not self.lease.valid() and self._answer is not None and not self._answer.done():
            self._answer.cancel()
        self._wake.set()

    # -- the task --------------------------------------------------------------------------------------------------

    def start(self) -> asyncio.Task[None]:
        """Start and return the task that serves one term after the other until it is cancelled."""
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._run(), name=f"singletonjob {self.job.name}")
        return self._task

    async def _run(self) -> None:
        try:
            while True:
                if self.lease is None:
                    await self._sleep()
                else:
                    await self._serve_term(self.lease)
        finally:
            self._thread.stop()

    async def _sleep(self) -> None:
        """Wait until a timer fires or something happens."""
        await self._wake.wait()
        self._wake.clear()

    async def _serve_term(self, lease: Lease) -> None:
        fence = Fence(self._timers, lease, partial(self.end, "expired"))
        self._ledger.elected(lease)
        self._context = contextvars.copy_context()
        died = True
        try:
            if await self._elected(lease):
                try:
                    await self._follow_schedule(lease)
                except (
                    BaseException
                ) as error:  # of the user's interval, for example; keeping the lease would be useless
                    if is_foreign(error, self._task):
                        raise
                    self._journal.schedule_failed(self.job.name, lease.token, error)
                    self._resign(lease)
                await call_stepped_down_hook(
                    self.job,
                    lease,
                    lease.reason or "lost",
                    self.options,
                    self._stop_by,
                    self._journal,
                    self._thread,
                    self._context,
                )
            died = False
        finally:
            fence.close()
            self.lease = None
            self._orders.alive()
            lease.threads.after_all(partial(self._orders.drained, lease.job, lease.token, died=died))
            self._ledger.stepped_down(lease, lease.reason or "resigned")

    def _resign(self, lease: Lease) -> None:
        """Give the term up; this replica competes again after a back-off."""
        lease.drain("resigned")
        self._orders.resign(lease.job, lease.token)

    async def _follow_schedule(self, lease: Lease) -> None:
        state, now = self._state, self._clock.now()
        if lease.ended_at is not None:  # the store may not know the end of this replica's last run yet
            own = now.boot - lease.ended_at
            state = state._replace(
                done=max(lease.done or 0, state.done or 0) or None,
                ended_ago=own if state.ended_ago is None else min(own, state.ended_ago),
            )
        if state.ended_ago is not None:
            self._previous_end = max(self._previous_end or 0, now.wall - int(state.ended_ago * 1e6))
        with self._user_code:  # an interval may be a function
            ticker = self._context.copy().run(self.job.schedule.ticker, now, state)
        claims = ticker.settled is not None
        timer: Timer | None = None
        while lease.state == "valid":
            if self._trigger:
                now = await self._run_triggered(lease, ticker)
                continue
            when = ticker.wake(now)
            if when is None:
                self._ledger.no_future_slot(lease)
            elif timer is None:
                timer = (self._timers.at_wall if ticker.on_wall else self._timers.at_boot)(when, self._wake.set)
            else:
                timer.set(when)
            await self._sleep()
            now = self._clock.now()
            if not lease.valid():
                self.end("expired")  # woken before the fence; the term may have ended long ago
            if lease.state != "valid":
                break
            take = ticker.take(now)
            due = take.due
            if take.late or take.missed:
                self._ledger.lost(lease, take, "late")
            if due is not None:
                if due.slot is None:
                    now = await self._execute(lease, due, ticker, now, claimed=False)
                elif await self._claim(lease, due):
                    now = await self._execute(lease, due, ticker, self._clock.now(), claimed=True)
            if claims:  # only now, because a crash between `take` and the claim would lose the slot unseen
                lease.settled = ticker.settled
        if timer is not None:
            timer.cancel()
        if lease.state == "over" and not claims:  # the next leader runs or reports the slots
            take = ticker.take(self._ledger.within(lease, self._clock.now()))
            late = take.late + (take.due is not None and take.due.tick is not None)
            self._ledger.lost(lease, Take(late=late), "late")

    async def _run_triggered(self, lease: Lease, ticker: Ticker) -> Now:
        """Run the body once more for an operator, if the trigger is still there; return the moment of the end."""
        take = TakeTrigger(job=self.job.name, token=lease.token, id=self._trigger)
        verdict = await self._request(take)
        self._trigger = ""
        now, ran = self._clock.now(), lease.runs
        if isinstance(verdict, Claimed):
            self._journal.triggered(self.job.name, lease.token)
            now = await self._execute(lease, Due(now.wall), ticker, now, claimed=True)
            self.counts.triggered += lease.runs - ran
            lease.finished = f"{take.id};{lease.outcome if lease.runs > ran else 'cancelled'}"
            self._orders.report(take.job)
        return now

    async def _claim(self, lease: Lease, due: Due) -> bool:
        """Claim the slot; return True if it belongs to this term."""
        assert due.slot is not None  # noqa: S101 - only slots are claimed
        claim = ClaimSlot(job=self.job.name, token=lease.token, slot=due.slot, mark=self.job.schedule.mark)
        verdict = await self._request(claim, due.latest)
        if verdict is None:
            self._ledger.misfired(lease, 1, due.slot, due.slot, "stopped" if lease.state == "over" else "late")
        elif isinstance(verdict, NotClaimed) and verdict.why != "lost":
            self._ledger.misfired(
                lease, 1, due.slot, due.slot, "clock" if verdict.why == "ahead" else "taken", verdict.wall
            )
        return isinstance(verdict, Claimed)

    async def _request(self, claim: Claim, latest: int | None = None) -> Claimed | NotClaimed | None:
        """Return the store's answer to a claim; None if the term ended or the instant `latest` passed before that."""
        self._requested, self._answer = claim, asyncio.get_running_loop().create_future()
        self._orders.claim(claim)
        timer: Timer | None = None

        def too_late() -> None:
            if latest is not None and timer is not None and self._clock.wall() < latest:
                timer.set(latest)  # called because the wall clock was set, and not late yet
            elif self._answer is not None and not self._answer.done():
                self._answer.cancel()

        if latest is not None:
            timer = self._timers.at_wall(latest, too_late)
        try:
            return await self._answer
        except asyncio.CancelledError:
            if self._task.cancelling():
                raise
            self._orders.withdraw(self.job.name)
            return None
        finally:
            self._requested = self._answer = None
            if timer is not None:
                timer.cancel()

    # -- one run ---------------------------------------------------------------------------------------------------

    async def _execute(self, lease: Lease, due: Due, ticker: Ticker, started: Now, *, claimed: bool) -> Now:
        """Run the body for a due tick or slot, if the term allows it; return the moment of the end."""
        job, scheduled, tick, slot = self.job, due.scheduled, due.tick, due.slot
        while lease.may_start(claimed=claimed):
            wall, boot = started
            if not job.is_async and self._overdue(lease):
                if tick is not None:
                    break
                await self._hold_back()
                started = self._clock.now()
                continue
            lateness = (wall - scheduled) / 1e6
            if self._signal.given or not job.is_async:
                self._signal = StopSignal(None if job.is_async else threading.Event())
            if lease.state != "valid":
                self._signal.give()  # a claimed slot starts even if a stop arrived meanwhile
            if tick is not None:
                lease.tick = scheduled
            self._begin_call(lease, boot)
            context = self._context.copy()
            telling = self._callbacks or self._debug

            def begun(telling: object = telling) -> Run:
                nonlocal wall, boot, lateness
                wall, boot = self._clock.now()  # the loop may have been blocked since the tick
                lateness = (wall - scheduled) / 1e6
                if telling:
                    self._ledger.run_started(lease, due, lateness)
                return Run(lease, self._signal, scheduled, wall, tick, self._previous_end)

            try:
                self._in_flight = (lease, due, ticker)
                call = self._on_loop if job.is_async else self._in_thread
                result = await call(lease, job.body, begun, claimed, context)
                lease.limit = inf
            finally:
                self._in_flight = None
                lease.run_started = None
                if not lease.in_thread:  # a body that goes on without its task still has its time limit
                    lease.limit = inf
            if result is not None:
                ended = self._clock.now()
                lease.done = lease.done if slot is None else slot
                self._previous_end = ended.wall
                lease.ran(result[0], ended.boot)
                self.counts.ran(result[0], lateness, ended.boot - boot, ended)
                if telling or self._ledger.unsettled or result is not RAN_WELL:
                    reason = self._cancel_reason or lease.reason or "lost"
                    self._ledger.run_ended(lease, ended.boot - boot, *result, reason)
                with self._user_code:  # an interval may be a function
                    take = context.run(ticker.ended, due, self._ledger.within(lease, ended))
                if take.late or take.missed:
                    self._ledger.lost(lease, take, "overlap")
                return ended
            if tick is not None:
                break
            started = self._clock.now()
        if slot is not None:
            self._ledger.misfired(lease, 1, slot, slot, "stopped")
        elif tick is not None:
            self._ledger.lost(lease, Take(late=1), "late")
        elif claimed:
            self._journal.warn("trigger-lost", "the term ended before the extra run began", job.name, lease.token)
        return self._clock.now()

    def _begin_call(self, lease: Lease, now: float) -> None:
        lease.run_started, self._cancel_reason = now, None
        if self.options.timeout is not None:
            # Without a grace the body still needs a moment to unwind.
            lease.limit = now + self.options.timeout + max(self.options.shutdown_grace, self.options.margin)

    async def _hold_back(self) -> None:
        """Wait before checking again whether a renewal is overdue."""
        timer = self._timers.at_boot(self._clock.boot() + HELD_BACK, self._wake.set)
        await self._sleep()
        timer.cancel()

    def _overdue(self, lease: Lease) -> bool:
        """Return True if a renewal is overdue, because a body that cannot be cancelled must not start then."""
        return self._clock.boot() - lease.leadership.sent > self.options.heartbeat_interval + self.options.call_timeout

    async def _on_loop(
        self, lease: Lease, call: Callable[[H], object], make: Callable[[], H], claimed: bool, context: Context
    ) -> Result:
        """Call the user's code with the handle that `make` returns, in a separate task, within the term."""
        self._cancel_reason, self._cancellations = None, 0
        name = f"singletonjob {self.job.name} run"
        task = asyncio.get_running_loop().create_task(
            self._checked_call(lease, call, make, claimed), name=name, context=context
        )
        self._call = task
        ended_from_outside = False
        try:
            if self._grace_until < inf or self.options.timeout is not None:
                self._limit_run(min(self._grace_until, self._timeout_at()))
            while not task.done():
                try:
                    await asyncio.wait((task,))
                except asyncio.CancelledError:
                    # Keep the lease until the user's code has unwound, however often our own task is cancelled (S4).
                    ended_from_outside = True
                    task.cancel()
            if ended_from_outside:
                raise asyncio.CancelledError
            return None if task.cancelled() else task.result()  # cancelled before its first step, so it called nothing
        finally:
            self._call, lease.run_started = None, None
            if self._limit_timer is not None:
                self._limit_timer.cancel()

    async def _checked_call(
        self, lease: Lease, call: Callable[[H], object], make: Callable[[], H], claimed: bool
    ) -> Result:
        """Call the user's code if the term allows it. The check is the last step before the call (S2)."""
        task = asyncio.current_task()
        handle = make()
        try:
            if not lease.may_start(claimed=claimed):
                return None
            with self._user_code:
                answer = call(handle)
                if inspect.isawaitable(answer):
                    await answer
            return RAN_WELL
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                return ("timeout" if self._cancel_reason == "timeout" else "cancelled"), None
            return self._ended_by(error, lease, task)

    async def _in_thread(
        self, lease: Lease, call: Callable[[H], object], make: Callable[[], H], claimed: bool, context: Context
    ) -> Result:
        """Call sync user code in its thread, within the term. If it returns an awaitable, await that on the loop."""
        handle = make()

        def checked() -> tuple[bool, object]:
            # The stricter check is last, so that the time between check and call is counted from it.
            if not lease.may_start(claimed=claimed) or self._overdue(lease):
                return False, None
            return True, call(handle)

        if self._timeout_at() < inf:
            self._limit_run(self._timeout_at())
        try:
            called, answer = await self._thread.call(lease.threads, checked, context)
        except KeyboardInterrupt as error:
            return "failed", error  # of the user's code, because Ctrl-C raises it in the main thread only
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and self._task.cancelling():
                self._stop_run()  # a body that has begun goes on, and learns that it must end
            return self._ended_by(error, lease, self._task)
        finally:
            if self._limit_timer is not None:
                self._limit_timer.cancel()
        if not called:
            return None
        if inspect.isawaitable(answer):
            result = await self._on_loop(lease, lambda answer: answer, lambda: answer, claimed=True, context=context)
            if result is None and inspect.iscoroutine(answer):
                answer.close()  # the term ended meanwhile; otherwise Python warns that it was never awaited
            return result or ("cancelled", None)
        return ("timeout", None) if self._cancel_reason == "timeout" else RAN_WELL

    def _ended_by(self, error: BaseException, lease: Lease, task: asyncio.Task[Any] | None) -> Result:
        """Return the result for an exception of the user's code in `task`; raise one that is no failure of the code."""
        if is_foreign(error, task):
            raise error
        if isinstance(error, LeadershipLost) and not lease.valid():
            return "cancelled", None
        return "failed", error

    # -- limits of the call in flight ------------------------------------------------------------------------------

    def _limit_run(self, when: float) -> None:
        """Set the timer that ends the call in flight."""
        if self._limit_timer is None:
            self._limit_timer = self._timers.at_boot(when, self._limit_reached)
        else:
            self._limit_timer.set(when)

    def _limit_reached(self) -> None:
        if self._call is not None and self._grace_until < self._timeout_at():
            self._cancel()
        else:
            self._time_out()

    def _timeout_at(self) -> float:
        started = None if self.lease is None else self.lease.run_started
        return inf if started is None or self.options.timeout is None else started + self.options.timeout

    def _time_out(self) -> None:
        self._cancel_reason = "timeout"
        if self._in_flight is not None:
            self._signal.give()
        self._cancel()

    def _cancel(self) -> None:
        if self._call is not None and self.lease is not None:
            self._cancel_reason = self._cancel_reason or self.lease.reason
            over = self.lease.state == "over" and self.options.cancel_on_lost_leadership
            if (
                self._cancellations < 1 + over
            ):  # a second time when the term is over, because the body may still be handling the first one
                self._cancellations += 1
                self._call.cancel()

    # -- hooks -----------------------------------------------------------------------------------------------------

    async def _elected(self, lease: Lease) -> bool:
        """Call `on_elected`; return True if the runs of the term may start. A hook that raises gives the term up."""
        hook = self.job.on_elected
        if hook is None:
            return True
        in_thread = not (self.job.is_async or is_async(hook))
        call = self._in_thread if in_thread else self._on_loop
        result: Result = None
        while result is None and lease.may_start():
            if in_thread and self._overdue(lease):
                await self._hold_back()
                continue
            self._begin_call(lease, self._clock.boot())
            try:
                result = await call(lease, hook, lambda: Term(lease), claimed=False, context=self._context)
            finally:
                lease.run_started = None
                if not lease.in_thread:
                    lease.limit = inf
        outcome, error = result or ("cancelled", None)
        if outcome == "ok":
            return True
        if error is not None or outcome == "timeout":
            reason = error or TimeoutError(f"it did not end within the timeout of {self.options.timeout:g} s")
            self._journal.hook_failed(self.job.name, lease.token, "on_elected", reason)
        self._resign(lease)
        return False
