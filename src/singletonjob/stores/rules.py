"""The rules of a lease, as one pure function over one job's record. All stores follow it.

A store in Python calls `apply` inside its own atomic step; a store in another language (Lua, SQL) carries the same
rules and is compared with this one, verdict by verdict.

Two clocks appear. `clock` is the store's lease clock, on which leases end: it must not jump; its zero means nothing.
`wall` is the store's wall clock, for slots and tokens. Both in microseconds.

What holds, whoever asks in whatever order and however late (numbers of DESIGN's promises in brackets):

- at most one term of a job is in force, and only its holder extends it (S1); the holder's expiry counts, never the
  asker's;
- tokens grow from term to term, across release and expiry (S5);
- a renewal never acquires, a release never ends a term above its number, and both name the whole holder (S4);
- a slot is claimed by at most one term, and never again once a later one was (S6).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .protocol import (
    Acquire,
    Claimed,
    ClaimSlot,
    Granted,
    JobState,
    JobView,
    NotClaimed,
    Refused,
    Release,
    Released,
    Renew,
    Renewed,
)

if TYPE_CHECKING:
    from .protocol import Progress, Request, Verdict

__all__ = ["AHEAD", "Record", "apply", "changes", "view"]

AHEAD = 600_000_000
"""A slot further ahead of the store's wall clock than this (10 minutes, in microseconds) came from a wrong clock."""


@dataclass(slots=True)
class Record:
    """What the store keeps of one job. A job never seen is `Record()`.

    `holder` has the lease until `expires` (lease clock), by its acquisition numbered `seq`; `token` and `since` (wall)
    are those of the newest term, `slot`, `slot_token`, `mark` and `done` as in `JobState`. `ended` is the wall time of
    the last known end of a run. `off`: nothing is owed up to that wall time; negative: switched off since then.
    """

    holder: str | None = None
    expires: int | None = None
    seq: int = 0
    token: int = 0
    since: int = 0
    slot: int | None = None
    slot_token: int | None = None
    mark: str = ""
    done: int | None = None
    ended: int | None = None
    off: int | None = None


def apply(record: Record, request: Request, *, node: str, clock: int, wall: int) -> Verdict:
    """Carry out `request` of the replica `node` on `record`, which changes, and return what came of it.

    Never raises for anything that a replica can ask.
    """
    if record.expires is not None and record.expires <= clock:
        record.holder = record.expires = None
    match request:
        case Acquire():
            return _acquire(record, request, node, clock, wall)
        case Renew():
            return _renew(record, request, node, clock, wall)
        case Release():
            return _release(record, request, node, wall)
        case ClaimSlot():
            return _claim(record, request, node, wall)


def view(job: str, record: Record, clock: int) -> JobView | None:
    """The record as people look at it; None for one that nobody ever led."""
    if not record.token:
        return None
    if record.holder is None or (record.expires is not None and record.expires <= clock):
        return JobView(job=job, ended=record.ended)
    left = None if record.expires is None else (record.expires - clock) / 1e6
    return JobView(job, record.holder, record.token, record.since, left, record.ended)


def changes(verdict: Verdict) -> bool:
    """Whether the request behind `verdict` may have changed what must be kept; a lapsed lease need not be cleared."""
    return isinstance(verdict, Granted | Renewed | Claimed) or (isinstance(verdict, Released) and verdict.mine)


def _acquire(record: Record, request: Acquire, node: str, clock: int, wall: int) -> Verdict:
    if record.holder is not None and (record.holder != node or request.number <= record.seq):
        return _refused(record, clock)
    record.holder = node
    record.expires = clock + _micros(request.lock_expiry)
    record.seq = request.number
    record.token = max(record.token + 1, request.above + 1, wall)
    record.since = wall
    if record.off is None:
        if record.slot is None:
            record.off = wall  # never seen before: slots of the time before it existed are not owed
    elif record.off < 0:
        record.off = wall
    return Granted(token=record.token, state=_state(record, wall))


def _renew(record: Record, request: Renew, node: str, clock: int, wall: int) -> Verdict:
    if record.holder != node or record.token != request.token:
        return _refused(record, clock)
    record.expires = clock + _micros(request.lock_expiry)
    _progress(record, request.progress, wall)
    return Renewed()


def _release(record: Record, request: Release, node: str, wall: int) -> Verdict:
    if record.holder != node or record.seq > request.number:
        return Released(mine=False)
    _progress(record, request.progress, wall)
    if request.off:
        record.off = -wall
    record.holder = record.expires = None
    return Released(mine=True)


def _claim(record: Record, request: ClaimSlot, node: str, wall: int) -> Verdict:
    if record.holder != node or record.token != request.token:
        return NotClaimed(why="lost", wall=wall)
    if request.slot > wall + AHEAD:
        return NotClaimed(why="ahead", wall=wall)
    stored = _stored_slot(record, wall)
    if stored is not None:
        if request.slot == stored and record.slot_token == request.token:
            return Claimed()  # asked again because the first answer was lost
        if request.slot <= stored:
            return NotClaimed(why="taken", wall=wall)
    record.slot, record.slot_token, record.mark = request.slot, request.token, request.mark
    return Claimed()


def _progress(record: Record, progress: Progress, wall: int) -> None:
    if progress.tick is not None:
        stored = _stored_slot(record, wall)
        if stored is None or progress.tick > stored:
            record.slot, record.slot_token = progress.tick, record.token
    if progress.done is not None and (record.done is None or progress.done > record.done):
        record.done = progress.done
    if progress.settled is not None and record.off is not None and 0 <= record.off < progress.settled <= wall + AHEAD:
        record.off = progress.settled
    if progress.ended_ago is not None:
        ended = wall - _micros(progress.ended_ago)
        if record.ended is None or ended > record.ended:
            record.ended = ended


def _stored_slot(record: Record, wall: int) -> int | None:
    """The slot that bars earlier ones; one that a wrong clock put far ahead would bar all for as long as that."""
    return record.slot if record.slot is not None and record.slot <= wall + AHEAD else None


def _state(record: Record, wall: int) -> JobState:
    """What a new leader reads. The slot is given as stored: the reader reports one that lies too far ahead."""
    return JobState(
        wall=wall,
        slot=record.slot,
        slot_token=record.slot_token,
        mark=record.mark,
        done=record.done,
        ended_ago=None if record.ended is None else max(0, wall - record.ended) / 1e6,
        off=record.off,
    )


def _refused(record: Record, clock: int) -> Refused:
    return Refused(holder=record.holder, expires_in=None if record.expires is None else (record.expires - clock) / 1e6)


def _micros(seconds: float) -> int:
    return round(seconds * 1e6)
