"""`app.stop()` and `await app.astop()` in code that the app itself runs: they request the stop and return."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from code_blocks import blocks, pages
from singletonjob import IntervalJob, Run, SingletonJobError, SingletonJobs, Term
from singletonjob.stores.memory import MemoryStore
from virtual_loop import Capture
from waiting import until, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SANE = 5.0
"""Seconds that a stop with nothing to wait for certainly takes less than; a stop that waits for itself takes 21."""


class Stopping(IntervalJob, every="10ms", name="job"):
    """A job of which one piece of code stops the app."""

    def __init__(self, place: str) -> None:
        self.store = MemoryStore()
        self.app = SingletonJobs("pricing", store=self.store)
        self.app.add(self)
        self.place = place
        self.took: list[float] = []  # each call of stop() that came back, in seconds
        self.failed: list[BaseException] = []
        if place == "subscriber":
            self.app.subscribe(lambda _event: self.at("subscriber"))

    @property
    def holder(self) -> str | None:
        record = self.store._records.get(("pricing", "job"))
        return None if record is None else record.holder

    def at(self, place: str) -> None:
        if place == self.place:
            self.call(self.app.stop)

    def call(self, stop: Callable[[], object]) -> None:
        begun = time.monotonic()
        try:
            stop()
        except BaseException as error:
            self.failed.append(error)
        self.took.append(time.monotonic() - begun)

    async def is_enabled(self) -> bool:
        self.at("switch")
        return True

    async def on_elected(self, term: Term) -> None:
        self.at("on_elected")

    async def execute(self, run: Run) -> None:
        self.at("body")
        if self.place == "thread of a body":
            await run.to_thread(self.call, self.app.stop)
        if self.place == "asyncio.to_thread":
            await asyncio.to_thread(self.call, self.app.stop)
        if self.place == "astop":
            begun = time.monotonic()
            await self.app.astop()
            self.took.append(time.monotonic() - begun)
        if self.place == "astop in a child task":
            begun = time.monotonic()
            await asyncio.create_task(self.app.astop())
            self.took.append(time.monotonic() - begun)
        if self.place == "signal handler":
            os.kill(os.getpid(), signal.SIGUSR1)
        if self.place == "another thread":
            thread = threading.Thread(target=self.call, args=(self.app.stop,))
            thread.start()


class StoppingInThread(Stopping, name="job"):
    """The same with sync code, which runs in a thread."""

    def on_elected(self, term: Term) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        self.at("sync on_elected")

    def execute(self, run: Run) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        self.at("sync body")


def in_run(app: SingletonJobs) -> None:
    app.run()


def in_serve(app: SingletonJobs) -> None:
    asyncio.run(app.serve(signals=False))


def in_a_block(app: SingletonJobs) -> None:
    async def main() -> None:
        async with app:
            while not app_is_stopping(app):
                await asyncio.sleep(0.005)

    asyncio.run(main())


def in_a_lifespan(app: SingletonJobs) -> None:
    async def main() -> None:
        async with app.lifespan():
            while not app_is_stopping(app):
                await asyncio.sleep(0.005)

    asyncio.run(main())


def started(app: SingletonJobs) -> None:
    with app.in_thread():
        wait_for(lambda: not loop_threads(), SANE, "the end of the job loop's thread")


def app_is_stopping(app: SingletonJobs) -> bool:
    service = app._service
    return service is None or service._stop_task is not None


def loop_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "singletonjob-loop"]


WAYS = [in_run, in_serve, in_a_block, in_a_lifespan, started]

PLACES = [
    *("body", "thread of a body", "asyncio.to_thread", "astop", "astop in a child task", "on_elected", "switch"),
    *("subscriber", "signal handler", "sync body", "sync on_elected"),
]


@pytest.fixture
def stopped_by_signal() -> Iterator[list[Stopping]]:
    """A handler of SIGUSR1 that stops the app of the job in the list."""
    jobs: list[Stopping] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: jobs[0].call(jobs[0].app.stop))
    yield jobs
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", PLACES)
def test_a_stop_out_of_the_apps_own_code_returns_at_once_and_the_app_drains_and_ends(
    place: str, way: Callable[[SingletonJobs], None], stopped_by_signal: list[Stopping]
) -> None:
    job = (StoppingInThread if "sync" in place.split() else Stopping)(place)
    stopped_by_signal.append(job)
    begun = time.monotonic()
    with Capture() as logs:
        way(job.app)
    assert not loop_threads()
    assert time.monotonic() - begun < SANE
    assert job.failed == []
    assert job.took
    assert max(job.took) < SANE
    assert job.holder is None
    assert len(logs.of("released")) == len(logs.of("elected"))
    assert not [line for line in logs.events() if line.endswith("-failed")]


@pytest.mark.parametrize("way", WAYS[:4])
def test_a_stop_from_another_thread_of_the_program_returns_at_once_unless_the_app_was_started(
    way: Callable[[SingletonJobs], None],
) -> None:
    job = Stopping("another thread")
    way(job.app)
    wait_for(lambda: job.took, what="the end of the call in its thread")
    assert max(job.took) < SANE
    assert job.failed == []
    assert job.holder is None


def test_a_stop_from_outside_of_a_started_app_waits_until_it_has_drained_also_after_one_from_inside() -> None:
    begun, app = threading.Event(), SingletonJobs("pricing", store=(store := MemoryStore()))

    @app.interval("10ms", name="job")
    async def job(run: Run) -> None:
        begun.set()
        app.stop()
        while not run.stopping:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.1)

    app.start()
    assert begun.wait(SANE)
    app.stop()
    assert store._records["pricing", "job"].holder is None
    assert not loop_threads()
    app.start()  # it can be started again
    app.stop()
    assert not loop_threads()


def test_a_stop_while_the_app_starts_is_not_lost() -> None:
    async def main() -> None:
        app = Stopping("").app
        service = app._make()
        app.stop()  # of another thread, which sees the app but not yet its loop
        app._begin(service)
        await until(service.stopped.is_set, SANE)

    asyncio.run(main())


def test_a_stop_before_the_start_or_after_the_end_does_nothing() -> None:
    app = SingletonJobs("pricing", store=MemoryStore())
    app.stop()
    asyncio.run(app.astop())

    async def main() -> None:
        async with app:
            await asyncio.sleep(0)
        app.stop()
        await app.astop()

    asyncio.run(main())


def test_an_app_that_was_stopped_inside_its_block_ends_there_and_the_block_goes_on() -> None:
    async def main() -> list[Any]:
        job = Stopping("")
        async with job.app:
            while not job.app.is_leader("job"):
                await asyncio.sleep(0.001)
            job.app.stop()
            while job.holder is not None:
                await asyncio.sleep(0.001)
            return ["went on"]

    assert asyncio.run(asyncio.wait_for(main(), SANE)) == ["went on"]


def test_an_app_that_was_stopped_inside_its_block_is_disabled_there_and_not_stuck_and_may_start_again() -> None:
    async def main() -> None:
        job = Stopping("")
        app = SingletonJobs("pricing", store=job.store, lock_expiry=0.2, heartbeat_interval=0.05)
        app.interval("10ms", name="job")(lambda: None)
        async with app:
            app.stop()
            await until(lambda: app.health().jobs == {"job": "disabled"}, SANE)
            await asyncio.sleep(0.3)  # longer than lock_expiry, after which a silent heartbeat is reported as stuck
            assert app.health().live
            await app.astart()
            await until(lambda: app.is_leader("job"), SANE)
        assert job.holder is None

    asyncio.run(main())


# -- a start and a stop without a block ----------------------------------------------------------------------------


def test_astart_returns_at_once_and_astop_when_all_is_released_and_both_may_be_repeated() -> None:
    async def main() -> None:
        job = Stopping("")
        loop, before = asyncio.get_running_loop(), signal.getsignal(signal.SIGTERM)
        for _ in range(2):
            begun = loop.time()
            await job.app.astart()
            assert loop.time() - begun < SANE
            assert signal.getsignal(signal.SIGTERM) is before
            with pytest.raises(SingletonJobError, match=r"runs already.*write app\.stop\(\) before"):
                await job.app.astart()
            await until(lambda: job.app.is_leader("job"), SANE)
            assert not loop_threads(), "the jobs are on the caller's own loop"
            await job.app.astop()
            assert job.holder is None
            assert not job.app.is_leader("job")
        await job.app.astop()

    asyncio.run(main())


def test_astop_of_an_app_that_runs_in_a_thread_waits_for_it_while_the_loop_turns() -> None:
    async def main() -> None:
        job, turned = Stopping(""), asyncio.Event()
        job.app.start()
        await until(lambda: job.app.is_leader("job"), SANE)
        asyncio.get_running_loop().call_soon(turned.set)
        await job.app.astop()
        assert turned.is_set()
        assert job.holder is None
        assert not loop_threads()

    asyncio.run(main())


# -- where no job loop can run -------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
def test_run_inside_a_running_loop_says_what_to_write_in_a_notebook_and_leaves_no_coroutine_behind() -> None:
    job = Stopping("")

    async def cell() -> None:
        with pytest.raises(SingletonJobError) as caught:
            job.app.run()
        (line,) = str(caught.value).splitlines()
        assert "notebook" in line
        assert "write `await app.serve()` instead, or app.start() and later app.stop()" in line
        await job.app.astart()  # the app can still be started
        await job.app.astop()

    asyncio.run(cell())
    gc.collect()


def test_the_notebook_cell_of_the_page_may_be_run_again_with_a_new_body() -> None:
    (page,) = [page for page in pages() if page.name == "script.md"]
    (cell,) = [block.text for block in blocks(page.read_text(), page.name) if "globals()" in block.text]
    for ours, here in (('store="sqlite"', "store=store"), ('"5s"', '"10ms"'), ('print("new prices")', "ran()")):
        assert ours in cell
        cell = cell.replace(ours, here)
    names: dict[str, Any] = {"__name__": "__main__", "store": MemoryStore()}

    async def notebook() -> None:
        for _ in range(2):
            names["ran"] = (ran := threading.Event()).set
            exec(cell, names)  # noqa: S102 - as a notebook does
            await until(ran.is_set, SANE)
        names["app"].stop()

    asyncio.run(notebook())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("way", ["serve", "async with", "lifespan", "astart"])
def test_a_start_under_another_async_library_says_that_asyncio_is_needed_and_what_to_write(way: str) -> None:
    app = Stopping("").app
    starts: dict[str, Callable[[], Any]] = {
        "serve": lambda: app.serve(),
        "async with": lambda: app.__aenter__(),
        "lifespan": lambda: app.lifespan().__aenter__(),
        "astart": lambda: app.astart(),
    }
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SingletonJobError) as caught:
        starts[way]().send(None)  # a step of the coroutine, as trio makes it
    (line,) = str(caught.value).splitlines()
    assert "asyncio only, trio" in line
    assert "write app.start() and later app.stop()" in line
    assert signal.getsignal(signal.SIGTERM) is before
    app.start()  # the app can still be started
    app.stop()
