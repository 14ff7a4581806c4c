"""Every line that this library logs, in one place: what is said, at which level, under which `event`.

Each record of the logger `singletonjob` has the attributes `event`, `job`, `node`, `token` and `reason` (None where it
does not apply), so that a formatter or a test need not parse the text.

More than 300 lines, because each log line stands here and nowhere else.
"""

from __future__ import annotations

import logging
from math import inf
from typing import TYPE_CHECKING

from .._core.schedule import CronSchedule
from .._core.values import instant
from .._jobs.timing import schedule_warnings
from .failed_calls import FailedCalls
from .log_writer import logger, shown, wanted, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .._core.cron import Cron
    from .._core.values import MisfireCause, Reason
    from .._jobs.definition import JobDefinition
    from .._jobs.options import JobOptions
    from .._jobs.sheets import OptionNote

__all__ = ["NO_JOBS", "Journal"]

NO_JOBS = "the app has no jobs; write them in a module that is imported before the start"

QUIET = 60.0
"""What goes on and on is said at most once in so many seconds."""

DROPS_IN_A_ROW = 10
"""So many ticks dropped one after the other are an error: a run hangs."""

LOST: dict[Reason, str] = {
    "lost": "lost leadership: the lease is somebody else's, or gone; stepping down",
    "expired": "could not renew the lease in time; stepping down",
    "stuck": "the job loop gave no sign of life, or a run outlived its timeout and grace; the lease is left to expire",
}


