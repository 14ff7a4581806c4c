"""The requests of a replica, the verdicts of a store, and the interface of a store.

Units as in `values`: durations in seconds, wall-clock instants in microseconds since the epoch, UTC.

This file has more than 300 lines because it defines one vocabulary; most of them are definitions in words.
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

# -- requests --------------------------------------------------------------------------------------------------------


class Progress(NamedTuple):
    """What the holder of a lease reports about the runs of its job, with a renewal or a release.

    `tick` is the last grid point started (fixed rate). `done` is the last slot whose run ended (cron). Each slot up to
    the instant `settled` was run or reported, so the next leader does not run it. `ended_ago` is the time since the
    last run ended; a duration, so that the wall clocks of replicas do not matter. None: not known.

    The other fields are for people who look at the job: the outcome of the last run of this term (empty: no run has
    ended), how many `runs` of this term have ended, how many of them failed or timed out, and the time since one ended
    well. `finished` is `id;outcome` of the last trigger whose run has ended.
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
"""Nothing that the store does not know already."""


class Acquire(NamedTuple):
    """Request the lease for `lock_expiry` seconds, counted from the store's present time.

    `number` grows with each acquisition of this replica. The token of the new term must be higher than `above`.
    """

    job: str
    number: int
    lock_expiry: float
    above: int


class Renew(NamedTuple):
    """Extend the lease of the term with this token to `lock_expiry` seconds from the store's present time.

    Never acquires a lease.
    """

    job: str
    token: int
    lock_expiry: float
    progress: Progress


class Release(NamedTuple):
    """Release what acquisitions up to `number` were granted. `off`: the job was switched off or paused.

    `unused`: no term began with this lease, and the store may have lost the lease of another term, which may be alive.
    Therefore the release does not mark the term before it as over.
    """

    job: str
    number: int
    progress: Progress
    off: bool = False
    unused: bool = False


class ClaimSlot(NamedTuple):
    """Claim a cron slot, an instant in microseconds, for a term. Idempotent for the same slot and token.

    `mark` identifies the schedule.
    """

    job: str
    token: int
    slot: int
    mark: str


class TakeTrigger(NamedTuple):
    """Take an operator's trigger for a term, to run the job once more. Idempotent for the same trigger and token.

    `busy`: do not take it, but record that a run was in flight.
    """

    job: str
    token: int
    id: str
    busy: bool = False


Request: TypeAlias = "Acquire | Renew | Release | ClaimSlot | TakeTrigger | Order"
"""The requests of replicas and operators, each for one job."""


class Batch(NamedTuple):
    """All requests of one replica in one exchange.

    A batch that the store runs later than `void_at` (microseconds on the store's clock) changes nothing. A batch
    without requests is a *reading*: it requests the store's clock and up-time. `bound` is the time limit of the
    exchange, in seconds.
    """

    project: str
    node: str
    bound: float
    void_at: int | None = None
    requests: tuple[Request, ...] = ()


# -- verdicts --------------------------------------------------------------------------------------------------------


