"""The rules of a lease, as one pure function over the record of one job. All stores follow them.

A store in Python calls `apply` inside an atomic step. A store in another language (Lua) implements the same rules, and
tests compare it with this module, verdict by verdict.

`clock` is the store's lease clock, on which leases expire. It must not jump, and its zero has no meaning. `wall` is the
store's wall clock, for slots and tokens. Both are in microseconds.

These rules hold for requests of any replica, in any order, however late they arrive (promises in brackets):

- At most one term of a job is in force, and only its holder extends it (S1). The holder's expiry counts, never that of
  the requesting replica.
- Tokens grow from term to term, across release and expiry (S5).
- A renewal never acquires, a release never ends a term above its number, and both compare the complete holder (S4).
- A slot is claimed by at most one term, and never again after a later slot was claimed (S6).
- An order of an operator changes no lease. It bars acquisitions, and requests the holder to release.

This file has more than 300 lines because the rules are one function, which is compared with other languages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._core.orders import (
    RAN,
    FollowTrigger,
    Forget,
    Look,
    Ordered,
    Pause,
    Paused,
    Resume,
    StepDown,
    Trigger,
    pause_in_force,
    resignation_in_force,
    trigger_in_force,
)
from .._core.protocol import (
    Acquire,
    Barred,
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
    TakeTrigger,
)

if TYPE_CHECKING:
    from .._core.orders import Order, OrderOutcome
    from .._core.protocol import Progress, Request, Verdict

__all__ = ["AHEAD", "Record", "apply", "changes", "is_news", "view", "with_run"]

AHEAD = 600_000_000
"""A slot that is further ahead of the store's wall clock (10 minutes, in microseconds) comes from a wrong clock."""

RESIGNS = 10_000_000
"""Microseconds for which a node that stepped down stays away from a lease that has no expiry."""


@dataclass(slots=True)
class Record:
    """The state of one job in the store. A job that the store never saw is `Record()`.

    `holder` has the lease until `expires` (lease clock), by its acquisition with the number `seq`. `token` and `since`
    (wall) belong to the newest term; `slot`, `slot_token`, `mark` and `done` are as in `JobState`. `ended` is the wall
    time of the last known end of a run. `off`: slots up to that wall time do not run any more; negative: switched off
    since then. `paused`, `resign`, `trigger` and `triggered` are the texts of `orders`. `orders` counts the orders that
    changed something, for stores that poll for notices. `released` is the token of the last released term; a store that
    knows that a holder is dead sets it to the token of that holder. `run` is `outcome;runs;failures;good` of `JobView`,
    where `good` is empty if the last run ended well. `finished` is `id;outcome` of the newest trigger whose run has
    ended.
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
    paused: str = ""
    resign: str = ""
    trigger: str = ""
    triggered: str = ""
    orders: int = 0
    released: int = 0
    run: str = ""
    finished: str = ""


def apply(record: Record, request: Request, *, node: str, clock: int, wall: int) -> Verdict:
    """Carry out `request` of the replica `node`, change `record`, and return the verdict. Never raises."""
    if record.expires is not None and record.expires <= clock:
        record.holder = record.expires = None
    match request:
        case Acquire():
            return _acquire(record, request, node, clock, wall)
        case Renew():
            return _renew(record, request, node, clock, wall)
        case Release():
            return _release(record, request, node, wall)
        case ClaimSlot() | TakeTrigger():
            if record.holder != node or record.token != request.token:
                return NotClaimed(why="lost", wall=wall)
            return _claim(record, request, wall) if isinstance(request, ClaimSlot) else _take(record, request, wall)
        case _:
            before = pause_in_force(record.paused, wall)
            outcome = _order(record, request, before, clock, wall)
            pause = pause_in_force(record.paused, wall) if outcome in {"paused", "is-paused"} else None
            was = before if outcome in {"paused", "resumed"} else None
            ordered = Ordered(outcome, record.holder, _left(record, clock), pause, was)
            record.orders += ordered.changed
            return ordered


def view(job: str, record: Record, *, clock: int, wall: int, listeners: int | None = None) -> JobView | None:
    """Return the record as people see it; None if nobody ever led or paused the job.

    `listeners` is the number of running replicas of the project, the leader included.
    """
    if not record.token and not record.orders:
        return None
    seen = with_run(JobView(job, ended=record.ended, paused=pause_in_force(record.paused, wall), wall=wall), record.run)
    if record.holder is None or (record.expires is not None and record.expires <= clock):
        return seen._replace(standby=listeners)
    return seen._replace(
        holder=record.holder,
        token=record.token,
        since=record.since,
        expires_in=_left(record, clock),
        standby=None if listeners is None else max(listeners - 1, 0),
    )


def with_run(seen: JobView, run: str) -> JobView:
    """Return the view with a leader's report on its runs added, given in the form of `Record.run`."""
    outcome, runs, failures, good = (run.split(";") + [""] * 4)[:4]
    return seen._replace(
        outcome=outcome,
        runs=int(runs or 0),
        failures=int(failures or 0),
        good=seen.ended if outcome == "ok" else int(good) if good else None,
    )


