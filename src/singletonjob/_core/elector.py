"""The elector decides who leads, from the store's answers and the time. It is pure: no clock, no I/O, no threads.

This file has more than 300 lines because all transitions of one state machine belong in one place.

Leadership of a job is a lease in the store: a key that names its holder and expires by itself. Each replica has one
elector for all of its jobs. The heartbeat calls `poll(now)`, which returns the requests to send and the moment to poll
again, and `receive(now, reply)` with the store's answer. Both produce *effects*, which the heartbeat carries out.

                    granted in time                  stop, disable, pause, resign
      FOLLOWER ------------------------> LEADER ------------------------------------> DRAINING
       ^    ^                              |                                             |
       |    |                              +---------- lost, expired, stuck -------------+
       |    |                                                |                           |
       |    +---- no grant can be left ----+                 v        not in time        v
       |                                   |               ENDED -----------------> ABANDONED
       +-- released -- RELEASING <---------+-- all bodies have ended --+----------------+

A *term* is one uninterrupted time as the leader, with a token. It is alive as LEADER and DRAINING, and is renewed then,
because a body may run. It is over as ENDED and ABANDONED: its body may still run, but nothing is sent for it.
RELEASING: an acquisition may have been granted, and must be given back before the next one.

Each rule, with the promise that it keeps:

S1  A grant is used only if it answers the newest acquisition of a follower that still wants the job.
S3  A deadline is `sent + lock_expiry - margin`, with `sent` read before the request left. When the deadline passes, the
    term ends for good, whatever an answer on its way says. An unknown answer moves no deadline.
S4  A release is sent after the last body has ended, and no renewal follows it. Acquisitions carry growing numbers, and
    a release names the highest number that it covers. A grant that is not used is released. Every request is void
    after `void_at` on the store's clock, so that a call that timed out cannot act later. An acquisition without an
    answer is released only after that.
S5  An acquisition carries the highest token seen here, and the store grants a higher one.
S7  A term is renewed only while the job loop reports that it is alive.
S8  Nothing is acquired from a store that has been up for less than `lock_expiry + 1 s`, counted from the arrival of its
    report, because the store may have lost a lease. Renewals are not held back. *Probation*: a refusal tells until when
    the holder's lease runs. A grant before that moment, without a release in the state, shows that the store lost a
    lease whose term may be alive. So does a refusal that names an older term, or an earlier end of the same term. Then
    this replica acquires and keeps the lease, but its own term begins only when the lost one must be over.
L2  A follower sends a request when the holder's lease ends, without waiting for its own heartbeat. It sends one shortly
    before as well, because only a request before that moment can tell a lost lease from an expired one.
L3  A leader never backs off while its lease is alive. A follower does, up to `max_backoff_delay`, until the store
    answers.

The shape is that of h11: received events drive a state machine, and one table tells what each state may send.
Deadlines that count from the request are described in Gray and Cheriton, "Leases" (SOSP 1989).
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

from .protocol import (
    Acquire,
    Barred,
    Batch,
    Claimed,
    ClaimSlot,
    Failed,
    Granted,
    JobState,
    NotClaimed,
    Progress,
    Refused,
    Release,
    Released,
    Renew,
    Renewed,
    TakeTrigger,
)
from .values import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .protocol import Reply, Request, Verdict

__all__ = [
    "Began",
    "Claim",
    "ClaimAnswered",
    "Draining",
    "Effect",
    "Elector",
    "Ended",
    "Extended",
    "Leadership",
    "LeaseTimes",
    "Liveness",
    "LogEvent",
    "Standing",
    "Step",
    "Triggered",
]

ACQUIRE_GAP = 0.02
"""Seconds between two acquisitions of one process at least, because notices may arrive in bursts."""

RESTART_WAIT = 0.5
"""Seconds to wait before re-electing a job whose task was cancelled from outside; by then the task has been restarted,
or the loop is known to be closed."""

RATE = 0.01
"""The rates of any two clocks differ by at most this part (section "Promises" of the documentation)."""

IDLE = 1.0
"""Seconds after which a connection without an exchange may have been closed by a device between us and the store."""

TOKEN_AHEAD = 600_000_000
"""A token that is further above the store's clock (10 minutes, in microseconds) comes from a wrong clock."""

SHORTEST_CALL = 0.01
"""The least time for a call, in seconds, because near a deadline the bound halves with each try."""

SELF_ENDING = frozenset[Reason]({"lost", "expired", "stuck"})
"""After these reasons the lease expires by itself, so a failed release is not logged."""

