"""L1 to L3, checked where no other fault is around or after all have healed, and the accounts of the ticks."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from simulation.sim_case import FASTEST, SLACK, Case, Found

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from simulation.sim_bodies import JobPlan
    from simulation.sim_history import Fault, Lease, SimRun

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
)