class Journal:
    """Writes the log lines of one replica. `now` is the boot clock."""

    def __init__(self, project: str, node: str, now: Callable[[], float]) -> None:
        self.says: Callable[[int], bool] = logger.isEnabledFor  # asked first where it is often
        self.project = project
        self.node = node
        self._now = now
        self._failed = FailedCalls(self.say, now)
        self._said: dict[str, float] = {}
        self._held_back: dict[str, int] = {}
        self._in_a_row: dict[str, int] = {}
        self._follows: set[str] = set()  # jobs of which it was said, since this replica started or led
        self._misfires: dict[str, tuple[int, str]] = {}  # not told yet: how many, and the first of them
        self._outage_told = False
        self._answered = False
        self._longest_wait = 0.0
        self.misfires: dict[tuple[str, MisfireCause], int] = {}  # all of them, by job and cause: lines are held back

    def say(
        self,
        level: int,
        event: str,
        text: str,
        *,
        job: str | None = None,
        token: int | None = None,
        reason: str | None = None,
        error: BaseException | None = None,
    ) -> None:
        text = f"{job}: {text}" if job else text
        write(level, event, text, job=job, node=self.node, token=token, reason=reason, error=error)

    def _quiet(self, what: str) -> bool:
        now = self._now()
        if now - self._said.get(what, -inf) < QUIET:
            return True
        self._said[what] = now
        return False

    def announce(
        self,
        notes: Iterable[OptionNote],
        jobs: Iterable[tuple[JobDefinition, JobOptions]],
        wall: int,
        *,
        store: str = "",
        warnings: Iterable[str] = (),
    ) -> None:
        """What there is to say when the app starts, at the wall-clock instant `wall`.

        `store` names it for people, `warnings` are about it.
        """
        for warning in warnings:
            self.warn("store-warning", f"store: {warning}")
        where = f" in {store}" if store else ""
        jobs = tuple(jobs)
        if not jobs:
            self.warn("no-jobs", NO_JOBS)
        for note in notes:
            level = logging.WARNING if note.event == "unknown-job" else logging.INFO
            self.say(level, note.event, note.text, job=note.job)
        for job, own in jobs:
            if own.enabled is False:
                self.disabled(job.name)
                continue
            self._longest_wait = max(self._longest_wait, own.max_backoff_delay)
            cron = job.schedule.cron if isinstance(job.schedule, CronSchedule) else None
            for warning in schedule_warnings(job.schedule):
                self.warn("schedule-warning", warning, job.name)
            self.started(job.name, where + ("" if cron is None else _next_slot(cron, wall)))
            if own.warning is not None:
                self.warn("options-warning", own.warning, job.name)

    # -- INFO ------------------------------------------------------------------------------------------------------

    def started(self, job: str, more: str = "") -> None:
        self.say(logging.INFO, "started", f"started with key {self.project}:{job}:lock as {self.node}{more}", job=job)

    def elected(self, job: str, token: int) -> None:
        self._follows.discard(job)
        text = f"became LEADER for {self.project}:{job}:lock"
        self.say(logging.INFO, "elected", text, job=job, token=token)

    def disabled(self, job: str) -> None:
        self.say(logging.INFO, "disabled", "disabled by configuration; this replica takes no part", job=job)

    def switched(self, job: str, *, on: bool) -> None:
        text = "enabled; competing again" if on else "disabled live; giving up the lease"
        self.say(logging.INFO, "enabled" if on else "switched-off", text, job=job)

    def triggered(self, job: str, token: int) -> None:
        self.say(logging.INFO, "triggered", "an extra run, which an operator asked for", job=job, token=token)

    def run_cancelled(self, job: str, token: int, reason: str) -> None:
        self.say(logging.INFO, "run-cancelled", f"run cancelled: {reason}", job=job, token=token, reason=reason)

    def stopping(self, running: Mapping[str, JobOptions], *, signals: bool) -> None:
        """`signals`: ours are the handlers of the process, so a second signal ends it."""
        if self._quiet("stopping"):  # each request to stop comes here
            return
        grace = max(options.shutdown_grace for options in running.values())
        runs = "a run" if len(running) == 1 else f"{len(running)} runs"
        text = f"stopping; {runs} in flight may take {grace:g} s more: {', '.join(running)}"
        if signals:
            text = f"{text}. A second signal ends the process at once, and {_next_leader(running)}"
        self.say(logging.INFO, "stopping", text)

    # -- WARNING ---------------------------------------------------------------------------------------------------

    def stepped_down(self, job: str, token: int, reason: Reason, silent: float | None) -> None:
        """A term that ended without our wish; the orderly ends are told when the lease is released.

        `silent`: how many seconds ago the last good renewal was sent, if that is known.
        """
        if reason in LOST:
            level = logging.ERROR if reason == "stuck" else logging.WARNING
            event = "stuck" if reason == "stuck" else "lost"
            ago = "" if silent is None else f" (last renewed {silent:.1f} s ago)"
            self.say(level, event, LOST[reason] + ago, job=job, token=token, reason=reason)

    def run_long(self, job: str, token: int, seconds: float, lock_expiry: float, timeout: float | None) -> None:
        text = f"a run is taking {seconds:.1f} s so far; the lease of {lock_expiry:g} s is renewed while it runs"
        if timeout is None:
            cure = "write timeout= to limit it, or warn_on_long_run=False if runs may last"
            self.say(logging.WARNING, "run-long", f"{text}; {cure}", job=job, token=token)
        else:
            self.say(logging.INFO, "run-long", f"{text}; its timeout is {timeout:g} s", job=job, token=token)

    def loop_blocked(self, jobs: list[str], seconds: float, where: str) -> None:
        text = f"the job loop has been blocked for {seconds:.1f} s at {where}; running: {', '.join(jobs) or 'no job'}"
        self.say(logging.WARNING, "loop-blocked", text, job=jobs[0] if len(jobs) == 1 else None)

    def switch_failed(self, job: str, error: BaseException, *, kept: bool) -> None:
        what = f"the live switch stays {'on' if kept else 'off'}, because it raised"
        self._failed.failed("switch-failed", what, error, job=job, level=logging.WARNING)

    def misfired(self, job: str, token: int, count: int, cause: MisfireCause, first: str, last: str, wall: str) -> None:
        """The first of a cause, then at most one summary a minute: a job of every second may miss them all.

        `wall` is the time that a slot of a wrong clock is held against.
        """
        self.misfires[job, cause] = self.misfires.get((job, cause), 0) + count
        what = f"misfired {job} {cause}"
        held, first = self._misfires.get(what, (0, first))
        count += held
        if self._quiet(what):
            self._misfires[what] = count, first
            return
        self._misfires.pop(what, None)
        when = first if count == 1 else f"{first} to {last}"
        what = f"{count} slot{'' if count == 1 else 's'}"
        texts = {
            "interrupted": f"the run of the slot {when} began and its end was never seen",
            "clock": f"a wrong clock: the slot {when} lies more than ten minutes ahead of {wall}",
        }
        text = texts.get(cause, f"missed {what} ({when}): {cause}")
        self.say(logging.WARNING, "misfired", text, job=job, token=token, reason=cause)

    def dropped(self, job: str, token: int, count: int, cause: str) -> None:
        """The first drop, then at most one summary a minute; once at ERROR when nothing but drops came for long."""
        row = self._in_a_row.get(job, 0)
        self._in_a_row[job] = row + count
        held = self._held_back[job] = self._held_back.get(job, 0) + count
        if row < DROPS_IN_A_ROW <= row + count and not self._quiet(f"rows {job}"):
            guess = "; does a run hang?" if cause == "overlap" else ""
            text = f"{row + count} ticks in a row were dropped ({cause}){guess}"
            self.say(logging.ERROR, "ticks-dropped", text, job=job, token=token, reason=cause)
        elif not self._quiet(f"drops {job}"):
            text = f"dropped {held} tick{'' if held == 1 else 's'} ({cause})"
            self.say(logging.WARNING, "ticks-dropped", text, job=job, token=token, reason=cause)
        else:
            return
        self._held_back[job] = 0

    def tick_ran(self, job: str) -> None:
        """A tick was not dropped: the row of drops is over."""
        if self._in_a_row:
            self._in_a_row.pop(job, None)

    def warn(self, event: str, text: str, job: str | None = None, token: int | None = None) -> None:
        self.say(logging.WARNING, event, text, job=job, token=token)

    def exits(self, led: Mapping[str, JobOptions]) -> None:
        text = f"a second signal ends the process; no lease is released, and {_next_leader(led)}: {', '.join(led)}"
        self.say(logging.WARNING, "exits-at-once", text)

    def run_timed_out(self, job: str, token: int, seconds: float) -> None:
        text = f"run ended at its timeout, after {seconds:.3g} s"
        self._failed.failed("run-timeout", text, None, job=job, token=token, level=logging.WARNING)

    # -- ERROR -----------------------------------------------------------------------------------------------------

    def run_failed(self, job: str, token: int, error: BaseException) -> None:
        self._failed.failed("run-failed", "run failed", error, job=job, token=token)

    def settle(self, job: str, *, at_once: bool = False) -> bool:
        """Tell the failures that are held back, if it is time; return True while more of them are."""
        return self._failed.settle(job, at_once=at_once)

    def hook_failed(self, job: str, token: int, hook: str, error: BaseException) -> None:
        self._failed.failed("hook-failed", f"{hook} raised", error, job=job, token=token)

    def schedule_failed(self, job: str, token: int, error: BaseException) -> None:
        self._failed.failed("schedule-failed", "giving the term up", error, job=job, token=token)

    def subscriber_failed(self, error: BaseException) -> None:
        self._failed.failed("subscriber-failed", "a subscriber raised", error)

    def failed(self, event: str, text: str, error: BaseException | None = None, job: str | None = None) -> None:
        self.say(logging.ERROR, event, text, job=job, error=error)

    def heartbeat_failed(self, what: str, error: BaseException | None) -> None:
        """An exception that nobody expected. It may come with each beat."""
        if not self._quiet("heartbeat-failed"):
            text = f"{what}{'' if error is None else f' {shown(error)}'}; the heartbeat goes on"
            self.say(logging.ERROR, "heartbeat-failed", text, error=error)

    # -- DEBUG -----------------------------------------------------------------------------------------------------

    def run_started(self, job: str, token: int, lateness: float) -> None:
        if not self.says(logging.DEBUG):
            return
        text = f"run started {lateness * 1e3:.3f} ms after its time"
        self.say(logging.DEBUG, "run-started", text, job=job, token=token)

    def run_ended(self, job: str, token: int, outcome: str, seconds: float) -> None:
        if not self.says(logging.DEBUG):
            return
        text = f"run ended ({outcome}) after {seconds * 1e3:.3f} ms"
        self.say(logging.DEBUG, "run-ended", text, job=job, token=token)

    def beat(self, requests: int, seconds: float) -> None:
        self._answered = True
        if wanted(logging.DEBUG):
            self.say(logging.DEBUG, "beat", f"{requests} requests answered in {seconds * 1e3:.3f} ms")

    # -- what the elector notes ------------------------------------------------------------------------------------

    def note(self, event: str, job: str, text: str, number: float, token: int) -> None:
        """A line for an elector's `Note`."""
        match event:
            case "released":
                self.say(logging.INFO, event, "leadership released", job=job, token=token)
            case "paused":
                text = f"paused {text}; giving up the lease" if token else f"is paused {text}"
                self.say(logging.INFO, event, text, job=job, token=token or None)
            case "resigned":
                self.say(logging.INFO, event, "told by an operator to step down", job=job, token=token)
            case "following" if job not in self._follows:
                self._follows.add(job)
                self.say(logging.INFO, event, f"standing by; {text} leads", job=job)
            case "release-failed":
                self.say(logging.ERROR, event, "release failed; the lease is left to expire", job=job, token=token)
            case "run-did-not-stop":
                text = "run did not stop within its grace; the lease is left to expire"
                self.say(logging.ERROR, event, text, job=job, token=token)
            case "heartbeat-error":
                if not self._quiet(event):
                    self._outage_told = True
                    text = f"heartbeat error (attempt {number:.0f}): {text}"
                    if not self._answered:
                        text = f"{text}; no job runs here until the store answers, which is asked again each"
                        text = f"{text} {self._longest_wait:g} s or sooner"
                    self.say(logging.ERROR, event, text)
            case "job-error":
                # If each job of a batch fails with one text, the text is logged once, with the first of these jobs.
                if not self._quiet(f"{event} {job}") and not self._quiet(f"{event} {text}"):
                    self.say(logging.ERROR, event, f"the store cannot serve this job: {text}", job=job)
            case "store-restarted" if not self._quiet(event):  # told by each new connection
                self.say(logging.INFO, event, f"waiting {number:.1f} s because the store restarted")
            case "store-up" if self._outage_told:
                self._outage_told = False
                self.say(logging.INFO, event, f"the store answers again, after {number:.1f} s")
            case "no-uptime":
                text = "the store does not tell its up-time: a restart that forgets goes unseen"
                self.say(logging.WARNING, event, text)
            case "notices-failed":
                if not self._quiet(event):
                    self.say(logging.WARNING, event, f"release notices cannot be heard: {text}")
            case "probation":
                text = "the store lost a lease of this job: its time was not over, and it was not given back"
                text = f"{text}; no term begins here for {number:.1f} s, until the lost one must be over"
                self.say(logging.WARNING, event, text, job=job)
            case "store-stepped" if not self._quiet(event):
                text = f"the store's clock stepped {'forward' if number > 0 else 'back'} by {abs(number):.3g} s"
                meaning = (
                    "leases ended early by as much, so two replicas may have led (S1)"
                    if number > 0
                    else "the lease of a replica that crashed just before may last longer by as much (L2)"
                )
                self.say(logging.WARNING, event, f"{text} against ours: {meaning}; slew the server's clock")
            case "token-ahead":
                text = f"the fencing token is {number:.0f} s ahead of the store's clock, which was wrong once"
                self.say(logging.WARNING, event, f"{text}; see the page on fencing tokens", job=job, token=token)
            case "no-expiry":
                text = f"the lock key has no expiry; it is {text}'s until somebody deletes it"
                self.say(logging.WARNING, event, text, job=job)
            case _:
                pass


def _next_slot(cron: Cron, wall: int) -> str:
    following = cron.after(wall)
    if following is None:
        return ""
    order = " (seconds first)" if len(cron.expression.split()) == 6 else ""
    when = f"{cron.local(following).isoformat()} ({cron.tz}), {instant(following).isoformat()} in UTC"
    return f"; cron {cron.expression!r}{order}, next at {when}"


def _next_leader(led: Mapping[str, JobOptions]) -> str:
    return f"another replica leads within {max(options.lock_expiry for options in led.values()):g} s"
