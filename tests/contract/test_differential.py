"""A thousand random histories on each store, and on a model of it: the same verdicts, and the same state after them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, get_args

import pytest

from contract.histories import JOBS, SECOND, History
from contract.test_stores import HandClock
from servers import KINDS, OLDEST, Server
from simulation.sim_history import History as SimHistory
from simulation.sim_store import SimStore
from simulation.sim_time import EPOCH, World
from singletonjob.stores import from_url
from singletonjob.stores.orders import RAN, Ordered, OrderOutcome
from singletonjob.stores.protocol import Barred, Batch, NotClaimed, Refused, Renewed
from singletonjob.stores.redis.wire import lock_key, state_key
from singletonjob.stores.rules import Record
from singletonjob.stores.sqlite.store import FIELDS, SqliteStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import redis

    from singletonjob.stores.protocol import Reply, Verdict

HISTORIES = 1000

COMMON = ("Granted", "Renewed", "Refused", "Released", "Claimed", "taken", "lost", "void")
RARER = (
    *("ahead", "Barred", "Renewed: paused", "Renewed: resigned", "Renewed with a trigger"),
    *(outcome for outcome in get_args(OrderOutcome) if outcome != "foreign" and outcome not in RAN.values()),
    "ran",
)


def _assert_enough(seen: Counter[str], histories: int) -> None:
    """Each answer must have come often, or the histories say little."""
    assert min(seen[kind] for kind in COMMON) > histories / 5, seen
    assert {kind: seen[kind] for kind in RARER if seen[kind] <= histories / 200} == {}


# Eighths of a second, and a boot clock that is the wall clock: so both are the same to the microsecond.
WAITS = (*[0.0] * 8, 0.125, 0.5, 2.5, 3.0, 11.0, 700.0)
LEASES = (1.0, 2.5, 10.0)


class Simulated:
    """The simulation's store, asked without the network before it."""

    def __init__(self) -> None:
        self._store = SimStore(World(Random(0)), SimHistory(), rate=1.0, offset=0)

    def answer(self, batch: Batch, clock: int) -> Reply:
        self._store._offset = clock - EPOCH
        return self._store._serve(batch)

    def record(self, job: str) -> Record:
        return self._store._records[job]

    def expire(self, job: str) -> None:
        self._store._records[job].expires = 0


def _kinds(reply: Reply) -> list[str]:
    if reply.void:
        return ["void"]
    return [_kind(verdict) for verdict in reply.verdicts]


def _kind(verdict: Verdict) -> str:
    match verdict:
        case NotClaimed():
            return verdict.why
        case Ordered():
            return "ran" if verdict.outcome in RAN.values() else verdict.outcome
        case Renewed() if verdict.order or verdict.trigger:
            return f"Renewed: {verdict.order}" if verdict.order else "Renewed with a trigger"
        case _:
            return type(verdict).__name__


# -- what needs no server, on one clock that is moved by hand -------------------------------------------------------


async def test_sqlite_and_the_simulated_store_answer_a_thousand_histories_as_the_memory_store_does(
    tmp_path: Path,
) -> None:
    path = tmp_path / "leases.db"
    clock = HandClock()
    clock.seconds = clock.micros / SECOND
    files: dict[str, SqliteStore] = {}
    seen = Counter[str]()
    for seed in range(HISTORIES):
        history, simulated = History(seed, clock, leases=LEASES), Simulated()
        waits = Random(seed)
        for step in range(history.length):
            clock.later(waits.choice(WAITS))
            batch = history.next_batch(clock.micros)
            file = files.get(batch.node)
            if file is None:
                file = files[batch.node] = SqliteStore(path, clock)
                await file.exchange(batch._replace(requests=()))
            expected = await history.answer(batch)
            assert (seed, step, await file.exchange(batch)) == (seed, step, expected), batch
            assert (seed, step, simulated.answer(batch, clock.micros)) == (seed, step, expected), batch
            seen.update(_kinds(expected))
        with closing(sqlite3.connect(path)) as connection:
            for job in JOBS:
                expected_record = history.record(job)
                assert (seed, job, _in_file(connection, history, job, clock)) == (seed, job, expected_record)
                assert (seed, job, _alive(simulated.record(job), clock.micros)) == (seed, job, expected_record)
    for file in files.values():
        await file.close()
    _assert_enough(seen, HISTORIES)


