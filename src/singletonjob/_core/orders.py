"""The orders of operators, the store's answers, and how orders are stored beside a lease: as five short texts.

An order is part of a batch like the requests of a replica, and is void after the same time. It changes the stored state
of a job and never its lease. The leader reads the order with its next renewal, and an acquisition is barred.

    paused      until;at;by;reason      nobody leads the job, up to `until` (empty: until it is resumed)
    resign      until;node              that node gives its term up, and is barred until another term began
    trigger     until;id                the leader must run the job once more
    triggered   id;token;outcome        the result of the newest trigger that was handled
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
    """Stop the job on all replicas for `seconds` (None: until it is resumed). `by`: no semicolon and no line break.

    `replace`: replace an earlier pause. Otherwise a paused job stays as it is.
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
    """Make the leader give its term up; it stays away until another term began or its lease would have expired."""

    job: str


class Trigger(NamedTuple):
    """Make the leader run the job once more. After `seconds` the run does not begin any more."""

    job: str
    id: str
    seconds: float


class FollowTrigger(NamedTuple):
    """Request the result of a trigger. `withdraw`: cancel it if nobody has taken it yet."""

    job: str
    id: str
    withdraw: bool = False


class Look(NamedTuple):
    """Request who leads the job; changes nothing."""

    job: str


class Forget(NamedTuple):
    """Delete the stored state of a job that nobody leads and that did not run for ten minutes."""

    job: str


Order: TypeAlias = Pause | Resume | StepDown | Trigger | FollowTrigger | Look | Forget
"""The orders, each for one job."""

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
"""The result of an order; see `Ordered`."""

RAN: dict[str, OrderOutcome] = {
    "ok": "ran-ok",
    "failed": "ran-failed",
    "cancelled": "ran-cancelled",
    "timeout": "ran-timeout",
}
"""The result of a trigger, by the outcome of its run."""


class Ordered(NamedTuple):
    """The store's answer to an order.

    `paused`, `resumed`: done. `asked`: the leader will read the order. `not-paused`: there was nothing to resume.
    `is-paused`: nothing was done, because the job is paused already. `nobody`: the job has no leader.
    `foreign`: the leader is another implementation, which reads no orders.
    `led`: to a `Look`, `holder` leads the job, in any implementation; otherwise the answer is `nobody`.
    For a trigger also: `pending` (not taken yet; for a new trigger: another one waits), `started`, `busy` (a run was in
    flight), `withdrawn` (nobody took it in time), `gone` (the store knows no such trigger), and `ran-ok`, `ran-failed`,
    `ran-cancelled`, `ran-timeout` (the outcome of its run).
    `forgotten`: the state of the job is deleted. `recent`: the job was led or ran within ten minutes, so its state is
    kept; for a job that is led the answer is `led`.

    `pause` is the pause in force now, and `was` the one that this order ended or replaced. Both are None for orders
    that do not concern pauses.
    """

    outcome: OrderOutcome
    holder: str | None = None
    expires_in: float | None = None
    pause: Paused | None = None
    was: Paused | None = None

    @property
    def changed(self) -> bool:
        """True if the order changed the stored state."""
        return self.outcome in {"paused", "resumed", "asked", "withdrawn"}


class Paused(NamedTuple):
    """A pause: by whom, when, until when (None: until it is resumed), and why; instants in microseconds."""

    by: str
    at: int
    until: int | None = None
    reason: str = ""

    @property
    def text(self) -> str:
        """The text that is stored beside the lease."""
        return f"{'' if self.until is None else self.until};{self.at};{self.by};{self.reason}"

    @property
    def said(self) -> str:
        """By whom and why, in words: `by ann@host: the feed is down`."""
        return f"by {self.by}{': ' * bool(self.reason)}{self.reason}"


def pause_in_force(text: str, wall: int) -> Paused | None:
    """Return the pause that `text` holds; None if there is none or its time is over."""
    until, at, by, reason = _fields(text, 4)
    if not at.isdecimal() or not (until.isdecimal() or until == ""):
        return None
    ends = int(until) if until else None
    return Paused(by, int(at), ends, reason) if ends is None or ends > wall else None


def resignation_in_force(text: str, node: str, wall: int) -> float | None:
    """Return for how many more seconds `node` must leave the job to others; None: there is no such order."""
    until, named = _fields(text, 2)
    return (int(until) - wall) / 1e6 if named == node and until.isdecimal() and int(until) > wall else None


def trigger_in_force(text: str, wall: int) -> str:
    """Return the id of the trigger that waits to be taken; empty if there is none."""
    until, name = _fields(text, 2)
    return name if until.isdecimal() and int(until) > wall else ""


def _fields(text: str, count: int) -> Iterable[str]:
    """Return the fields of `text`, with empty ones added; the last field may contain semicolons."""
    found = text.split(";", count - 1)
    return [*found, *[""] * (count - len(found))]