class JobState(NamedTuple):
    """The store's memory of a job, as of the beginning of a term.

    `slot` is the newest claimed slot (cron) or reported tick (fixed rate), by the term `slot_token`, under the schedule
    `mark`. `done` is the newest slot whose run is known to have ended. `ended_ago` is the time since the last known end
    of a run. Slots up to `off` do not run any more. `wall` is the store's wall clock at the grant. `released` is the
    token of the term before, if that term is known to be over because it was released or its holder died; otherwise 0.
    `up_from` is set by the elector: a slot before this instant may have run, although the store has forgotten it.
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
    """The replica has the lease: a new term with this token."""

    token: int
    state: JobState


class Renewed(NamedTuple):
    """The term goes on. `order`: an operator wants it to end. `trigger`: the id of an extra run for an operator.

    `said`: who ordered a pause, and why.
    """

    order: Literal["", "paused", "resigned"] = ""
    trigger: str = ""
    said: str = ""


class Refused(NamedTuple):
    """Somebody holds the lease for `expires_in` more seconds (None: the key has no expiry).

    `holder` may be the requesting replica itself, with another term. None, as the answer to a renewal: nobody holds it.
    `foreign`: the holder is another implementation, which publishes no notices. `token` is that of the holder's term; 0
    if the store does not know it.
    """

    holder: str | None
    expires_in: float | None
    foreign: bool = False
    token: int = 0


class Barred(NamedTuple):
    """Nobody else holds the lease, but this replica does not get it: an operator paused the job or made it step down.

    This lasts for `seconds` more; None: until a notice. `mine`: the key names this replica, by an earlier acquisition.
    `said`: who ordered a pause, and why.
    """

    why: Literal["paused", "resigned"]
    seconds: float | None
    mine: bool
    said: str = ""


class Released(NamedTuple):
    """No acquisition up to the number is held any more. `mine`: this call released one."""

    mine: bool


@dataclass(frozen=True, slots=True)
class Claimed:
    """The slot or the trigger belongs to the requesting term; or the store recorded that it was busy."""


class NotClaimed(NamedTuple):
    """This slot or trigger must not run.

    `taken`: a run claimed this slot or a later one, or the trigger was withdrawn. `ahead`: the slot is too far in the
    store's future. `lost`: the lease belongs to another term. `wall` is the store's wall clock.
    """

    why: Literal["taken", "ahead", "lost"]
    wall: int


class Failed(NamedTuple):
    """The request of this job failed, for example because a key has a wrong type; the rest of the batch was served."""

    error: str


Verdict: TypeAlias = "Granted | Renewed | Refused | Barred | Released | Claimed | NotClaimed | Failed | Ordered"
"""The store's answer to a request. If there is no answer, none of these is known to hold."""


class Reply(NamedTuple):
    """The answer to a batch: one verdict per request, in order.

    `clock` is the store's clock in microseconds; `Batch.void_at` is on the same clock. `void`: the batch came too late,
    so nothing was done and there are no verdicts. `up_for` (in a reading only): for how many seconds at least the store
    has been up; infinity if it cannot forget, None if it does not know.
    """

    clock: int
    verdicts: tuple[Verdict, ...] = ()
    void: bool = False
    up_for: float | None = None


class JobView(NamedTuple):
    """The state of a job in the store, for people.

    `holder` leads with `token` since `since` (microseconds) and for `expires_in` more seconds. All four are None if
    nobody leads; `token` and `since` are None if another implementation leads, and `expires_in` if the lease has no
    end. `ended` is the last known end of a run, in microseconds. `paused` is the pause in force.

    `outcome` is the outcome of that run (empty: not known), and `good` is when a run last ended well. In the newest
    term that reported runs, `runs` have ended, and `failures` of them failed or timed out. `standby` is the number of
    other replicas of the project that are ready to lead; None: the store does not know. `wall` is the store's wall
    clock.
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
    """A store that keeps leases.

    All methods are called on one event loop, the heartbeat's. Every error is a `StoreError`. A call without a usable
    answer raises `StoreUnavailable`; the next call uses a new connection, so that nothing is sent twice.
    """

    async def exchange(self, batch: Batch) -> Reply:
        """Carry out the requests in order and return one verdict for each.

        Without requests: connect if necessary, and read the store's clock and up-time. With requests: use the
        connection of the last reading; if that is gone, raise `StoreUnavailable`. Cancellation must end the call at
        once and must not affect later calls; the store may still run the batch until `batch.void_at`.
        """
        ...

    def notices(self, project: str) -> AsyncIterator[frozenset[str]]:
        """Yield the names of jobs that were released, whose holder is gone, or for which an operator gave an order.

        The first item, and the first one after each new subscription, is empty and says that notices arrive from now
        on. Raises `StoreUnavailable` when they do not arrive any more.
        """
        ...

    async def peek(self, project: str) -> tuple[JobView, ...]:
        """Return each job of the project that was ever led, by name. Changes nothing, and needs no reading before it.

        Takes a few seconds at most. Raises `StoreUnavailable` if the store cannot be read.
        """
        ...

    async def close(self) -> None:
        """Close connections, files and threads, without waiting for the other side."""
        ...


class Finding(NamedTuple):
    """A result of an inspection; `error`: the store cannot be used like this."""

    level: Literal["ok", "warning", "error"]
    text: str


@runtime_checkable
class Inspectable(Protocol):
    """A store that can report more about itself than that it answers."""

    async def inspect(self, project: str) -> tuple[Finding, ...]:
        """Check rights, settings and version of the store for this project. Leaves nothing behind."""
        ...