async def test_sqlite_answers_as_the_memory_store_does_when_the_wall_clock_jumps(tmp_path: Path) -> None:
    clock = HandClock()
    file = SqliteStore(tmp_path / "leases.db", clock)
    for seed in range(HISTORIES // 10):
        history = History(seed, clock, leases=LEASES)
        await file.exchange(Batch(project=history.project, node="n", bound=5.0))
        waits = Random(seed)
        for step in range(history.length):
            clock.later(waits.choice(WAITS))
            clock.micros += waits.choice((0, 0, 0, 0, -3600, -5, 700)) * SECOND
            batch = history.next_batch(int(clock.boot() * 1e6))
            expected = await history.answer(batch)
            assert (seed, step, await file.exchange(batch)) == (seed, step, expected), batch
    await file.close()


def _in_file(connection: sqlite3.Connection, history: History, job: str, clock: HandClock) -> Record:
    query = f"SELECT {', '.join(FIELDS)} FROM lease WHERE project = ? AND job = ?"  # noqa: S608 - constants
    row = connection.execute(query, (history.project, job)).fetchone()
    return Record() if row is None else _alive(Record(*row), clock.micros)


def _alive(record: Record, clock: int) -> Record:
    if record.expires is not None and record.expires <= clock:
        record.holder = record.expires = None
    return record


# -- servers, whose clocks nobody can move: the model's follows ------------------------------------------------------

LONG = (1000.0, 500.0)
SHORT = (0.2, 1000.0)

EDGE = 0.08
"""A lease that ends within so many seconds of the answer may have been seen either way: the server reads its clock more
than once in a call, and may be kept waiting in between."""


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    with Server(request.param, tmp_path) as server:
        yield server


async def test_a_server_answers_a_thousand_histories_as_the_model_does(server: Server) -> None:
    clock, store, seen = HandClock(), from_url(server.url), Counter[str]()
    histories = HISTORIES if server.kind == OLDEST else HISTORIES // 5
    with server.client(decode_responses=True) as client:
        for seed in range(histories):
            history, simulated, chance = History(seed, clock, leases=LONG), Simulated(), Random(seed)
            _follow(clock, await store.exchange(Batch(project=history.project, node="n", bound=5.0)))
            for step in range(history.length):
                if chance.random() < 0.2:
                    job = chance.choice(JOBS)
                    client.pexpireat(lock_key(history.project, job), 1)
                    history.expire(job)
                    simulated.expire(job)
                batch = history.next_batch(clock.micros)
                answer = await store.exchange(batch)
                _follow(clock, answer)
                expected = await history.answer(batch)
                seen.update(_kinds(expected))
                _compare((seed, step), answer, expected, batch)
                assert (seed, step, simulated.answer(batch, clock.micros).verdicts) == (seed, step, expected.verdicts)
            for job in JOBS:
                kept = _in_redis(client, history, job)
                expected_record = history.record(job)
                assert (seed, job, kept) == (seed, job, _as_in_redis(expected_record)), expected_record
    await store.close()
    _assert_enough(seen, histories)


async def test_a_server_answers_as_the_model_does_while_leases_run_out(server: Server) -> None:
    async def told(seed: int) -> bool:
        clock = HandClock()
        history, chance, store = History(seed, clock, leases=SHORT), Random(seed), from_url(server.url)
        try:
            _follow(clock, await store.exchange(Batch(project=history.project, node="n", bound=30.0)))
            for step in range(history.length):
                await asyncio.sleep(chance.choice((0.0, 0.0, 0.0, 0.4)))
                batch = history.next_batch(clock.micros)._replace(bound=30.0)
                answer = await store.exchange(batch)
                _follow(clock, answer)
                records = [history.model._records[history.project, request.job] for request in batch.requests]
                ends = [record.expires for record in records]
                ends += [int(record.resign.partition(";")[0]) for record in records if record.resign]
                if any(end is not None and abs(end - clock.micros) < EDGE * SECOND for end in ends):
                    return False
                _compare((seed, step), answer, await history.answer(batch), batch)
        finally:
            await store.close()
        return True

    done = await asyncio.gather(*map(told, range(HISTORIES, HISTORIES + 30)))
    assert sum(done) > 3, done


def _follow(clock: HandClock, reply: Reply) -> None:
    clock.micros, clock.seconds = reply.clock, reply.clock / SECOND


def _compare(where: tuple[int, int], answer: Reply, expected: Reply, batch: Batch) -> None:
    assert (where, answer.void) == (where, expected.void), batch
    assert (where, _timeless(answer.verdicts)) == (where, _timeless(expected.verdicts)), batch
    for verdict, model in zip(answer.verdicts, expected.verdicts, strict=True):
        if isinstance(verdict, Refused) and isinstance(model, Refused) and model.expires_in is not None:
            assert verdict.expires_in is not None
            assert abs(verdict.expires_in - model.expires_in) < 1, (where, verdict, model)


def _timeless(verdicts: tuple[Verdict, ...]) -> list[Verdict]:
    """Without what a server knows in whole milliseconds only: how long a lease lasts."""
    return [
        v._replace(expires_in=None)
        if isinstance(v, Refused | Ordered)
        else v._replace(seconds=None)
        if isinstance(v, Barred) and v.why == "resigned"
        else v
        for v in verdicts
    ]


def _as_in_redis(record: Record) -> Record:
    """As `_in_redis` tells it: how long a lease lasts is not compared there, and orders are not counted."""
    return replace(record, expires=None, orders=0, resign=record.resign.partition(";")[2])


def _in_redis(client: redis.Redis, history: History, job: str) -> Record:
    """What is kept there; how long the lease lasts has been compared with each refusal."""
    holder: Any = client.get(lock_key(history.project, job))
    state: Any = client.hgetall(state_key(history.project, job))
    slot, slot_token, mark = state.get("slot", "::").split(":", 2)
    done, ended = state.get("done", ":").split(":")
    return Record(
        holder=holder,
        seq=int(state.get("seq", 0)),
        token=int(state.get("token", 0)),
        since=int(state.get("since", 0)),
        slot=_number(slot),
        slot_token=_number(slot_token),
        mark=mark,
        done=_number(done),
        ended=_number(ended),
        off=_number(state.get("off", "")),
        paused=state.get("paused", ""),
        resign=state.get("resign", "").partition(";")[2],
        trigger=state.get("trigger", ""),
        triggered=state.get("triggered", ""),
        released=int(state.get("released", 0)),
        run=state.get("run", ""),
        finished=state.get("finished", ""),
    )


def _number(text: str) -> int | None:
    return int(text) if text else None
