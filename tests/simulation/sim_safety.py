"""S1 to S8, checked against a history in true time: from starts and ends of bodies, and from the store's leases.

Exempt is what the design exempts, and no more: a body that ignored its cancellation; a sync one that never asks; a run
in whose course its job loop stood still (a body that blocks, a process that is paused, a machine that sleeps), up to
the moment at which it must have noticed. Each rule is named after the promise that it belongs to.

Over 300 lines: the rules that keep two leaders apart are read side by side.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

from simulation.sim_bodies import UNWINDING
from simulation.sim_case import FASTEST, SLACK, Case, Found

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from simulation.sim_history import Lease, Sample, SimRun

__all__ = ["RULES"]


PREEMPTED = 0.0025
"""For what a thread may wait for others between its check and its body, in seconds."""


def _s1_one_leader(case: Case) -> Iterator[Found]:
    def term(run: SimRun) -> float:
        lease = case.history.leases.get((run.job, run.token))
        return inf if lease is None else lease.granted

    for job, runs in case.runs.items():
        open_runs: list[SimRun] = []
        highest, newest = 0, None
        for run in runs:
            open_runs = [one for one in open_runs if one.ended > run.started]
            if run.token < highest and not (newest and _may_overlap(case, run, newest)) and not _tokens_lost(case, run):
                yield Found(run.started, "S5", f"{run} starts after a run of token {highest % 10**9}")
            for other in open_runs:
                if other.process == run.process:
                    yield Found(run.started, "S1", f"{run} starts while {other} is in flight in the same process")
                elif other.token == run.token:
                    yield Found(run.started, "S1", f"{job}: two processes run token {run.token % 10**9}")
                elif case.excused(other, run.started):
                    continue
                elif not _may_overlap(case, other, run):
                    yield Found(run.started, "S1", f"{run} starts while {other} is in flight, which nothing excuses")
                elif min(other.ended, run.ended) - run.started > _noticed_within(case, min(other, run, key=term)):
                    yield Found(run.started, "S8", f"{run} and {other} are in flight for longer than a heartbeat")
            if run.token > highest:
                highest, newest = run.token, run
            open_runs.append(run)


def _s3_ends_with_its_lease(case: Case) -> Iterator[Found]:
    history = case.history
    for run in history.runs:
        lease = history.leases.get((run.job, run.token))
        if lease is None or lease.node != run.process:
            yield Found(run.started, "S2", f"{run} has a token that the store never gave to this replica")
            continue
        usable = _usable_until(case, lease, run.started)
        usable += PREEMPTED if run.sync else 0.0
        if not lease.released and run.started > usable:
            yield Found(run.started, "S2", f"{run} starts {run.started - usable:.3f} s past its deadline")
        if lease.released and run.ended > lease.ends:
            yield Found(lease.ends, "S4", f"the lease is given back while {run} is in flight")
        elif run.ended > lease.ends and not case.excused(run, lease.ends):
            yield Found(lease.ends, "S3", f"{run} is in flight when its lease has ended, until {run.ended:.3f}")


def _usable_until(case: Case, lease: Lease, now: float) -> float:
    """The latest moment at which the deadline may lie, by what the replica had heard up to `now`.

    An answer that comes after the deadline changes nothing: the term is over for good.
    """
    settings = case.of(lease.node, lease.job)
    usable = (settings.lock_expiry - settings.margin) * 1.005 + SLACK / 10
    until = -inf
    for when, sent in lease.good:
        if when > now or (until > -inf and when > until):
            break
        until = sent + usable
    return until


def _may_overlap(case: Case, one: SimRun, other: SimRun) -> bool:
    leases = case.history.leases
    older, newer = leases.get((one.job, one.token)), leases.get((other.job, other.token))
    return older is not None and newer is not None and case.may_overlap(older, newer)


def _tokens_lost(case: Case, run: SimRun) -> bool:
    """Whether the tokens before this run's were lost, and the store's clock has been further ahead than it is."""
    lost = any(when < run.started for when, _ in case.history.losses)
    return lost and any(when < run.started and seconds < 0 for when, seconds in case.history.jumps)


def _noticed_within(case: Case, run: SimRun) -> float:
    """How long a leader goes on whose lease the store has lost: until its next renewal is refused."""
    settings = case.of(run.process, run.job)
    losses = [when for when, _ in case.history.losses if run.started - settings.lock_expiry < when < run.ended]
    if (
        not case.settings.calm
        or len(losses) > 1  # the second one may have brought the lease back
        or run.rude
        or not run.looks
        or any(
            one.process in {"", run.process} and one.begin < run.ended and one.end > run.ended - settings.lock_expiry
            for one in [*case.history.faults, *case.history.frozen]
            if one.begin < one.end
        )
    ):
        return inf  # something keeps its renewals away; its deadline is its end, and another rule's business
    return (settings.heartbeat_interval + case.settings.call_timeout + UNWINDING * settings.margin) * FASTEST + SLACK


def _s1_nobody_runs_beside_a_foreign_leader(case: Case) -> Iterator[Found]:
    for led in case.history.foreign:
        for run in case.runs[led.job]:
            if run.started < led.end and run.ended > led.begin and not case.excused(run, max(led.begin, run.started)):
                yield Found(max(led.begin, run.started), "S1", f"{run} is in flight while {led.process} leads")


def _s1_is_leader(case: Case) -> Iterator[Found]:
    """At any moment at most one replica says yes, and a yes lies within the valid lease of the one who says it."""
    said: dict[tuple[float, str], tuple[Sample, Lease | None]] = {}
    for sample in case.history.samples:
        when, process, job = sample
        own = [one for one in case.leases[job] if one.node == process and one.granted <= when < one.ends]
        valid = next((one for one in own if when <= _usable_until(case, one, when)), None)
        if valid is None:
            yield Found(when, "S1", f"is_leader({job}) says yes in {process}, which has no valid lease")
        other, theirs = said.setdefault((when, job), (sample, valid))
        if other is sample or (valid is not None and theirs is not None and case.may_overlap(valid, theirs)):
            continue
        yield Found(when, "S1", f"is_leader({job}) says yes in {process} and in {other.process}")


def _s2_no_sync_run_on_an_overdue_lease(case: Case) -> Iterator[Found]:
    for run in case.history.runs:
        lease = case.history.leases.get((run.job, run.token))
        if not run.sync or lease is None:
            continue
        settings = case.of(run.process, run.job)
        longest = (settings.heartbeat_interval + settings.call_timeout) * 1.005 + PREEMPTED
        sent = max((sent for when, sent in lease.good if when <= run.started), default=-inf)
        if run.started - sent > longest:
            yield Found(run.started, "S2", f"{run} starts {run.started - sent:.3f} s after the last good renewal")


def _s2_a_run_that_begins_late_can_tell(case: Case) -> Iterator[Found]:
    """Frozen between the last check and its first statement: it learns there that its term is over."""
    for run in case.history.runs:
        lease = case.history.leases.get((run.job, run.token))
        if run.woke is None or lease is None:
            continue
        if run.woke > _usable_until(case, lease, run.woke) and not run.told:
            yield Found(run.woke, "S2", f"{run} begins {run.woke - run.started:.3f} s after its check, and is not told")


def _s4_nobody_gone_holds(case: Case) -> Iterator[Found]:
    """A late renewal does not keep a dead holder's lease, a late acquisition takes none for one that has left."""
    history, bound = case.history, case.settings.call_timeout * 1.05 + 0.1
    lives = {life.process: life for life in history.alive}
    for lease in history.leases.values():
        life = lives[lease.node]
        last = max([lease.granted, *lease.renewed])
        if last <= life.end:
            continue
        # One that left in good order waits for what may still come of its calls; only a duplicate may come later. One
        # whose body would not end, or whose claim got no answer, leaves its lease to expire as if it had crashed.
        left = case.plans[lease.job].shape == "cron" or any(
            run.token == lease.token and run.ended >= life.end for run in case.runs[lease.job]
        )
        late = life.crashed or case.settings.duplicated or (left and lease.granted <= life.end)
        if last > life.end + (bound if late else 0.0):
            yield Found(last, "S4", f"{lease.node} ended at {life.end:.3f} and gets {lease.job} at {last:.3f}")
    for fault in history.faults:
        if fault.kind != "stop":
            continue
        for run in history.runs:
            lease_of_run = history.leases.get((run.job, run.token))
            if lease_of_run is not None and run.process == fault.process and lease_of_run.granted > fault.begin + 0.1:
                yield Found(run.started, "S4", f"{run} starts in a term that began after {run.process} had to stop")


