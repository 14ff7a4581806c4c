"""The rules that a round is checked by: those that need no store's account.

A token is the store's wall clock at the grant (S5), and all here share one wall clock: so the fencing tokens tell when
leases were granted, although no store was asked.

S1 has an exception where a running server lost a lease (S8): a replica that had not been following may lead while the
old leader has not yet heard of the loss. `overlaps` lists these, so that they are counted.
"""

from __future__ import annotations

from collections import Counter
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from chaos.observed import FORGETS, STALE, Observed, ObservedRun
from chaos.worker import UNWINDING
from simulation.sim_case import Case, Found
from simulation.sim_checker import check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.plan import Plan

__all__ = ["excused_overlaps", "overlaps", "repeated_slots", "violation"]

DRIFT = 0.05
"""The wall clock, which is slewed, against the boot clock in the course of a round, in seconds."""


def violation(plan: Plan, history: Observed) -> Found | None:
    """The first promise that was broken, in time; None: all were kept."""
    return check(history, plan.settings, plan.jobs, rules=RULES)


class Overlap(NamedTuple):
    """Runs of two terms of a job at once, or in the wrong order; `when` is the start of the later one."""

    when: float
    older: ObservedRun
    newer: ObservedRun

    @property
    def ended(self) -> float:
        """The end of what they had in common; `when` if they had nothing in common."""
        return max(self.when, min(self.older.ended, self.newer.ended))


def _overlaps(case: Case, job: str) -> Iterator[Overlap]:
    """Yield all overlaps of a job but those of a run that its process was frozen in."""
    open_runs: list[ObservedRun] = []
    first: dict[int, ObservedRun] = {}
    for run in _observed(case, job):
        open_runs = [one for one in open_runs if one.ended > run.started]
        first.setdefault(run.token, run)
        found = {one.token: one for token, one in first.items() if token > run.token}
        found |= {one.token: one for one in open_runs if not case.excused(one, run.started)}
        for other in found.values():
            older, newer = sorted((other, run), key=attrgetter("token"))
            yield Overlap(run.started, older, newer)
        open_runs.append(run)


def _one_leader(case: Case) -> Iterator[Found]:
    for job in case.plans:
        for one in _overlaps(case, job):
            if _is_unguarded(case, one):
                continue
            if one.older.started < one.when:
                yield Found(one.when, "S1", f"{one.newer} starts while {one.older} is in flight, which nothing excuses")
            else:
                yield Found(one.when, "S5", f"{one.older} starts after {one.newer}, which nothing excuses")


def overlaps(plan: Plan, history: Observed) -> tuple[list[float], list[float]]:
    """Return the seconds for which two terms ran at once: for each pair that nothing excuses, and for each pair after a
    loss that the next leader had no means to notice."""
    case = Case(history, plan.settings, plan.jobs)
    begun: dict[bool, dict[tuple[str, int, int], tuple[float, float]]] = {False: {}, True: {}}
    for job in plan.jobs:
        for one in _overlaps(case, job):
            found = begun[_is_unguarded(case, one)]
            terms = (job, one.older.token, one.newer.token)
            begin, end = found.get(terms, (one.when, one.when))
            found[terms] = (begin, max(end, one.ended))
    broken, unguarded = ([end - begin for begin, end in found.values()] for found in begun.values())
    return broken, unguarded


def _is_unguarded(case: Case, overlap: Overlap) -> bool:
    """True if a running server lost the older lease, the newer leader had not been following, and it was short.

    Short: the older leader ended its run when it heard of the loss or, if it stood still then, when it woke.
    """
    assert isinstance(case.history, Observed)
    older, newer = overlap.older, overlap.newer
    granted = (case.history.leases[older.job, older.token].granted, case.history.leases[newer.job, newer.token].granted)
    losses = [
        loss
        for loss in case.history.lost_leases
        if loss.job in {"", older.job} and granted[0] - DRIFT < loss.end and loss.begin < granted[1] + DRIFT
    ]
    if not losses or older.process == newer.process:
        return False
    lost = max(loss.begin for loss in losses)
    if _was_following(case, newer.process, older.job, granted[0], lost, granted[1]):
        return False
    settings = case.settings
    hears = settings.heartbeat_interval + settings.call_timeout
    if _disturbed(case, older.process, lost - settings.lock_expiry, granted[1] + hears):
        hears = settings.lock_expiry - settings.margin  # the old leader cannot ask, so its own deadline must end it
    heard = granted[1] + hears
    woke_late = older.started <= heard and case.excused(older, heard)
    return woke_late or overlap.ended <= heard + UNWINDING * settings.margin + DRIFT


def _was_following(case: Case, process: str, job: str, held: float, lost: float, granted: float) -> bool:
    """True if the process must have had a refusal by the lease held from `held` to `lost` when it was granted its own.

    It had time to be refused since that lease began, since its own start and since anything that was done to it, and
    no term of its own.
    """
    assert isinstance(case.history, Observed)
    settings = case.settings
    since = lost - 1.2 * settings.max_backoff - 2 * settings.call_timeout - DRIFT
    led = any(run.process == process and run.ended > since and run.started < lost for run in case.runs[job])
    begun = case.history.begun.get(process, inf)
    return max(begun, held) < since and not led and not _disturbed(case, process, since, granted)