Phase: TypeAlias = Literal["follower", "releasing", "leader", "draining", "ended", "abandoned"]

ALLOWED: dict[Phase, tuple[type, ...]] = {
    "follower": (Acquire,),
    "releasing": (Release,),
    "leader": (Renew, ClaimSlot, TakeTrigger),
    "draining": (Renew, ClaimSlot, TakeTrigger),
    "ended": (),
    "abandoned": (),
}
"""The requests that may be sent for a job in each phase."""

Claim: TypeAlias = ClaimSlot | TakeTrigger
"""A request that the store must accept before a run may start."""


class Leadership(NamedTuple):
    """The times of a term, in seconds on the boot clock (S3): it is usable until `deadline`.

    `sent` is a moment before the last successful request was sent.
    """

    token: int
    sent: float
    deadline: float

    def remaining(self, now: float) -> float:
        """Seconds of usable lease that are left, not counting later renewals."""
        return max(0.0, self.deadline - now)


NO_TERM = Leadership(token=0, sent=-inf, deadline=-inf)


# -- effects: what the heartbeat must carry out, in order ----------------------------------------------------------


class Began(NamedTuple):
    """A term began."""

    job: str
    term: Leadership
    state: JobState


class Extended(NamedTuple):
    """The term was renewed."""

    job: str
    term: Leadership


class Draining(NamedTuple):
    """No run of this term starts any more; the lease is kept until the body has ended."""

    job: str
    token: int
    reason: Reason


class Ended(NamedTuple):
    """The term is over."""

    job: str
    token: int
    reason: Reason


class ClaimAnswered(NamedTuple):
    """The store answered a claim."""

    job: str
    claim: Claim
    verdict: Claimed | NotClaimed


class Triggered(NamedTuple):
    """An operator requests one more run; repeated with each renewal until the trigger is taken."""

    job: str
    token: int
    id: str


class LogEvent(NamedTuple):
    """Something to log and nothing to do: the name of the log event and its values."""

    event: str
    job: str = ""
    text: str = ""
    number: float = 0
    token: int = 0


Effect: TypeAlias = Began | Extended | Draining | Ended | ClaimAnswered | Triggered | LogEvent


class Step(NamedTuple):
    """The result of a poll: a batch to send now, if any, and the latest moment for the next poll."""

    batch: Batch | None
    wake_at: float


class Standing(NamedTuple):
    """One job as other threads may see it: an immutable copy, published after each poll and each answer."""

    phase: Phase = "follower"
    reason: Reason = "shutdown"
    paused: bool = False
    failing: bool = False

    @property
    def stuck(self) -> bool:
        """True if the last term ended because the job loop or a run did not move, and its body may still run."""
        return self.phase in {"ended", "abandoned"} and self.reason == "stuck"


class LeaseTimes(Protocol):
    """The options of a job that its election depends on, in seconds; the page on options explains each."""

    @property
    def lock_expiry(self) -> float: ...

    @property
    def margin(self) -> float: ...

    @property
    def heartbeat_interval(self) -> float: ...

    @property
    def call_timeout(self) -> float: ...

    @property
    def max_backoff_delay(self) -> float: ...

    @property
    def shutdown_grace(self) -> float: ...


class Liveness(Protocol):
    """What the job loop reports about the runs of a term."""

    def alive_until(self, job: str) -> float:
        """Return the moment until which the job loop's last report holds (S7)."""
        ...

    def progress(self, job: str, now: float) -> Progress:
        """Return what to store beside the lease."""
        ...


class _OtherLease(NamedTuple):
    """The newest lease of another replica, as refusals reported it (S8).

    The store lost it if the store grants before `until` on our clock, or before `clock` on its own clock: each clock
    may have been set. The term is known to be over only if `token`, or a later term, was released.
    """

    token: int
    until: float
    clock: int


NOBODYS = _OtherLease(token=1, until=-inf, clock=0)


