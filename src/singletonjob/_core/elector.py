"""The elector: who leads, decided from what the store said and what time it is. Pure: no clock, no I/O, no threads.

More than 300 lines, since all transitions of one state machine belong in one place: who may lead is read here alone.

Theory of operation
===================

Leadership of a job is a lease in the store: a key that names its holder and expires by itself. One elector per replica
takes part for all of the replica's jobs. It is driven by two calls: `poll(now)` says what to send and when to ask
again; `receive(now, reply)` takes the answer. Both leave *effects*, which the heartbeat carries out in order.

                      granted, in time                     stop, disable, pause, resign
      +----------+ ---------------------> +----------+ ---------------------------> +----------+
      | FOLLOWER |                        |  LEADER  |                              | DRAINING |
      +----------+ <---+                  +----------+ -------- lost, expired, ---> +----------+
           |           |                                        stuck                     |
           | asks      +------------------- its body has ended: released or asked anew ---+

A *term* is one uninterrupted reign with a token of its own. While it is alive its `deadline` is above 0, and it is
renewed, also while DRAINING: a body may still run. A term that was lost, expired or got stuck is dead (`deadline` 0);
it is not renewed. When its body has ended, its lease is given back if the key still is ours, and asked for again.

Rules, by the promise that they keep:

S1  A grant is used only if it answers the newest acquisition of a follower that still wants the job.
S3  A deadline is `sent + lock_expiry - margin`, with `sent` read before the request left. When it passes, the term
    ends for good at that moment, whatever an answer on its way says. *Unknown* (no answer) moves no deadline.
S4  A release goes out when the body has ended, never before, and no renewal after it. Acquisitions carry growing
    numbers; a release names the highest one it covers. A grant that is not used is given back. Every request is void
    after `void_at`, on the store's clock, so that a call which timed out cannot act later; an acquisition without an
    answer is released only then.
S5  An acquisition carries the highest token seen here; the new one is above it.
S7  A term is renewed only while the job loop vouches for it.
S8  Nothing is acquired from a store that has been up for less than `lock_expiry + 1 s`, counted from the arrival of
    the reading that told so: it may have forgotten a lease. Renewals are not held back. *Probation*: a refusal says
    until when the holder's lease runs. A grant before that moment, with no release in the state, means that the store
    lost a lease whose term may still be alive. So does a refusal that names an older term, or an earlier end of the
    same one. The replica keeps the lease that it gets, by one acquisition after the other, and its own term begins
    only when the lost one must be over.
L2  A follower asks again when the holder's time is over, not when its own heartbeat comes round; and once shortly
    before, because only a request before that moment can tell a lease that was lost from one that has ended.
L3  A leader never backs off while its lease lives; a follower does, up to `max_backoff_delay`, until the store answers.

The shape (a state core with all transitions in one place, driven by received events) is that of h11; deadlines that
start at the request are those of the lease files in Gray and Cheriton, "Leases" (SOSP 1989).
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
    "LeaseTimes",
    "Note",
    "Step",
    "Triggered",
    "Witness",
]

ASK_GAP = 0.02
"""Never two asks of one process closer than this, in seconds: notices may come in bursts."""

REVIVAL = 0.5
"""A job whose task was killed is asked for after so many seconds: by then it runs anew, or its loop is closed."""

RATE = 0.01
"""The rates of any two clocks differ by at most this part (section "Promises" of the documentation)."""

IDLE = 1.0
"""A connection without an exchange for this many seconds may have been closed by something between us and the store."""

TOKEN_AHEAD = 600_000_000
"""A token further above the store's clock than this (10 minutes, in microseconds) comes from a wrong clock."""

SHORTEST_CALL = 0.01
"""The least that a call may take, in seconds: near a deadline the bound halves with each try."""

OVER = frozenset[Reason]({"lost", "expired", "stuck"})
"""A term that ended so left nothing that would not go by itself: to give it back is tried, and may fail in silence."""

Phase: TypeAlias = Literal["follower", "leader", "draining"]

Claim: TypeAlias = ClaimSlot | TakeTrigger
"""What a term must have the store's word for before a run may start."""


