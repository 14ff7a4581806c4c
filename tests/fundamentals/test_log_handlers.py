"""A log handler is the user's code: it may raise, and it may block. Neither harms a job, a term or the heartbeat."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest

from singletonjob import SingletonJobs
from singletonjob._reporting import log_writer
from singletonjob.stores.memory import MemoryStore
from virtual_loop import Capture, memory, run_virtually, running
from waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from singletonjob.stores.protocol import Batch, Reply


class Raising(Capture):
    """Raises for each record of the given events, at most `times`; keeps all others."""

    def __init__(self, *events: str, error: BaseException | None = None, times: int = 1_000_000) -> None:
        super().__init__()
        self.hit: list[str] = []
        self._events = events
        self._error = error or OSError("the log collector is away")
        self._times = times

    def emit(self, record: Any) -> None:
        if (not self._events or record.event in self._events) and len(self.hit) < self._times:
            self.hit.append(record.event)
            raise self._error
        super().emit(record)


@pytest.fixture(autouse=True)
def _nothing_left_to_report() -> Iterator[None]:
    """What one test makes a handler miss is not for the next one to report."""
    yield
    log_writer._lost.report()


@pytest.mark.parametrize(
    "event", ["started", "elected", "run-started", "ticks-dropped", "run-failed", "run-long", "released", "beat"]
)
def test_a_log_handler_that_raises_costs_neither_the_term_nor_a_run(event: str) -> None:
    runs = 0

    async def body() -> None:
        nonlocal runs
        runs += 1
        if runs == 3:
            await asyncio.sleep(9)
        if runs == 5:
            raise ValueError("no price")

    async def main() -> None:
        app = SingletonJobs("pricing", store=memory())
        app.fixed_rate("1s", name="job")(body)
        with Raising(event) as handler:
            async with running(app):
                await asyncio.sleep(150)
                assert app.is_leader("job")
                assert runs > 130
                assert app.health().status == "ok"
        assert event in handler.hit
        assert "lost" not in handler.events()
        assert "stuck" not in handler.events()

    run_virtually(main())


def test_the_sign_of_life_goes_on_though_no_log_line_can_be_written() -> None:
    async def main() -> None:
        app = SingletonJobs("pricing", store=memory(), stall_limit="3s")

        @app.fixed_rate("100ms", name="job")
        async def job() -> None:
            await asyncio.sleep(1.5)  # each sign of life counts drops

        with Raising():
            async with running(app) as replica:
                await asyncio.sleep(100)
                assert app.is_leader("job")
                assert replica.service.beats.frozen().stepped_down["job", "stuck"] == 0

    run_virtually(main())


def test_the_next_good_record_says_how_many_lines_a_handler_raised_on_and_with_what() -> None:
    async def main() -> None:
        app = SingletonJobs("pricing", store=memory())

        async def body() -> None: ...

        for name in ("one", "two"):
            app.interval(60, name=name)(body)
        with Raising("started") as handler:
            async with running(app):
                await asyncio.sleep(5)
        assert handler.events().count("log-lines-lost") == 1
        (line,) = handler.of("log-lines-lost")
        assert line.levelno == logging.WARNING
        assert "2 log lines are missing" in line.getMessage()
        assert "OSError('the log collector is away')" in line.getMessage()

    run_virtually(main())


class Watched(MemoryStore):
    """Counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    async def exchange(self, batch: Batch) -> Reply:
        self.calls += 1
        return await super().exchange(batch)


class Blocking(Capture):
    """Blocks on each record of the heartbeat's until `gate` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.setLevel(logging.INFO)  # the job loop has nothing to say then, and does not wait for the handler's lock
        self.gate, self.blocked = threading.Event(), threading.Event()

    def emit(self, record: Any) -> None:
        if record.event == "elected":
            self.blocked.set()
            self.gate.wait()
        super().emit(record)


@pytest.fixture
def blocking() -> Iterator[Blocking]:
    with Blocking() as handler:
        try:
            yield handler
        finally:
            handler.gate.set()


FAST: dict[str, Any] = {"lock_expiry": "300ms", "heartbeat_interval": "50ms", "margin": "30ms"}


def test_a_log_handler_that_blocks_on_a_line_of_the_heartbeat_holds_up_no_beat(blocking: Blocking) -> None:
    store = Watched()
    app = SingletonJobs("pricing", store=store, **FAST)
    app.interval("10s", name="job")(lambda: None)
    with app.in_thread():
        assert blocking.blocked.wait(10)
        before = store.calls
        wait_for(lambda: store.calls >= before + 8, 5, "a beat beside the blocked handler")
        assert app.is_leader("job")
        blocking.gate.set()
    (line,) = blocking.of("elected")
    assert line.threadName == "singletonjob-heartbeat"
    assert "released" in blocking.events(), "what the heartbeat said at its end was not waited for"
    (later,) = blocking.of("released")
    assert later.created > line.created + 8 * 0.03, "the record has the moment when it was written"
    assert line.msecs == int(line.created * 1000) % 1000


def test_a_log_handler_that_hangs_holds_up_a_stop_no_longer_than_a_moment(blocking: Blocking) -> None:
    app = SingletonJobs("pricing", store=MemoryStore(), **FAST)
    app.interval("10s", name="job")(lambda: None)
    app.start()
    assert blocking.blocked.wait(10)
    stopping = threading.Thread(target=app.stop, daemon=True)
    stopping.start()
    stopping.join(5)
    assert not stopping.is_alive()


def test_lines_beyond_the_bound_of_the_queue_are_dropped_and_reported_once(blocking: Blocking) -> None:
    with log_writer.in_background():
        log_writer.write(logging.INFO, "elected", "blocks")
        for number in range(log_writer.KEPT + 7):
            log_writer.write(logging.INFO, "released", f"line {number}")
        blocking.gate.set()
    (line,) = blocking.of("log-lines-lost")
    assert line.getMessage() == "8 log lines are missing; the last reason: a log handler is too slow"
    kept = [text for record in blocking.of("released") if (text := record.getMessage()).startswith("line ")]
    assert kept == [f"line {number}" for number in range(log_writer.KEPT - 1)]
    assert not log_writer.is_blocked()


def test_an_exit_that_a_signal_asks_for_inside_a_handler_is_an_exit_and_one_of_a_handler_elsewhere_is_not() -> None:
    with Raising(error=SystemExit(3)) as handler:
        with pytest.raises(SystemExit):  # on the main thread, where handlers of signals run
            log_writer.write(logging.INFO, "elected", "text")
        thread = threading.Thread(target=log_writer.write, args=(logging.INFO, "elected", "text"))
        thread.start()
        thread.join()
    assert handler.hit == ["elected", "elected"]
