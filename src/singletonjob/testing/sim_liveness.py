"""L1 to L4, checked where no other fault is around or after all have healed, and the accounts of the ticks."""

from __future__ import annotations

from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

from .sim_case import FASTEST, SLACK, Case, Found

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .sim_bodies import JobPlan
    from .sim_history import Fault, Lease, SimRun

__all__ = ["RULES"]

HARMLESS = frozenset({"wall_step", "no_threads", "log_raises", "log_slow", "unlike_jobs", "unlike_replicas"})
"""Faults that must cost no lease, and hold up no hand-over."""


def _ticks_are_counted_once(case: Case) -> Iterator[Found]:
    for job, runs in case.runs.items():
        if case.plans[job].shape != "fixed":
            continue
        for earlier, later in pairwise(run for run in runs if run.tick is not None):
            if earlier.token != later.token or earlier.tick is None or later.tick is None:
                continue
            if _stepped_far(case, earlier, later):
                continue
            due, counted = later.tick - earlier.tick, later.counted - earlier.counted
            if due <= 0:
                yield Found(later.started, "ticks", f"{later} runs tick {later.tick} after tick {earlier.tick}")
            elif due != counted:
                yield Found(
                    later.started, "ticks", f"{later}: {due} ticks were due since the last run, {counted} counted"
                )


def _stepped_far(case: Case, earlier: SimRun, later: SimRun) -> bool:
    """Whether the wall clock may have stepped back so far that the grid is taken up anew."""
    since = earlier.started - case.slow_start(earlier)
    return 2 * case.settings.skew > float(case.plans[later.job].every) and any(
        one.kind == "wall_step" and one.process == later.process and since <= one.begin <= later.started
        for one in case.history.faults
    )


def _l_somebody_leads_when_all_has_healed(case: Case) -> Iterator[Found]:
    """After faults have healed, and the longest that a lease, the guard and a back-off may take: the job runs."""
    settings, history = case.settings, case.history
    longest = settings.lock_expiry * FASTEST + 1 + 1.3 * settings.max_backoff + 2 * settings.call_timeout
    since = history.healed_at + longest
    left = [one.end for one in history.frozen if one.end > history.healed_at]
    left += [run.ended for run in history.runs if run.started < history.healed_at < run.ended < history.ended_at]
    # A crashed leader's lease lives longer by as much as the store's clock stepped back.
    for lease in history.leases.values():
        last = max([lease.granted, *lease.renewed])
        if last < history.healed_at and lease.ends > last + settings.lock_expiry * FASTEST:
            left.append(lease.ends)
    since = max([since, *(end + longest for end in left)])
    for job, plan in case.plans.items():
        period = 2.0 if plan.shape == "cron" else float(plan.every)
        quiet = 2 * period + SLACK
        last = max(since, _store_ahead_until(case)) if plan.shape == "cron" else since
        for run in case.runs[job]:
            if run.started - last > quiet:
                break
            last = max(last, min(run.ended, history.ended_at))
        if history.ended_at - last > quiet and not _clock_behind(case, plan):
            yield Found(last, "L", f"nobody has run {job} since {last:.3f}, and all healed at {history.healed_at:.3f}")


def _store_ahead_until(case: Case) -> float:
    """Until when slots are held back that were due before a lost lease, by a clock of the store that was ahead."""
    ahead = until = 0.0
    for when, seconds in case.history.jumps:
        ahead += seconds
        until = max(until, when + 2 * case.settings.lock_expiry + ahead)
    return until


def _clock_behind(case: Case, plan: JobPlan) -> bool:
    """Wall clocks that are far apart hold ticks and slots back until the last one's time has come again."""
    return plan.shape != "interval" and case.settings.skew > 1


def _l1_l2_hand_overs(case: Case) -> Iterator[Found]:
    """With no other fault around: 50 ms from the release, 1.01 lock_expiry + 100 ms from the last renewal."""
    if not case.settings.calm:
        return
    for fault in case.history.faults:
        if fault.kind not in {"crash", "stop"}:
            continue
        for leases in case.leases.values():
            lease = next((one for one in reversed(leases) if one.granted < fault.begin), None)
            if lease is not None and lease.node == fault.process and lease.ends > fault.begin:
                yield from _l1_l2_hand_over(case, fault, lease)


