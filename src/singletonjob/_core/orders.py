"""What operators ask of a store, what it says to that, and how it is kept beside a lease: as five short texts.

An order travels in a batch like the requests of a replica, and is void after the same time. It changes what is kept of
a job, never its lease: the leader reads it with its next renewal, and a replica that asks for the lease is barred.

    paused      until;at;by;reason      nobody leads the job, up to `until` (empty: until it is resumed)
    resign      until;node              that node gives its term up, and is barred until another term began
    trigger     until;id                the leader is to run the job once more
    triggered   id;token;outcome        what became of the newest trigger that was seen to
    finished    id;outcome              how the run of that trigger ended

All instants are microseconds on the store's wall clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "RAN",
    "FollowTrigger",
    "Forget",
    "Look",
    "Order",
    "OrderOutcome",
    "Ordered",
    "Pause",
    "Paused",
    "Resume",
    "StepDown",
    "Trigger",
    "pause_in_force",
    "resignation_in_force",
    "trigger_in_force",
]


class Pause(NamedTuple):
    """Let nobody run the job, for `seconds` (None: until it is resumed). `by` holds no semicolon and no line break.

    `replace`: also if the job is paused already; then the older pause is forgotten.
    """

    job: str
    by: str
    reason: str = ""
    seconds: float | None = None
    replace: bool = False


class Resume(NamedTuple):
    """End the job's pause."""

    job: str


class StepDown(NamedTuple):
    """Have the leader give its term up, and stay away until another term began or the lease would have ended."""

    job: str


class Trigger(NamedTuple):
    """Have the leader run the job once more. A leader that has not begun within `seconds` does not begin any more."""

    job: str
    id: str
    seconds: float


class FollowTrigger(NamedTuple):
    """Ask what became of a trigger; `withdraw`: take it back, if nobody has taken it yet."""

    job: str
    id: str
    withdraw: bool = False


class Look(NamedTuple):
    """Ask who leads the job; changes nothing."""

    job: str


class Forget(NamedTuple):
    """Delete all that is kept of a job that nobody leads and that did not run for ten minutes."""

    job: str


Order: TypeAlias = Pause | Resume | StepDown | Trigger | FollowTrigger | Look | Forget
"""What an operator may ask, for one job."""

OrderOutcome: TypeAlias = Literal[
    "paused",
    "resumed",
    "not-paused",
    "is-paused",
    "asked",
    "nobody",
    "foreign",
    "led",
    "pending",
    "started",
    "busy",
    "withdrawn",
    "gone",
    "ran-ok",
    "ran-failed",
    "ran-cancelled",
    "ran-timeout",
    "forgotten",
    "recent",
]
"""What became of one; see `Ordered`."""

RAN: dict[str, OrderOutcome] = {
    "ok": "ran-ok",
    "failed": "ran-failed",
    "cancelled": "ran-cancelled",
    "timeout": "ran-timeout",
}
"""By how the run of a trigger ended."""


class Ordered(NamedTuple):
    """What came of an order.

    `paused` and `resumed`: it is. `asked`: the leader will read it. `not-paused`: there was nothing to resume.
    `is-paused`: nothing was done, because the job is paused already.
    `nobody`: the job has no leader who could. `foreign`: its leader is another implementation, which reads no orders.
    `led`: to a look, `holder` leads it, of whichever implementation; else `nobody` does.
    Of a trigger also: `pending` (not taken yet; to a new one: another is waiting), `started`, `busy` (a run was in
    flight), `withdrawn` (nobody took it in time), `gone` (there is none, and there was none that anybody saw to),
    `ran-ok`, `ran-failed`, `ran-cancelled` and `ran-timeout` (its run has ended so).
    `forgotten`: nothing is kept of the job any more. `recent`: it was led or ran within ten minutes, so it is kept; for
    a job that is led the answer is `led`.

    `pause` is in force now, and `was` until this order ended or replaced it; each None where the order had nothing to
    do with pauses.
    """

    outcome: OrderOutcome
    holder: str | None = None
    expires_in: float | None = None
    pause: Paused | None = None
    was: Paused | None = None

    @property
    def changed(self) -> bool:
        """Whether something is kept now that was not before."""
        return self.outcome in {"paused", "resumed", "asked", "withdrawn"}


class Paused(NamedTuple):
    """Who paused a job, when, until when (None: until it is resumed), and why; instants in microseconds."""

    by: str
    at: int
    until: int | None = None
    reason: str = ""

    @property
    def text(self) -> str:
        """As it is kept beside the lease."""
        return f"{'' if self.until is None else self.until};{self.at};{self.by};{self.reason}"

    @property
    def said(self) -> str:
        """Who and why, in words: `by ann@host: the feed is down`."""
        return f"by {self.by}{': ' * bool(self.reason)}{self.reason}"


def pause_in_force(text: str, wall: int) -> Paused | None:
    """The pause that `text` tells of; None when there is none, or when its time is over."""
    until, at, by, reason = _fields(text, 4)
    if not at.isdecimal() or not (until.isdecimal() or until == ""):
        return None
    ends = int(until) if until else None
    return Paused(by, int(at), ends, reason) if ends is None or ends > wall else None


def resignation_in_force(text: str, node: str, wall: int) -> float | None:
    """For how many more seconds `node` is to leave the job to others; None: it is not asked to."""
    until, named = _fields(text, 2)
    return (int(until) - wall) / 1e6 if named == node and until.isdecimal() and int(until) > wall else None


def trigger_in_force(text: str, wall: int) -> str:
    """The id of the trigger that waits to be taken; empty: there is none."""
    until, name = _fields(text, 2)
    return name if until.isdecimal() and int(until) > wall else ""


def _fields(text: str, count: int) -> Iterable[str]:
    """The fields of `text`, the last of which may hold anything; empty ones where it has fewer."""
    found = text.split(";", count - 1)
    return [*found, *[""] * (count - len(found))]