# -- effects: what the heartbeat is to carry out, in order ---------------------------------------------------------


class Began(NamedTuple):
    """A term began."""

    job: str
    token: int
    deadline: float
    sent: float
    state: JobState


class Extended(NamedTuple):
    """The term's deadline moved, by a renewal sent at `sent`."""

    job: str
    deadline: float
    sent: float


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
    """The store's word on a claim."""

    job: str
    claim: Claim
    verdict: Claimed | NotClaimed


class Triggered(NamedTuple):
    """An operator asks for one more run; said with each renewal until it is taken."""

    job: str
    token: int
    id: str


class Note(NamedTuple):
    """Something to tell people, and nothing to do: the name of a log event, and what it says."""

    event: str
    job: str = ""
    text: str = ""
    number: float = 0
    token: int = 0


Effect: TypeAlias = Began | Extended | Draining | Ended | ClaimAnswered | Triggered | Note


class Step(NamedTuple):
    """What follows from a poll: a batch to send now, if any, and the moment at which to poll again at the latest."""

    batch: Batch | None
    wake_at: float


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


class Witness(Protocol):
    """What the job loop can say about the runs of a term."""

    def vouched_until(self, job: str) -> float:
        """The moment up to which the job loop's word holds that work moves."""
        ...

    def progress(self, job: str, now: float) -> Progress:
        """What is to be written beside the lease."""
        ...


class _Theirs(NamedTuple):
    """The newest lease of another replica that refusals told of.

    The store lost it if it grants before `until` on our clock, or before `clock` on its own: each of them may have
    stepped. Only the release of the term `token`, or of a later one, says that this term is over.
    """

    token: int
    until: float
    clock: int


NOBODYS = _Theirs(token=1, until=-inf, clock=0)


class _Seat:
    """One job, as this replica sees it."""

    def __init__(self, job: str, options: LeaseTimes, *, enabled: bool) -> None:
        self.job = job
        self.options = options
        self.enabled = enabled
        self.phase: Phase = "follower"
        self.token = 0
        self.deadline = 0.0  # of the living term; 0: there is none
        self.vouched_until = inf  # the job loop's word for it, as of the last poll
        self.sent = 0.0  # when the last good renewal or acquisition was sent
        self.due = -inf  # when the next request is due
        self.reason: Reason = "shutdown"  # why it is draining
        self.asked = 0  # the highest acquisition number sent
        self.covered = 0  # the highest one that a release covered
        self.held = False  # an acquisition may have been granted and not been given back
        self.releasing = False
        self.release_until = inf
        self.in_doubt_until = -inf  # an acquisition without an answer may run in the store up to here
        self.theirs = NOBODYS
        self.lost_at = -inf  # the store had lost somebody's lease by this moment
        self.drain_until = inf
        self.abandoned = False
        self.claim: Claim | None = None
        self.noticed_at = -inf
        self.not_before = -inf
        self.backing_off = False
        self.errors = 0  # in a row, of this job alone
        self.resigned = 0  # terms given up in a row
        self.warned = False  # of a key without an expiry
        self.paused = False  # by an operator, as far as the store has told

    @property
    def probation_until(self) -> float:
        """Until then the term of a lost lease may be alive: its last renewal may have come just before the loss."""
        return self.lost_at + self.options.lock_expiry * (1 + RATE)


class _Flight(NamedTuple):
    """The exchange on its way; `seats` are those of its requests, or of a reading those that wait for it."""

    batch: Batch
    seats: list[_Seat]
    sent: float


