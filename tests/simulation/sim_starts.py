"""L4, checked against a history: when a job's first run in a term comes, and when an interval job runs again."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from simulation.sim_case import FASTEST, SLACK, Case, Found

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from simulation.sim_history import Lease, SimRun

__all__ = ["RULES"]


def _l4_the_gap_of_an_interval_is_kept(case: Case) -> Iterator[Found]:
    """No run starts before the interval has passed since the last known end, on whichever replica that was."""
    for job, runs in case.runs.items():
        if case.plans[job].shape != "interval":
            continue
        every = float(case.plans[job].every)
        triggered = {token for (of, _), token in case.history.taken.items() if of == job}
        ends = [(run, _known_since(case, run)) for run in runs]
        for run in runs:
            granted = case.history.leases[job, run.token].granted if (job, run.token) in case.history.leases else 0.0
            if run.token in triggered:
                continue  # an extra run looks like any other, and does not wait
            for other, known in ends:
                if not run.started - every < other.ended <= run.started:
                    continue
                own = other.process == run.process and not _ended_from_outside(case, other)
                gap = every / FASTEST - (0.0 if own else case.history.moved(other.ended, granted)) - SLACK
                forgotten = not own and any(other.ended < when <= granted for when, _ in case.history.losses)
                if run.started - other.ended < gap and (own or (known < granted and not forgotten)):
                    text = f"{run} starts {run.started - other.ended:.3f} s after the end of {other}"
                    yield Found(run.started, "L4", f"{text}; the interval is {every} s")


def _known_since(case: Case, run: SimRun) -> float:
    """When the store had heard at the latest that the run has ended; infinity: it may never have."""
    lease = case.history.leases.get((run.job, run.token))
    if lease is None or _ended_from_outside(case, run):
        return inf
    if lease.released and run.ended <= lease.ends:
        return lease.ends
    return min((when for when, sent in lease.heard if sent > _seen_to_end(case, run) + SLACK), default=inf)


def _seen_to_end(case: Case, run: SimRun) -> float:
    """When the run's own job loop has seen its end at the latest: not while the loop stands still."""
    seen = run.ended
    for one in case.frozen[run.process]:  # in order of their begins
        seen = max(seen, one.end) if one.begin <= seen + SLACK else seen
    return seen


def _ended_from_outside(case: Case, run: SimRun) -> bool:
    """Whether the run's task was cancelled, so that nobody saw the run end."""
    return any(
        one.kind == "end_task"
        and one.process == run.process
        and run.started <= one.begin + SLACK
        and one.begin <= run.ended
        for one in case.history.faults
    )


def _l4_first_runs_come_soon(case: Case) -> Iterator[Found]:
    """Where nothing is wrong around the begin of a term: an interval job runs at once or when the gap since the last
    end is over, a fixed-rate job at the next grid point."""
    history, settings = case.history, case.settings
    first: dict[tuple[str, int], SimRun] = {}
    for run in history.runs:
        first.setdefault((run.job, run.token), run)
    lives = {life.process: life for life in history.alive}
    for lease in history.leases.values():
        plan = case.plans[lease.job]
        if plan.shape == "cron" or not lease.heard or case.unused(lease):
            continue
        if (plan.shape == "fixed" and settings.skew > 1) or (plan.sync and not settings.calm):
            continue  # the grid waits for the time to come again; a sync run waits for a renewal that is overdue
        began = lease.heard[0][0]
        every = float(plan.every) * FASTEST
        if plan.shape == "interval":
            due = max([began, *(_seen_to_end(case, run) + every for run in case.runs[lease.job] if run.ended <= began)])
            if _end_is_ahead(case, lease):
                due = max(due, began + every)
        else:
            due = began + every + 2 * settings.skew
        latest = due + settings.call_timeout + settings.margin + 2 * SLACK
        earliest = first.get((lease.job, lease.token))
        if (earliest is not None and earliest.started <= latest) or latest > min(lease.ends, lives[lease.node].end):
            continue
        if latest + settings.heartbeat_interval > lease.good[-1][1] + settings.lock_expiry - settings.margin:
            continue  # the term ended meanwhile
        # A run that has no thread has failed, and its end counts as one, on whichever replica that was.
        refused = any(one.kind == "no_threads" and one.begin < latest and one.end > began for one in history.faults)
        if not refused and not _disturbed(case, lease, began - settings.lock_expiry, latest):
            yield Found(latest, "L4", f"{lease.node} leads {lease.job} since {began:.3f}, and has not run it")


def _end_is_ahead(case: Case, lease: Lease) -> bool:
    """Whether the store's clock jumped back, and no end of a run was reported since: the last one counts as now."""
    back = max((when for when, seconds in case.history.jumps if seconds < 0 and when < lease.granted), default=-inf)
    runs = (run for run in case.runs[lease.job] if run.ended > back)
    return back > -inf and not any(_known_since(case, run) < lease.granted for run in runs)


def _disturbed(case: Case, lease: Lease, begin: float, end: float) -> bool:
    """Whether something was wrong with a replica in that time, with the store or the job."""
    history = case.history
    wrong = [one for one in history.faults if one.process in {"", lease.node}] + case.frozen[lease.node]
    wrong += [one for one in history.pauses if one.job == lease.job]
    running = any(run.process == lease.node and run.started < end and run.ended > end for run in case.runs[lease.job])
    return running or any(one.begin < end and one.end > begin for one in wrong)


RULES: tuple[Callable[[Case], Iterator[Found]], ...] = (_l4_the_gap_of_an_interval_is_kept, _l4_first_runs_come_soon)