def _disturbed(case: Case, process: str, since: float, until: float) -> bool:
    """True if something kept that process from the store, or held it up for long enough to miss a look."""
    faults = [one for one in case.history.faults if one.process in {"", process} and one.kind not in FORGETS]
    late = case.settings.margin / 4
    frozen = [one for one in case.frozen[process] if one.kind != "blocked" and one.end - one.begin > late]
    return any(one.begin < until and one.end > since for one in (*faults, *frozen))


def _observed(case: Case, job: str) -> list[ObservedRun]:
    return [run for run in case.runs[job] if isinstance(run, ObservedRun)]


def _one_body_at_a_time(case: Case) -> Iterator[Found]:
    """In one process, also where the body is a sync one whose term is over: nothing excuses that."""
    for job in case.plans:
        last: dict[str, ObservedRun] = {}
        for run in _observed(case, job):
            before = last.get(run.process)
            if before is not None and run.started < before.left:
                yield Found(run.started, "S4", f"{run} starts while the body of {before} goes on in its process")
            last[run.process] = run


def _one_process_per_token(case: Case) -> Iterator[Found]:
    owners: dict[tuple[str, int], str] = {}
    for run in case.history.runs:
        owner = owners.setdefault((run.job, run.token), run.process)
        if owner != run.process:
            yield Found(run.started, "S5", f"{run} has a token that {owner} had before")
        granted = case.history.leases[run.job, run.token].granted
        if granted > run.started + DRIFT:
            yield Found(run.started, "S5", f"{run} has a token {granted - run.started:.3f} s ahead of the clock")


def _no_grant_by_a_young_store(case: Case) -> Iterator[Found]:
    """S8. The store counts its age in whole seconds, so of the guard's last second nothing is sure."""
    assert isinstance(case.history, Observed)
    for lease in case.history.leases.values():
        for when in case.history.restarts:
            if when < lease.granted < when + case.settings.lock_expiry - DRIFT:
                yield Found(
                    lease.granted, "S8", f"{lease.job} is granted {lease.granted - when:.3f} s after the store's start"
                )


def _ticks_run_once(case: Case) -> Iterator[Found]:
    """All here have one wall clock, so not even a crash lets a grid point run again."""
    for before, run in _repeated(case, "fixed"):
        older, newer = sorted((before, run), key=attrgetter("token"))
        if not _is_unguarded(case, Overlap(run.started, older, newer)):
            yield Found(run.started, "ticks", f"{run} runs tick {run.tick}, which ran at {before.started:.3f}")


def _slots_run_once(case: Case) -> Iterator[Found]:
    """S6. A slot may run again after a running server went back to an old state: replicas cannot tell that such a state
    does not know the slot yet."""
    for before, run in _repeated(case, "cron"):
        if not _went_back(case, before.started, run):
            yield Found(run.started, "S6", f"{run} starts; the slot ran at {before.started:.3f} already")
    for job in (job for job, plan in case.plans.items() if plan.shape == "cron"):
        for run in _observed(case, job):
            granted = case.history.leases[job, run.token].granted
            for when, wall in case.history.losses:
                if granted > when and run.scheduled < wall and not _went_back(case, when, run):
                    yield Found(run.started, "S6", f"{run} starts; it was due before the store lost its data")


def _went_back(case: Case, since: float, run: ObservedRun) -> bool:
    """True if a running server went back to an old state after `since` and before it granted the lease of `run`."""
    assert isinstance(case.history, Observed)
    granted = case.history.leases[run.job, run.token].granted
    stale = [loss for loss in case.history.lost_leases if loss.kind == STALE]
    return any(since < loss.end + DRIFT and loss.begin < granted + DRIFT for loss in stale)


def _repeated(case: Case, shape: str) -> Iterator[tuple[ObservedRun, ObservedRun]]:
    """Yield each run of a slot or tick that had run before, after the first run of it."""
    for job, plan in case.plans.items():
        first: dict[int, ObservedRun] = {}
        for run in _observed(case, job) if plan.shape == shape else ():
            before = first.setdefault(run.scheduled, run)
            if before is not run:
                yield before, run


def repeated_slots(plan: Plan, history: Observed) -> int:
    """Return how often a slot ran again because a running server went back to an old state."""
    case = Case(history, plan.settings, plan.jobs)
    return sum(_went_back(case, before.started, run) for before, run in _repeated(case, "cron"))


RULES = (
    _one_leader,
    _one_body_at_a_time,
    _one_process_per_token,
    _no_grant_by_a_young_store,
    _ticks_run_once,
    _slots_run_once,
)


def excused_overlaps(plan: Plan, history: Observed) -> Counter[str]:
    """How often a body went on while another one of its job ran, by what excuses it; runs, not pairs."""
    found = Counter[str]()
    for job in plan.jobs:
        runs = [run for run in history.runs if isinstance(run, ObservedRun) and run.job == job]
        for index, run in enumerate(runs):
            if not any(other.started < run.left for other in runs[index + 1 :] if other.process != run.process):
                continue
            found[_excuse(history, run)] += 1
    return found


def _excuse(history: Observed, run: ObservedRun) -> str:
    if run.over_at is not None:
        return "sync, its term lost"
    mine = [one for one in history.frozen if one.process == run.process]
    kinds = {one.kind for one in mine if one.begin < run.left and one.end > run.started}
    return next((kind for kind in ("stopped", "blocked", "stalled") if kind in kinds), "nothing")