class Elector:
    """Takes part in the election of every job of one replica.

    `jobs` gives each job's options, `enabled` those that may compete from the start; `random` returns numbers from 0
    up to 1. All moments are seconds on one clock that never jumps and counts suspend.
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
        self._seats = {job: _Seat(job, options, enabled=job in competing) for job, options in jobs.items()}
        self._random = random
        self._amnesia_guard = amnesia_guard
        self._effects: list[Effect] = []
        self._flight: _Flight | None = None
        self._number = 0
        self._highest_token = 0
        self._reading: tuple[int, float] | None = None  # the store's clock, and when it arrived here
        self._last_clock: tuple[int, float, float] | None = None  # of any connection: the clock, and when sent and read
        self._clock = 0  # the store's, in the newest reply
        self._answered_at = -inf
        self._up_since = -inf
        self._guard_unknown = False
        self._errors = 0
        self._voids = 0
        self._down_since: float | None = None
        self._asked_at = -inf
        self._notices = False
        self._stopping = False

    # -- what the heartbeat asks -----------------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """After `stop`: nothing is left to release, or to wait for."""
        return (
            self._stopping
            and self._flight is None
            and all(s.abandoned or (s.phase == "follower" and not s.releasing) for s in self._seats.values())
        )

    @property
    def abandoned(self) -> list[str]:
        """Jobs whose run did not end in time; their leases are left to expire."""
        return [seat.job for seat in self._seats.values() if seat.abandoned]

    def is_stuck(self, job: str) -> bool:
        """Whether the job's last term ended because nobody vouched for it, and its body may still run."""
        seat = self._seats[job]
        return seat.phase == "draining" and seat.reason == "stuck"

    def is_paused(self, job: str) -> bool:
        """Whether the store's last word was that an operator paused the job."""
        return self._seats[job].paused

    def is_failing(self, job: str) -> bool:
        """Whether the store answered the last request for the job with a failure of this job alone."""
        return self._seats[job].errors > 0

    def take_effects(self) -> list[Effect]:
        """What came of the calls since the last time, in order."""
        effects, self._effects = self._effects, []
        return effects

    def poll(self, now: float, witness: Witness) -> Step:
        """End what is over, and say what to send now and when to ask again."""
        self._end_what_is_over(now, witness)
        batch = None
        if self._flight is None:
            due = [seat for seat in self._seats.values() if self._due_at(seat) <= now]
            if due:
                batch = self._build(now, due, witness)
        return Step(batch, self._wake_at())

    def receive(self, now: float, reply: Reply | None, error: str = "") -> None:
        """Take the answer to the batch on its way; None, with what went wrong: there will be none."""
        flight, self._flight = self._flight, None
        if flight is None:
            return
        self._expire(now)
        if reply is None:
            self._reading = None
            self._unknown(flight, now, error)
            return
        self._reading = (reply.clock, now)
        self._answered_at = now
        self._compare_clocks(reply.clock, flight.sent, now)
        self._voids = self._voids + 1 if reply.void else 0
        if reply.void and self._voids > 1:
            self._unknown(flight, now, "the store runs calls later than they are good for")
            return
        if reply.void:
            return
        if flight.batch.requests:
            self._answered(now, reply.verdicts)
        else:
            self._read(reply, now)  # that it connects is not yet that it serves
        for seat, request, verdict in zip(flight.seats, flight.batch.requests, reply.verdicts, strict=False):
            self._judge(seat, request, verdict, flight.sent, now)
        for seat in flight.seats:  # what came meanwhile does not wait for the next beat
            unsent = seat.claim is not None and seat.claim not in flight.batch.requests
            if seat.deadline > 0 and (unsent or seat.noticed_at > flight.sent):
                seat.due = now

    # -- orders ----------------------------------------------------------------------------------------------------

    def stop(self, now: float) -> None:
        """Leave: drain what leads, release what is or may be held, ask for nothing any more."""
        if self._stopping:
            return
        self._stopping = True
        for seat in self._seats.values():
            if seat.phase == "leader":
                self._drain(seat, "shutdown")
            if seat.phase == "draining":
                seat.drain_until = now + seat.options.shutdown_grace + seat.options.margin
            elif seat.held:
                self._give_back(seat, now)

    def set_enabled(self, now: float, job: str, enabled: bool) -> None:
        """Follow the job's switch: off drains and releases, on competes at once."""
        seat = self._seats[job]
        if seat.enabled == enabled:
            return
        seat.enabled = enabled
        if seat.phase == "leader" and not enabled:
            self._drain(seat, "disabled")
        elif seat.phase == "follower" and not enabled and seat.held:
            self._give_back(seat, now)
        elif enabled and not seat.releasing:
            seat.due = now

    def resign(self, job: str, token: int) -> None:
        """Give the term up, and ask again only after a back-off."""
        seat = self._seats[job]
        if seat.phase == "leader" and seat.token == token:
            seat.resigned += 1
            self._drain(seat, "resigned")

    def drained(self, now: float, job: str, token: int, *, died: bool = False) -> None:
        """The job loop's word that no body of this term runs any more, and none will start.

        `died`: because the job's task was ended from outside, as it also is when its loop is torn down.
        """
        seat = self._seats[job]
        if seat.token != token or seat.phase == "follower":
            return
        if seat.phase == "leader":
            # The fence saw the deadline pass before we did; a renewal that crossed it does not bring the term back.
            self._end(seat, "resigned" if died else "expired")
        if seat.deadline > 0:
            self._end(seat, seat.reason)
        if died:
            seat.not_before = now + REVIVAL
        elif seat.reason == "resigned":
            seat.not_before = now + self._back_off(seat, seat.resigned, self._random())
        else:
            seat.resigned = 0
        seat.phase = "follower"
        seat.abandoned = False
        seat.drain_until = inf
        if seat.held:
            self._give_back(seat, now)
        else:
            seat.due = max(now, seat.not_before)

    def claim(self, now: float, claim: Claim) -> None:
        """Ask for a slot, or for a trigger, until the store answers or the term ends."""
        seat = self._seats[claim.job]
        if isinstance(claim, TakeTrigger) and claim.busy and seat.claim is not None:
            return  # one at a time, and the next renewal tells of the trigger again
        if seat.deadline > 0 and seat.token == claim.token:
            seat.claim = claim
            seat.due = now

    def report(self, now: float, job: str) -> None:
        """Renew soon, because somebody waits for what the renewal reports."""
        if self._seats[job].deadline > 0:
            self.notice(now, [job])

    def withdraw(self, job: str) -> None:
        """Ask no more for what was claimed."""
        self._seats[job].claim = None

    # -- notices ---------------------------------------------------------------------------------------------------

    def subscribed(self, now: float) -> None:
        """Notices are heard from now on; what happened before may have been missed, so look at all jobs."""
        self._notices = True
        self._errors = 0
        self.notice(now, self._seats)

    def notices_lost(self, now: float) -> None:
        """Notices are not heard; ask once per heartbeat instead."""
        if self._notices:
            self._notices = False
            for seat in self._seats.values():
                if self._may_ask(seat):
                    seat.due = min(seat.due, now + self._beat(seat))

    def notice(self, now: float, jobs: Iterable[str]) -> None:
        """Somebody released these, or their holder is gone: look at once."""
        for job in jobs:
            seat = self._seats.get(job)
            if seat is None:
                continue
            seat.noticed_at = now
            if seat.deadline > 0:
                seat.due = min(seat.due, max(now, seat.sent + ASK_GAP))
            elif self._may_ask(seat):
                seat.due = max(now, seat.not_before)
                seat.backing_off = False

    # -- time ------------------------------------------------------------------------------------------------------

    def _expire(self, now: float) -> None:
        for seat in self._seats.values():
            if 0 < seat.deadline <= now:
                self._end(seat, "expired")

    def _end_what_is_over(self, now: float, witness: Witness) -> None:
        self._expire(now)
        for seat in self._seats.values():
            if seat.deadline > 0:
                seat.vouched_until = vouched_until = witness.vouched_until(seat.job)
                if now >= vouched_until:
                    self._end(seat, "stuck")
                elif seat.phase == "leader":
                    continue  # which neither waits for a body to end nor for its lease to be given back
            if seat.phase == "draining" and now >= seat.drain_until and not seat.abandoned:
                if seat.deadline > 0:
                    self._end(seat, seat.reason)
                seat.abandoned = True
                self._effects.append(Note("run-did-not-stop", seat.job, token=seat.token))
            if seat.releasing and now >= seat.release_until and self._flight is None:
                seat.releasing = False
                seat.due = max(now, seat.not_before)
                if seat.reason not in OVER:
                    self._effects.append(Note("release-failed", seat.job, token=seat.token))

    def _wake_at(self) -> float:
        """The next moment at which something ends or, with no call on its way, something is due."""
        wake, idle = inf, self._flight is None
        for seat in self._seats.values():
            if seat.deadline > 0:
                wake = min(wake, seat.deadline, seat.vouched_until)
            if idle:
                wake = min(wake, self._due_at(seat))
            if seat.phase == "draining" and not seat.abandoned:
                wake = min(wake, seat.drain_until)
            if seat.releasing and idle:
                wake = min(wake, seat.release_until)
        return wake

    def _may_ask(self, seat: _Seat) -> bool:
        return seat.phase == "follower" and seat.enabled and not seat.releasing and not self._stopping

    def _due_at(self, seat: _Seat) -> float:
        if seat.deadline > 0:
            return seat.due
        if seat.releasing:
            # Released before, an acquisition that still is on its way would take the lease for one that has left.
            return max(seat.due, seat.in_doubt_until)
        return max(seat.due, self._held_back_until(seat)) if self._may_ask(seat) else inf

    def _held_back_until(self, seat: _Seat) -> float:
        """Before this moment the job is not asked for, however due it is."""
        guarded_until = -inf
        if self._reading is not None and self._amnesia_guard:
            guarded_until = self._up_since + seat.options.lock_expiry + 1
        return max(seat.not_before, self._asked_at + ASK_GAP, guarded_until)

    def _beat(self, seat: _Seat) -> float:
        """A heartbeat's length; jitter shortens it, so that the replicas' beats spread, and never lengthens it."""
        return seat.options.heartbeat_interval * (1 - 0.1 * self._random())

    def _back_off(self, seat: _Seat, errors: int, jitter: float) -> float:
        options = seat.options
        delay = min(options.heartbeat_interval * 2.0 ** min(errors, 30), options.max_backoff_delay)
        return max(delay * (0.8 + 0.4 * jitter), options.heartbeat_interval)

    # -- sending ---------------------------------------------------------------------------------------------------

    def _build(self, now: float, due: list[_Seat], witness: Witness) -> Batch:
        if self._reading is None:
            bound = self._bound(self._seats.values(), now)
            batch = Batch(project=self.project, node=self.node, bound=bound)
            self._flight = _Flight(batch, due, now)
            return batch
        renewing, asked = any(seat.deadline > 0 for seat in due), self._number
        requests: list[Request] = []
        seats: list[_Seat] = []
        for seat in self._seats.values():
            wanted = self._requests(seat, now, witness, renewing=renewing)
            requests += wanted
            seats += [seat] * len(wanted)
        if self._number != asked:
            self._asked_at = now
        bound = self._bound(seats, now)
        clock, arrived = self._reading
        # 99 %: the store's clock may run slower than ours by 1 %, and when we have given a call up it must be void.
        void_at = clock + int(0.99 * (now - arrived + bound) * 1e6)
        batch = Batch(project=self.project, node=self.node, bound=bound, void_at=void_at, requests=tuple(requests))
        self._flight = _Flight(batch, seats, now)
        return batch

    def _bound(self, seats: Iterable[_Seat], now: float) -> float:
        """The seconds that a call for these seats may take.

        As much as the most patient of them allows, because a job with a short lease must not cut off the calls of all
        others. At most half the time that any living lease has left, because there is one call at a time.
        """
        bound = max([seat.options.call_timeout for seat in seats])
        earliest = min([seat.deadline for seat in self._seats.values() if seat.deadline > 0], default=inf)
        return max(min(bound, (earliest - now) / 2), SHORTEST_CALL)

    def _requests(self, seat: _Seat, now: float, witness: Witness, *, renewing: bool) -> list[Request]:
        """What goes out for a job now: what is due within half its heartbeat rides along, asks with any renewal."""
        job, options = seat.job, seat.options
        soon = now + options.heartbeat_interval / 2
        if seat.deadline > 0:
            wanted: list[Request] = []
            if seat.due <= soon:
                wanted.append(Renew(job, seat.token, options.lock_expiry, witness.progress(job, now)))
            if seat.claim is not None:
                wanted.append(seat.claim)
            return wanted
        if seat.releasing and seat.in_doubt_until <= now:
            seat.covered = seat.asked
            off = not seat.enabled or seat.reason in {"disabled", "paused"}
            # Of a grant whose answer never came it is not known whether the store had lost the lease of another.
            unused = now < max(seat.probation_until, seat.theirs.until)
            return [Release(job, seat.asked, witness.progress(job, now), off=off, unused=unused)]
        if self._may_ask(seat) and self._held_back_until(seat) <= now and (renewing or seat.due <= soon):
            self._number += 1
            seat.asked = self._number
            seat.held = True
            return [Acquire(job, self._number, options.lock_expiry, above=self._highest_token)]
        return []

    # -- answers ---------------------------------------------------------------------------------------------------

    def _answered(self, now: float, verdicts: Iterable[Verdict]) -> None:
        """The store answers: back-off ends for all jobs at once, unless it could serve none of those asked for."""
        self._errors = 0
        if self._down_since is not None:
            self._effects.append(Note("store-up", number=now - self._down_since))
            self._down_since = None
        served = not all(isinstance(verdict, Failed) for verdict in verdicts)
        for seat in self._seats.values():
            if served and seat.backing_off:
                seat.backing_off = False
                seat.due = max(now, seat.not_before)

    def _compare_clocks(self, clock: int, sent: float, now: float) -> None:
        """Tell people when the store's clock moved by more than the time that passed here can explain."""
        last, self._last_clock = self._last_clock, (clock, sent, now)
        self._clock = clock
        if last is None:
            return
        passed = (clock - last[0]) / 1e6
        at_least, at_most = (sent - last[2]) * (1 - RATE), (now - last[1]) * (1 + RATE)
        step = passed - at_most if passed > at_most else min(passed - at_least, 0.0)
        if abs(step) > min([seat.options.margin for seat in self._seats.values()]) / 2:
            self._effects.append(Note("store-stepped", number=step))

    def _read(self, reply: Reply, now: float) -> None:
        """A new connection: for how long has this store been up?"""
        if reply.up_for is None:
            self._up_since = -inf
            if self._amnesia_guard and not self._guard_unknown:
                self._guard_unknown = True
                self._effects.append(Note("no-uptime"))
            return
        self._up_since = now - reply.up_for
        asking = [seat.options.lock_expiry for seat in self._seats.values() if self._may_ask(seat)]
        wait = max(asking, default=-inf) + 1 - reply.up_for
        if wait > 0 and self._amnesia_guard:
            self._effects.append(Note("store-restarted", number=wait))

    def _unknown(self, flight: _Flight, now: float, error: str) -> None:
        """No answer is neither a grant nor a refusal: no deadline moves; the leader asks on, followers back off."""
        used_up = now - flight.sent >= flight.batch.bound * 0.99
        for seat, request in zip(flight.seats, flight.batch.requests, strict=False):
            if isinstance(request, Acquire):
                seat.in_doubt_until = flight.sent + flight.batch.bound * 1.03
        at_once = now - flight.sent < flight.batch.bound / 4
        if flight.batch.requests and at_once and flight.sent - self._answered_at > IDLE:
            # Something may close connections that are idle, and this one was: the store itself may be well.
            self._answered_at = now
            for seat in flight.seats:
                seat.due = now
            return
        self._errors += 1
        if self._down_since is None:
            self._down_since = flight.sent
            self._effects.append(Note("store-down", text=error))
        self._effects.append(Note("heartbeat-error", text=error, number=self._errors))
        for seat in flight.seats:
            self._retry(seat, now, self._errors, at_once=used_up)
        jitter = self._random()
        for seat in self._seats.values():
            if seat.backing_off and self._may_ask(seat):  # one try for all: of many jobs, each its own is a storm
                seat.due = now + self._back_off(seat, self._errors, jitter)

    def _retry(self, seat: _Seat, now: float, errors: int, *, at_once: bool = False) -> None:
        in_the_store = now < seat.sent + seat.options.lock_expiry or self._stopping
        if seat.deadline > 0 or (seat.releasing and in_the_store):
            seat.due = now if at_once else now + seat.options.heartbeat_interval / 10
        else:
            seat.due = now + self._back_off(seat, errors, self._random())
            seat.backing_off = True

    def _judge(self, seat: _Seat, request: Request, verdict: Verdict, sent: float, now: float) -> None:
        if isinstance(verdict, Failed):
            seat.errors += 1
            self._effects.append(Note("job-error", seat.job, verdict.error, seat.errors))
            self._retry(seat, now, seat.errors)
            return
        seat.errors = 0
        if isinstance(request, Renew):
            if seat.deadline > 0 and seat.token == request.token:
                if isinstance(verdict, Renewed):
                    self._renewed(seat, verdict, sent, now)
                elif isinstance(verdict, Refused):
                    seat.held = verdict.holder == self.node
                    self._end(seat, "lost")
        elif isinstance(request, Acquire):
            known, seat.paused = seat.paused, isinstance(verdict, Barred) and verdict.why == "paused"
            if (
                isinstance(verdict, Barred) and seat.paused and not known
            ):  # else it was told when the term was given up, or by an earlier answer
                self._effects.append(Note("paused", seat.job, verdict.said))
            if isinstance(verdict, Granted):
                self._granted(seat, request, verdict, sent, now)
            elif isinstance(verdict, Refused):
                self._refused(seat, verdict, sent, now)
            elif isinstance(verdict, Barred):
                self._barred(seat, verdict, sent, now)
        elif isinstance(request, Release):
            if isinstance(verdict, Released):
                seat.releasing = False
                seat.held = False
                seat.due = max(now, seat.not_before)
                if verdict.mine:
                    self._effects.append(Note("released", seat.job, token=seat.token))
        elif isinstance(verdict, Claimed | NotClaimed) and (claim := seat.claim) == request and claim is not None:
            seat.claim = None
            if verdict != Claimed():
                seat.due = now
            self._effects.append(ClaimAnswered(seat.job, claim, verdict))

    def _granted(self, seat: _Seat, request: Acquire, verdict: Granted, sent: float, now: float) -> None:
        options = seat.options
        self._highest_token = max(self._highest_token, verdict.token)
        deadline = sent + options.lock_expiry - options.margin
        state = verdict.state
        theirs, seat.theirs = seat.theirs, NOBODYS
        if (now < theirs.until or self._clock < theirs.clock) and state.released < theirs.token:
            self._store_lost(seat, now)
        if now >= deadline or request.number <= seat.covered or not self._may_ask(seat):
            self._give_back(seat, now)
            return
        if sent < seat.probation_until:
            seat.due = min(sent + self._beat(seat), seat.probation_until)
            return
        if (ahead := verdict.token - state.wall) > TOKEN_AHEAD:
            self._effects.append(Note("token-ahead", seat.job, number=ahead / 1e6, token=verdict.token))
        seat.phase = "leader"
        seat.token = verdict.token
        seat.deadline = deadline
        seat.sent = sent
        seat.due = sent + self._beat(seat)
        seat.claim = None
        if (forgot_at := max(self._up_since, seat.lost_at)) > -inf:
            state = state._replace(up_from=state.wall - int((sent - forgot_at) * 1e6))
        self._effects.append(Began(seat.job, seat.token, deadline, sent, state))

    def _renewed(self, seat: _Seat, verdict: Renewed, sent: float, now: float) -> None:
        deadline = sent + seat.options.lock_expiry - seat.options.margin
        if now >= deadline:
            self._end(seat, "expired")
            return
        seat.deadline = deadline
        seat.sent = sent
        seat.due = sent + self._beat(seat)
        self._effects.append(Extended(seat.job, deadline, sent))
        seat.paused = verdict.order == "paused"
        if seat.phase != "leader":
            return
        if verdict.order:
            self._effects.append(Note(verdict.order, seat.job, verdict.said, token=seat.token))
            self._drain(seat, verdict.order)
            seat.drain_until = now + seat.options.shutdown_grace + seat.options.margin
        elif verdict.trigger:
            self._effects.append(Triggered(seat.job, seat.token, verdict.trigger))

    def _refused(self, seat: _Seat, verdict: Refused, sent: float, now: float) -> None:
        seat.held = verdict.holder == self.node
        if seat.held or verdict.holder is None:
            if self._may_ask(seat):
                seat.due = now
            elif seat.phase == "follower":
                self._give_back(seat, now)
            return
        if verdict.foreign or verdict.token > seat.theirs.token:
            self._effects.append(Note("following", seat.job, verdict.holder))
        if verdict.expires_in is None and not seat.warned:
            self._effects.append(Note("no-expiry", seat.job, verdict.holder))
        seat.warned = verdict.expires_in is None
        wait = self._beat(seat)
        if verdict.expires_in is not None:
            left = min(verdict.expires_in, seat.options.lock_expiry)  # more comes from a clock that was set back
            look_at = -inf if verdict.foreign else self._remember(seat, verdict.token, left, sent, now)
            ends = max(look_at - now, 0.0) if look_at > -inf else left + 0.001 + 0.004 * self._random()
            wait = ends if self._notices and not verdict.foreign else min(ends, wait)
        self._ask_after(seat, wait, sent, now)

    def _remember(self, seat: _Seat, token: int, left: float, sent: float, now: float) -> float:
        """Remember the lease of the refusal, of which so many seconds are left; when to look whether it is still there.

        -inf: when it has ended. With so little left its holder has passed its own deadline already, so nobody need know
        whether the store will lose it.
        """
        margin, theirs = seat.options.margin, seat.theirs
        token = max(token, NOBODYS.token)  # 0: the store does not know it
        until = sent + left * (1 - RATE)
        goes_on = token == theirs.token and now + left >= theirs.until - margin / 2
        if now < theirs.until and token <= theirs.token and not goes_on:
            self._store_lost(seat, now)  # it went back to an older term, or to before a renewal
        if left <= 0.75 * margin:
            seat.theirs = NOBODYS
            return -inf
        latest = max(until, theirs.until) if goes_on else until
        seat.theirs = _Theirs(token, latest, self._clock + int(left * (1 - RATE) * 1e6))
        return until - margin / 2

    def _store_lost(self, seat: _Seat, now: float) -> None:
        """Somebody's lease is lost: no term begins here before its term must be over."""
        seat.lost_at = now
        self._effects.append(Note("probation", seat.job, number=seat.probation_until - now))

    def _barred(self, seat: _Seat, verdict: Barred, sent: float, now: float) -> None:
        """An operator keeps the lease from us; a notice tells when that changes, but for the end of its time."""
        seat.held = verdict.mine
        if verdict.mine:
            seat.reason = verdict.why
            self._give_back(seat, now)
            return
        wait = seat.options.lock_expiry if self._notices else self._beat(seat)
        if verdict.seconds is not None:
            wait = min(wait, verdict.seconds + 0.001 + 0.004 * self._random())
        self._ask_after(seat, wait, sent, now)

    def _ask_after(self, seat: _Seat, wait: float, sent: float, now: float) -> None:
        if self._may_ask(seat):  # else a release is due, which must not wait
            # A notice that came while the question was on its way may be about what happened after it.
            seat.due = now if seat.noticed_at >= sent else now + wait

    # -- transitions -----------------------------------------------------------------------------------------------

    def _drain(self, seat: _Seat, reason: Reason) -> None:
        seat.phase = "draining"
        seat.reason = reason
        self._effects.append(Draining(seat.job, seat.token, reason))

    def _end(self, seat: _Seat, reason: Reason) -> None:
        """The term is over; the seat stays DRAINING until the job loop says that no body runs."""
        seat.phase = "draining"
        seat.reason = reason
        seat.deadline = 0.0
        seat.claim = None
        seat.due = inf
        self._effects.append(Ended(seat.job, seat.token, reason))

    def _give_back(self, seat: _Seat, now: float) -> None:
        """Release what was or may have been granted; tried while it can still matter."""
        options = seat.options
        seat.releasing = True
        seat.due = now
        seat.release_until = now + (2 * options.call_timeout if self._stopping else options.lock_expiry)
