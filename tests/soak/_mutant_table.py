"""Breakages of the library, each of one place, which the tests must catch. `mutants.py` carries them out.

Over 300 lines, because it is one table.
"""

# ruff: noqa: E501, ISC004 - the texts are as they stand in the source

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from servers import OLDEST

__all__ = ["MUTANTS", "Mutant"]


class Tests(NamedTuple):
    """Where the tests are that are to catch a mutant; `among` narrows the choice, as pytest's -k does."""

    files: tuple[str, ...]
    among: str = ""


ELECTION = Tests(("tests/unit/test_election.py",))
ELECTION_ORDERS = Tests(("tests/unit/test_election_orders.py",))
RUNS = Tests(
    (
        "tests/fundamentals/test_last_moment.py",
        "tests/fundamentals/test_one_leader.py",
        "tests/fundamentals/test_run_in_flight.py",
    )
)
FENCE = Tests(("tests/unit/test_lease.py", "tests/unit/test_timer.py"))
# The contract alone: what it lets pass, a third party's store could have too.
MEMORY = Tests(("tests/contract/test_stores.py::TestMemoryStore",))
SQLITE = Tests(("tests/contract/test_stores.py::TestSqliteStore",))
REDIS = Tests(("tests/contract/test_redis_store.py::TestRedisStore",), OLDEST)
# What is no matter of the contract.
SQLITE_CLOCK = Tests(("tests/contract/test_stores.py",), "sqlite")
SQLITE_FILE = Tests(("tests/integration/test_sqlite_store.py",))
REDIS_KEYS = Tests(("tests/contract/test_redis_store.py",), OLDEST)
REDIS_LINK = Tests(("tests/integration/test_redis_store.py",), OLDEST)
CLUSTER = Tests(("tests/integration/test_redis_cluster.py",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """`old`, which stands in `file` once, becomes `new`; pytest with `tests` must then fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def _of(file: str, tests: Tests, *rows: tuple[str, str, str, str]) -> list[Mutant]:
    """Each row is a name, what becomes what, and the test that catches it."""

    def chosen(test: str) -> tuple[str, ...]:
        return (*tests.files, "-k", f"{tests.among} and {test}" if tests.among else test)

    return [Mutant(name=name, file=file, old=old, new=new, tests=chosen(test)) for name, old, new, test in rows]


MUTANTS: tuple[Mutant, ...] = (
    *_of(
        "_election.py",
        ELECTION,
        (
            "deadline from the reply, at a renewal",
            "deadline = sent + seat.options.lock_expiry - seat.options.margin",
            "deadline = now + seat.options.lock_expiry - seat.options.margin",
            "test_a_renewal_moves_the_deadline_from_its_own_sending_and_not_from_the_reply",
        ),
        (
            "deadline from the reply, at a grant",
            "deadline = sent + options.lock_expiry - options.margin",
            "deadline = now + options.lock_expiry - options.margin",
            "test_a_grant_begins_a_term_whose_deadline_counts_from_before_the_request_was_sent",
        ),
        (
            "no margin, at a renewal",
            "deadline = sent + seat.options.lock_expiry - seat.options.margin",
            "deadline = sent + seat.options.lock_expiry",
            "test_a_renewal_moves_the_deadline_from_its_own_sending_and_not_from_the_reply",
        ),
        (
            "no margin, at a grant",
            "deadline = sent + options.lock_expiry - options.margin",
            "deadline = sent + options.lock_expiry",
            "test_a_grant_begins_a_term_whose_deadline_counts_from_before_the_request_was_sent",
        ),
        (
            "a deadline that has passed does not end the term",
            "if 0 < seat.deadline <= now:",
            "if False:",
            "test_the_deadline_ends_the_term_at_that_moment_with_the_call_still_hanging",
        ),
        (
            "a renewal that crosses the deadline brings the term back",
            "            return\n        self._expire(now)\n        if reply is None:",
            "            return\n        if reply is None:",
            "test_a_renewal_that_arrives_after_the_deadline_does_not_bring_the_term_back",
        ),
        (
            "a grant that comes after its deadline is used",
            "if now >= deadline or request.number <= seat.covered or",
            "if request.number <= seat.covered or",
            "test_a_grant_that_arrives_after_its_own_deadline_is_not_used_but_given_back_and_asked_for_anew",
        ),
        (
            "a grant that a release covers is used",
            "if now >= deadline or request.number <= seat.covered or not self._may_ask(seat):",
            "if now >= deadline:",
            "test_at_stop_the_call_in_flight_is_awaited_and_then_what_it_may_have_got_is_released",
        ),
        (
            "unknown read as granted",
            "                seat.in_doubt_until = flight.sent",
            "                self._granted(seat, request, Granted(1, JobState(0)), flight.sent, now)\n"
            "                seat.in_doubt_until = flight.sent",
            "test_c02_an_unknown_outcome_never_makes_a_leader",
        ),
        (
            "unknown read as renewed",
            "            self._retry(seat, now, self._errors, at_once=used_up)",
            "            self._renewed(seat, flight.sent, now)"
            " if seat.alive else self._retry(seat, now, self._errors, at_once=used_up)",
            "test_an_unknown_outcome_moves_no_deadline_and_ends_no_term",
        ),
        (
            "unknown read as refused",
            "            self._retry(seat, now, self._errors, at_once=used_up)",
            '            self._end(seat, "lost")'
            " if seat.alive else self._retry(seat, now, self._errors, at_once=used_up)",
            "test_an_unknown_outcome_moves_no_deadline_and_ends_no_term",
        ),
        (
            "a leader backs off",
            "if seat.deadline > 0 or (seat.releasing and in_the_store):",
            "if seat.releasing:",
            "test_p28_a_leader_never_backs_off_while_its_lease_lives",
        ),
        (
            "a notice ignored",
            "            elif self._may_ask(seat):\n                seat.due = max(",
            "            elif False:\n                seat.due = max(",
            "test_a_release_notice_makes_it_ask_at_once",
        ),
        (
            "a notice forgotten at a refusal",
            "seat.due = now if seat.noticed_at >= sent else now + wait",
            "seat.due = now + wait",
            "test_a_notice_outlives_the_refusal_of_an_ask_that_was_sent_before_it",
        ),
        (
            "a follower asks when its own heartbeat comes round",
            "wait = ends if self._notices and not verdict.foreign else min(ends, wait)",
            "wait = max(ends, wait)",
            "test_each_acquisition_carries_a_higher_number_and_the_highest_token_seen",
        ),
        (
            "release while running",
            'seat.phase = "draining"\n        seat.reason = reason\n        self._effects.append(Draining(',
            'seat.phase, seat.deadline, seat.releasing, seat.due = "follower", 0.0, True, 0.0\n'
            "        seat.reason = reason\n        self._effects.append(Draining(",
            "test_a_stop_drains_and_the_release_goes_out_when_the_body_has_ended_and_not_before",
        ),
        (
            "a lease is asked for while a body of an earlier term runs",
            'return seat.phase == "follower" and seat.enabled',
            "return not seat.alive and seat.enabled",
            "test_while_a_body_of_the_ended_term_runs_neither_a_notice_nor_another_jobs_beat_asks_for_the_lease",
        ),
        (
            "released before an acquisition in doubt is void",
            "flight.sent + flight.batch.bound * 1.03",
            "flight.sent",
            "test_an_acquisition_without_an_answer_is_released_only_when_it_cannot_run_any_more",
        ),
        (
            "no call is ever void",
            "void_at = clock + int(0.99 * (now - arrived + bound) * 1e6)",
            "void_at = None",
            "test_every_call_is_void_after_its_time_on_the_stores_clock",
        ),
        (
            "void reckoned by a clock that runs too fast",
            "int(0.99 * (now - arrived + bound) * 1e6)",
            "int(1.01 * (now - arrived + bound) * 1e6)",
            "test_every_call_is_void_after_its_time_on_the_stores_clock",
        ),
        (
            "the stores clock is not read anew after an error",
            "            self._reading = None\n",
            "            pass\n",
            "test_at_stop_an_acquisition_without_an_answer_is_released_too",
        ),
        (
            "up-time counted from sending",
            "self._read(reply, now)",
            "self._read(reply, flight.sent)",
            "test_nothing_is_acquired_from_a_store_that_restarted_less_than_a_lease_ago",
        ),
        (
            "guard on free keys only",
            "if self._reading is not None and self._amnesia_guard:",
            "if self._reading is not None and self._amnesia_guard and not seat.held:",
            "test_a_job_that_may_be_held_already_is_not_taken_from_a_young_store_either",
        ),
        (
            "guard a second too short",
            "self._up_since + seat.options.lock_expiry + 1",
            "self._up_since + seat.options.lock_expiry",
            "test_nothing_is_acquired_from_a_store_that_restarted_less_than_a_lease_ago",
        ),
        (
            "vouching ignored",
            "if now >= vouched_until:",
            "if False:",
            "test_a_term_that_nobody_vouches_for_is_neither_renewed_nor_released",
        ),
        (
            "the highest token seen is forgotten",
            "above=self._highest_token",
            "above=0",
            "test_a_grant_that_arrives_after_its_own_deadline_is_not_used_but_given_back_and_asked_for_anew",
        ),
        (
            "numbers do not grow",
            "            self._number += 1\n",
            "            self._number = 1\n",
            "test_a_grant_that_arrives_after_its_own_deadline_is_not_used_but_given_back_and_asked_for_anew",
        ),
        (
            "nothing released at stop that only may be held",
            "            elif seat.held:\n                self._give_back(seat, now)\n\n    def set_enabled",
            "\n    def set_enabled",
            "test_at_stop_an_acquisition_without_an_answer_is_released_too",
        ),
        (
            "a term whose run is ending is not renewed",
            "            if seat.due <= soon:\n                wanted",
            '            if seat.due <= soon and seat.phase == "leader":\n                wanted',
            "test_a_stop_drains_and_the_release_goes_out_when_the_body_has_ended_and_not_before",
        ),
        (
            "a run that does not end keeps the lease for ever",
            'if seat.phase == "draining" and now >= seat.drain_until and not seat.abandoned:',
            "if False:",
            "test_a_body_that_outlives_grace_and_margin_leaves_the_lease_to_expire",
        ),
        (
            "a call may take longer than the lease lasts",
            "max(min(bound, (earliest - now) / 2), SHORTEST_CALL)",
            "max(bound, SHORTEST_CALL)",
            "test_a_call_is_bounded_by_half_the_time_to_the_earliest_deadline_it_carries",
        ),
    ),
    *_of(
        "_election.py",
        ELECTION_ORDERS,
        (
            "an order to end is not heeded",
            "        if verdict.order:\n",
            "        if verdict.order and not verdict.order:\n",
            "test_a_leader_that_is_told_to_end_drains",
        ),
        (
            "an order to end has no grace",
            "            seat.drain_until = now + seat.options.shutdown_grace + seat.options.margin\n        elif verdict.trigger",
            "        elif verdict.trigger",
            "test_a_body_that_does_not_end_in_its_grace_and_margin_is_left_with_its_lease",
        ),
        (
            "a key of our own is kept when we are barred",
            "        if verdict.mine:\n            seat.reason",
            "        if False:\n            seat.reason",
            "test_a_key_that_names_us_from_before_is_given_back_when_we_are_barred",
        ),
        (
            "a refusal moves a release that is due",
            "        if self._may_ask(seat):  # else a release",
            "        if True:  # else a release",
            "test_a_release_that_is_due_does_not_wait",
        ),
        (
            "busy takes the place of a claim",
            "if isinstance(claim, TakeTrigger) and claim.busy and seat.claim is not None:",
            "if False:",
            "test_that_a_run_is_in_flight_is_not_said_over_a_claim",
        ),
        (
            "a job that drains is triggered",
            '        if seat.phase != "leader":\n            return\n        if verdict.order',
            "        if verdict.order",
            "test_a_trigger_for_a_job_that_drains_is_not_told",
        ),
    ),
    *_of(
        "_heartbeat.py",
        RUNS,
        (
            "handle reused across terms",
            "                lease = self.leases[effect.job] = Lease(",
            "                lease = self.leases.get(effect.job)\n"
            "                if lease is not None:\n"
            "                    lease.token, lease.deadline, lease.sent = effect.token, effect.deadline, effect.sent\n"
            "                    lease.over = lease.stopping = False\n"
            "                lease = self.leases[effect.job] = lease or Lease(",
            "test_a_run_that_was_kept_from_an_earlier_term_says_that_it_is_over_also_when_its_replica_leads_again",
        ),
        (
            "the end of a term leaves its deadline",
            "                lease.deadline = 0.0\n",
            "                pass\n",
            "test_a_live_switch_gives_the_lease_to_an_enabled_peer_and_takes_part_again",
        ),
        (
            "a run past its limit is vouched for",
            "return min(self._pulse.alive_at + self._stall_limit, self.leases[job].limit)",
            "return self._pulse.alive_at + self._stall_limit",
            "test_past_timeout_and_grace_the_job_is_stuck_and_its_lease_neither_renewed_nor_released",
        ),
        (
            "a dead job loop is vouched for",
            "return min(self._pulse.alive_at + self._stall_limit, self.leases[job].limit)",
            "return self.leases[job].limit",
            "test_a_dead_job_loop_loses_its_lease_and_competes_again_when_it_turns_and_the_body_has_ended",
        ),
        (
            "a call is waited for beyond its bound",
            "await asyncio.wait({call}, timeout=batch.bound)",
            "await asyncio.wait({call})",
            "test_without_cancel_on_lost_leadership_the_run_goes_on_and_the_lease_is_not_asked_for_meanwhile",
        ),
    ),
    *_of(
        "_lease.py",
        FENCE,
        (
            "check only in the heartbeat",
            "return self.clock.boot() < self.deadline and not self.over",
            "return self.deadline > 0 and not self.over",
            "test_at_the_deadline_itself_the_term_is_over",
        ),
        (
            "wall clock for the deadline",
            "return self.clock.boot() < self.deadline and",
            "return self.clock.wall() / 1e6 < self.deadline and",
            "test_wait_sleeps_its_time_and_says_that_nobody_asks_to_stop",
        ),
        (
            "a fence that closed opens again",
            "< self.deadline and not self.over",
            "< self.deadline",
            "test_a_handle_of_an_ended_term_stays_ended_whatever_a_late_renewal_writes",
        ),
        (
            "the fence does not arm itself again",
            "            self._timer.set(deadline)\n",
            "            pass\n",
            "test_the_fence_closes_at_the_deadline_that_holds_then_and_only_once",
        ),
        (
            "the fence closes at the deadline it was made with",
            "if self._lease.clock.boot() >= deadline:",
            "if True:",
            "test_the_fence_closes_at_the_deadline_that_holds_then_and_only_once",
        ),
        (
            "a body's own check finds nothing",
            "        if not self._lease.valid():\n            raise",
            "        if False:\n            raise",
            "test_at_the_deadline_itself_the_term_is_over",
        ),
    ),
    *_of(
        "_clock.py",
        FENCE,
        (
            "a boot clock that stands still in a suspend",
            '"CLOCK_BOOTTIME", getattr(',
            '"CLOCK_MONOTONIC", getattr(',
            "test_the_clocks_are_those_that_count_suspend_and_that_can_be_stepped",
        ),
        (
            "wall clock as the boot clock",
            '"CLOCK_BOOTTIME", getattr(',
            '"CLOCK_REALTIME", getattr(',
            "test_the_clocks_are_those_that_count_suspend_and_that_can_be_stepped",
        ),
    ),
    *_of(
        "_timer.py",
        FENCE,
        (
            "fence timer on a clock that stands still in a suspend",
            "time.CLOCK_BOOTTIME, unit=1",
            "time.CLOCK_MONOTONIC, unit=1",
            "test_the_clocks_are_those_that_count_suspend_and_that_can_be_stepped",
        ),
        (
            "a timer that is set later hides those before it",
            "if heap[0][1] == number and",
            "if heap[0][2] is timer and",
            "test_there_whatever_is_set_set_again_and_cancelled_each_timer_fires_at_the_time_it_was_last_set_to",
        ),
        (
            "fence timer on the loop's clock",
            "unit=1, longest=longest_boot_sleep",
            "unit=1, longest=LONGEST_SLEEP",
            "test_after_a_suspend_the_fence_closes_within_half_a_margin",
        ),
    ),
    *_of(
        "alarms.py",
        FENCE,
        (
            "a step that passed meanwhile is not rung for",
            "os.read(self._fd, 8) == ONE_STEP",
            'os.read(self._fd, 8) != b""',
            "test_even_steps_that_pass_before_the_kernel_takes_the_next_one_are_rung_for_at_once",
        ),
        (
            "an alarm for nobody rings on",
            "            self._settime(0, 0)",
            "            os.read(self._fd, 8)",
            "test_a_timer_that_is_set_in_even_steps_is_set_by_the_kernel_and_is_silent_when_it_is_set_no_more",
        ),
        (
            "a step of the clock that a reading tells of is lost",
            "            if error.errno == errno.ECANCELED:\n                self._tell_step()\n            return False",
            "            return False",
            "test_a_step_of_the_clock_that_the_kernel_tells_of_when_an_alarm_is_read_wakes_every_sleeper",
        ),
    ),
    *_of(
        "_runner.py",
        RUNS,
        (
            "no check right before an async run",
            "            if not lease.valid() or (lease.stopping and not claimed):\n                return None\n            answer",
            "            answer",
            "test_a_run_does_not_start_if_the_term_ended_between_the_decision_and_the_call",
        ),
        (
            "no check in the thread before a sync run",
            "if not lease.valid() or self._overdue(lease) or (lease.stopping and not claimed):",
            "if False:",
            "test_a_run_does_not_start_if_the_term_ended_between_the_decision_and_the_call",
        ),
        (
            "slot not claimed",
            "elif await self._claim(lease, due):",
            "elif lease.valid():",
            "test_a_cron_run_starts_only_when_the_store_has_its_slot_for_its_term",
        ),
        (
            "no run is cancelled when its term is over",
            "self._grace_until = self._clock.boot()\n        self._stop_run()",
            "self._stop_run()",
            "test_when_the_lease_is_lost_the_run_in_flight_is_cancelled",
        ),
        (
            "drained before the body has ended",
            "        self._ledger.elected(lease)\n",
            "        self._ledger.elected(lease)\n        self._drained(lease, died=False)\n",
            "test_at_shutdown_a_run_is_told_and_goes_on_within_its_grace_and_is_released_as_soon_as_it_has_ended",
        ),
        (
            "dropped ticks are not counted",
            '                if take.late or take.missed:\n                    self._ledger.lost(lease, take, "overlap")\n',
            "",
            "test_a_tick_that_arrives_while_a_run_is_in_flight_is_dropped_and_counted",
        ),
    ),
    *_of(
        "farewell.py",
        RUNS,
        (
            "a hook may outlive a stop",
            "min(options.shutdown_grace, stop_by - now)",
            "options.shutdown_grace",
            "test_at_a_stop_a_hook_that_hangs_has_what_is_left_of_the_grace_and_the_lease_is_released_after_it",
        ),
        (
            "a hook that heeds no cancellation keeps its lease",
            "    lease.limit = now + seconds + options.margin / 2\n",
            "",
            "test_a_hook_that_heeds_no_cancellation_is_stuck_past_its_time_and_its_lease_goes_to_another",
        ),
    ),
    *_of(
        "stores/rules.py",
        MEMORY,
        (
            "rules: a held lease is granted",
            "if record.holder is not None and (record.holder != node or request.number <= record.seq):",
            "if record.holder == node and request.number <= record.seq:",
            "test_a_lease_that_nobody_renews_ends_and_the_next_term_has_a_higher_token",
        ),
        (
            "rules: numbers ignored at an acquisition",
            "(record.holder != node or request.number <= record.seq)",
            "record.holder != node",
            "test_an_acquisition_of_a_number_that_was_used_changes_nothing",
        ),
        (
            "rules: only the same number is a duplicate",
            "request.number <= record.seq",
            "request.number == record.seq",
            "test_an_acquisition_of_a_number_that_was_used_changes_nothing",
        ),
        (
            "rules: my own lease is refused me",
            "(record.holder != node or request.number <= record.seq)",
            "True",
            "test_c39_a_grant_whose_answer_was_lost_is_taken_up_by_the_next_ask",
        ),
        (
            "rules: the token is not bumped",
            "max(record.token + 1, request.above + 1, wall)",
            "max(record.token, request.above + 1, wall)",
            "test_tokens_grow_and_exceed_the_wall_clock_and_what_the_replica_has_seen",
        ),
        (
            "rules: the token seen is ignored",
            "max(record.token + 1, request.above + 1, wall)",
            "max(record.token + 1, wall)",
            "test_tokens_grow_and_exceed_the_wall_clock_and_what_the_replica_has_seen",
        ),
        (
            "rules: the token is not above the wall clock",
            "max(record.token + 1, request.above + 1, wall)",
            "max(record.token + 1, request.above + 1)",
            "test_tokens_grow_and_exceed_the_wall_clock_and_what_the_replica_has_seen",
        ),
        (
            "rules: a lapsed lease does not end",
            "if record.expires is not None and record.expires <= clock:",
            "if False:",
            "test_a_lease_that_nobody_renews_ends_and_the_next_term_has_a_higher_token",
        ),
        (
            "rules: a renewal acquires",
            "    if record.holder != node or record.token != request.token:\n        return _refused(record, clock)\n    record.expires",
            "    if record.holder not in (None, node) or record.token != request.token:\n        return _refused(record, clock)\n    record.holder = node\n    record.expires",
            "test_a_renewal_that_comes_after_the_end_does_not_revive",
        ),
        (
            "rules: a renewal by value only",
            "    if record.holder != node or record.token != request.token:\n        return _refused",
            "    if record.holder != node:\n        return _refused",
            "test_a_late_renewal_of_my_earlier_term_does_not_extend_my_later_one",
        ),
        (
            "rules: a renewal by token only",
            "    if record.holder != node or record.token != request.token:\n        return _refused",
            "    if record.token != request.token:\n        return _refused",
            "test_a_replica_without_the_lease_reports_nothing",
        ),
        (
            "rules: release by value only",
            "if record.holder != node or record.seq > request.number:",
            "if record.holder != node:",
            "test_numbers_are_compared_as_numbers",
        ),
        (
            "rules: release by number only",
            "if record.holder != node or record.seq > request.number:",
            "if record.seq > request.number:",
            "test_a_replica_without_the_lease_reports_nothing",
        ),
        (
            "rules: names compared by their beginning",
            "if record.holder != node or record.seq > request.number:",
            "if not (record.holder or '').startswith(node) or record.seq > request.number:",
            "test_c23_names_are_compared_whole",
        ),
        (
            "rules: a claim is not idempotent",
            "request.slot == stored and record.slot_token == request.token",
            "False",
            "test_a_slot_is_claimed_by_one_term_however_often_it_asks",
        ),
        (
            "rules: any term has a claimed slot",
            "request.slot == stored and record.slot_token == request.token",
            "request.slot == stored",
            "test_a_slot_is_claimed_by_one_term_however_often_it_asks",
        ),
        (
            "rules: a claimed slot is not kept",
            "record.slot, record.slot_token, record.mark = request.slot, request.token, request.mark",
            "record.mark = request.mark",
            "test_a_slot_is_claimed_by_one_term_however_often_it_asks",
        ),
        (
            "rules: an earlier slot is claimed",
            "if request.slot <= stored:",
            "if request.slot == stored:",
            "test_a_slot_before_the_newest_one_is_taken",
        ),
        (
            "rules: a claim without the lease",
            "            if record.holder != node or record.token != request.token:\n                return NotClaimed",
            "            if False:\n                return NotClaimed",
            "test_a_claim_needs_the_term_in_force",
        ),
        (
            "rules: a slot far ahead is claimed",
            "if request.slot > wall + AHEAD:",
            "if False:",
            "test_a_slot_more_than_ten_minutes_ahead_of_the_stores_clock_is_refused",
        ),
        (
            "rules: reports shrink",
            "if record.ended is None or ended > record.ended:",
            "if True:",
            "test_a_release_reports_too_and_reports_only_grow",
        ),
        (
            "rules: switched off, slots are owed",
            "        record.off = -wall\n",
            "        pass\n",
            "test_what_is_owed_begins_at_the_first_sight_moves_with_what_is_settled_and_begins_anew_after_off",
        ),
        (
            "rules: a renewal does not extend",
            "    record.expires = clock + _micros(request.lock_expiry)\n    _progress",
            "    _progress",
            "test_a_renewal_extends_the_lease_from_the_moment_it_arrives",
        ),
        (
            "rules: a tick goes back",
            "if stored is None or progress.tick > stored:",
            "if True:",
            "test_a_release_reports_too_and_reports_only_grow",
        ),
        (
            "rules: a slot of a wrong clock bars all",
            "return record.slot if record.slot is not None and record.slot <= wall + AHEAD else None",
            "return record.slot",
            "test_a_tick_that_a_wrong_clock_reported_bars_no_slot",
        ),
    ),
    *_of(
        "stores/rules.py",
        MEMORY,
        (
            "rules: a paused job is led",
            "    if paused is not None:\n        seconds",
            "    if False:\n        seconds",
            "test_nobody_gets_a_lease_that_is_paused_until_it_is_resumed",
        ),
        (
            "rules: a pause frees the lease",
            "            record.paused = Paused(order.by",
            "            record.holder = record.expires = None\n            record.paused = Paused(order.by",
            "test_an_order_leaves_the_lease_to_its_holder",
        ),
        (
            "rules: one that stepped down is not barred",
            "    if resigned is not None:\n        return",
            "    if False:\n        return",
            "test_one_that_was_told_to_step_down_is_barred_until_another_term_began",
        ),
        (
            "rules: one that stepped down stays barred when another term began",
            '    record.resign = ""\n',
            "",
            "test_one_that_was_told_to_step_down_is_barred_until_another_term_began",
        ),
        (
            "rules: a trigger is taken twice",
            '        record.trigger, record.triggered = "", outcome\n',
            "        record.triggered = outcome\n",
            "test_a_trigger_is_taken_by_one_term_once_however_often_it_asks",
        ),
        (
            "rules: a trigger is taken after its time",
            "if trigger_in_force(record.trigger, wall) != request.id:",
            'if record.trigger.partition(";")[2] != request.id:',
            "test_a_trigger_is_not_taken_after_its_time_or_when_it_was_withdrawn",
        ),
        (
            "rules: slots of a pause are owed",
            "                record.off = -wall  # slots of the pause",
            "                pass  # slots of the pause",
            "test_slots_of_a_pause_are_not_owed_and_those_after_it_are",
        ),
        (
            "rules: slots after a pause that a term outlived are not owed",
            "    if record.off is not None and record.off < 0 and not paused:",
            "    if False:",
            "test_slots_of_a_pause_are_not_owed_and_those_after_it_are",
        ),
        (
            "rules: an order is no news",
            "isinstance(verdict, Ordered) and verdict.changed\n\n\ndef _acquire",
            "False\n\n\ndef _acquire",
            "test_each_order_that_changes_something_is_heard",
        ),
    ),
    *_of(
        "stores/memory.py",
        MEMORY,
        (
            "memory: void time ignored",
            "if batch.void_at is not None and clock > batch.void_at:",
            "if False:",
            "test_a_batch_that_comes_too_late_changes_nothing_and_tells_the_stores_clock",
        ),
        (
            "memory: projects meet",
            "self._records[batch.project, request.job]",
            'self._records["p", request.job]',
            "test_jobs_and_projects_do_not_meet",
        ),
        (
            "memory: no notices",
            "                        listener.tell(news)\n",
            "                        pass\n",
            "test_each_release_is_heard_by_the_others_of_the_project",
        ),
        (
            "memory: everybody hears of all projects",
            "if listener.project == batch.project:",
            "if True:",
            "test_another_project_and_a_release_of_nothing_are_not_heard",
        ),
    ),
    *_of(
        "stores/sqlite.py",
        SQLITE,
        (
            "sqlite: the transaction begins without the lock",
            '"BEGIN IMMEDIATE"',
            '"BEGIN"',
            "test_processes_that_contend_never_hold_a_lease_together",
        ),
        (
            "sqlite: no transaction",
            '            connection.execute("BEGIN IMMEDIATE")\n',
            "",
            "test_processes_that_contend_never_hold_a_lease_together",
        ),
        (
            "sqlite: only the first term is kept",
            "f\" ON CONFLICT (project, job) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in COLUMNS)}\"",
            '" ON CONFLICT (project, job) DO NOTHING"',
            "test_a_release_frees_the_lease_for_anybody_and_says_whether_it_did",
        ),
        (
            "sqlite: a renewal is not kept",
            "        if changes(verdict):",
            "        if changes(verdict) and not isinstance(request, Renew):",
            "test_a_renewal_extends_the_lease_from_the_moment_it_arrives",
        ),
        (
            "sqlite: numbers are kept of the first term only",
            "f\" ON CONFLICT (project, job) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in COLUMNS)}\"",
            "f\" ON CONFLICT (project, job) DO UPDATE SET {', '.join(f'{n} = excluded.{n}' for n in COLUMNS if n != 'seq')}\"",
            "test_numbers_are_compared_as_numbers",
        ),
    ),
    *_of(
        "stores/sqlite.py",
        SQLITE,
        (
            "sqlite: void time ignored",
            "(batch.void_at is not None and clock > batch.void_at)",
            "False",
            "test_a_batch_that_comes_too_late_changes_nothing_and_tells_the_stores_clock",
        ),
        (
            "sqlite: projects meet",
            "WHERE project = ? AND job = ?",
            "WHERE ? IS NOT NULL AND job = ?",
            "test_jobs_and_projects_do_not_meet",
        ),
    ),
    *_of(
        "stores/sqlite_file.py",
        SQLITE,
        (
            "sqlite: names that differ in case meet",
            "    job TEXT NOT NULL,",
            "    job TEXT NOT NULL COLLATE NOCASE,",
            "test_jobs_and_projects_do_not_meet",
        ),
    ),
    *_of(
        "stores/sqlite.py",
        SQLITE_CLOCK,
        (
            "sqlite: leases end on the wall clock",
            "return int(now.boot * 1e6)",
            "return now.wall",
            "test_a_reading_tells_the_clock_and_that_nothing_is_forgotten",
        ),
    ),
    *_of(
        "stores/sqlite.py",
        SQLITE_FILE,
        (
            "sqlite: an abandoned call is carried out",
            "if self.abandoned or (",
            "if (",
            "test_a_call_that_was_cancelled_while_it_waited_does_nothing_later",
        ),
        (
            "sqlite: a lease of an earlier boot holds",
            "boot != self._boot\n                or (",
            "(",
            "test_a_lease_from_before_a_reboot_is_free",
        ),
        (
            "sqlite: a dead holder holds",
            "and is_dead(file.database.parent / name, inode)",
            "and False",
            "test_a_killed_holder_is_noticed_and_its_lease_can_be_taken_at_once",
        ),
        (
            "sqlite: the clock is read before the lock is got",
            '            connection.execute("BEGIN IMMEDIATE")\n            with connection:\n                now = self._clock.now()\n',
            '            now = self._clock.now()\n            connection.execute("BEGIN IMMEDIATE")\n            with connection:\n',
            "test_whether_a_batch_is_void_is_judged_when_the_lock_is_got",
        ),
        (
            "sqlite: a lease that may be held dies with close",
            "        if not self._held:\n",
            "        if True:\n",
            "test_a_lease_that_was_not_given_back_outlives_close_until_the_process_ends",
        ),
        (
            "sqlite: a replaced file is not noticed",
            "            file.check()\n",
            "",
            "test_a_deleted_or_replaced_file_is_an_outage_and_then_a_fresh_one",
        ),
    ),
    *_of(
        "stores/exchange.lua",
        REDIS,
        (
            "redis: void time ignored",
            "if void_at and wall > void_at then",
            "if false then",
            "test_a_batch_that_comes_too_late_changes_nothing_and_tells_the_stores_clock",
        ),
        (
            "redis: a held lease is granted",
            "if holder and (holder ~= node or (state.holder == node and tonumber(number) <= state.seq)) then",
            "if holder == node and tonumber(number) <= state.seq then",
            "test_a_lease_that_nobody_renews_ends_and_the_next_term_has_a_higher_token",
        ),
        (
            "redis: numbers ignored at an acquisition",
            "(holder ~= node or (state.holder == node and tonumber(number) <= state.seq))",
            "holder ~= node",
            "test_an_acquisition_of_a_number_that_was_used_changes_nothing",
        ),
        (
            "redis: numbers compared as texts",
            "tonumber(number) <= state.seq",
            "number <= tostring(state.seq)",
            "test_numbers_are_compared_as_numbers",
        ),
        (
            "redis: the token is not bumped",
            "math.max(state.token + 1, tonumber(above) + 1, wall)",
            "math.max(state.token, tonumber(above) + 1, wall)",
            "test_tokens_grow_and_exceed_the_wall_clock_and_what_the_replica_has_seen",
        ),
        (
            "redis: the token seen is ignored",
            "math.max(state.token + 1, tonumber(above) + 1, wall)",
            "math.max(state.token + 1, wall)",
            "test_tokens_grow_and_exceed_the_wall_clock_and_what_the_replica_has_seen",
        ),
        (
            "redis: tokens lose digits",
            "return string.format('%.0f', number)",
            "return tostring(number)",
            "test_a_slot_is_claimed_by_one_term_however_often_it_asks",
        ),
        (
            "redis: a lease does not end",
            "call('SET', lock, node, 'PX', milliseconds)",
            "call('SET', lock, node)",
            "test_a_lease_that_nobody_renews_ends_and_the_next_term_has_a_higher_token",
        ),
        (
            "redis: a renewal does not extend",
            "  call('PEXPIRE', lock, milliseconds)\n",
            "",
            "test_a_renewal_extends_the_lease_from_the_moment_it_arrives",
        ),
        (
            "redis: a renewal acquires",
            "  if holder ~= node or state.token ~= tonumber(token) then\n    return refused(lock, holder, state)\n  end\n",
            "  if (holder and holder ~= node) or state.token ~= tonumber(token) then\n    return refused(lock, holder, state)\n  end\n  call('SET', lock, node)\n",
            "test_a_renewal_that_comes_after_the_end_does_not_revive",
        ),
        (
            "redis: a renewal by value only",
            "  if holder ~= node or state.token ~= tonumber(token) then\n    return refused(lock, holder, state)",
            "  if holder ~= node then\n    return refused(lock, holder, state)",
            "test_a_late_renewal_of_my_earlier_term_does_not_extend_my_later_one",
        ),
        (
            "redis: release by value only",
            "if holder ~= node or (state.holder == node and state.seq > tonumber(number)) then",
            "if holder ~= node then",
            "test_numbers_are_compared_as_numbers",
        ),
        (
            "redis: anybody releases",
            "if holder ~= node or (state.holder == node and state.seq > tonumber(number)) then",
            "if state.holder == node and state.seq > tonumber(number) then",
            "test_a_replica_without_the_lease_reports_nothing",
        ),
        (
            "redis: the release is not published",
            "  call('DEL', lock)\n  news[#news + 1] = job\n",
            "  call('DEL', lock)\n",
            "test_each_release_is_heard_by_the_others_of_the_project",
        ),
        (
            "redis: a claim is not idempotent",
            "if stored and asked == stored and state.slot_token == token then",
            "if false then",
            "test_a_slot_is_claimed_by_one_term_however_often_it_asks",
        ),
        (
            "redis: any term has a claimed slot",
            "if stored and asked == stored and state.slot_token == token then",
            "if stored and asked == stored then",
            "test_a_slot_is_claimed_by_one_term_however_often_it_asks",
        ),
        (
            "redis: a claimed slot is not kept",
            "  call('HSET', key, 'slot', slot .. ':' .. token .. ':' .. mark)\n",
            "",
            "test_a_slot_is_claimed_by_one_term_however_often_it_asks",
        ),
        (
            "redis: an earlier slot is claimed",
            "if stored and asked <= stored then",
            "if stored and asked == stored then",
            "test_a_slot_before_the_newest_one_is_taken",
        ),
        (
            "redis: a claim without the lease",
            "  if holder == node and state.token == tonumber(token) then\n    return state",
            "  if true then\n    return state",
            "test_a_claim_needs_the_term_in_force",
        ),
        (
            "redis: a slot far ahead is claimed",
            "if asked > wall + AHEAD then",
            "if false then",
            "test_a_slot_more_than_ten_minutes_ahead_of_the_stores_clock_is_refused",
        ),
        (
            "redis: reports shrink",
            "if state.ended == '' or ended > tonumber(state.ended) then",
            "if true then",
            "test_a_release_reports_too_and_reports_only_grow",
        ),
        (
            "redis: switched off, slots are owed",
            "    fields[#fields + 1] = text(-wall)\n",
            "    fields[#fields + 1] = text(wall - 1000000000)\n",
            "test_what_is_owed_begins_at_the_first_sight_moves_with_what_is_settled_and_begins_anew_after_off",
        ),
        (
            "redis: a renewal by token only",
            "  if holder ~= node or state.token ~= tonumber(token) then\n    return refused(lock, holder, state)",
            "  if state.token ~= tonumber(token) then\n    return refused(lock, holder, state)",
            "test_a_replica_without_the_lease_reports_nothing",
        ),
        (
            "redis: a claim by token only",
            "  if holder == node and state.token == tonumber(token) then\n    return state",
            "  if state.token == tonumber(token) then\n    return state",
            "test_a_claim_needs_the_term_in_force",
        ),
        (
            "redis: the token is not above the wall clock",
            "math.max(state.token + 1, tonumber(above) + 1, wall)",
            "math.max(state.token + 1, tonumber(above) + 1)",
            "test_tokens_grow_and_exceed_the_wall_clock_and_what_the_replica_has_seen",
        ),
        (
            "redis: void by whole seconds",
            "if void_at and wall > void_at then",
            "if void_at and wall > void_at + 1000000 then",
            "test_a_batch_that_comes_too_late_changes_nothing_and_tells_the_stores_clock",
        ),
        (
            "redis: names compared by their beginning",
            "if holder ~= node or (state.holder == node and state.seq > tonumber(number)) then",
            "if string.sub(holder or '', 1, #node) ~= node or (state.holder == node and state.seq > tonumber(number)) then",
            "test_c23_names_are_compared_whole",
        ),
        (
            "redis: a slot of a wrong clock bars all",
            "state.slot and state.slot <= wall + AHEAD and state.slot",
            "state.slot",
            "test_a_tick_that_a_wrong_clock_reported_bars_no_slot",
        ),
        (
            "redis: a wrong clock settles what is owed",
            "state.off < till and till <= wall + AHEAD",
            "state.off < till",
            "test_what_is_owed_begins_at_the_first_sight_moves_with_what_is_settled_and_begins_anew_after_off",
        ),
        (
            "redis: switched on, the time before is owed",
            "or (off and off < 0) then",
            "then",
            "test_what_is_owed_begins_at_the_first_sight_moves_with_what_is_settled_and_begins_anew_after_off",
        ),
        (
            "redis: a renewal extends by the thousandfold",
            "  call('PEXPIRE', lock, milliseconds)\n",
            "  call('EXPIRE', lock, milliseconds)\n",
            "test_a_renewal_extends_the_lease_from_the_moment_it_arrives",
        ),
        (
            "redis: a released lease stays",
            "  call('DEL', lock)\n",
            "",
            "test_a_slot_is_claimed_by_one_term_however_often_it_asks",
        ),
        (
            "redis: numbers are not kept",
            "{'holder', node, 'seq', number,",
            "{'holder', node, 'seq', '0',",
            "test_an_acquisition_of_a_number_that_was_used_changes_nothing",
        ),
        (
            "redis: a tick goes back",
            "if tick ~= '' and not (stored and tonumber(tick) <= stored) then",
            "if tick ~= '' then",
            "test_a_release_reports_too_and_reports_only_grow",
        ),
    ),
    *_of(
        "stores/sqlite.py",
        SQLITE_FILE,
        (
            "sqlite: the operator becomes the holder's life",
            "            elif record.holder == batch.node:  # else",
            "            else:  # else",
            "test_an_operator_that_dies_after_its_order",
        ),
    ),
    *_of(
        "stores/exchange.lua",
        REDIS,
        (
            "redis: a paused job is led",
            "  if paused then\n    return 'B;paused",
            "  if false then\n    return 'B;paused",
            "test_nobody_gets_a_lease_that_is_paused_until_it_is_resumed",
        ),
        (
            "redis: one that stepped down is not barred",
            "  if resigned then\n    return 'B",
            "  if false then\n    return 'B",
            "test_one_that_was_told_to_step_down_is_barred_until_another_term_began",
        ),
        (
            "redis: one that stepped down stays barred when another term began",
            "  if state.resign ~= '' then",
            "  if false then",
            "test_one_that_was_told_to_step_down_is_barred_until_another_term_began",
        ),
        (
            "redis: a trigger is taken twice",
            "call('HSET', key, 'trigger', '', 'triggered', outcome)",
            "call('HSET', key, 'triggered', outcome)",
            "test_a_trigger_is_taken_by_one_term_once_however_often_it_asks",
        ),
        (
            "redis: a renewal at rest hears no order",
            "    call('HSET', key, 'ok', '', unpack(fields))",
            "    call('HSET', key, unpack(fields))",
            "test_an_order_is_read_by_a_leader_whose_renewals_met_none_before",
        ),
        (
            "redis: a renewal at rest needs no token",
            "try('HGET', key, 'ok') == token",
            "try('HGET', key, 'ok') ~= ''",
            "test_a_renewal_of_an_earlier_term_of_the_same_replica_is_refused",
        ),
        (
            "redis: a new term leaves the one before at rest",
            "'since', text(wall), 'ok', ''}",
            "'since', text(wall)}",
            "test_a_renewal_of_an_earlier_term_of_the_same_replica_is_refused",
        ),
        (
            "redis: a renewal at rest needs no lock",
            "try('PEXPIRE', lock, at_rest) == 1",
            "try('PEXPIRE', lock, at_rest)",
            "test_a_renewal_behind_the_release_in_one_batch_is_refused",
        ),
        (
            "redis: a renewal at rest needs no holder",
            "if held[number] ~= node or PATTERN",
            "if PATTERN",
            "test_a_renewal_with_the_token_of_anothers_term_is_refused",
        ),
        (
            "redis: slots of a pause are owed",
            "  if not (state.off and state.off < 0) then\n    fields[3]",
            "  if false then\n    fields[3]",
            "test_slots_of_a_pause_are_not_owed_and_those_after_it_are",
        ),
        (
            "redis: an order is no news",
            "    call('HSET', key, 'ok', '', unpack(fields))\n    news[#news + 1] = job\n",
            "    call('HSET', key, 'ok', '', unpack(fields))\n",
            "test_each_order_that_changes_something_is_heard",
        ),
    ),
    *_of(
        "stores/redis_wire.py",
        REDIS,
        (
            "redis: a lease ends a tenth too early",
            "max(1, round(seconds * 1000))",
            "max(1, round(seconds * 900))",
            "test_one_replica_has_the_lease_and_the_others_learn_who_and_for_how_long",
        ),
        (
            "redis: all renewals at rest last as long as the first",
            "            if request.progress == NO_PROGRESS and request.lock_expiry == at_rest:",
            "            if request.progress == NO_PROGRESS:",
            "test_each_renewal_of_a_batch_extends_its_own_lease_by_its_own_time",
        ),
    ),
    *_of(
        "stores/redis.py",
        REDIS_LINK,
        (
            "redis: requests without a reading",
            "if batch.requests and link is None:",
            "if False:",
            "test_requests_need_a_connection_on_which_a_reading_was_made",
        ),
        (
            "redis: a server that restarted counts as old",
            "up_for=reading.up_for",
            "up_for=86400.0",
            "test_a_restarted_server_is_empty_and_says_how_young_it_is",
        ),
    ),
    *_of(
        "stores/exchange.lua",
        REDIS_KEYS,
        (
            "redis: the lock is written before the state",
            "  call('HSET', key, unpack(fields))\n  call('SET', lock, node, 'PX', milliseconds)\n",
            "  call('SET', lock, node, 'PX', milliseconds)\n  call('HSET', key, unpack(fields))\n",
            "test_a_state_that_cannot_be_written_costs_the_lease_and_leaves_no_key_without_it",
        ),
        (
            "redis: a state of another holder counts",
            "(state.holder == node and tonumber(number) <= state.seq)",
            "(tonumber(number) <= state.seq)",
            "test_a_state_of_another_holder_says_nothing_about_a_lease_that_is_mine",
        ),
        (
            "redis: another implementation is not told apart",
            "(foreign and '1' or '0')",
            "'0'",
            "test_c87_a_key_that_somebody_else_took_is_lost",
        ),
        (
            "redis: one bad key costs all",
            "ok, verdict = pcall(serve, request, lock, key)",
            "ok, verdict = true, serve(request, lock, key)",
            "test_a_key_of_a_wrong_type_costs_that_job_only",
        ),
    ),
    *_of(
        "stores/redis_cluster_clock.py",
        Tests(("tests/unit/test_redis_cluster.py",)),
        (
            "cluster: a moment is put too late on a node's clock",
            "int(0.99 * (moment - self.arrived) * 1e6)",
            "int(1.02 * (moment - self.arrived) * 1e6)",
            "test_a_moment_here_is_put_on_a_node_s_clock_no_later_than_it_comes_there",
        ),
        (
            "cluster: a young node is believed",
            "return now < self.up_since + lock_expiry + 1",
            "return False",
            "test_a_node_may_have_forgotten_a_lease_while_it_is_up_for_less_than_the_lease_and_a_second",
        ),
    ),
    *_of(
        "stores/redis_cluster_node.py",
        CLUSTER,
        (
            "cluster: our time is taken for the node's",
            "None if until is None else self._time.at(until)",
            "batch.void_at",
            "test_each_node_gets_the_time_on_its_own_clock_and_one_that_calls_it_late_is_asked_once_more",
        ),
        (
            "cluster: an acquisition goes to a young node",
            "guard and self._holds_back(batch.requests[place], sent)",
            "False",
            "test_a_node_that_was_restarted_gives_no_lease_for_a_while_and_the_others_do",
        ),
        (
            "cluster: ASK is taken for MOVED",
            "if group.asking else [command]",
            "if False else [command]",
            "test_a_slot_that_moves_costs_no_lease",
        ),
    ),
    *_of(
        "stores/redis_cluster.py",
        CLUSTER,
        (
            "cluster: a release overtakes an acquisition",
            "outcomes[place] = IN_DOUBT",
            "pass",
            "test_s4_a_lease_asked_for_in_vain_is_not_released_before_the_call_is_void",
        ),
        (
            "cluster: late calls are sent",
            "until is not None and until - begun < batch.bound / 2",
            "False",
            "test_the_clock_of_the_store_is_this_machine_s_boot_clock",
        ),
    ),
)