class _Job:
    """One job, as this replica sees it."""

    def __init__(self, name: str, options: LeaseTimes, *, enabled: bool) -> None:
        self.name = name
        self.options = options
        self.enabled = enabled
        self.phase: Phase = "follower"
        self.term = NO_TERM  # the newest one of this replica
        self.reason: Reason = "shutdown"  # for which that term drained or ended
        self.alive_until = inf  # by the job loop's report, as of the last poll
        self.due = -inf  # when the next request is due
        self.claim: Claim | None = None
        self.asked = 0  # the highest acquisition number that was sent
        self.released = 0  # the highest acquisition number that a release covered
        self.maybe_held = False  # an acquisition may have been granted and not been given back
        self.unanswered_until = -inf  # until then the store may still run an acquisition that got no answer
        self.release_until = inf  # a release is tried until then
        self.drain_by = inf  # a body that still runs then is abandoned
        self.other = NOBODYS
        self.store_lost_at = -inf  # the store had lost a lease by this moment
        self.noticed_at = -inf
        self.not_before = -inf  # no acquisition before this moment
        self.backing_off = False
        self.errors = 0  # in a row, of this job alone
        self.resignations = 0  # in a row
        self.warned = False  # that a key has no expiry
        self.paused = False  # by an operator, according to the store's last answer

    @property
    def alive(self) -> bool:
        """True if the term is alive, so that its lease is renewed."""
        return Renew in ALLOWED[self.phase]

    @property
    def probation_until(self) -> float:
        """Until then the term of a lost lease may be alive: its last renewal may have come just before the loss."""
        return self.store_lost_at + self.options.lock_expiry * (1 + RATE)


class _Exchange(NamedTuple):
    """The exchange that awaits its answer. `jobs`: one for each request; of a reading, the jobs that wait for it."""

    batch: Batch
    jobs: list[_Job]
    sent: float


