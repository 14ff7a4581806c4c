"""The mutants: changes of the library, of one place each, that break a promise. `mutants.py` carries them out.

Over 300 lines, because it is one table, grouped by the promises of docs/promises.md. A mutant that breaks no promise,
or that differs from another by a detail, is left to mutmut: docs/mutation-testing.md.
"""

# ruff: noqa: E501, ISC004 - the texts are as they stand in the source

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from servers import OLDEST

__all__ = ["MUTANTS", "Mutant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """`old`, which occurs in `file` exactly once, becomes `new`. It breaks `promise`, so pytest with `tests` must fail."""

    promise: str
    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


class Place(NamedTuple):
    """A file of the library, and the tests that must catch its mutants; `among` narrows them, as pytest's -k does."""

    file: str
    tests: tuple[str, ...]
    among: str = ""


CONTRACT = "tests/contract/test_stores.py"
REDIS_CONTRACT = "tests/contract/test_redis_store.py"
RUNS = (
    "tests/fundamentals/test_last_moment.py",
    "tests/fundamentals/test_one_leader.py",
    "tests/fundamentals/test_run_in_flight.py",
)
FENCE = ("tests/unit/test_lease.py", "tests/unit/test_timer.py")

ELECTION = Place("_core/elector.py", ("tests/unit/test_election.py",))
DETAILS = Place("_core/elector.py", ("tests/unit/test_election_details.py",))
ORDERS = Place("_core/elector.py", ("tests/unit/test_election_orders.py",))
FORGETS = Place("_core/elector.py", ("tests/unit/test_election_store_that_forgets.py",))
HEARTBEAT = Place("_runtime/heartbeat.py", RUNS)
STORE_CALLS = Place("stores/calls.py", RUNS)
RUNNER = Place("_runtime/runner.py", RUNS)
RUNNER_ENDED = Place("_runtime/runner.py", ("tests/fundamentals/test_cancellation.py",))
FAREWELL = Place("_runtime/hooks.py", RUNS)
LEASE = Place("_runtime/lease.py", FENCE)
HANDLES = Place("_jobs/handles.py", FENCE)
CLOCK = Place("_system/clock.py", FENCE)
TIMER = Place("_system/timers.py", FENCE)
ALARMS = Place("_system/timerfd.py", FENCE)
# The contract alone must catch these: another author's store has no other test.
RULES = Place("stores/rules.py", (f"{CONTRACT}::TestMemoryStore",))
MEMORY = Place("stores/memory.py", (f"{CONTRACT}::TestMemoryStore",))
SQLITE = Place("stores/sqlite/store.py", (f"{CONTRACT}::TestSqliteStore",))
SQLITE_FILE = Place("stores/sqlite/file.py", (f"{CONTRACT}::TestSqliteStore",))
LUA = Place("stores/redis/exchange.lua", (f"{REDIS_CONTRACT}::TestRedisStore",), OLDEST)
REDIS_WIRE = Place("stores/redis/wire.py", (f"{REDIS_CONTRACT}::TestRedisStore",), OLDEST)
# The contract does not cover these.
SQLITE_CLOCK = Place("stores/sqlite/store.py", (CONTRACT,), "sqlite")
SQLITE_LIFE = Place("stores/sqlite/store.py", ("tests/integration/test_sqlite_store.py",))
SQLITE_HOLDER = Place("stores/sqlite/holder.py", ("tests/integration/test_sqlite_store.py",))
SQLITE_PLACE = Place("stores/sqlite/place.py", ("tests/integration/test_sqlite_file.py",))
SQLITE_SYNC = Place("stores/sqlite/store.py", ("tests/integration/test_sqlite_file.py",))
REDIS_READING = Place("stores/redis/reading.py", (REDIS_CONTRACT,))
LUA_KEYS = Place("stores/redis/exchange.lua", (REDIS_CONTRACT,), OLDEST)
REDIS_LINK = Place("stores/redis/store.py", ("tests/integration/test_redis_store.py",), OLDEST)
REDIS_MOVING = Place("stores/redis/moving.py", ("tests/integration/test_redis_cluster.py",))


def _breaking(promise: str, *rows: tuple[str, Place, str, str, str]) -> list[Mutant]:
    """Each row is a name, a place, the text that becomes another, and the test that catches it."""
    mutants: list[Mutant] = []
    for name, place, old, new, test in rows:
        expression = f"{place.among} and {test}" if place.among else test
        tests = (*place.tests, "-k", expression)
        mutants.append(Mutant(promise=promise, name=name, file=place.file, old=old, new=new, tests=tests))
    return mutants


MUTANTS: tuple[Mutant, ...] = (
    *_breaking(
        "S1",  # one leader
        (
            "unknown read as granted",
            ELECTION,
            "                job.unanswered_until = exchange.sent",
            "                self._granted(job, request, Granted(1, JobState(0)), exchange.sent, now)\n                job.unanswered_until = exchange.sent",
            "test_c02_an_unknown_outcome_never_makes_a_leader",
        ),
        (
            "redis: the word of a server counts that others have replaced",
            REDIS_MOVING,
            "return found.where != link.address.where and not",
            "return found.where == link.address.where and not",
            "test_s1_what_a_node_says_counts_only_while_another_one_names_it_as_the_owner",
        ),
        (
            "the end of a term leaves its deadline",
            HEARTBEAT,
            "self.leases[effect.job].end(effect.reason)",
            "self.leases[effect.job].drain(effect.reason)",
            "test_a_live_switch_gives_the_lease_to_an_enabled_peer_and_takes_part_again",
        ),
        (
            "handle reused across terms",
            HEARTBEAT,
            "                lease = self.leases[effect.job] = Lease(",
            "                earlier = self.leases.get(effect.job)\n"
            "                if earlier is not None:\n"
            "                    earlier.token, earlier.leadership = effect.term.token, effect.term\n"
            "                    earlier._over, earlier._draining, earlier.over_at, earlier.reason = False, False, inf, None\n"
            "                lease = self.leases[effect.job] = earlier or Lease(",
            "test_a_run_that_was_kept_from_an_earlier_term_says_that_it_is_over_also_when_its_replica_leads_again",
        ),
        (
            "a term whose run is ending is not renewed",
            ELECTION,
            "            if soon:\n                progress",
            '            if soon and job.phase == "leader":\n                progress',
            "test_a_stop_drains_and_the_release_goes_out_when_the_body_has_ended_and_not_before",
        ),
        (
            "rules: a held lease is granted",
            RULES,
            "if record.holder is not None and (record.holder != node or request.number <= record.seq):",
            "if record.holder == node and request.number <= record.seq:",
            "test_a_lease_that_nobody_renews_ends_and_the_next_term_has_a_higher_token",
        ),
        (
            "sqlite: the transaction begins without the lock",
            SQLITE,
            '"BEGIN IMMEDIATE"',
            '"BEGIN"',
            "test_processes_that_contend_never_hold_a_lease_together",
        ),
        (
            "sqlite: a lease that may be held dies with close",
            SQLITE_LIFE,
            "        if not self._held:\n",
            "        if True:\n",
            "test_a_lease_that_was_not_given_back_outlives_close_until_the_process_ends",
        ),
        (
            "redis: a held lease is granted",
            LUA,
            "if holder and (holder ~= node or (state.holder == node and tonumber(number) <= state.seq)) then",
            "if holder == node and tonumber(number) <= state.seq then",
            "test_a_lease_that_nobody_renews_ends_and_the_next_term_has_a_higher_token",
        ),
        (
            "redis: the lock is written before the state",
            LUA_KEYS,
            "  call('HSET', key, unpack(fields))\n  call('SET', lock, node, 'PX', milliseconds)\n",
            "  call('SET', lock, node, 'PX', milliseconds)\n  call('HSET', key, unpack(fields))\n",
            "test_a_state_that_cannot_be_written_costs_the_lease_and_leaves_no_key_without_it",
        ),
    ),
    *_breaking(
        "S2",  # checked at the last moment
        (
            "no check right before an async run",
            RUNNER,
            "            if not lease.may_start(claimed=claimed):\n                return None\n            with self._user_code:\n",
            "            with self._user_code:\n",
            "test_a_run_does_not_start_if_the_term_ended_between_the_decision_and_the_call",
        ),
        (
            "no check in the thread before a sync run",
            RUNNER,
            "if not lease.may_start(claimed=claimed) or self._overdue(lease):",
            "if False:",
            "test_a_run_does_not_start_if_the_term_ended_between_the_decision_and_the_call",
        ),
        (
            "a body's own check finds nothing",
            HANDLES,
            "        if not self._lease.valid():\n            raise",
            "        if False:\n            raise",
            "test_at_the_deadline_itself_the_term_is_over",
        ),
    ),
    *_breaking(
        "S3",  # stop before others may start
        (
            "deadline from the reply, at a renewal",
            ELECTION,
            "term = self._term(job, job.term.token, sent)",
            "term = self._term(job, job.term.token, now)",
            "test_a_renewal_moves_the_deadline_from_its_own_sending_and_not_from_the_reply",
        ),
        (
            "no margin, at a grant",
            ELECTION,
            "Leadership(token, sent, sent + job.options.lock_expiry - job.options.margin)",
            "Leadership(token, sent, sent + job.options.lock_expiry)",
            "test_a_grant_begins_a_term_whose_deadline_counts_from_before_the_request_was_sent",
        ),
        (
            "a deadline that has passed does not end the term",
            ELECTION,
            "if job.alive and job.term.deadline <= now:",
            "if False:",
            "test_the_deadline_ends_the_term_at_that_moment_with_the_call_still_hanging",
        ),
        (
            "a renewal that crosses the deadline brings the term back",
            ELECTION,
            "            return\n        self._expire(now)\n        if reply is None:",
            "            return\n        if reply is None:",
            "test_a_renewal_that_arrives_after_the_deadline_does_not_bring_the_term_back",
        ),
        (
            "a grant that comes after its deadline is used",
            ELECTION,
            "if now >= term.deadline or request.number <= job.released or",
            "if request.number <= job.released or",
            "test_a_grant_that_arrives_after_its_own_deadline_is_not_used_but_given_back_and_asked_for_anew",
        ),
        (
            "unknown read as renewed",
            ELECTION,
            "            self._retry(job, now, self._errors, at_once=used_up)",
            "            if job.alive:\n                self._renewed(job, Renewed(), exchange.sent, now)\n            self._retry(job, now, self._errors, at_once=used_up)",
            "test_an_unknown_outcome_moves_no_deadline_and_ends_no_term",
        ),
        (
            "a fence that closed opens again",
            LEASE,
            "return not self._over and self.clock.boot() <",
            "return self.clock.boot() <",
            "test_a_handle_of_an_ended_term_stays_ended_whatever_a_late_renewal_writes",
        ),
        (
            "check only in the heartbeat",
            LEASE,
            "return not self._over and self.clock.boot() < self.leadership.deadline",
            "return not self._over",
            "test_at_the_deadline_itself_the_term_is_over",
        ),
        (
            "the fence does not arm itself again",
            LEASE,
            "            self._timer.set(deadline)\n",
            "            pass\n",
            "test_the_fence_closes_at_the_deadline_that_holds_then_and_only_once",
        ),
        (
            "a boot clock that stands still in a suspend",
            CLOCK,
            '"CLOCK_BOOTTIME", getattr(',
            '"CLOCK_MONOTONIC", getattr(',
            "test_the_clocks_are_those_that_count_suspend_and_that_can_be_stepped",
        ),
        (
            "fence timer on a clock that stands still in a suspend",
            TIMER,
            "time.CLOCK_BOOTTIME, unit=1",
            "time.CLOCK_MONOTONIC, unit=1",
            "test_the_clocks_are_those_that_count_suspend_and_that_can_be_stepped",
        ),
        (
            "a timer that is set later hides those before it",
            TIMER,
            "if heap[0][1] == number and",
            "if heap[0][2] is self and",
            "test_there_whatever_is_set_set_again_and_cancelled_each_timer_fires_at_the_time_it_was_last_set_to",
        ),
        (
            "no run is cancelled when its term is over",
            RUNNER,
            "self._grace_until = self._clock.boot()\n        self._stop_run()",
            "self._stop_run()",
            "test_when_the_lease_is_lost_the_run_in_flight_is_cancelled",
        ),
        (
            "sqlite: leases end on the wall clock",
            SQLITE_CLOCK,
            "return int(now.boot * 1e6)",
            "return now.wall",
            "test_a_reading_tells_the_clock_and_that_nothing_is_forgotten",
        ),
        (
            "redis: a lease ends a tenth too early",
            REDIS_WIRE,
            "max(1, round(seconds * 1000))",
            "max(1, round(seconds * 900))",
            "test_one_replica_has_the_lease_and_the_others_learn_who_and_for_how_long",
        ),
    ),
    *_breaking(
        "S4",  # orderly release, and late calls change nothing
        (
            "release while running",
            ELECTION,
            'job.phase, job.reason = "draining", reason\n',
            'job.phase, job.reason, job.release_until, job.due = "releasing", reason, 9.9, 0.0\n',
            "test_a_stop_drains_and_the_release_goes_out_when_the_body_has_ended_and_not_before",
        ),
        (
            "drained before the body has ended",
            RUNNER,
            "        self._ledger.elected(lease)\n",
            "        self._ledger.elected(lease)\n        self._orders.drained(lease.job, lease.token, died=False)\n",
            "test_at_shutdown_a_run_is_told_and_goes_on_within_its_grace_and_is_released_as_soon_as_it_has_ended",
        ),
        (
            "a lease is asked for while a body of an earlier term runs",
            ELECTION,
            'return job.phase == "follower" and job.enabled',
            'return job.phase in {"follower", "ended"} and job.enabled',
            "test_while_a_body_of_the_ended_term_runs_neither_a_notice_nor_another_jobs_beat_asks_for_the_lease",
        ),
        (
            "a grant that a release covers is used",
            ELECTION,
            "if now >= term.deadline or request.number <= job.released or not self._may_acquire(job):",
            "if now >= term.deadline:",
            "test_at_stop_the_call_in_flight_is_awaited_and_then_what_it_may_have_got_is_released",
        ),
        (
            "released before an acquisition in doubt is void",
            ELECTION,
            "exchange.sent + exchange.batch.bound * 1.03",
            "exchange.sent",
            "test_an_acquisition_without_an_answer_is_released_only_when_it_cannot_run_any_more",
        ),
        (
            "no call is ever void",
            ELECTION,
            "void_at = self._clock + int(0.99 * (now - self._clock_read_at + bound) * 1e6)",
            "void_at = None",
            "test_every_call_is_void_after_its_time_on_the_stores_clock",
        ),
        (
            "numbers do not grow",
            ELECTION,
            "            self._number += 1\n",
            "            self._number = 1\n",
            "test_a_grant_that_arrives_after_its_own_deadline_is_not_used_but_given_back_and_asked_for_anew",
        ),
        (
            "rules: a renewal by value only",
            RULES,
            "    if record.holder != node or record.token != request.token:\n        return _refused",
            "    if record.holder != node:\n        return _refused",
            "test_a_late_renewal_of_my_earlier_term_does_not_extend_my_later_one",
        ),
        (
            "rules: release by value only",
            RULES,
            "if record.holder != node or record.seq > request.number:",
            "if record.holder != node:",
            "test_numbers_are_compared_as_numbers",
        ),
        (
            "sqlite: an abandoned call is carried out",
            SQLITE_LIFE,
            "if self.abandoned or (",
            "if (",
            "test_a_call_that_was_cancelled_while_it_waited_does_nothing_later",
        ),
        (
            "sqlite: the clock is read before the lock is got",
            SQLITE_LIFE,
            '            connection.execute("BEGIN IMMEDIATE")\n'
            "            with connection:\n"
            "                now = self._clock.now()\n",
            "            now = self._clock.now()\n"
            '            connection.execute("BEGIN IMMEDIATE")\n'
            "            with connection:\n",
            "test_whether_a_batch_is_void_is_judged_when_the_lock_is_got",
        ),
        (
            "redis: void time ignored",
            LUA,
            "if void_at and wall > void_at then",
            "if false then",
            "test_a_batch_that_comes_too_late_changes_nothing_and_tells_the_stores_clock",
        ),
        (
            "redis: numbers compared as texts",
            LUA,
            "tonumber(number) <= state.seq",
            "number <= tostring(state.seq)",
            "test_numbers_are_compared_as_numbers",
        ),
        (
            "redis: a renewal acquires",
            LUA,
            "  if holder ~= node or state.token ~= tonumber(token) then\n"
            "    return refused(lock, holder, state)\n"
            "  end\n",
            "  if (holder and holder ~= node) or state.token ~= tonumber(token) then\n"
            "    return refused(lock, holder, state)\n"
            "  end\n"
            "  call('SET', lock, node)\n",
            "test_a_renewal_that_comes_after_the_end_does_not_revive",
        ),
        (
            "a run is left alone when its job's task is ended again",
            RUNNER_ENDED,
            "            while not task.done():\n",
            "            if not task.done():\n",
            "test_s4_the_lease_is_kept_until_a_body_has_unwound_however_often_its_jobs_task_is_ended",
        ),
        (
            "rules: a job that is led is forgotten",
            RULES,
            '            if record.holder is not None:\n                return "led"\n',
            "",
            "test_a_job_is_forgotten_only_when_it_is_neither_led",
        ),
        (
            "redis: a job that is led is forgotten",
            LUA,
            "  if call('GET', lock) then\n    return ordered(job, lock, key, 'led')\n  end\n",
            "",
            "test_a_job_is_forgotten_only_when_it_is_neither_led",
        ),
        (
            "rules: a job that ran lately is forgotten",
            RULES,
            '> wall - AHEAD:\n                return "recent"',
            '> wall + AHEAD:\n                return "recent"',
            "test_a_job_is_forgotten_only_when_it_is_neither_led",
        ),
        (
            "redis: a job that ran lately is forgotten",
            LUA,
            "> wall - AHEAD then\n    return ordered(job, lock, key, 'recent')",
            "> wall + AHEAD then\n    return ordered(job, lock, key, 'recent')",
            "test_a_job_is_forgotten_only_when_it_is_neither_led",
        ),
        (
            "redis: anybody releases",
            LUA,
            "if holder ~= node or (state.holder == node and state.seq > tonumber(number)) then",
            "if state.holder == node and state.seq > tonumber(number) then",
            "test_a_replica_without_the_lease_reports_nothing",
        ),
    ),
    *_breaking(
        "S5",  # tokens grow
        (
            "the highest token seen is forgotten",
            ELECTION,
            "above=self._highest_token",
            "above=0",
            "test_a_grant_that_arrives_after_its_own_deadline_is_not_used_but_given_back_and_asked_for_anew",
        ),
        (
            "rules: the token is not bumped",
            RULES,
            "max(record.token + 1, request.above + 1, wall)",
            "max(record.token, request.above + 1, wall)",
            "test_tokens_grow_and_exceed_the_wall_clock_and_what_the_replica_has_seen",
        ),
        (
            "rules: the token seen is ignored",
            RULES,
            "max(record.token + 1, request.above + 1, wall)",
            "max(record.token + 1, wall)",
            "test_tokens_grow_and_exceed_the_wall_clock_and_what_the_replica_has_seen",
        ),
        (
            "redis: the token is not above the wall clock",
            LUA,
            "math.max(state.token + 1, tonumber(above) + 1, wall)",
            "math.max(state.token + 1, tonumber(above) + 1)",
            "test_tokens_grow_and_exceed_the_wall_clock_and_what_the_replica_has_seen",
        ),
    ),
    *_breaking(
        "S6",  # one run for each slot
        (
            "slot not claimed",
            RUNNER,
            "elif await self._claim(lease, due):",
            "elif lease.valid():",
            "test_a_cron_run_starts_only_when_the_store_has_its_slot_for_its_term",
        ),
        (
            "the answer to an earlier claim is taken for that to a later one",
            DETAILS,
            "(claim := job.claim) == request and claim is not None",
            "(claim := job.claim) is not None",
            "test_the_answer_to_a_claim_that_was_withdrawn_is_not_taken_for_that_to_a_later_one",
        ),
        (
            "rules: any term has a claimed slot",
            RULES,
            "request.slot == stored and record.slot_token == request.token",
            "request.slot == stored",
            "test_a_slot_is_claimed_by_one_term_however_often_it_asks",
        ),
        (
            "rules: an earlier slot is claimed",
            RULES,
            "if request.slot <= stored:",
            "if request.slot == stored:",
            "test_a_slot_before_the_newest_one_is_taken",
        ),
        (
            "rules: a claim without the lease",
            RULES,
            "            if record.holder != node or record.token != request.token:\n                return NotClaimed",
            "            if False:\n                return NotClaimed",
            "test_a_claim_needs_the_term_in_force",
        ),
        (
            "redis: a claimed slot is not kept",
            LUA,
            "  call('HSET', key, 'slot', slot .. ':' .. token .. ':' .. mark)\n",
            "",
            "test_a_slot_is_claimed_by_one_term_however_often_it_asks",
        ),
    ),
    *_breaking(
        "S7",  # a wedged loop cannot lead for ever
        (
            "vouching ignored",
            ELECTION,
            "if now >= job.alive_until:",
            "if False:",
            "test_a_term_that_nobody_vouches_for_is_neither_renewed_nor_released",
        ),
        (
            "a run past its limit is vouched for",
            HEARTBEAT,
            "return min(self._signs.alive_at + self._stall_limit, self.leases[job].limit)",
            "return self._signs.alive_at + self._stall_limit",
            "test_past_timeout_and_grace_the_job_is_stuck_and_its_lease_neither_renewed_nor_released",
        ),
        (
            "a dead job loop is vouched for",
            HEARTBEAT,
            "return min(self._signs.alive_at + self._stall_limit, self.leases[job].limit)",
            "return self.leases[job].limit",
            "test_a_dead_job_loop_loses_its_lease_and_competes_again_when_it_turns_and_the_body_has_ended",
        ),
        (
            "a run that does not end keeps the lease for ever",
            ELECTION,
            'if job.phase in {"draining", "ended"} and now >= job.drain_by:',
            "if False:",
            "test_a_body_that_outlives_grace_and_margin_leaves_the_lease_to_expire",
        ),
    ),
    *_breaking(
        "S8",  # a store that may have forgotten
        (
            "guard on free keys only",
            ELECTION,
            "if self._clock_read_at is not None and self._amnesia_guard:",
            "if self._clock_read_at is not None and self._amnesia_guard and not job.maybe_held:",
            "test_a_job_that_may_be_held_already_is_not_taken_from_a_young_store_either",
        ),
        (
            "guard a second too short",
            ELECTION,
            "self._up_since + job.options.lock_expiry + 1",
            "self._up_since + job.options.lock_expiry",
            "test_nothing_is_acquired_from_a_store_that_restarted_less_than_a_lease_ago",
        ),
        (
            "redis: a server that restarted counts as old",
            REDIS_LINK,
            "up_for=reading.up_for",
            "up_for=86400.0",
            "test_a_restarted_server_is_empty_and_says_how_young_it_is",
        ),
    ),
    *_breaking(
        "L1",  # hand-over after a release
        (
            "a notice ignored",
            ELECTION,
            "            elif self._may_acquire(job):\n                job.due = max(",
            "            elif False:\n                job.due = max(",
            "test_a_release_notice_makes_it_ask_at_once",
        ),
        (
            "a notice forgotten at a refusal",
            ELECTION,
            "job.due = now if job.noticed_at >= sent else now + wait",
            "job.due = now + wait",
            "test_a_notice_outlives_the_refusal_of_an_ask_that_was_sent_before_it",
        ),
        (
            "nothing released at stop that only may be held",
            ELECTION,
            '            elif job.phase != "abandoned" and job.maybe_held:\n                self._give_back(job, now)\n\n    def set_enabled',
            "\n    def set_enabled",
            "test_at_stop_an_acquisition_without_an_answer_is_released_too",
        ),
        (
            "redis: the release is not published",
            LUA,
            "  call('DEL', lock)\n  news[#news + 1] = job\n",
            "  call('DEL', lock)\n",
            "test_each_release_is_heard_by_the_others_of_the_project",
        ),
    ),
    *_breaking(
        "L2",  # hand-over after a crash
        (
            "a follower asks when its own heartbeat comes round",
            ELECTION,
            "wait = ends if self._notices and not verdict.foreign else min(ends, wait)",
            "wait = max(ends, wait)",
            "test_each_acquisition_carries_a_higher_number_and_the_highest_token_seen",
        ),
        (
            "sqlite: a dead holder holds",
            SQLITE_LIFE,
            "if record.holder != batch.node and is_dead(file.database.parent, where, self._boot):",
            "if record.holder != batch.node and where.inode < 0:",
            "test_a_killed_holder_is_noticed_and_its_lease_can_be_taken_at_once",
        ),
        (
            "redis: a lease does not end",
            LUA,
            "call('SET', lock, node, 'PX', milliseconds)",
            "call('SET', lock, node)",
            "test_a_lease_that_nobody_renews_ends_and_the_next_term_has_a_higher_token",
        ),
    ),
    *_breaking(
        "L3",  # outages
        (
            "unknown read as refused",
            ELECTION,
            "            self._retry(job, now, self._errors, at_once=used_up)",
            '            if job.alive:\n                self._end(job, "lost")\n            self._retry(job, now, self._errors, at_once=used_up)',
            "test_an_unknown_outcome_moves_no_deadline_and_ends_no_term",
        ),
        (
            "a leader backs off",
            ELECTION,
            'if job.alive or (job.phase == "releasing" and in_the_store):',
            'if job.phase == "releasing":',
            "test_p28_a_leader_never_backs_off_while_its_lease_lives",
        ),
        (
            "a call may take longer than the lease lasts",
            ELECTION,
            "max(min(bound, (earliest - now) / 2), SHORTEST_CALL)",
            "max(bound, SHORTEST_CALL)",
            "test_a_call_is_bounded_by_half_the_time_to_the_earliest_deadline_it_carries",
        ),
        (
            "a call is waited for beyond its bound",
            STORE_CALLS,
            "await asyncio.wait({call}, timeout=seconds)",
            "await asyncio.wait({call})",
            "test_without_cancel_on_lost_leadership_the_run_goes_on_and_the_lease_is_not_asked_for_meanwhile",
        ),
        (
            "rules: my own lease is refused me",
            RULES,
            "(record.holder != node or request.number <= record.seq)",
            "True",
            "test_c39_a_grant_whose_answer_was_lost_is_taken_up_by_the_next_ask",
        ),
        (
            "redis: a renewal does not extend",
            LUA,
            "  call('PEXPIRE', lock, milliseconds)\n",
            "",
            "test_a_renewal_extends_the_lease_from_the_moment_it_arrives",
        ),
    ),
    *_breaking(
        "L4",  # the first run
        (
            "redis: reports shrink",
            LUA,
            "if not stored_end or ended > stored_end or stored_end > wall then",
            "if true then",
            "test_a_release_reports_too_and_reports_only_grow",
        ),
        (
            "a step of the clock that the kernel reports is lost",
            ALARMS,
            "            self._loop.call_soon(partial(self._ring, stepped=True))\n",
            "",
            "test_a_step_that_the_kernel_tells_of_when_an_alarm_is_set_wakes_every_sleeper_too",
        ),
    ),
    *_breaking(
        "S8",  # a store that forgets
        (
            "a lost lease begins a term at once",
            FORGETS,
            "if sent < job.probation_until:",
            "if sent < job.store_lost_at:",
            "test_s8_a_lease_that_is_free_before_its_holders_time_is_over",
        ),
        (
            "nobody looks before the holder's time is over",
            FORGETS,
            "return until - margin / 2",
            "return until + margin / 2",
            "test_s8_a_follower_looks_before_the_holders_time_is_over",
        ),
        (
            "the release of an earlier term counts",
            FORGETS,
            "and state.released < other.token:",
            "and state.released == 0:",
            "test_s8_the_release_of_an_earlier_term_says_nothing",
        ),
        (
            "an old state hides the newest lease",
            FORGETS,
            "            self._store_lost(job, now)  # it went back",
            "            pass  # it went back",
            "test_s8_a_store_that_went_back_to_an_old_lease",
        ),
        (
            "what was held on probation is given back as a term",
            FORGETS,
            "unused = now < max(job.probation_until, job.other.until)",
            "unused = now < max(job.store_lost_at, job.other.until)",
            "test_s8_a_lease_that_was_held_on_probation_is_given_back_without_the_mark",
        ),
        (
            "rules: any release is marked",
            RULES,
            "    if not request.unused:\n        record.released",
            "    if True:\n        record.released",
            "test_a_grant_tells_whether_the_term_before_it_was_given_back",
        ),
        (
            "redis: a release is not marked",
            LUA,
            "  if unused == '0' and state.holder == node then",
            "  if unused == '2' and state.holder == node then",
            "test_a_grant_tells_whether_the_term_before_it_was_given_back",
        ),
        (
            "redis: a negative up-time is a long one",
            REDIS_READING,
            "max(0, int(found[1]))",
            "abs(int(found[1]))",
            "test_s8_a_server_whose_clock_was_set_back_after_its_start",
        ),
    ),
    *_breaking(
        "S1",  # one leader, on one machine
        (
            "sqlite: another boot alone frees a lease",
            SQLITE_HOLDER,
            "return _lock(descriptor, fcntl.LOCK_SH)",
            "return holder.boot != boot or _lock(descriptor, fcntl.LOCK_SH)",
            "test_s1_a_holder_lives_while_its_file_is_locked",
        ),
        (
            "sqlite: a second hard link is taken",
            SQLITE_PLACE,
            "st_nlink) > 1:",
            "st_nlink) > 2:",
            "test_s1_a_file_with_a_second_hard_link_is_refused",
        ),
    ),
    *_breaking(
        "S6",  # one run per slot, through a power cut
        (
            "sqlite: a claim is not synced",
            SQLITE_SYNC,
            "{'FULL' if claims else 'NORMAL'}",
            "{'NORMAL' if claims else 'NORMAL'}",
            "test_s6_a_batch_that_claims_is_synced",
        ),
        (
            "what was due before a loss runs late",
            FORGETS,
            "max(self._up_since, job.store_lost_at)",
            "max(self._up_since, -inf)",
            "test_s6_the_next_term_runs_nothing_that_was_due_before_the_store_lost",
        ),
    ),
    *_breaking(
        "L2",  # after a crash
        (
            "a refusal is slept out however long it is",
            FORGETS,
            "left = min(verdict.expires_in, job.options.lock_expiry)",
            "left = verdict.expires_in",
            "test_l2_a_refusal_is_slept_out_for_no_longer",
        ),
        (
            "the shortest lease bounds all calls",
            FORGETS,
            "bound = max([job.options.call_timeout for job in jobs])",
            "bound = min([job.options.call_timeout for job in jobs])",
            "test_a_job_with_a_short_lease_does_not_bound_the_calls_of_all_others",
        ),
    ),
)
