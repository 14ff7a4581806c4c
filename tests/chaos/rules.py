"""What is checked in a round: the simulation's rules that need no store's account, and some of its own.

A token is the store's wall clock at the grant (S5), and all here share one wall clock: so the fencing tokens tell when
leases were granted, although no store was asked.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from chaos.observed import Observed, ObservedRun
from singletonjob.testing.sim_case import Case, Found
from singletonjob.testing.sim_checker import check
from singletonjob.testing.sim_safety import OBSERVED_RULES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.plan import Plan
    from singletonjob.testing.sim_history import SimRun

__all__ = ["excused_overlaps", "violation"]

DRIFT = 0.05
"""The wall clock, which is slewed, against the boot clock in the course of a round, in seconds."""


def violation(plan: Plan, history: Observed) -> Found | None:
    """The first promise that was broken, in time; None: all were kept."""
    own = (_one_body_at_a_time, _one_process_per_token, _no_grant_by_a_young_store, _ticks_run_once)
    return check(history, plan.settings, plan.jobs, rules=(*OBSERVED_RULES, *own))


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
    first: dict[tuple[str, int], SimRun] = {}
    for run in case.history.runs:
        if run.tick is None:
            continue
        before = first.setdefault((run.job, run.tick), run)
        if before is not run:
            yield Found(run.started, "ticks", f"{run} runs tick {run.tick}, which ran at {before.started:.3f}")


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
