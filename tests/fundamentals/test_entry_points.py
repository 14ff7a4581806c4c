"""The ways to start and stop an app, and what it answers while it runs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import singletonjob
from singletonjob import (
    ConfigError,
    Elected,
    Event,
    Run,
    RunFinished,
    RunStarted,
    SingletonJobError,
    SingletonJobs,
    SteppedDown,
    StoreDown,
    StoreUnavailable,
    StoreUp,
    TicksDropped,
)
from singletonjob.stores.memory import MemoryStore
from virtual_loop import Capture, Gate, memory, run_virtually, running, the_loop
from waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from singletonjob.stores.protocol import Batch, Reply
    from singletonjob.stores.rules import Record

SCALED: dict[str, Any] = {"lock_expiry": 1.0, "heartbeat_interval": 0.3}


class Real:
    """An app in real time, with a job each 20 ms."""

    def __init__(self, **options: Any) -> None:
        self.store = MemoryStore()
        self.ran = threading.Event()
        self.app = SingletonJobs("pricing", store=self.store, **SCALED | options)
        self.app.fixed_rate("20ms", name="tick")(self.tick)

    async def tick(self) -> None:
        self.ran.set()

    @property
    def record(self) -> Record:
        return self.store._records["pricing", "tick"]

    async def until_it_ran(self) -> None:
        async with asyncio.timeout(10):
            while not self.ran.is_set():
                await asyncio.sleep(0.002)


def virtual_app(store: Any = None, **options: Any) -> SingletonJobs:
    return SingletonJobs("pricing", store=store or memory(), **options)


# -- run -----------------------------------------------------------------------------------------------------------

PROGRAM = """
import logging, threading
from singletonjob import SingletonJobs
from singletonjob.stores.memory import MemoryStore

logging.basicConfig(level="INFO", format="%(event)s")
store = MemoryStore()
app = SingletonJobs("pricing", store=store, lock_expiry=1.0, heartbeat_interval=0.3)

@app.fixed_rate("20ms", name="tick")
async def tick() -> None:
    print("ran", flush=True)

app.run()
for thread in threading.enumerate():
    if thread is not threading.main_thread():
        thread.join(5)  # the watchdog of the stop was called off and is on its way out
