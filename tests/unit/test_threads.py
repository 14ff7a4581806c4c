"""A thread of its own for calls that may block."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import itertools
import re
import socket
import subprocess
import sys
import threading
import time
import weakref
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

import singletonjob
from singletonjob._system.worker_threads import DaemonWorker
from singletonjob.stores.name_look_ups import LATE_ANSWER_LASTS, LOOK_UPS, PatientLoop, slow_look_up

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator


@pytest.fixture
def worker() -> Iterator[DaemonWorker]:
    worker = DaemonWorker("worker")
    yield worker
    worker.stop()


async def test_a_call_runs_on_the_thread_and_its_result_comes_back(worker: DaemonWorker) -> None:
    assert await worker.run(divmod, 7, 3) == (2, 1)
    assert await worker.run(threading.current_thread) is not threading.current_thread()
    assert (await worker.run(threading.current_thread)).daemon


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
async def test_whatever_a_call_raises_is_raised_at_the_caller(worker: DaemonWorker, error: BaseException) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        await worker.run(fail)
    assert caught.value is error
    assert await worker.run(abs, -1) == 1


async def test_calls_run_one_at_a_time_in_order(worker: DaemonWorker) -> None:
    made: list[int] = []
    await asyncio.gather(*(worker.run(made.append, number) for number in range(100)))
    assert made == list(range(100))


async def test_a_cancelled_wait_ends_at_once_and_a_call_not_yet_begun_is_never_made(worker: DaemonWorker) -> None:
    gate, made = threading.Event(), threading.Event()
    first = asyncio.create_task(worker.run(gate.wait))
    second = asyncio.create_task(worker.run(made.set))
    await asyncio.sleep(0)
    for task in (first, second):
        task.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    gate.set()
    await worker.run(bool)
    assert not made.is_set()


async def test_the_context_is_the_callers_affair(worker: DaemonWorker) -> None:
    colour = contextvars.ContextVar("colour", default="none")
    colour.set("red")
    assert await worker.run(colour.get) == "none"
    assert await worker.run(contextvars.copy_context().run, colour.get) == "red"


async def test_a_finished_call_keeps_neither_its_arguments_nor_its_error(worker: DaemonWorker) -> None:
    class Body:
        def run(self) -> None:
            raise ValueError("no")

    async def call() -> weakref.ref[Body]:
        body = Body()
        with pytest.raises(ValueError, match="no"):
            await worker.run(body.run)
        return weakref.ref(body)

    gc.disable()
    try:
        reference = await call()
        await worker.run(bool)  # the thread has let go of the call before
        assert reference() is None
    finally:
        gc.enable()


def test_stop_runs_what_was_asked_for_and_a_last_call_and_ends_the_thread() -> None:
    worker, made = DaemonWorker("worker"), list[int]()
    assert not worker.alive

    async def ask() -> None:
        calls = [asyncio.create_task(worker.run(made.append, number)) for number in range(3)]
        await asyncio.sleep(0)
        assert worker.alive
        worker.stop(lambda: made.append(99))
        await asyncio.gather(*calls)

    asyncio.run(ask())
    while worker.alive:
        time.sleep(0.001)
    assert made == [0, 1, 2, 99]


def test_a_call_whose_loop_is_gone_ends_in_silence() -> None:
    worker, gate = DaemonWorker("worker"), threading.Event()

    async def leave() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await worker.run(gate.wait)

    asyncio.run(leave())
    gate.set()
    worker.stop()
    while worker.alive:
        time.sleep(0.001)


def test_the_interpreter_does_not_wait_for_a_call_that_hangs() -> None:
    code = (
        "import asyncio, time\n"
        "from singletonjob._system.worker_threads import DaemonWorker\n"
        "async def main():\n"
        "    asyncio.create_task(DaemonWorker('w').run(time.sleep, 60)); await asyncio.sleep(0.05)\n"
        "asyncio.run(main())"
    )
    source = str(Path(singletonjob.__file__).parents[1])
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": source}, check=True, timeout=20)


class Resolver:
    """A `socket.getaddrinfo` whose look-ups each last until the test ends them, with an address or an error."""

    def __init__(self) -> None:
        self.gates: list[threading.Event] = []
        self.error: Exception | None = None
        self._real = socket.getaddrinfo

    def __call__(self, host: str, *arguments: Any, **more: Any) -> object:
        number, gate = len(self.gates), threading.Event()
        self.gates.append(gate)
        gate.wait()
        if self.error is not None:
            raise self.error
        return self._real(f"127.0.0.{number + 1}", *arguments, **more)

    def end(self, number: int | None = None) -> None:
        for gate in self.gates if number is None else [self.gates[number]]:
            gate.set()


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    resolver = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    yield resolver
    resolver.end()


def on_patient_loop(main: Callable[[], Coroutine[None, None, None]], boot: Callable[[], float] | None = None) -> None:
    with asyncio.Runner(loop_factory=PatientLoop if boot is None else partial(PatientLoop, boot)) as runner:
        runner.run(main())


async def look_up(host: str = "cache") -> str:
    (found,) = await asyncio.get_running_loop().getaddrinfo(host, 1, type=socket.SOCK_STREAM)
    return str(found[4][0])


async def give_up(host: str = "cache") -> TimeoutError:
    """Look a name up that is not found in time."""
    with pytest.raises(TimeoutError) as raised:
        async with asyncio.timeout(0.01):
            await look_up(host)
    return raised.value


async def until_all_ended() -> None:
    while any(thread.name == "singletonjob-look-up" for thread in threading.enumerate()):
        await asyncio.sleep(0.001)
    await asyncio.sleep(0)


def test_a_look_up_that_outlasts_its_call_answers_the_next_call(resolver: Resolver) -> None:
    async def main() -> None:
        await give_up()
        next_call = asyncio.create_task(look_up())
        while len(resolver.gates) < 2:
            await asyncio.sleep(0.001)
        resolver.end(0)
        assert await next_call == "127.0.0.1"

    on_patient_loop(main)


def test_the_next_call_looks_up_anew_as_well_because_the_earlier_look_up_may_hang_for_ever(resolver: Resolver) -> None:
    async def main() -> None:
        await give_up()
        next_call = asyncio.create_task(look_up())
        while len(resolver.gates) < 2:
            await asyncio.sleep(0.001)
        resolver.end(1)
        assert await next_call == "127.0.0.2"

    on_patient_loop(main)


def test_an_answer_that_came_between_two_calls_is_used_once(resolver: Resolver) -> None:
    async def main() -> None:
        await give_up()
        resolver.end()
        await until_all_ended()
        await give_up("another name")
        assert await look_up() == "127.0.0.1"
        await give_up()

    on_patient_loop(main)


def test_an_answer_that_came_too_long_ago_is_not_used(resolver: Resolver) -> None:
    now = 1000.0

    async def main() -> None:
        nonlocal now
        await give_up()
        resolver.end()
        await until_all_ended()
        now += LATE_ANSWER_LASTS + 0.1
        await give_up()

    on_patient_loop(main, lambda: now)


def test_a_failure_that_came_between_two_calls_is_not_held_against_the_next_call(resolver: Resolver) -> None:
    complaints: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        resolver.error = socket.gaierror(socket.EAI_AGAIN, "no answer")
        await give_up()
        resolver.end()
        await until_all_ended()
        resolver.error = None
        next_call = asyncio.create_task(look_up())
        while len(resolver.gates) < 2:
            await asyncio.sleep(0.001)
        resolver.end()
        assert await next_call == "127.0.0.2"
        resolver.error = socket.gaierror(socket.EAI_AGAIN, "no answer")
        await give_up()
        resolver.end()
        await until_all_ended()

    on_patient_loop(main)
    gc.collect()
    assert complaints == []


def test_a_call_that_ends_during_a_look_up_says_which_name_was_slow(resolver: Resolver) -> None:
    async def main() -> None:
        assert re.fullmatch(r"looking up the name cache took longer than 0\.[0-9]+ s", slow_look_up(await give_up()))
        assert resolver.gates

    on_patient_loop(main)


def test_a_look_up_whose_thread_is_refused_fails_alone_and_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    real = threading.Thread.start
    refusals = 3 * LOOK_UPS

    def start(thread: threading.Thread) -> None:
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)

    async def main() -> None:
        while refusals:
            with pytest.raises(OSError, match="can't start new thread"):
                await look_up("127.0.0.1")
        assert await look_up("127.0.0.1") == "127.0.0.1"

    on_patient_loop(main)


async def test_a_call_whose_thread_is_refused_fails_alone_and_is_never_made(
    worker: DaemonWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
        for _ in range(2):
            with pytest.raises(RuntimeError, match="can't start new thread"):
                await worker.run(made.append, 0)
    await worker.run(made.append, 1)
    assert made == [1]


def test_a_name_look_up_that_hangs_costs_its_caller_alone_and_their_number_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = threading.Event()
    real = socket.getaddrinfo

    def getaddrinfo(host: str, *arguments: Any, **more: Any) -> object:
        if host.startswith("hangs"):
            answers.wait()
        return real("127.0.0.1", *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(LOOK_UPS - 1):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(loop.getaddrinfo("hangs", 1), 0.01)
        (found,) = await loop.getaddrinfo("answers", 1, type=socket.SOCK_STREAM)
        assert found[4] == ("127.0.0.1", 1)
        for number in itertools.count():  # until the thread of that one has ended, too
            with pytest.raises((TimeoutError, socket.gaierror)) as raised:
                await asyncio.wait_for(loop.getaddrinfo(f"hangs {number}", 1), 0.01)
            if raised.type is socket.gaierror:
                break
        answers.set()
        while True:
            with suppress(socket.gaierror):
                assert await loop.getaddrinfo("answers", 1)
                return

    try:
        with asyncio.Runner(loop_factory=PatientLoop) as runner:
            runner.run(main())
    finally:
        answers.set()
