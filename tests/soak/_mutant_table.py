"""Breakages of the library, each of one place, which the tests must catch. `mutants.py` carries them out.

Over 300 lines, because it is one table.
"""

# ruff: noqa: E501, ISC004 - the texts are as they stand in the source

from __future__ import annotations

from dataclasses import dataclass

from servers import OLDEST

__all__ = ["MUTANTS", "Mutant"]

ELECTION = ("tests/unit/test_election.py", "tests/unit/test_election_properties.py")
RUNS = (
    "tests/fundamentals/test_last_moment.py",
    "tests/fundamentals/test_one_leader.py",
    "tests/fundamentals/test_run_in_flight.py",
)
FENCE = ("tests/unit/test_lease.py", "tests/unit/test_timer.py")
CLOCKS = ("tests/unit/test_timer.py", "-k", "the_clocks_are_those")
# The contract alone: what it lets pass, a third party's store could have too.
MEMORY = ("tests/contract/test_stores.py::TestMemoryStore", "-k", "not contend")
SQLITE = ("tests/contract/test_stores.py::TestSqliteStore",)
SQLITE_CALLS = (*SQLITE, "-k", "not contend")
SQLITE_FILE = ("tests/integration/test_sqlite_store.py", "-k", "cancelled_while or reboot or killed_holder")
REDIS = ("tests/contract/test_redis_store.py::TestRedisStore", "-k", f"{OLDEST} and not contend")
REDIS_KEYS = ("tests/contract/test_redis_store.py", "-k", OLDEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """`old`, which stands in `file` once, becomes `new`; pytest with `tests` must then fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def _of(file: str, tests: tuple[str, ...], *rows: tuple[str, str, str]) -> list[Mutant]:
    return [Mutant(name=name, file=file, old=old, new=new, tests=tests) for name, old, new in rows]


MUTANTS: tuple[Mutant, ...] = (
    *_of(
        "_election.py",
        ELECTION,
        (
            "deadline from the reply, at a renewal",
            "deadline = sent + seat.options.lock_expiry - seat.options.margin",
            "deadline = now + seat.options.lock_expiry - seat.options.margin",
        ),
        (
            "deadline from the reply, at a grant",
            "deadline = sent + options.lock_expiry - options.margin",
            "deadline = now + options.lock_expiry - options.margin",
        ),
        (
            "no margin, at a renewal",
            "deadline = sent + seat.options.lock_expiry - seat.options.margin",
            "deadline = sent + seat.options.lock_expiry",
        ),
        (
            "no margin, at a grant",
            "deadline = sent + options.lock_expiry - options.margin",
            "deadline = sent + options.lock_expiry",
        ),
        ("a deadline that has passed does not end the term", "if seat.alive and now >= seat.deadline:", "if False:"),
        (
            "a renewal that crosses the deadline brings the term back",
            "            return\n        self._expire(now)\n        if reply is None:",
            "            return\n        if reply is None:",
        ),
        (
            "a grant that comes after its deadline is used",
            "if now >= deadline or request.number <= seat.covered or",
            "if request.number <= seat.covered or",
        ),
        (
            "a grant that a release covers is used",
            "if now >= deadline or request.number <= seat.covered or not self._may_ask(seat):",
            "if now >= deadline:",
        ),
        (
            "unknown read as granted",
            "                seat.in_doubt_until = flight.sent",
            "                self._granted(seat, request, Granted(1, JobState(0)), flight.sent, now)\n"
            "                seat.in_doubt_until = flight.sent",
        ),
        (
            "unknown read as renewed",
            "            self._retry(seat, now, self._errors, at_once=used_up)",
            "            self._renewed(seat, flight.sent, now)"
            " if seat.alive else self._retry(seat, now, self._errors, at_once=used_up)",
        ),
        (
            "unknown read as refused",
            "            self._retry(seat, now, self._errors, at_once=used_up)",
            '            self._end(seat, "lost")'
            " if seat.alive else self._retry(seat, now, self._errors, at_once=used_up)",
        ),
        ("a leader backs off", "if seat.alive or (seat.releasing and in_the_store):", "if seat.releasing:"),
        (
            "a notice ignored",
            "            elif self._may_ask(seat):\n                seat.due = max(",
            "            elif False:\n                seat.due = max(",
        ),
        (
            "a notice forgotten at a refusal",
            "seat.due = now if seat.noticed_at >= sent else now + wait",
            "seat.due = now + wait",
        ),
        (
            "a follower asks when its own heartbeat comes round",
            "wait = ends if self._notices and not verdict.foreign else min(ends, wait)",
            "wait = max(ends, wait)",
        ),
        (
            "release while running",
            'seat.phase = "draining"\n        seat.reason = reason\n        self._effects.append(Draining(',
            'seat.phase, seat.deadline, seat.releasing, seat.due = "follower", 0.0, True, 0.0\n'
            "        seat.reason = reason\n        self._effects.append(Draining(",
        ),
        (
            "a lease is asked for while a body of an earlier term runs",
            'return seat.phase == "follower" and seat.enabled',
            "return not seat.alive and seat.enabled",
        ),
        ("released before an acquisition in doubt is void", "flight.sent + flight.batch.bound * 1.03", "flight.sent"),
        ("no call is ever void", "void_at = clock + int(0.99 * (now - arrived + bound) * 1e6)", "void_at = None"),
        (
            "void reckoned by a clock that runs too fast",
            "int(0.99 * (now - arrived + bound) * 1e6)",
            "int(1.01 * (now - arrived + bound) * 1e6)",
        ),
        (
            "the stores clock is not read anew after an error",
            "            self._reading = None\n",
            "            pass\n",
        ),
        ("up-time counted from sending", "self._read(reply, now)", "self._read(reply, flight.sent)"),
        (
            "guard on free keys only",
            "if self._reading is not None and self._amnesia_guard:",
            "if self._reading is not None and self._amnesia_guard and not seat.held:",
        ),
        (
            "guard a second too short",
            "self._up_since + seat.options.lock_expiry + 1",
            "self._up_since + seat.options.lock_expiry",
        ),
        ("vouching ignored", "if seat.alive and now >= witness.vouched_until(seat.job):", "if False:"),
        ("the highest token seen is forgotten", "above=self._highest_token", "above=0"),
        ("numbers do not grow", "            self._number += 1\n", "            self._number = 1\n"),
        (
            "nothing released at stop that only may be held",
            "            elif seat.held:\n                self._give_back(seat, now)\n\n    def set_enabled",
            "\n    def set_enabled",
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
        ),
    ),
    *_of(
        "_lease.py",
        FENCE,
        (
            "check only in the heartbeat",
            "return self.clock.boot() < self.deadline and not self.over",
            "return self.deadline > 0 and not self.over",
        ),
        (
            "wall clock for the deadline",
            "return self.clock.boot() < self.deadline and",
            "return self.clock.wall() / 1e6 % 1e5 < self.deadline and",
        ),
        ("a fence that closed opens again", "< self.deadline and not self.over", "< self.deadline"),
        (
            "the fence does not arm itself again",
            "            self._timer = self._timers.at_boot(deadline, self._fire)\n",
            "            pass\n",
        ),
        ("the fence closes at the deadline it was made with", "if self._lease.clock.boot() >= deadline:", "if True:"),
    ),
    *_of(
        "_clock.py",
        CLOCKS,
        ("a boot clock that stands still in a suspend", '"CLOCK_BOOTTIME", getattr(', '"CLOCK_MONOTONIC", getattr('),
        ("wall clock as the boot clock", '"CLOCK_BOOTTIME", getattr(', '"CLOCK_REALTIME", getattr('),
    ),
    *_of(
        "_timer.py",
        FENCE,
        (
            "fence timer on a clock that stands still in a suspend",
            "time.CLOCK_BOOTTIME, unit=1",
            "time.CLOCK_MONOTONIC, unit=1",
        ),
        ("fence timer on the loop's clock", "unit=1, longest=longest_boot_sleep", "unit=1, longest=LONGEST_SLEEP"),
    ),
    *_of(
        "_runner.py",
        RUNS,
        (
            "no check right before an async run",
            "                if not lease.valid() or (lease.stopping and not claimed):\n                    return None\n                answer",
            "                answer",
        ),
        (
            "no check in the thread before a sync run",
            "if not lease.valid() or self._overdue(lease) or (lease.stopping and not claimed):",
            "if False:",
        ),
        (
            "slot not claimed",
            "(due.slot is None or await self._claim(lease, due))",
            "(due.slot is None or lease.valid())",
        ),
        (
            "no run is cancelled when its term is over",
            "self._grace_until = self._clock.boot()\n        self._stop_run()",
            "self._stop_run()",
        ),
        (
            "drained before the body has ended",
            "        self.counts.terms += 1\n",
            "        self.counts.terms += 1\n        self._drained(lease, died=False)\n",
        ),
        (
            "dropped ticks are not counted",
            'self._account(lease, ticker.ended(due, now), "overlap")\n\n    def _overdue',
            "ticker.ended(due, now)\n\n    def _overdue",
        ),
    ),
    *_of(
        "stores/rules.py",
        MEMORY,
        (
            "rules: a held lease is granted",
            "if record.holder is not None and (record.holder != node or request.number <= record.seq):",
            "if record.holder == node and request.number <= record.seq:",
        ),
        (
            "rules: numbers ignored at an acquisition",
            "(record.holder != node or request.number <= record.seq)",
            "record.holder != node",
        ),
        ("rules: only the same number is a duplicate", "request.number <= record.seq", "request.number == record.seq"),
        ("rules: my own lease is refused me", "(record.holder != node or request.number <= record.seq)", "True"),
        (
            "rules: the token is not bumped",
            "max(record.token + 1, request.above + 1, wall)",
            "max(record.token, request.above + 1, wall)",
        ),
        (
            "rules: the token seen is ignored",
            "max(record.token + 1, request.above + 1, wall)",
            "max(record.token + 1, wall)",
        ),
        (
            "rules: the token is not above the wall clock",
            "max(record.token + 1, request.above + 1, wall)",
            "max(record.token + 1, request.above + 1)",
        ),
        (
            "rules: a lapsed lease does not end",
            "if record.expires is not None and record.expires <= clock:",
            "if False:",
        ),
        (
            "rules: a renewal acquires",
            "    if record.holder != node or record.token != request.token:\n        return _refused(record, clock)\n    record.expires",
            "    if record.holder not in (None, node) or record.token != request.token:\n        return _refused(record, clock)\n    record.holder = node\n    record.expires",
        ),
        (
            "rules: a renewal by value only",
            "    if record.holder != node or record.token != request.token:\n        return _refused",
            "    if record.holder != node:\n        return _refused",
        ),
        (
            "rules: a renewal by token only",
            "    if record.holder != node or record.token != request.token:\n        return _refused",
            "    if record.token != request.token:\n        return _refused",
        ),
        (
            "rules: release by value only",
            "if record.holder != node or record.seq > request.number:",
            "if record.holder != node:",
        ),
        (
            "rules: release by number only",
            "if record.holder != node or record.seq > request.number:",
            "if record.seq > request.number:",
        ),
        (
            "rules: names compared by their beginning",
            "if record.holder != node or record.seq > request.number:",
            "if not (record.holder or '').startswith(node) or record.seq > request.number:",
        ),
        ("rules: a claim is not idempotent", "request.slot == stored and record.slot_token == request.token", "False"),
        (
            "rules: any term has a claimed slot",
            "request.slot == stored and record.slot_token == request.token",
            "request.slot == stored",
        ),
        (
            "rules: a claimed slot is not kept",
            "record.slot, record.slot_token, record.mark = request.slot, request.token, request.mark",
            "record.mark = request.mark",
        ),
        ("rules: an earlier slot is claimed", "if request.slot <= stored:", "if request.slot == stored:"),
        (
            "rules: a claim without the lease",
            "    if record.holder != node or record.token != request.token:\n        return NotClaimed",
            "    if False:\n        return NotClaimed",
        ),
        ("rules: a slot far ahead is claimed", "if request.slot > wall + AHEAD:", "if False:"),
        ("rules: reports shrink", "if record.ended is None or ended > record.ended:", "if True:"),
        ("rules: switched off, slots are owed", "        record.off = -wall\n", "        pass\n"),
    ),
    *_of(
        "stores/memory.py",
        MEMORY,
        ("memory: void time ignored", "if batch.void_at is not None and clock > batch.void_at:", "if False:"),
        ("memory: projects meet", "self._records[batch.project, request.job]", 'self._records["p", request.job]'),
        ("memory: no notices", "                        listener.tell(released)\n", "                        pass\n"),
        ("memory: everybody hears of all projects", "if listener.project == batch.project:", "if True:"),
    ),
    *_of(
        "stores/sqlite.py",
        SQLITE,
        ("sqlite: the transaction begins without the lock", '"BEGIN IMMEDIATE"', '"BEGIN"'),
        ("sqlite: no transaction", '            connection.execute("BEGIN IMMEDIATE")\n', ""),
        (
            "sqlite: only the first term is kept",
            "f\" ON CONFLICT (project, job) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in COLUMNS)}\"",
            '" ON CONFLICT (project, job) DO NOTHING"',
        ),
        (
            "sqlite: a renewal is not kept",
            "        if changes(verdict):",
            "        if changes(verdict) and not isinstance(request, Renew):",
        ),
    ),
    *_of(
        "stores/sqlite.py",
        SQLITE_CALLS,
        ("sqlite: void time ignored", "(batch.void_at is not None and clock > batch.void_at)", "False"),
        ("sqlite: projects meet", "WHERE project = ? AND job = ?", "WHERE ? IS NOT NULL AND job = ?"),
    ),
    *_of(
        "stores/sqlite.py",
        SQLITE_FILE,
        ("sqlite: an abandoned call is carried out", "if self.abandoned or (", "if ("),
        ("sqlite: a lease of an earlier boot holds", "boot != self._boot\n                or (", "("),
        ("sqlite: a dead holder holds", "and is_dead(file.database.parent / name, inode)", "and False"),
    ),
    *_of(
        "stores/exchange.lua",
        REDIS,
        ("redis: void time ignored", "if void_at and wall > void_at then", "if false then"),
        (
            "redis: a held lease is granted",
            "if holder and (holder ~= node or (state.holder == node and tonumber(number) <= state.seq)) then",
            "if holder == node and tonumber(number) <= state.seq then",
        ),
        (
            "redis: numbers ignored at an acquisition",
            "(holder ~= node or (state.holder == node and tonumber(number) <= state.seq))",
            "holder ~= node",
        ),
        ("redis: numbers compared as texts", "tonumber(number) <= state.seq", "number <= tostring(state.seq)"),
        (
            "redis: the token is not bumped",
            "math.max(state.token + 1, tonumber(above) + 1, wall)",
            "math.max(state.token, tonumber(above) + 1, wall)",
        ),
        (
            "redis: the token seen is ignored",
            "math.max(state.token + 1, tonumber(above) + 1, wall)",
            "math.max(state.token + 1, wall)",
        ),
        ("redis: tokens lose digits", "return string.format('%.0f', number)", "return tostring(number)"),
        ("redis: a lease does not end", "call('SET', lock, node, 'PX', milliseconds)", "call('SET', lock, node)"),
        ("redis: a renewal does not extend", "  call('PEXPIRE', lock, milliseconds)\n", ""),
        (
            "redis: a renewal acquires",
            "  if holder ~= node or state.token ~= tonumber(token) then\n    return refused(lock, holder, state)\n  end\n",
            "  if (holder and holder ~= node) or state.token ~= tonumber(token) then\n    return refused(lock, holder, state)\n  end\n  call('SET', lock, node)\n",
        ),
        (
            "redis: a renewal by value only",
            "  if holder ~= node or state.token ~= tonumber(token) then\n    return refused(lock, holder, state)",
            "  if holder ~= node then\n    return refused(lock, holder, state)",
        ),
        (
            "redis: release by value only",
            "if holder ~= node or (state.holder == node and state.seq > tonumber(number)) then",
            "if holder ~= node then",
        ),
        (
            "redis: anybody releases",
            "if holder ~= node or (state.holder == node and state.seq > tonumber(number)) then",
            "if state.holder == node and state.seq > tonumber(number) then",
        ),
        ("redis: the release is not published", "  released[#released + 1] = job\n", ""),
        (
            "redis: a claim is not idempotent",
            "if stored and asked == stored and state.slot_token == token then",
            "if false then",
        ),
        (
            "redis: any term has a claimed slot",
            "if stored and asked == stored and state.slot_token == token then",
            "if stored and asked == stored then",
        ),
        ("redis: a claimed slot is not kept", "  call('HSET', key, 'slot', slot .. ':' .. token .. ':' .. mark)\n", ""),
        (
            "redis: an earlier slot is claimed",
            "if stored and asked <= stored then",
            "if stored and asked == stored then",
        ),
        (
            "redis: a claim without the lease",
            "  if holder ~= node or state.token ~= tonumber(token) then\n    return 'L'",
            "  if false then\n    return 'L'",
        ),
        ("redis: a slot far ahead is claimed", "if asked > wall + AHEAD then", "if false then"),
        ("redis: reports shrink", "if state.ended == '' or ended > tonumber(state.ended) then", "if true then"),
        (
            "redis: switched off, slots are owed",
            "    fields[#fields + 1] = text(-wall)\n",
            "    fields[#fields + 1] = text(wall - 1000000000)\n",
        ),
    ),
    *_of(
        "stores/exchange.lua",
        REDIS_KEYS,
        (
            "redis: the lock is written before the state",
            "  call('HSET', key, unpack(fields))\n  call('SET', lock, node, 'PX', milliseconds)\n",
            "  call('SET', lock, node, 'PX', milliseconds)\n  call('HSET', key, unpack(fields))\n",
        ),
        (
            "redis: a state of another holder counts",
            "(state.holder == node and tonumber(number) <= state.seq)",
            "(tonumber(number) <= state.seq)",
        ),
        ("redis: another implementation is not told apart", "(foreign and '1' or '0')", "'0'"),
        (
            "redis: one bad key costs all",
            "local ok, verdict = pcall(serve, number)",
            "local ok, verdict = true, serve(number)",
        ),
    ),
)
