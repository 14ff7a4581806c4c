"""What a replica and a store say to each other: requests, verdicts, and the store's interface.

Units as in `values`: durations in seconds, wall-clock instants in microseconds since the epoch, UTC.

A little over 300 lines: one vocabulary, most of which is what its words mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .orders import Order, Ordered, Paused
    from .values import Outcome

__all__ = [
    "NO_PROGRESS",
    "Acquire",
    "Barred",
    "Batch",
    "ClaimSlot",
    "Claimed",
    "Failed",
    "Finding",
    "Granted",
    "Inspectable",
    "JobState",
    "JobView",
    "LeaseStore",
    "NotClaimed",
    "Progress",
    "Refused",
    "Release",
    "Released",
    "Renew",
    "Renewed",
    "Reply",
    "Request",
    "TakeTrigger",
    "Verdict",
]

# -- what a replica asks of the store ------------------------------------------------------------------------------


class Progress(NamedTuple):
    """What the holder of a lease knows of its job's runs; it rides along with a renewal or a release.

    `tick` is the last grid point started (fixed rate), `done` the last slot whose run ended (cron), `settled` the
    instant up to which every slot was run or reported, so that the next leader owes nothing for it;
    `ended_ago` is the time since the last run ended, so that the replicas' wall clocks do not matter. None: not known.

    The rest is for people who look at the job: how the last run of this term ended (empty: none has), how many `runs`
    of this term have ended, how many of them failed or ran into their timeout, and the time since one ended well.
    `finished` is `id;outcome` of the last trigger that was run, once that run has ended.
    """

    tick: int | None = None
    done: int | None = None
    ended_ago: float | None = None
    settled: int | None = None
    outcome: Outcome | Literal[""] = ""
    runs: int = 0
    failures: int = 0
    good_ago: float | None = None
    finished: str = ""


NO_PROGRESS = Progress()
"""Nothing that the store does not have already."""


class Acquire(NamedTuple):
    """Ask for the lease, for `lock_expiry` seconds from the store's now on.

    `number` grows with every acquisition of this replica; the token of the new term must exceed `above`.
    """

    job: str
    number: int
    lock_expiry: float
    above: int


class Renew(NamedTuple):
    """Extend the lease of the term with this token to `lock_expiry` seconds from the store's now on. Never acquires."""

    job: str
    token: int
    lock_expiry: float
    progress: Progress


class Release(NamedTuple):
    """Give back whatever acquisitions up to `number` were granted; `off`: the job was switched off or paused.

    `unused`: no term began with the lease, and the store may have lost that of another term, which may be alive. So
    the release does not mark the term before it as over.
    """

    job: str
    number: int
    progress: Progress
    off: bool = False
    unused: bool = False


class ClaimSlot(NamedTuple):
    """Claim a cron slot, an instant in microseconds, for a term. Idempotent for one slot and token.

    `mark` identifies the schedule.
    """

    job: str
    token: int
    slot: int
    mark: str


class TakeTrigger(NamedTuple):
    """Take an operator's trigger for a term, to run the job once more. Idempotent for one trigger and token.

    `busy`: do not take it, but say that a run was in flight.
    """

    job: str
    token: int
    id: str
    busy: bool = False


Request: TypeAlias = "Acquire | Renew | Release | ClaimSlot | TakeTrigger | Order"
"""What a replica or an operator may ask; each for one job."""


class Batch(NamedTuple):
    """All that one replica asks in one exchange.

    A batch that the store runs later than `void_at` (microseconds on the store's clock) changes nothing. A batch
    without requests is a *reading*: it asks for the store's clock and up-time. `bound` is what the exchange may
    take, in seconds.
    """

    project: str
    node: str
    bound: float
    void_at: int | None = None
    requests: tuple[Request, ...] = ()


# -- what the store says -------------------------------------------------------------------------------------------


class JobState(NamedTuple):
    """What the store remembers of a job, read when a term begins.

    `slot` is the newest slot claimed (cron) or tick reported (fixed rate), by the term `slot_token`, under the
    schedule `mark`; `done` the newest slot whose run is known to have ended; `ended_ago` the seconds since the last
    known end of a run; nothing is owed up to `off`. `wall` is the store's wall clock at the reading. `released`: the
    token of the term that ended before this grant, if it is known to be over because it was given back, or because its
    holder died; else 0.
    `up_from` is set by the elector: what was due before the store started, or lost a lease, may have run, and been
    forgotten.
    """

    wall: int
    slot: int | None = None
    slot_token: int | None = None
    mark: str = ""
    done: int | None = None
    ended_ago: float | None = None
    off: int | None = None
    up_from: int | None = None
    released: int = 0


class Granted(NamedTuple):
    """The lease is the asking replica's: a new term with this token."""

    token: int
    state: JobState


class Renewed(NamedTuple):
    """The term goes on. `order`: an operator wants it to end; `trigger`: the id of an extra run that one asks for.

    `said`: of a pause, who ordered it and why.
    """

    order: Literal["", "paused", "resigned"] = ""
    trigger: str = ""
    said: str = ""


