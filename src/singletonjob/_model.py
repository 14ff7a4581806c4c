"""Frozen values that the parts exchange: requests and verdicts of the store, and the events that users see.

Units, everywhere in this library: a duration is a `float` in seconds; a local moment is a `float` in seconds on the
boot clock (it counts suspend); a wall-clock instant is an `int` in microseconds since the epoch, UTC. `Now` holds both
clocks, read together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

__all__ = [
    "Acquire",
    "Batch",
    "ClaimSlot",
    "Claimed",
    "Elected",
    "Event",
    "Failed",
    "Granted",
    "JobState",
    "MisfireCause",
    "Misfired",
    "NotClaimed",
    "Now",
    "Outcome",
    "Progress",
    "Reason",
    "Refused",
    "Release",
    "Released",
    "Renew",
    "Renewed",
    "Reply",
    "Request",
    "RunFinished",
    "RunStarted",
    "SteppedDown",
    "StoreDown",
    "StoreUp",
    "TicksDropped",
    "Verdict",
]

Reason: TypeAlias = Literal["lost", "expired", "stuck", "shutdown", "disabled", "paused", "resigned"]
"""Why a term ended."""

Outcome: TypeAlias = Literal["ok", "failed", "cancelled", "timeout"]
"""How a run ended. `cancelled` covers every end that the library asked for except the run's own `timeout`."""


MisfireCause: TypeAlias = Literal["overlap", "late", "no_leader", "interrupted", "taken", "clock", "stopped"]
"""Why a slot did not run when due; see `Misfired`."""


@dataclass(frozen=True, slots=True)
class Now:
    """One moment on both clocks: `wall` in microseconds since the epoch, `boot` in seconds on the boot clock."""

    wall: int
    boot: float


# -- what a replica asks of the store ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What the holder of a lease knows of its job's runs; it rides along with a renewal or a release.

    `tick` is the last grid point started (fixed rate), `done` the last slot whose run ended (cron), both as instants;
    `ended_ago` is the time since the last run ended, so that the replicas' wall clocks do not matter. None: not known.
    """

    tick: int | None = None
    done: int | None = None
    ended_ago: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquire:
    """Ask for the lease. `number` grows with every acquisition of this replica; the token must exceed `above`."""

    job: str
    number: int
    lock_expiry: float
    above: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Renew:
    """Extend the lease of the term with this token. Never acquires."""

    job: str
    token: int
    lock_expiry: float
    progress: Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Give back whatever acquisitions up to `number` were granted; `off`: the job was switched off or paused."""

    job: str
    number: int
    progress: Progress
    off: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimSlot:
    """Claim a cron slot for a term. Idempotent for one slot and token. `mark` identifies the schedule."""

    job: str
    token: int
    slot: int
    mark: str


Request: TypeAlias = Acquire | Renew | Release | ClaimSlot


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """What the store remembers of a job, read when a term begins.

    `slot` is the newest slot claimed (cron) or tick reported (fixed rate), by the term `slot_token`, under the
    schedule `mark`; `done` the newest slot whose run is known to have ended; `ended_ago` the seconds since the last
    known end of a run; nothing is owed up to `off`. `wall` is the store's wall clock at the reading.
    """

    wall: int
    slot: int | None = None
    slot_token: int | None = None
    mark: str = ""
    done: int | None = None
    ended_ago: float | None = None
    off: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """The lease is the asking replica's: a new term with this token."""

    token: int
    state: JobState


@dataclass(frozen=True, slots=True)
class Renewed:
    """The term goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Somebody holds the lease for `expires_in` more seconds (None: the key has no expiry).

    `holder` may be the asking replica itself (its key, but another term). None: nobody holds it (to a renewal).
    `foreign`: the holder is another implementation, which publishes no notices.
    """

    holder: str | None
    expires_in: float | None
    foreign: bool = False


@dataclass(frozen=True, slots=True)
class Released:
    """Nothing up to the named number is held any more; `mine`: this call gave something back."""

    mine: bool


@dataclass(frozen=True, slots=True)
class Claimed:
    """The slot belongs to the asking term."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotClaimed:
    """No run for this slot. `taken`: a run claimed it or a later one; `ahead`: it lies too far in the store's future;
    `lost`: the term is not the lease's. `wall` is the store's wall clock."""

    why: Literal["taken", "ahead", "lost"]
    wall: int


@dataclass(frozen=True, slots=True)
class Failed:
    """This job's request could not be served (a key of a wrong type, say); the others of the batch were."""

    error: str


Verdict: TypeAlias = Granted | Renewed | Refused | Released | Claimed | NotClaimed | Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer to a batch: one verdict per request, in order.

    `clock` is the store's clock in microseconds, the one `Batch.void_at` is on. `void`: the batch came too late and
    nothing was done, there are no verdicts. `up_for` (only in a reading): for how long the store has been up at
    least, in seconds; infinity where it cannot forget, None where it does not tell.
    """

    clock: int
    verdicts: tuple[Verdict, ...] = ()
    void: bool = False
    up_for: float | None = None


# -- what users see ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Elected:
    """This replica leads the job from now on."""

    job: str
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SteppedDown:
    """This replica's term ended."""

    job: str
    token: int
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """A run began. `scheduled` is the instant it was due, in microseconds since the epoch; `lateness` in seconds."""

    job: str
    token: int
    scheduled: int
    tick: int | None
    lateness: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """A run ended after `duration` seconds; `error` is what the body raised, if it failed."""

    job: str
    token: int
    outcome: Outcome
    duration: float
    error: BaseException | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TicksDropped:
    """Grid points that will not run: the previous run was still in flight (`overlap`), or they were seen too late."""

    job: str
    count: int
    cause: Literal["overlap", "late"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfired:
    """Cron slots that were not run when due.

    `first` and `last` are the oldest and the newest of them (microseconds since the epoch); `count` is exact below
    1000, from there on it means "at least". `cause` says why:
    `overlap` (the job's own previous run), `late` (this replica was late), `no_leader` (nobody led), `interrupted`
    (a run began and its end was never seen), `taken` (another replica ran it), `clock` (a wrong clock), `stopped`
    (the term ended before the claimed slot could start).
    """

    job: str
    count: int
    first: int
    last: int
    cause: MisfireCause


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreDown:
    """The store stopped answering."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUp:
    """The store answers again, after `outage` seconds."""

    outage: float


Event: TypeAlias = Elected | SteppedDown | RunStarted | RunFinished | TicksDropped | Misfired | StoreDown | StoreUp