def _s4_nobody_asks_while_it_runs(case: Case) -> Iterator[Found]:
    """While a body of an earlier term runs, its replica gets no new one; a duplicate changes nothing."""
    for run in case.history.runs:
        for lease in case.leases[run.job]:
            if lease.node == run.process and lease.token > run.token and run.started < lease.granted < run.ended:
                yield Found(lease.granted, "S4", f"{run.process} is granted {run.job} while {run} is in flight")


def _s5_tokens_grow(case: Case) -> Iterator[Found]:
    for job, leases in case.leases.items():
        for older, newer in pairwise(leases):
            lost = any(older.granted < when <= newer.granted for when, _ in case.history.losses)
            behind = lost and any(when <= newer.granted and seconds < 0 for when, seconds in case.history.jumps)
            if newer.token <= older.token and not behind:
                yield Found(newer.granted, "S5", f"{job}: token {newer.token} is granted after {older.token}")
            gone = older.gone <= newer.granted or older.gone_unseen(newer.granted)
            if newer.granted < older.ends - SLACK and newer.node != older.node and not gone:
                yield Found(newer.granted, "S1", f"{job}: granted to {newer.node} within the lease of {older.node}")


def _s6_one_run_per_slot(case: Case) -> Iterator[Found]:
    skew = round(2 * case.settings.skew * 1e6)
    for job, runs in case.runs.items():
        if case.plans[job].shape != "cron":
            continue
        first: dict[int, SimRun] = {}
        for run in runs:
            other = first.setdefault(run.scheduled, run)
            # Between two wall clocks, what was due before the restart here was due after it there.
            # Either of the two may have been claimed before the loss, and start late.
            claims = case.history.claims
            claimed = min(claims.get((job, one.token, one.scheduled), one.started) for one in (other, run))
            lost = any(
                claimed <= when <= run.started and (skew > 0 or when in case.history.unseen)
                for when, _ in case.history.losses
            )
            if other is not run and not lost:
                yield Found(run.started, "S6", f"{run} starts; the slot ran at {other.started:.3f} already")
            granted = case.history.leases[job, run.token].granted if (job, run.token) in case.history.leases else 0
            for when, wall in case.history.losses:
                forgotten = any(when <= other <= granted for other in case.history.unseen)
                if forgotten or any(jump <= granted for jump, _ in case.history.jumps):
                    continue  # nobody can know when that was
                if granted > when and run.scheduled < wall - skew:
                    yield Found(run.started, "S6", f"{run} starts; it was due before the store lost its data")