def _l1_l2_hand_over(case: Case, fault: Fault, lease: Lease) -> Iterator[Found]:
    """Of the lease that a process held when it crashed, or had to stop."""
    history = case.history
    if fault.kind == "stop" and not lease.released:
        life = next(life for life in history.alive if life.process == fault.process)
        left = any(
            run.process == fault.process
            and (run.ended >= life.end or ((run.rude or not run.looks) and run.ended > fault.begin))
            for run in history.runs
        )
        if not left and not life.crashed and life.end < history.ended_at and _undisturbed(case, fault, life.end):
            yield Found(life.end, "L1", f"{lease.node} left without giving {lease.job} back")
        return
    bound = lease.ends + (0.05 if lease.released else 0.1 + 0.01 * case.settings.lock_expiry)
    if bound > history.ended_at or not _undisturbed(case, fault, bound):
        return
    after = (one for one in case.leases[lease.job] if one.granted >= lease.ends - SLACK and not case.unused(one))
    taken = next((one.granted for one in after), None)
    if taken is None or taken > bound:
        rule = "L1" if lease.released else "L2"
        yield Found(bound, rule, f"{lease.job} is not led again by {bound:.3f}, after the {fault.kind} of {lease.node}")


def _l3_outages(case: Case) -> Iterator[Found]:
    """A short outage costs no leadership; after a longer one somebody leads soon."""
    history, settings = case.history, case.settings
    for fault in history.faults:
        if fault.kind not in {"refuse", "freeze", "silence"} or not settings.calm:
            continue
        retry = 1.2 * (settings.max_backoff if fault.kind == "refuse" else settings.heartbeat_interval)
        for job, leases in case.leases.items():
            before = [lease for lease in leases if lease.granted < fault.begin]
            if not before:
                continue
            held = before[-1]
            own = case.of(held.node, job)
            usable = own.lock_expiry - own.margin
            short = (usable - own.heartbeat_interval) * 2 / 3 / FASTEST - 2 * SLACK - history.stepped
            ends = max([fault.begin, *(when for when in held.renewed if when < fault.end)]) + settings.lock_expiry
            until = max(fault.end + (retry + settings.call_timeout) * FASTEST, ends * FASTEST) + 0.1
            if until > history.ended_at or not _undisturbed(case, fault, until):
                continue
            lost = held.ends > fault.begin and held.ends < until and not _timed_out(case, held)
            if lost and fault.end - fault.begin < short:
                yield Found(held.ends, "L3", f"{job}: an outage of {fault.end - fault.begin:.3f} s cost the lease")
            moments = [when for lease in leases for when in (lease.granted, *lease.renewed)]
            if not any(fault.end <= when <= until for when in moments):
                yield Found(until, "L3", f"{job} is led by nobody after the outage that ended at {fault.end:.3f}")


def _l3_no_lease_is_lost_for_nothing(case: Case) -> Iterator[Found]:
    """Where nothing is wrong around it, a lease ends by release only; a run of any length keeps it."""
    history, settings = case.history, case.settings
    if not settings.calm:
        return
    wrong = [(one.begin, one.end) for one in [*history.faults, *history.frozen] if one.kind not in HARMLESS]
    for lease in history.leases.values():
        last = max([lease.granted, *lease.renewed])
        since, until = last - settings.lock_expiry, last + settings.lock_expiry
        life = next(life for life in history.alive if life.process == lease.node)
        if lease.released or lease.ends > min(life.end, history.ended_at):
            continue
        if any(begin < until and end > since for begin, end in wrong):
            continue
        if not case.unused(lease) and not _timed_out(case, lease):
            yield Found(lease.ends, "L3", f"{lease.node} has lost the lease of {lease.job}, and nothing was wrong")


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


def _timed_out(case: Case, lease: Lease) -> bool:
    """Whether a run of the term has met its timeout: what does not end soon after it costs the lease."""
    timeout = case.settings.timeout
    if timeout is None:
        return False
    runs = (run for run in case.runs[lease.job] if run.token == lease.token)
    return any(run.ended - run.started + case.slow_start(run) > timeout / FASTEST for run in runs)


def _undisturbed(case: Case, fault: Fault, until: float) -> bool:
    """Whether nothing else was wrong around a fault, and another replica was there all along."""
    history, expiry = case.history, case.settings.lock_expiry
    for other in [*history.faults, *history.frozen]:
        # After a hand-over all is well when its lease has ended; other faults may leave a back-off, or a guard.
        since = fault.begin - (1.3 if other.kind in {"crash", "stop"} else 2.5) * expiry
        if other is not fault and other.kind not in HARMLESS and other.begin < until and other.end > since:
            return False
    return any(
        life.process != fault.process and life.begin < fault.begin - expiry / 2 and life.end > until
        for life in history.alive
    )


RULES: tuple[Callable[[Case], Iterator[Found]], ...] = (
    _ticks_are_counted_once,
    _l_somebody_leads_when_all_has_healed,
    _l1_l2_hand_overs,
    _l3_outages,
    _l3_no_lease_is_lost_for_nothing,
    _l4_the_gap_of_an_interval_is_kept,
    _l4_first_runs_come_soon,
)