print("returned", store._records["pricing", "tick"].holder, threading.active_count())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_run_blocks_until_a_signal_then_releases_and_returns(number: signal.Signals) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(singletonjob.__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ran\n"
        process.send_signal(number)
        out, log = process.communicate(timeout=20)
    assert process.returncode == 0
    assert out.splitlines()[-1] == "returned None 1"
    told = [event for event in log.split() if event != "stopping"]  # that one only if the run had not quite ended
    assert told == ["started", "elected", "released"]


# -- inside a running program --------------------------------------------------------------------------------------


async def test_serve_without_signals_runs_until_its_task_is_cancelled_and_releases() -> None:
    real = Real()
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    serving = asyncio.create_task(real.app.serve(signals=False))
    await real.until_it_ran()
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == handlers
    assert real.app.is_leader("tick")
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert real.record.holder is None
    assert not real.app.is_leader("tick")


async def test_serve_takes_the_signals_and_gives_them_back() -> None:
    real = Real()
    before = signal.getsignal(signal.SIGTERM)
    serving = asyncio.create_task(real.app.serve())
    await real.until_it_ran()
    assert signal.getsignal(signal.SIGTERM) is not before
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(serving, 10)
    assert signal.getsignal(signal.SIGTERM) is before
    assert real.record.holder is None


async def test_async_with_starts_and_stops_and_an_error_inside_passes_through() -> None:
    real = Real()
    async with real.app as entered:
        assert entered is real.app
        await real.until_it_ran()
        assert real.app.is_leader("tick")
    assert real.record.holder is None
    with pytest.raises(LookupError, match="mine"):
        async with real.app:
            raise LookupError("mine")
    assert real.record.holder is None


async def test_a_lifespan_spans_the_life_of_an_asgi_app() -> None:
    real = Real()
    async with real.app.lifespan(object()):
        await real.until_it_ran()
        assert real.app.is_leader("tick")
    assert real.record.holder is None


# -- sync programs -------------------------------------------------------------------------------------------------


def test_start_returns_at_once_and_stop_releases_and_both_may_be_repeated() -> None:
    real = Real()
    for _ in range(3):
        real.ran.clear()
        real.app.start()
        assert real.ran.wait(10)
        assert real.app.is_leader("tick")
        real.app.stop()
        assert real.record.holder is None
        assert not real.app.is_leader("tick")
    real.app.stop()  # nothing runs: nothing to do


def refuse_threads(monkeypatch: pytest.MonkeyPatch, name: str) -> list[str]:
    """Have the system refuse the next thread of this name; returns those it has refused."""
    refused: list[str] = []
    real = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name == name and not refused:
            refused.append(name)
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    return refused


def test_a_start_whose_thread_is_refused_raises_and_the_next_start_works(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Real()
    refused = refuse_threads(monkeypatch, "singletonjob-loop")
    with pytest.raises(RuntimeError, match="can't start new thread"):
        real.app.start()
    assert refused
    with real.app.in_thread():
        assert real.ran.wait(10)


async def test_a_signal_stops_the_app_although_the_thread_that_watches_the_stop_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = Real()
    serving = asyncio.create_task(real.app.serve())
    await real.until_it_ran()
    refused = refuse_threads(monkeypatch, "singletonjob-watchdog")
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(10):
        await serving
    assert refused
    assert real.record.holder is None


def test_in_thread_is_start_and_stop_around_a_block() -> None:
    real = Real()
    with real.app.in_thread() as entered:
        assert entered is real.app
        assert real.ran.wait(10)
    assert real.record.holder is None


def test_start_does_not_wait_for_a_store_that_does_not_answer_and_stop_is_bounded() -> None:
    class Dead(MemoryStore):
        async def exchange(self, batch: Batch) -> Reply:
            await asyncio.Event().wait()
            raise AssertionError

        async def notices(self, project: str) -> AsyncGenerator[frozenset[str], None]:
            await asyncio.Event().wait()
            yield frozenset()

        async def close(self) -> None:
            await asyncio.Event().wait()

    app = SingletonJobs("pricing", store=Dead(), **SCALED)
    app.interval(1, name="job")(lambda: None)
    begun = time.monotonic()
    app.start()
    assert time.monotonic() - begun < 2
    time.sleep(0.5)
    assert app.health().status == "store_down"
    begun = time.monotonic()
    app.stop()
    assert time.monotonic() - begun < 6


def test_two_apps_on_one_store_in_two_threads_are_two_replicas() -> None:
    first, second = Real(), Real()
    second.store = first.store
    second.app.configure(store=first.store)
    with first.app.in_thread():
        assert first.ran.wait(10)
        with second.app.in_thread():
            time.sleep(0.3)
            assert not second.ran.is_set()
            first.app.stop()
            assert second.ran.wait(10)
            assert second.app.is_leader("tick")


@pytest.mark.parametrize("way", ["start", "async with", "serve"])
async def test_an_app_that_runs_cannot_be_started_again(way: str) -> None:
    real = Real()
    async with real.app:

        async def start_again() -> None:
            if way == "start":
                real.app.start()
            elif way == "serve":
                await real.app.serve(signals=False)
            else:
                await real.app.__aenter__()

        with pytest.raises(SingletonJobError, match="runs already"):
            await start_again()
        await real.until_it_ran()
        assert real.app.is_leader("tick"), "the one that runs is not disturbed"


def test_options_that_do_not_go_together_are_refused_by_every_entry_and_leave_the_app_startable() -> None:
    app = SingletonJobs("pricing", store=MemoryStore(), lock_expiry=1.0, heartbeat_interval=0.9)
    app.interval(1, name="job")(lambda: None)
    for entry in (app.start, app.run, lambda: asyncio.run(app.serve())):
        with pytest.raises(ConfigError, match="lock_expiry"):
            entry()


MANY = """
import asyncio, gc, json, logging, os, sys, threading, time
from singletonjob import IntervalJob, SingletonJobs
from singletonjob.stores.memory import MemoryStore

logging.basicConfig(level="WARNING")
logging.getLogger("singletonjob").addFilter(lambda record: record.event != "ticks-dropped")  # by a slow machine
store = MemoryStore()
app = SingletonJobs("pricing", store=store, lock_expiry=1.0, heartbeat_interval=0.3)
app.subscribe(lambda event: None)
ran = set()

@app.fixed_rate("10ms", name="async")
async def on_loop() -> None:
    ran.add("async")

@app.interval("10ms", name="sync", timeout=5)
def in_thread() -> None:
    ran.add("sync")

@app.cron("* * * * * *", name="cron", enabled=lambda: True)
async def cron() -> None: ...

def settle():
    end = time.monotonic() + 5
    while threading.active_count() > 1 and time.monotonic() < end:
        time.sleep(0.005)
    gc.collect()
    return [threading.active_count(), len(os.listdir("/proc/self/fd"))]

def until_both_ran():
    end = time.monotonic() + 10
    while len(ran) < 2 and time.monotonic() < end:
        time.sleep(0.002)

def in_threads():
    ran.clear()
    with app.in_thread():
        until_both_ran()

async def inside():
    ran.clear()
    async with app:
        while len(ran) < 2:
            await asyncio.sleep(0.002)
    return len(asyncio.all_tasks())

async def inside_often():
    return [await inside() for _ in range(50)]

in_threads(); asyncio.run(inside())
before = settle()
for _ in range(50):
    in_threads()
after_threads = settle()
tasks = asyncio.run(inside_often())
print(json.dumps({"before": before, "threads": after_threads, "inside": settle(), "tasks": tasks}))
"""


def test_c96_started_and_stopped_a_hundred_times_an_app_leaves_no_task_no_thread_and_no_descriptor() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(singletonjob.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", MANY],
        capture_output=True,
        text=True,
        env=environment,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["threads"] == told["before"]
    assert told["inside"] == told["before"]
    assert told["tasks"] == [1] * 50
    complaints = [line for line in done.stderr.splitlines() if "took" not in line or "seconds" not in line]
    assert complaints == [], "nothing but asyncio's remarks on a slow machine"


# -- what it answers -----------------------------------------------------------------------------------------------


def test_is_leader_is_false_before_after_and_for_a_follower_and_an_unknown_job_is_an_error_that_names_the_known() -> (
    None
):
    async def main() -> None:
        store = memory()
        first, second = virtual_app(store), virtual_app(store)
        for app in (first, second):
            app.interval(1, name="tick")(lambda: asyncio.sleep(0))
        assert not first.is_leader("tick")
        async with running(first):
            await asyncio.sleep(1)
            async with running(second):
                await asyncio.sleep(1)
                assert first.is_leader("tick")
                assert not second.is_leader("tick")
                with pytest.raises(ConfigError, match=r"'tock' is no job of this app; its jobs are: tick"):
                    first.is_leader("tock")
        assert not first.is_leader("tick")

    run_virtually(main())


def test_health_names_each_jobs_state_and_the_worst_of_them() -> None:
    async def main() -> None:
        gate = Gate(memory())
        switch = [True]
        app = virtual_app(gate)

        async def idle() -> None: ...

        app.interval(1, name="leads")(idle)
        app.interval(1, name="follows")(idle)
        app.interval(1, name="off", enabled=False)(idle)
        app.interval(1, name="switched", enabled=lambda: switch[0])(idle)
        assert app.health().jobs == dict.fromkeys(["leads", "follows", "off", "switched"], "disabled")
        other = virtual_app(gate.store)
        other.interval(1, name="follows")(idle)
        async with running(other):
            await asyncio.sleep(1)
            async with running(app):
                await asyncio.sleep(1)
                expected = {"leads": "leading", "follows": "following", "off": "disabled", "switched": "leading"}
                assert app.health().jobs == expected
                assert app.health().status == "ok"
                switch[0] = False
                await asyncio.sleep(3.1)
                assert app.health().jobs["switched"] == "disabled"
                gate.error = StoreUnavailable("gone")
                await asyncio.sleep(4)
                assert app.health().jobs["follows"] == "store_down"
                assert app.health().jobs["leads"] == "leading", "its lease still lives"
                assert app.health().status == "store_down"
                await asyncio.sleep(10)
                assert app.health().jobs["leads"] == "store_down"
                gate.error = None
                await asyncio.sleep(13)
                assert app.health().jobs["leads"] == "leading"
                assert app.health().status == "ok"
                the_loop().advance(61)  # nothing turns: what a probe's thread sees meanwhile
                assert app.health().status == "stuck"
                assert app.health().jobs["leads"] == "stuck"
                await asyncio.sleep(13)
                assert app.health().status == "ok"

    run_virtually(main())


def test_stats_count_every_run_and_every_due_tick_exactly_once() -> None:
    async def main() -> None:
        app = virtual_app()
        plan = iter(["ok", "raise", "long", "ok", "late", *["ok"] * 1000])

        @app.fixed_rate("1s", name="tick", timeout=5)
        async def tick() -> None:
            match next(plan):
                case "raise":
                    raise ValueError
                case "long":
                    await asyncio.sleep(100)
                case "late":
                    the_loop().advance(3.5)
                case _:
                    pass

        assert app.stats() == {}
        begun = the_loop().time()
        async with running(app):
            await asyncio.sleep(60.5)
            elapsed = int(the_loop().time() - begun)
            stats = app.stats()["tick"]
        assert stats.runs == stats.ok + stats.failed + stats.cancelled + stats.timeout
        assert (stats.failed, stats.timeout, stats.cancelled, stats.terms) == (1, 1, 0, 1)
        assert stats.runs + stats.dropped_overlap + stats.dropped_late == elapsed
        assert stats.dropped_overlap == 5 + 3
        assert stats.last_ok is not None
        assert stats.last_ok.utcoffset() is not None
        assert app.stats() == {}

    run_virtually(main())


# -- events --------------------------------------------------------------------------------------------------------


def test_a_subscriber_hears_the_whole_story_until_it_unsubscribes() -> None:
    async def main() -> None:
        gate = Gate(memory())
        app = virtual_app(gate)

        @app.fixed_rate("1s", name="tick")
        async def tick(run: Run) -> None:
            await asyncio.sleep(1.2)

        heard: list[Event] = []
        unsubscribe = app.subscribe(heard.append)
        async with running(app):
            await asyncio.sleep(2.5)
            assert [type(event) for event in heard] == [Elected, RunStarted, TicksDropped, RunFinished]
            dropped = heard[2]
            assert isinstance(dropped, TicksDropped)
            assert (dropped.count, dropped.cause) == (1, "overlap")
            gate.error = StoreUnavailable("gone")
            await asyncio.sleep(5)
            gate.error = None
            await asyncio.sleep(5)
            down = [event for event in heard if isinstance(event, StoreDown)]
            up = [event for event in heard if isinstance(event, StoreUp)]
            assert [event.error for event in down] == ["gone"]
            assert 0 < up[-1].outage < 10
            unsubscribe()
            unsubscribe()
            count = len(heard)
            await asyncio.sleep(10)
            assert len(heard) == count
            app.subscribe(heard.append)
        last = heard[-1]
        assert isinstance(last, SteppedDown)
        assert last.reason == "shutdown"

    run_virtually(main())


def test_a_subscriber_that_raises_is_logged_and_neither_ticks_nor_other_subscribers_suffer() -> None:
    async def main() -> None:
        app = virtual_app()

        @app.fixed_rate("100ms", name="tick")
        async def tick() -> None: ...

        def broken(event: Event) -> None:
            raise ValueError("no dashboard")

        heard: list[Event] = []
        app.subscribe(broken)
        app.subscribe(heard.append)
        with Capture() as logs:
            async with running(app):
                await asyncio.sleep(5.05)
                stats = app.stats()["tick"]
                assert stats.runs == 50
                assert stats.dropped_late == stats.dropped_overlap == 0
        assert len([event for event in heard if isinstance(event, RunStarted)]) == 50
        assert logs.of("subscriber-failed")

    run_virtually(main())


def test_a_slow_subscriber_holds_a_tick_up_by_one_call_at_most_and_loses_the_oldest_events() -> None:
    async def main() -> None:
        app = virtual_app()
        lateness: list[float] = []
        tokens: list[int] = []

        @app.fixed_rate("100ms", name="tick")
        async def tick(run: Run) -> None: ...

        def slow(event: Event) -> None:
            if isinstance(event, RunStarted):
                lateness.append(event.lateness)
            if isinstance(event, Elected) and event.job == "burst":
                tokens.append(event.token)
            the_loop().advance(0.03)

        app.subscribe(slow)
        async with running(app) as replica:
            await asyncio.sleep(20)
            stats = app.stats()["tick"]
            assert stats.dropped_late == stats.dropped_overlap == 0
            assert max(lateness) <= 0.03 + 0.001
            assert len(lateness) == pytest.approx(200, abs=2)
            for number in range(5000):
                replica.service.tell(Elected(job="burst", token=number))
            await asyncio.sleep(60)
            assert tokens[-1] == 4999
            assert 900 < len(tokens) <= 1000
            assert tokens == sorted(tokens)

    run_virtually(main())


def test_a_forked_child_leads_nothing() -> None:
    real = Real()
    with real.app.in_thread():
        assert real.ran.wait(10)
        assert real.app.is_leader("tick")
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(write, b"leads" if real.app.is_leader("tick") else b"not")
            os._exit(0)
        os.close(write)
        try:
            assert os.read(read, 10) == b"not"
        finally:
            os.close(read)
            os.waitpid(child, 0)
        assert real.app.is_leader("tick")


def test_a_run_that_finishes_is_told_with_outcome_and_duration_on_the_job_loop() -> None:
    real = Real()
    heard: list[tuple[Event, str]] = []
    real.app.subscribe(lambda event: heard.append((event, threading.current_thread().name)))
    with real.app.in_thread():
        wait_for(lambda: any(isinstance(event, RunFinished) for event, _ in heard))
    finished = next(event for event, _ in heard if isinstance(event, RunFinished))
    assert finished.outcome == "ok"
    assert 0 <= finished.duration < 5
    assert finished.error is None
    assert {name for _, name in heard} == {"singletonjob-loop"}