def _s6_a_claimed_slot_runs(case: Case) -> Iterator[Found]:
    """While its term lasts and its process turns: also where the answer to the claim was lost."""
    soon = 4 * case.settings.call_timeout + 1
    ran = {(run.job, run.token, run.scheduled) for run in case.history.runs}
    for (job, token, slot), when in case.history.claims.items():
        lease = case.history.leases[job, token]
        lives = any(heard > when + soon for heard, _ in lease.good)
        plan = case.plans[job]
        if plan.misfire == "skip" or plan.limited or not lives or (job, token, slot) in ran:
            continue  # a slot that is late is skipped
        if any(one.kind == "no_threads" and one.begin < when + soon and one.end > when for one in case.history.faults):
            continue  # a run that has no thread has failed
        if not any(one.begin < when + soon and one.end > when for one in case.frozen[lease.node]):
            yield Found(when + soon, "S6", f"{lease.node} claimed slot {slot % 10**9} of {job}, and never ran it")


def _s7_a_wedged_loop_does_not_lead(case: Case) -> Iterator[Found]:
    settings = case.settings
    called = settings.call_timeout * 1.05 + 0.1
    for lease in case.history.leases.values():
        for one in case.frozen[lease.node]:
            limit = one.begin + settings.stall_limit * FASTEST + called
            late = [when for when in lease.renewed if limit < when < one.end]
            if late:
                yield Found(
                    late[0], "S7", f"{lease.node} renews {lease.job}; its loop stands still since {one.begin:.3f}"
                )
    if settings.timeout is None:
        return
    longest = (settings.timeout + max(settings.grace, settings.margin)) * FASTEST + called
    for run in case.history.runs:
        lease_of_run = case.history.leases.get((run.job, run.token))
        renewed = lease_of_run.renewed if lease_of_run is not None else []
        at = bisect_left(renewed, run.started + longest)
        if at < len(renewed) and renewed[at] < run.ended:
            yield Found(renewed[at], "S7", f"the lease of {run} is renewed after its timeout and grace")