def changes(verdict: Verdict) -> bool:
    """Return True if the request may have changed the record; an expired lease need not be cleared."""
    if isinstance(verdict, Released):
        return verdict.mine
    if isinstance(verdict, Ordered):
        return verdict.changed or verdict.outcome == "forgotten"
    return isinstance(verdict, Granted | Renewed | Claimed)


def is_news(verdict: Verdict) -> bool:
    """Return True if a notice is due, because replicas should poll the job."""
    return verdict.mine if isinstance(verdict, Released) else isinstance(verdict, Ordered) and verdict.changed


def _acquire(record: Record, request: Acquire, node: str, clock: int, wall: int) -> Verdict:
    if record.holder is not None and (record.holder != node or request.number <= record.seq):
        return _refused(record, clock)
    paused, resigned = pause_in_force(record.paused, wall), resignation_in_force(record.resign, node, wall)
    if paused is not None:
        seconds = None if paused.until is None else (paused.until - wall) / 1e6
        return Barred("paused", seconds, mine=record.holder == node, said=paused.said)
    # No lease lasts longer than that. Such an order was given while the clock was ahead, and does not count.
    if resigned is not None and resigned <= max(request.lock_expiry, RESIGNS / 1e6):
        return Barred("resigned", resigned, mine=record.holder == node)
    # A holder that requests again never got the first answer, so the state before its first request still counts.
    released = record.released if record.holder == node or record.token == record.released else 0
    record.resign = ""
    record.holder = node
    record.expires = clock + _micros(request.lock_expiry)
    record.seq = request.number
    record.token = max(record.token + 1, request.above + 1, wall)
    record.since = wall
    if record.off is None:
        if record.slot is None:
            record.off = wall  # a new job: earlier slots do not run
    elif record.off < 0:
        record.off = wall
    if record.ended is not None:
        record.ended = min(record.ended, wall)  # otherwise a clock that was ahead once would delay an interval job
    return Granted(token=record.token, state=_state(record, wall, released=released))


def _renew(record: Record, request: Renew, node: str, clock: int, wall: int) -> Verdict:
    if record.holder != node or record.token != request.token:
        return _refused(record, clock)
    record.expires = clock + _micros(request.lock_expiry)
    _progress(record, request.progress, wall)
    paused = pause_in_force(record.paused, wall)
    if record.off is not None and record.off < 0 and paused is None:
        record.off = wall  # the pause ended during this term, so slots count from now on
    trigger = trigger_in_force(record.trigger, wall)
    if paused is not None:
        return Renewed("paused", trigger, paused.said)
    resigned = resignation_in_force(record.resign, node, wall) is not None
    return Renewed("resigned" if resigned else "", trigger)


def _release(record: Record, request: Release, node: str, wall: int) -> Verdict:
    if record.holder != node or record.seq > request.number:
        return Released(mine=False)
    _progress(record, request.progress, wall)
    if request.off:
        record.off = -wall
    if not request.unused:
        record.released = record.token
    record.holder = record.expires = None
    return Released(mine=True)


def _claim(record: Record, request: ClaimSlot, wall: int) -> Verdict:
    if request.slot > wall + AHEAD:
        return NotClaimed(why="ahead", wall=wall)
    stored = _stored_slot(record, wall)
    if stored is not None:
        if request.slot == stored and record.slot_token == request.token:
            return Claimed()  # requested again because the first answer was lost
        if request.slot <= stored:
            return NotClaimed(why="taken", wall=wall)
    record.slot, record.slot_token, record.mark = request.slot, request.token, request.mark
    return Claimed()


def _take(record: Record, request: TakeTrigger, wall: int) -> Verdict:
    outcome = f"{request.id};{request.token};{'busy' if request.busy else 'started'}"
    if record.triggered != outcome:  # otherwise requested again because the first answer was lost
        if trigger_in_force(record.trigger, wall) != request.id:
            return NotClaimed(why="taken", wall=wall)
        record.trigger, record.triggered = "", outcome
    return Claimed()