class Elector:
    """The election of every job of one replica.

    `jobs` holds the options of each job, `enabled` the jobs that may compete from the start. `random` returns numbers
    from 0 up to 1. All moments are seconds on one clock that never jumps and counts suspend.
    """

    def __init__(
        self,
        *,
        project: str,
        node: str,
        jobs: Mapping[str, LeaseTimes],
        enabled: Iterable[str],
        random: Callable[[], float],
        amnesia_guard: bool = True,
    ) -> None:
        self.project = project
        self.node = node
        competing = frozenset(enabled)
        self._jobs = {name: _Job(name, options, enabled=name in competing) for name, options in jobs.items()}
        self._random = random
        self._amnesia_guard = amnesia_guard
        self._effects: list[Effect] = []
        self._exchange: _Exchange | None = None
        self._number = 0  # of the newest acquisition
        self._highest_token = 0
        self._clock = 0  # the store's clock in the newest reply, in microseconds
        self._clock_read_at: float | None = None  # when that reply arrived; None: read it first
        self._last_clock: tuple[int, float, float] | None = None  # of any connection: the clock, when sent and received
        self._answered_at = -inf
        self._up_since = -inf  # of the store
        self._guard_unknown = False
        self._errors = 0  # in a row
        self._voids = 0  # in a row
        self._down_since: float | None = None
        self._acquired_at = -inf  # when an acquisition was last sent
        self._notices = False
        self._stopping = False
        self.standings: Mapping[str, Standing] = dict.fromkeys(jobs, Standing())
        """Each job as other threads may see it. Always a new dictionary, so that a reader never sees half a change."""

    # -- what the heartbeat calls ----------------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """True after `stop`, when nothing is left to release or to wait for."""
        settled = {"follower", "abandoned"}
        return self._stopping and self._exchange is None and all(job.phase in settled for job in self._jobs.values())

    @property
    def abandoned(self) -> list[str]:
        """The jobs whose run did not end in time; their leases are left to expire."""
        return [name for name, job in self._jobs.items() if job.phase == "abandoned"]

    def take_effects(self) -> list[Effect]:
        """Return the effects since the last call, in order."""
        effects, self._effects = self._effects, []
        return effects

    def poll(self, now: float, liveness: Liveness) -> Step:
        """End what is over, and return what to send now and when to poll again."""
        self._end_what_is_over(now, liveness)
        batch = None
        if self._exchange is None:
            due = [job for job in self._jobs.values() if self._due_at(job) <= now]
            if due:
                batch = self._build(now, due, liveness)
        self._publish()
        return Step(batch, self._wake_at())

    def receive(self, now: float, reply: Reply | None, error: str = "") -> None:
        """Take the answer to the exchange; None, with what went wrong in `error`: there will be none."""
        exchange, self._exchange = self._exchange, None
        if exchange is None:
            return
        self._expire(now)
        if reply is None:
            self._clock_read_at = None
            self._unknown(exchange, now, error)
        else:
            self._answered_at = self._clock_read_at = now
            self._compare_clocks(reply.clock, exchange.sent, now)
            self._voids = self._voids + 1 if reply.void else 0
            if self._voids > 1:
                self._unknown(exchange, now, "the store runs calls later than they are good for")
            elif not reply.void:
                self._answered(exchange, reply, now)
        self._publish()

    def check(self) -> None:
        """Raise `AssertionError` if the fields of a job contradict each other. Tests call this after every step."""
        for job in self._jobs.values():
            term, options = job.term, job.options
            holds = {
                "only a living term claims": job.alive or job.claim is None,
                "a living term has a token": term.token > 0 or not job.alive,
                "a deadline counts from the request": term.deadline == term.sent + options.lock_expiry - options.margin,
                "a release covers what was acquired": job.released <= job.asked,
                "a release is given up at some time": job.release_until < inf or job.phase != "releasing",
                "no body runs in a follower": job.drain_by == inf or job.phase not in {"follower", "releasing"},
            }
            if not all(holds.values()):
                raise AssertionError(f"{job.name} is {job.phase}: {holds}")

    def _publish(self) -> None:
        self.standings = {
            name: Standing(job.phase, job.reason, job.paused, job.errors > 0) for name, job in self._jobs.items()
        }

    # -- orders ----------------------------------------------------------------------------------------------------

    def stop(self, now: float) -> None:
        """Leave: drain the living terms, release what is or may be held, and acquire nothing any more."""
        if self._stopping:
            return
        self._stopping = True
        for job in self._jobs.values():
            if job.phase == "leader":
                self._drain(job, "shutdown")
            if job.phase in {"draining", "ended"}:
                job.drain_by = now + job.options.shutdown_grace + job.options.margin
            elif job.phase != "abandoned" and job.maybe_held:
                self._give_back(job, now)

    def set_enabled(self, now: float, name: str, enabled: bool) -> None:
        """Follow the job's switch: off drains and releases, on competes at once."""
        job = self._jobs[name]
        if job.enabled == enabled:
            return
        job.enabled = enabled
        if enabled:
            if job.phase == "follower":
                job.due = now
        elif job.phase == "leader":
            self._drain(job, "disabled")
        elif job.phase in {"follower", "releasing"} and job.maybe_held:
            self._give_back(job, now)

    def resign(self, name: str, token: int) -> None:
        """Give the term up, and compete again only after a back-off."""
        job = self._jobs[name]
        if job.phase == "leader" and job.term.token == token:
            job.resignations += 1
            self._drain(job, "resigned")

    def drained(self, now: float, name: str, token: int, *, died: bool = False) -> None:
        """Take the job loop's report that no body of this term runs any more, and none will start (S4).

        `died`: the job's task was cancelled from outside, as it also is when its loop is torn down.
        """
        job = self._jobs[name]
        if job.term.token != token or job.phase in {"follower", "releasing"}:
            return
        if job.phase == "leader":
            # The fence saw the deadline pass before the heartbeat; a renewal that crossed it does not revive the term.
            self._end(job, "resigned" if died else "expired")
        elif job.phase == "draining":
            self._end(job, job.reason)
        if died:
            job.not_before = now + RESTART_WAIT
        elif job.reason == "resigned":
            job.not_before = now + self._back_off(job, job.resignations, self._random())
        else:
            job.resignations = 0
        job.phase = "follower"
        job.drain_by = inf
        if job.maybe_held:
            self._give_back(job, now)
        else:
            job.due = max(now, job.not_before)

    def claim(self, now: float, claim: Claim) -> None:
        """Request a slot or a trigger until the store answers or the term ends."""
        job = self._jobs[claim.job]
        if isinstance(claim, TakeTrigger) and claim.busy and job.claim is not None:
            return  # one claim at a time, and the next renewal reports the trigger again
        if job.alive and job.term.token == claim.token:
            job.claim = claim
            job.due = now

    def report(self, now: float, name: str) -> None:
        """Renew soon, because somebody waits for what the renewal reports."""
        if self._jobs[name].alive:
            self.notice(now, [name])

    def withdraw(self, name: str) -> None:
        """Stop requesting the claim."""
        self._jobs[name].claim = None

    # -- notices ---------------------------------------------------------------------------------------------------

    def subscribed(self, now: float) -> None:
        """Notices arrive from now on. Earlier ones may have been missed, so poll all jobs."""
        self._notices = True
        self._errors = 0
        self.notice(now, self._jobs)

    def notices_lost(self, now: float) -> None:
        """Notices do not arrive any more; send a request once per heartbeat instead."""
        if self._notices:
            self._notices = False
            for job in self._jobs.values():
                if self._may_acquire(job):
                    job.due = min(job.due, now + self._beat(job))

    def notice(self, now: float, names: Iterable[str]) -> None:
        """These jobs were released, or their holder is gone: send a request at once."""
        for job in [self._jobs[name] for name in names if name in self._jobs]:
            job.noticed_at = now
            if job.alive:
                job.due = min(job.due, max(now, job.term.sent + ACQUIRE_GAP))
            elif self._may_acquire(job):
                job.due = max(now, job.not_before)
                job.backing_off = False

    # -- time ------------------------------------------------------------------------------------------------------

    def _expire(self, now: float) -> None:
        for job in self._jobs.values():
            if job.alive and job.term.deadline <= now:
                self._end(job, "expired")

    def _end_what_is_over(self, now: float, liveness: Liveness) -> None:
        self._expire(now)
        for job in self._jobs.values():
            if job.alive:
                job.alive_until = liveness.alive_until(job.name)
                if now >= job.alive_until:
                    self._end(job, "stuck")
            if job.phase in {"draining", "ended"} and now >= job.drain_by:
                if job.phase == "draining":
                    self._end(job, job.reason)
                job.phase = "abandoned"
                self._effects.append(LogEvent("run-did-not-stop", job.name, token=job.term.token))
            if job.phase == "releasing" and now >= job.release_until and self._exchange is None:
                self._follow(job, now)
                if job.reason not in SELF_ENDING:
                    self._effects.append(LogEvent("release-failed", job.name, token=job.term.token))

    def _wake_at(self) -> float:
        """Return the next moment at which something ends or, with no exchange on its way, something is due."""
        wake, idle = inf, self._exchange is None
        for job in self._jobs.values():
            if job.alive:
                wake = min(wake, job.term.deadline, job.alive_until)
            if idle:
                wake = min(wake, self._due_at(job))
            if job.phase in {"draining", "ended"}:
                wake = min(wake, job.drain_by)
            if job.phase == "releasing" and idle:
                wake = min(wake, job.release_until)
        return wake

    def _may_acquire(self, job: _Job) -> bool:
        return job.phase == "follower" and job.enabled and not self._stopping

    def _due_at(self, job: _Job) -> float:
        if job.alive:
            return job.due
        if job.phase == "releasing":
            # If it were released earlier, an acquisition that is still on its way would take the lease for a replica
            # that has left.
            return max(job.due, job.unanswered_until)
        return max(job.due, self._held_back_until(job)) if self._may_acquire(job) else inf

    def _held_back_until(self, job: _Job) -> float:
        """Return the moment before which the job is not acquired, even if it is due."""
        guarded_until = -inf
        if self._clock_read_at is not None and self._amnesia_guard:
            guarded_until = self._up_since + job.options.lock_expiry + 1
        return max(job.not_before, self._acquired_at + ACQUIRE_GAP, guarded_until)

    def _beat(self, job: _Job) -> float:
        """Return the length of a heartbeat. Jitter shortens it, to spread the beats, and never lengthens it."""
        return job.options.heartbeat_interval * (1 - 0.1 * self._random())

    def _back_off(self, job: _Job, errors: int, jitter: float) -> float:
        options = job.options
        delay = min(options.heartbeat_interval * 2.0 ** min(errors, 30), options.max_backoff_delay)
        return max(delay * (0.8 + 0.4 * jitter), options.heartbeat_interval)

    # -- sending ---------------------------------------------------------------------------------------------------

    def _build(self, now: float, due: list[_Job], liveness: Liveness) -> Batch:
        if self._clock_read_at is None:
            batch = Batch(project=self.project, node=self.node, bound=self._bound(self._jobs.values(), now))
            self._exchange = _Exchange(batch, due, now)
            return batch
        renewing, number = any(job.alive for job in due), self._number
        jobs: list[_Job] = []
        requests: list[Request] = []
        for job in self._jobs.values():
            wanted = self._requests(job, now, liveness, renewing=renewing)
            requests += wanted
            jobs += [job] * len(wanted)
        if self._number > number:  # only now, because the gap must not hold back the other jobs of this batch
            self._acquired_at = now
        bound = self._bound(jobs, now)
        # 99 %: the store's clock may run 1 % slower than ours, and a call must be void when we have given it up.
        void_at = self._clock + int(0.99 * (now - self._clock_read_at + bound) * 1e6)
        batch = Batch(project=self.project, node=self.node, bound=bound, void_at=void_at, requests=tuple(requests))
        self._exchange = _Exchange(batch, jobs, now)
        return batch

    def _bound(self, jobs: Iterable[_Job], now: float) -> float:
        """Return how long a call for these jobs may take, in seconds.

        As long as the most patient of them allows, because a job with a short lease must not cut off the calls of all
        others. At most half the time that any living term has left, because there is one call at a time.
        """
        bound = max([job.options.call_timeout for job in jobs])
        earliest = min([job.term.deadline for job in self._jobs.values() if job.alive], default=inf)
        return max(min(bound, (earliest - now) / 2), SHORTEST_CALL)

    def _requests(self, job: _Job, now: float, liveness: Liveness, *, renewing: bool) -> list[Request]:
        """Return the requests of a job for a batch that is sent now.

        A job that is due within half a heartbeat joins the batch, and a follower joins every batch with a renewal.
        """
        allowed, options = ALLOWED[job.phase], job.options
        soon = job.due <= now + options.heartbeat_interval / 2
        if Renew in allowed:
            wanted: list[Request] = [] if job.claim is None else [job.claim]
            if soon:
                progress = liveness.progress(job.name, now)
                wanted.insert(0, Renew(job.name, job.term.token, options.lock_expiry, progress))
            return wanted
        if Release in allowed and job.unanswered_until <= now:
            job.released = job.asked
            off = not job.enabled or job.reason in {"disabled", "paused"}
            # If the answer to a grant never came, the store may have lost the lease of another replica unseen (S8).
            unused = now < max(job.probation_until, job.other.until)
            return [Release(job.name, job.asked, liveness.progress(job.name, now), off=off, unused=unused)]
        if self._may_acquire(job) and self._held_back_until(job) <= now and (renewing or soon):
            self._number += 1
            job.asked, job.maybe_held = self._number, True
            return [Acquire(job.name, self._number, options.lock_expiry, above=self._highest_token)]
        return []

    # -- answers ---------------------------------------------------------------------------------------------------

    def _answered(self, exchange: _Exchange, reply: Reply, now: float) -> None:
        """The store answers, which ends the back-off of all jobs, unless each of the requests failed."""
        if exchange.batch.requests:
            self._errors = 0
            if self._down_since is not None:
                self._effects.append(LogEvent("store-up", number=now - self._down_since))
                self._down_since = None
            if not all(isinstance(verdict, Failed) for verdict in reply.verdicts):
                for job in [job for job in self._jobs.values() if job.backing_off]:
                    job.backing_off = False
                    job.due = max(now, job.not_before)
        else:  # it accepts connections, which does not yet mean that it serves requests
            self._read(reply, now)
        for job, request, verdict in zip(exchange.jobs, exchange.batch.requests, reply.verdicts, strict=False):
            self._judge(job, request, verdict, exchange.sent, now)
        for job in exchange.jobs:  # what arrived meanwhile does not wait for the next heartbeat
            unsent = job.claim is not None and job.claim not in exchange.batch.requests
            if job.alive and (unsent or job.noticed_at > exchange.sent):
                job.due = now

    def _compare_clocks(self, clock: int, sent: float, now: float) -> None:
        """Log that the store's clock moved by more than the time that passed here can explain."""
        last, self._last_clock = self._last_clock, (clock, sent, now)
        self._clock = clock
        if last is None:
            return
        passed = (clock - last[0]) / 1e6
        at_least, at_most = (sent - last[2]) * (1 - RATE), (now - last[1]) * (1 + RATE)
        step = passed - at_most if passed > at_most else min(passed - at_least, 0.0)
        if abs(step) > min([job.options.margin for job in self._jobs.values()]) / 2:
            self._effects.append(LogEvent("store-stepped", number=step))

    def _read(self, reply: Reply, now: float) -> None:
        """Learn from a new connection how long the store has been up."""
        if reply.up_for is None:
            self._up_since = -inf
            if self._amnesia_guard and not self._guard_unknown:
                self._guard_unknown = True
                self._effects.append(LogEvent("no-uptime"))
            return
        self._up_since = now - reply.up_for
        acquiring = [job.options.lock_expiry for job in self._jobs.values() if self._may_acquire(job)]
        wait = max(acquiring, default=-inf) + 1 - reply.up_for
        if wait > 0 and self._amnesia_guard:
            self._effects.append(LogEvent("store-restarted", number=wait))

    def _unknown(self, exchange: _Exchange, now: float, error: str) -> None:
        """No answer is neither a grant nor a refusal: no deadline moves, leaders try again, followers back off."""
        used_up = now - exchange.sent >= exchange.batch.bound * 0.99
        for job, request in zip(exchange.jobs, exchange.batch.requests, strict=False):
            if isinstance(request, Acquire):
                job.unanswered_until = exchange.sent + exchange.batch.bound * 1.03
        at_once = now - exchange.sent < exchange.batch.bound / 4
        if exchange.batch.requests and at_once and exchange.sent - self._answered_at > IDLE:
            # A device may close connections that are idle, and this one was idle: the store itself may be well.
            self._answered_at = now
            for job in exchange.jobs:
                job.due = now
            return
        self._errors += 1
        if self._down_since is None:
            self._down_since = exchange.sent
            self._effects.append(LogEvent("store-down", text=error))
        self._effects.append(LogEvent("heartbeat-error", text=error, number=self._errors))
        for job in exchange.jobs:
            self._retry(job, now, self._errors, at_once=used_up)
        jitter = self._random()
        for job in self._jobs.values():
            if job.backing_off and self._may_acquire(job):  # one try for all jobs, because one try each is a storm
                job.due = now + self._back_off(job, self._errors, jitter)

    def _retry(self, job: _Job, now: float, errors: int, *, at_once: bool = False) -> None:
        in_the_store = now < job.term.sent + job.options.lock_expiry or self._stopping
        if job.alive or (job.phase == "releasing" and in_the_store):
            job.due = now if at_once else now + job.options.heartbeat_interval / 10
        else:
            job.due = now + self._back_off(job, errors, self._random())
            job.backing_off = True

    def _judge(self, job: _Job, request: Request, verdict: Verdict, sent: float, now: float) -> None:
        if isinstance(verdict, Failed):
            job.errors += 1
            self._effects.append(LogEvent("job-error", job.name, verdict.error, job.errors))
            self._retry(job, now, job.errors)
            return
        job.errors = 0
        if isinstance(request, Renew):
            if job.alive and job.term.token == request.token:
                if isinstance(verdict, Renewed):
                    self._renewed(job, verdict, sent, now)
                elif isinstance(verdict, Refused):
                    job.maybe_held = verdict.holder == self.node
                    self._end(job, "lost")
        elif isinstance(request, Acquire):
            known, job.paused = job.paused, isinstance(verdict, Barred) and verdict.why == "paused"
            if isinstance(verdict, Granted):
                self._granted(job, request, verdict, sent, now)
            elif isinstance(verdict, Refused):
                self._refused(job, verdict, sent, now)
            elif isinstance(verdict, Barred):
                if job.paused and not known:  # it was logged when the term was given up, or for an earlier answer
                    self._effects.append(LogEvent("paused", job.name, verdict.said))
                self._barred(job, verdict, sent, now)
        elif isinstance(request, Release):
            if isinstance(verdict, Released):
                job.maybe_held = False
                self._follow(job, now)
                if verdict.mine:
                    self._effects.append(LogEvent("released", job.name, token=job.term.token))
        elif isinstance(verdict, Claimed | NotClaimed) and (claim := job.claim) == request and claim is not None:
            job.claim = None
            if verdict != Claimed():
                job.due = now
            self._effects.append(ClaimAnswered(job.name, claim, verdict))

    def _granted(self, job: _Job, request: Acquire, verdict: Granted, sent: float, now: float) -> None:
        self._highest_token = max(self._highest_token, verdict.token)
        term, state = self._term(job, verdict.token, sent), verdict.state
        other, job.other = job.other, NOBODYS
        if (now < other.until or self._clock < other.clock) and state.released < other.token:
            self._store_lost(job, now)
        if now >= term.deadline or request.number <= job.released or not self._may_acquire(job):
            self._give_back(job, now)
            return
        if sent < job.probation_until:
            job.due = min(sent + self._beat(job), job.probation_until)
            return
        if (ahead := verdict.token - state.wall) > TOKEN_AHEAD:
            self._effects.append(LogEvent("token-ahead", job.name, number=ahead / 1e6, token=verdict.token))
        job.phase, job.term = "leader", term
        job.due = sent + self._beat(job)
        if (forgot_at := max(self._up_since, job.store_lost_at)) > -inf:
            state = state._replace(up_from=state.wall - int((sent - forgot_at) * 1e6))
        self._effects.append(Began(job.name, term, state))

    def _term(self, job: _Job, token: int, sent: float) -> Leadership:
        """Return the times of a term whose last request was sent at `sent`; nothing else computes a deadline (S3)."""
        return Leadership(token, sent, sent + job.options.lock_expiry - job.options.margin)

    def _renewed(self, job: _Job, verdict: Renewed, sent: float, now: float) -> None:
        term = self._term(job, job.term.token, sent)
        if now >= term.deadline:
            self._end(job, "expired")
            return
        job.term = term
        job.due = sent + self._beat(job)
        self._effects.append(Extended(job.name, term))
        job.paused = verdict.order == "paused"
        if job.phase != "leader":
            return
        if verdict.order:
            self._effects.append(LogEvent(verdict.order, job.name, verdict.said, token=term.token))
            self._drain(job, verdict.order)
            job.drain_by = now + job.options.shutdown_grace + job.options.margin
        elif verdict.trigger:
            self._effects.append(Triggered(job.name, term.token, verdict.trigger))

    def _refused(self, job: _Job, verdict: Refused, sent: float, now: float) -> None:
        job.maybe_held = verdict.holder == self.node
        if job.maybe_held or verdict.holder is None:
            if self._may_acquire(job):
                job.due = now
            else:
                self._give_back(job, now)
            return
        if verdict.foreign or verdict.token > job.other.token:
            self._effects.append(LogEvent("following", job.name, verdict.holder))
        if verdict.expires_in is None and not job.warned:
            self._effects.append(LogEvent("no-expiry", job.name, verdict.holder))
        job.warned = verdict.expires_in is None
        wait = self._beat(job)
        if verdict.expires_in is not None:
            left = min(verdict.expires_in, job.options.lock_expiry)  # more comes from a clock that was set back
            look_at = -inf if verdict.foreign else self._remember(job, verdict.token, left, sent, now)
            ends = max(look_at - now, 0.0) if look_at > -inf else left + 0.001 + 0.004 * self._random()
            wait = ends if self._notices and not verdict.foreign else min(ends, wait)
        self._acquire_after(job, wait, sent, now)

    def _remember(self, job: _Job, token: int, left: float, sent: float, now: float) -> float:
        """Remember the lease of a refusal, which ends in `left` seconds; return when to check that the store has it.

        Return -inf for a lease that is about to end. Its holder has passed its own deadline already, so it does not
        matter whether the store will lose it.
        """
        margin, other = job.options.margin, job.other
        token = max(token, NOBODYS.token)  # 0: the store does not know it
        until = sent + left * (1 - RATE)
        goes_on = token == other.token and now + left >= other.until - margin / 2
        if now < other.until and token <= other.token and not goes_on:
            self._store_lost(job, now)  # it went back to an older term, or to a time before a renewal
        if left <= 0.75 * margin:
            job.other = NOBODYS
            return -inf
        latest = max(until, other.until) if goes_on else until
        job.other = _OtherLease(token, latest, self._clock + int(left * (1 - RATE) * 1e6))
        return until - margin / 2

    def _store_lost(self, job: _Job, now: float) -> None:
        """The store lost somebody's lease: no term begins here before that term must be over (S8)."""
        job.store_lost_at = now
        self._effects.append(LogEvent("probation", job.name, number=job.probation_until - now))

    def _barred(self, job: _Job, verdict: Barred, sent: float, now: float) -> None:
        """An operator keeps the lease from us. A notice reports an earlier end of that, but not the end by time."""
        job.maybe_held = verdict.mine
        if verdict.mine:
            job.reason = verdict.why
            self._give_back(job, now)
            return
        wait = job.options.lock_expiry if self._notices else self._beat(job)
        if verdict.seconds is not None:
            wait = min(wait, verdict.seconds + 0.001 + 0.004 * self._random())
        self._acquire_after(job, wait, sent, now)

    def _acquire_after(self, job: _Job, wait: float, sent: float, now: float) -> None:
        if self._may_acquire(job):  # otherwise a release is due, which must not wait
            # A notice that came during the exchange may be about something that happened after the store's answer.
            job.due = now if job.noticed_at >= sent else now + wait

    # -- transitions -----------------------------------------------------------------------------------------------

    def _drain(self, job: _Job, reason: Reason) -> None:
        job.phase, job.reason = "draining", reason
        self._effects.append(Draining(job.name, job.term.token, reason))

    def _end(self, job: _Job, reason: Reason) -> None:
        """End the term. The job competes again when the job loop reports that no body runs."""
        job.phase, job.reason = "ended", reason
        job.claim = None
        job.due = inf
        self._effects.append(Ended(job.name, job.term.token, reason))

    def _give_back(self, job: _Job, now: float) -> None:
        """Release what was or may have been granted, while that can matter to others."""
        job.phase, job.due = "releasing", now
        job.release_until = now + (2 * job.options.call_timeout if self._stopping else job.options.lock_expiry)

    def _follow(self, job: _Job, now: float) -> None:
        job.phase, job.due = "follower", max(now, job.not_before)
