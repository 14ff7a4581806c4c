"""The frozen values that the parts of the library exchange, and the events that users see.

Units, everywhere in this library: a duration is a `float` in seconds; a local moment is a `float` in seconds on the
boot clock (it counts suspend); a wall-clock instant is an `int` in microseconds since the epoch, UTC. `Now` holds both
clocks, read together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from datetime import datetime

__all__ = [
    "Elected",
    "Event",
    "MisfireCause",
    "MisfirePolicy",
    "Misfired",
    "Now",
    "Outcome",
    "Reason",
    "RunFinished",
    "RunStarted",
    "SteppedDown",
    "StoreDown",
    "StoreUp",
    "TicksDropped",
    "instant",
]

Reason: TypeAlias = Literal["lost", "expired", "stuck", "shutdown", "disabled", "paused", "resigned"]
"""Why a term ended."""

Outcome: TypeAlias = Literal["ok", "failed", "cancelled", "timeout"]
"""How a run ended. `cancelled`: the library ended it, for any reason but its own `timeout`."""


MisfireCause: TypeAlias = Literal["overlap", "late", "no_leader", "interrupted", "taken", "clock", "stopped"]
"""Why a slot did not run when it was due; see `Misfired`."""


MisfirePolicy: TypeAlias = Literal["skip", "fire_once", "catch_up"]
"""How missed slots are handled: the newest may run late, one run replaces all of them, or each of them runs."""


class Now(NamedTuple):
    """One moment on both clocks: `wall` in microseconds since the epoch, `boot` in seconds on the boot clock."""

    wall: int
    boot: float


# -- what users see ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Elected:
    """This replica leads the job from now on. `token` is the fencing token of its term."""

    job: str
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SteppedDown:
    """This replica's term has ended, and so has its last run; `reason` says why."""

    job: str
    token: int
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """A run begins.

    `scheduled` is the instant at which it was due, in microseconds since the epoch. `lateness` is the time from then to
    now, in seconds. `tick` is the number of its grid point since the epoch (fixed rate only, otherwise None).
    """

    job: str
    token: int
    scheduled: int
    tick: int | None
    lateness: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """A run ended after `duration` seconds.

    `outcome` is `ok`, `failed`, `cancelled` (by the library, for any reason but `timeout`) or `timeout`. `error` is the
    exception of a body that failed.
    """

    job: str
    token: int
    outcome: Outcome
    duration: float
    error: BaseException | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TicksDropped:
    """`count` grid points do not run.

    The previous run was still in flight (`overlap`), or the grid points were noticed too late (`late`).
    """

    job: str
    count: int
    cause: Literal["overlap", "late"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfired:
    """Cron slots did not run when they were due.

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
    """The store stopped answering; `error` says how."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUp:
    """The store answers again, after `outage` seconds."""

    outage: float


Event: TypeAlias = Elected | SteppedDown | RunStarted | RunFinished | TicksDropped | Misfired | StoreDown | StoreUp
"""The values that callbacks of `app.subscribe` receive."""


def instant(wall: int) -> datetime:
    """Return the aware UTC datetime of a wall-clock instant in microseconds since the epoch."""
    from datetime import UTC, datetime, timedelta  # imported late, because most programs do not need it at the start

    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=wall)