def _order(record: Record, order: Order, paused: Paused | None, clock: int, wall: int) -> OrderOutcome:
    match order:
        case Pause():
            if paused is not None and not order.replace:
                return "is-paused"
            until = None if order.seconds is None else wall + _micros(order.seconds)
            record.paused = Paused(order.by, wall, until, order.reason).text
            if record.off is None or record.off >= 0:
                record.off = -wall  # slots of the pause do not run
            return "paused"
        case Resume():
            if paused is None:
                return "not-paused"
            record.paused = ""
            return "resumed"
        case StepDown() | Trigger() if paused is not None:
            return "is-paused"
        case StepDown():
            if record.holder is None:
                return "nobody"
            left = RESIGNS if record.expires is None else record.expires - clock
            record.resign = f"{wall + left};{record.holder}"
            return "asked"
        case Trigger():
            if record.holder is None:
                return "nobody"
            if trigger_in_force(record.trigger, wall):
                return "pending"
            record.trigger = f"{wall + _micros(order.seconds)};{order.id}"
            return "asked"
        case FollowTrigger():
            name, _, outcome = record.triggered.partition(";")
            if name == order.id:
                ended, _, how = record.finished.partition(";")
                if ended == name:
                    return RAN.get(how, "started")
                return "busy" if outcome.endswith(";busy") else "started"
            if record.trigger.partition(";")[2] != order.id:
                return "gone"
            if trigger_in_force(record.trigger, wall) and not order.withdraw:
                return "pending"
            record.trigger = ""
            return "withdrawn"
        case Look():
            return "nobody" if record.holder is None else "led"
        case Forget():
            if record.holder is not None:
                return "led"
            if paused is not None:
                return "is-paused"
            # The tokens of a new record come from the clock and must be higher (S5), and no replica's clock may be so
            # far behind that it claims a slot again (S6).
            if max(record.token, _stored_slot(record, wall) or 0, record.ended or 0) > wall - AHEAD:
                return "recent"
            Record.__init__(record)
            return "forgotten"


def _progress(record: Record, progress: Progress, wall: int) -> None:
    if progress.tick is not None:
        stored = _stored_slot(record, wall)
        if stored is None or progress.tick > stored:
            record.slot, record.slot_token = progress.tick, record.token
    if progress.done is not None and (record.done is None or progress.done > record.done):
        record.done = progress.done
    if progress.settled is not None and record.off is not None and 0 <= record.off < progress.settled <= wall + AHEAD:
        record.off = progress.settled
    if progress.finished:
        record.finished = progress.finished
    if progress.outcome:
        record.run = _run(record, progress, wall)  # before `ended` changes
    if progress.ended_ago is not None:
        ended = wall - _micros(progress.ended_ago)
        if record.ended is None or ended > record.ended or record.ended > wall:
            record.ended = ended


def _run(record: Record, progress: Progress, wall: int) -> str:
    """Return the report in the form of `Record.run`. If no run of the term ended well, keep the earlier `good`."""
    good: int | str = ""
    if progress.outcome != "ok":
        before, _, _, kept = (record.run.split(";") + [""] * 4)[:4]
        if progress.good_ago is not None:
            good = wall - _micros(progress.good_ago)
        elif before == "ok":
            good = "" if record.ended is None else record.ended
        else:
            good = kept
    return f"{progress.outcome};{progress.runs};{progress.failures};{good}"


def _stored_slot(record: Record, wall: int) -> int | None:
    """Return the slot that bars earlier ones. A slot far ahead does not, because it comes from a wrong clock."""
    return record.slot if record.slot is not None and record.slot <= wall + AHEAD else None


def _state(record: Record, wall: int, *, released: int) -> JobState:
    """Return the memory for a new leader. It includes a slot that is too far ahead, which the leader reports."""
    return JobState(
        wall=wall,
        slot=record.slot,
        slot_token=record.slot_token,
        mark=record.mark,
        done=record.done,
        ended_ago=None if record.ended is None else (wall - record.ended) / 1e6,
        off=record.off,
        released=released,
    )


def _refused(record: Record, clock: int) -> Refused:
    return Refused(holder=record.holder, expires_in=_left(record, clock), token=record.token if record.holder else 0)


def _left(record: Record, clock: int) -> float | None:
    return None if record.expires is None else (record.expires - clock) / 1e6


def _micros(seconds: float) -> int:
    return round(seconds * 1e6)