def _s7_ends_at_its_timeout(case: Case) -> Iterator[Found]:
    """An async run is cancelled there, a sync one that waits is woken."""
    settings = case.settings
    if settings.timeout is None:
        return
    for run in case.history.runs:
        limit = run.started + settings.timeout * FASTEST
        ends = limit + UNWINDING * settings.margin * FASTEST + SLACK
        if run.kind == "endless" and run.ended > ends and not case.excused(run, ends, by_loop=True):
            yield Found(limit, "S7", f"{run} goes on past its timeout, until {run.ended:.3f}")


def _s8_nothing_is_acquired_from_a_store_that_forgot(case: Case) -> Iterator[Found]:
    for lease in case.history.leases.values():
        settings = case.of(lease.node, lease.job)
        for when, _ in case.history.losses:
            guard = (settings.lock_expiry + 1) * 0.995
            if any(one.kind == "store_step" and when <= one.begin <= lease.granted for one in case.history.faults):
                guard -= settings.margin / 2  # the up-time counts by the clock that stepped
            if when not in case.history.unseen and when < lease.granted < when + guard:
                seconds = lease.granted - when
                yield Found(lease.granted, "S8", f"{lease.job} is granted {seconds:.3f} s after a restart")


def _paused_nothing_starts(case: Case) -> Iterator[Found]:
    """Once its replica can know, and at the latest when no lease from before the pause is left; but claimed slots."""
    latest = case.settings.lock_expiry * FASTEST + SLACK
    triggered = {(job, token) for (job, _), token in case.history.taken.items()}
    for pause in case.history.pauses:
        for run in case.runs[pause.job]:
            if (run.job, run.token) in triggered:
                continue  # a trigger that was taken runs, as a claimed slot does
            lease = case.history.leases.get((run.job, run.token))
            if not pause.begin < run.started < pause.end or lease is None:
                continue
            told = min((when for when, sent in lease.good if sent > pause.begin), default=inf)
            claimed = case.history.claims.get((run.job, run.token, run.scheduled), inf)
            if run.started > min(told + SLACK, pause.begin + latest) and claimed > min(told, pause.begin + latest):
                yield Found(run.started, "pause", f"{run} starts; the job is paused since {pause.begin:.3f}")


def _triggers_run_once(case: Case) -> Iterator[Found]:
    for job, runs in case.runs.items():
        if case.plans[job].shape != "fixed":
            continue  # of other shapes, an extra run looks like any
        extra = Counter(run.token for run in runs if run.tick is None)
        taken = Counter(token for (of, _), token in case.history.taken.items() if of == job)
        for token, count in extra.items():
            if count > taken[token]:
                first = next(run for run in runs if run.token == token and run.tick is None)
                yield Found(first.started, "trigger", f"{job}: {count} extra runs in a term that took {taken[token]}")


RULES: tuple[Callable[[Case], Iterator[Found]], ...] = (
    _s1_one_leader,
    _s1_is_leader,
    _s1_nobody_runs_beside_a_foreign_leader,
    _s2_no_sync_run_on_an_overdue_lease,
    _s2_a_run_that_begins_late_can_tell,
    _s3_ends_with_its_lease,
    _s4_nobody_gone_holds,
    _s4_nobody_asks_while_it_runs,
    _s5_tokens_grow,
    _s6_one_run_per_slot,
    _s6_a_claimed_slot_runs,
    _s7_a_wedged_loop_does_not_lead,
    _s7_ends_at_its_timeout,
    _s8_nothing_is_acquired_from_a_store_that_forgot,
    _paused_nothing_starts,
    _triggers_run_once,
)