class Refused(NamedTuple):
    """Somebody holds the lease for `expires_in` more seconds (None: the key has no expiry).

    `holder` may be the asking replica itself (its key, but another term). None: nobody holds it (to a renewal).
    `foreign`: the holder is another implementation, which publishes no notices. `token` is that of the holder's term, 0
    where the store does not know it.
    """

    holder: str | None
    expires_in: float | None
    foreign: bool = False
    token: int = 0


class Barred(NamedTuple):
    """Nobody else holds the lease, and this replica does not get it: an operator paused the job, or had it step down.

    For `seconds` more; None: until it is told otherwise. `mine`: the key names this replica, of an earlier acquisition.
    `said`: of a pause, who ordered it and why.
    """

    why: Literal["paused", "resigned"]
    seconds: float | None
    mine: bool
    said: str = ""


class Released(NamedTuple):
    """Nothing up to the named number is held any more; `mine`: this call gave something back."""

    mine: bool


@dataclass(frozen=True, slots=True)
class Claimed:
    """The slot, or the trigger, belongs to the asking term; a trigger for which it is too busy was noted as such."""


class NotClaimed(NamedTuple):
    """No run for this slot, or trigger. `taken`: a run claimed it or a later one, or the trigger was withdrawn;
    `ahead`: the slot lies too far in the store's future; `lost`: the term is not the lease's. `wall` is the store's
    wall clock."""

    why: Literal["taken", "ahead", "lost"]
    wall: int


class Failed(NamedTuple):
    """This job's request could not be served (a key of a wrong type, say); the others of the batch were."""

    error: str


Verdict: TypeAlias = "Granted | Renewed | Refused | Barred | Released | Claimed | NotClaimed | Failed | Ordered"
"""What came of a request. No answer is none of these: then nothing is known."""


class Reply(NamedTuple):
    """The answer to a batch: one verdict per request, in order.

    `clock` is the store's clock in microseconds, the one `Batch.void_at` is on. `void`: the batch came too late and
    nothing was done, there are no verdicts. `up_for` (only in a reading): for how long the store has been up at
    least, in seconds; infinity where it cannot forget, None where it does not tell.
    """

    clock: int
    verdicts: tuple[Verdict, ...] = ()
    void: bool = False
    up_for: float | None = None


class JobView(NamedTuple):
    """How a job stands in the store, for people to look at.

    `holder` leads with `token` since `since` (microseconds) and for `expires_in` more seconds; all four None where
    nobody leads, `token` and `since` also where another implementation does, `expires_in` where the lease does not
    end. `ended` is the last known end of a run, in microseconds. `paused`: by whom and why, while it is.

    `outcome` is how that run ended (empty: not known), `good` when a run last ended well. In the newest term that
    reported runs, `runs` have ended, and `failures` of them failed or ran into their timeout. `standby`: so many more
    replicas of the project are ready to lead; None: the store does not know. `wall` is the store's wall clock at the
    look.
    """

    job: str
    holder: str | None = None
    token: int | None = None
    since: int | None = None
    expires_in: float | None = None
    ended: int | None = None
    paused: Paused | None = None
    outcome: str = ""
    good: int | None = None
    runs: int = 0
    failures: int = 0
    standby: int | None = None
    wall: int | None = None


# -- the interface ----------------------------------------------------------------------------------------------------


class LeaseStore(Protocol):
    """What keeps the leases.

    All methods are called on one event loop, the heartbeat's. Every error is a `StoreError`; a call without a usable
    answer is a `StoreUnavailable`, and after it the store starts with a new connection: nothing is sent twice.
    """

    async def exchange(self, batch: Batch) -> Reply:
        """Carry out the requests in order and return one verdict for each.

        Without requests: connect if need be, and read the store's clock and up-time. With requests, the connection
        must be the one that the last reading was made on, else `StoreUnavailable`. Cancellation must end the call at
        once and without a trace on later calls; the store may still run it, until `batch.void_at`.
        """
        ...

    def notices(self, project: str) -> AsyncIterator[frozenset[str]]:
        """The names of jobs that somebody should look at: released, their holder gone, or an operator's order given.

        The first item, and each one after a renewed subscription, is empty: it says that notices are heard from now
        on. Raises `StoreUnavailable` when they are not heard any more.
        """
        ...

    async def peek(self, project: str) -> tuple[JobView, ...]:
        """Each job of the project that was ever led, by name. Changes nothing, and needs no reading before it.

        Takes a few seconds at most. A store that cannot be looked at is a `StoreUnavailable`.
        """
        ...

    async def close(self) -> None:
        """Let go of connections, files and threads. Waits for no peer."""
        ...


class Finding(NamedTuple):
    """Something that somebody who sets up a store should know; `error`: it will not do."""

    level: Literal["ok", "warning", "error"]
    text: str


@runtime_checkable
class Inspectable(Protocol):
    """A store that can tell more about itself than whether it answers."""

    async def inspect(self, project: str) -> tuple[Finding, ...]:
        """How fit the store is for this project: rights, settings, version. Leaves nothing behind."""
        ...
