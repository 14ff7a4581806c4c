"""No thread can be started, once: an error of that one call, which leaves everything as it was."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path

import pytest

from singletonjob import Health, SingletonJobs
from singletonjob._process.systemd import notifying
from singletonjob._system.worker_threads import DaemonWorker
from singletonjob.probes.server import HealthServer
from singletonjob.stores.memory import MemoryStore
from singletonjob.stores.sqlite.watch import Watch
from virtual_loop import Capture, memory, run_virtually, running
from waiting import until, wait_for


class Refusal:
    """Threads whose name begins so cannot be started, the next `times` times: the system has none to give."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.name, self.times = "", 0
        start = threading.Thread.start

        def refused(thread: threading.Thread) -> None:
            if self.times and thread.name.startswith(self.name):
                self.times -= 1
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", refused)

    def __call__(self, name: str, times: int = 1) -> None:
        self.name, self.times = name, times


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Refusal:
    return Refusal(monkeypatch)


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def test_a_call_whose_thread_is_refused_fails_is_never_made_and_the_next_one_starts_the_thread(
    refuse: Refusal,
) -> None:
    worker, made = DaemonWorker("worker"), list[int]()
    refuse("worker", 2)
    for number in (1, 2):
        with pytest.raises(RuntimeError, match="can't start new thread"):
            await worker.run(made.append, number)
        assert not worker.alive
    async with asyncio.timeout(10):
        await worker.run(made.append, 3)
    assert made == [3]
    worker.stop()


def test_the_last_call_of_a_worker_that_never_had_a_thread_is_made_all_the_same(refuse: Refusal) -> None:
    worker, made = DaemonWorker("worker"), list[int]()
    refuse("worker")
    worker.stop(lambda: made.append(1))
    wait_for(lambda: made == [1], 5)
    assert not worker.alive


def test_a_sync_run_whose_thread_is_refused_has_failed_and_the_next_one_runs(refuse: Refusal) -> None:
    async def main() -> None:
        ran: list[float] = []
        app = SingletonJobs("pricing", store=memory(), timeout="5s", shutdown_grace="1s")
        app.interval("1s", name="job")(lambda: ran.append(1))
        refuse("singletonjob-job")
        with Capture() as logs:
            async with running(app) as replica:
                await asyncio.sleep(20.5)
                assert app.stats()["job"].failed == 1
                assert len(ran) >= 15
                assert not replica.service.leases["job"].in_thread
                assert app.health().status == "ok"
        (line,) = logs.of("run-failed")
        assert "can't start new thread" in line.getMessage()
        assert "released" in logs.events()

    run_virtually(main())


@pytest.mark.parametrize("name", ["singletonjob-loop", "singletonjob-heartbeat"])
def test_a_start_whose_thread_is_refused_raises_leaves_nothing_and_can_be_made_again(
    refuse: Refusal, name: str
) -> None:
    ran = threading.Event()
    app = SingletonJobs("pricing", store=MemoryStore())
    app.interval("1s", name="job")(ran.set)
    refuse("")  # whatever it imports on its way is loaded by then
    with pytest.raises(RuntimeError):
        app.start()
    files, threads = descriptors(), threading.active_count()
    refuse(name)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        app.start()
    # Fewer are well: what an earlier test left may end meanwhile.
    wait_for(lambda: descriptors() <= files and threading.active_count() <= threads, 5, "the end of what had begun")
    assert not app.is_leader("job")
    assert app.stats() == {}
    with app.in_thread():
        assert ran.wait(10)


async def test_a_refused_heartbeat_leaves_no_task_and_no_timer_on_the_loop(refuse: Refusal) -> None:
    async def on() -> bool:
        return True

    ran = asyncio.Event()
    app = SingletonJobs("pricing", store=MemoryStore())

    @app.interval("1s", name="job", enabled=on)
    async def job() -> None:
        ran.set()

    before = asyncio.all_tasks(), descriptors()
    with Capture() as logs:
        refuse("singletonjob-heartbeat")
        with pytest.raises(RuntimeError, match="can't start new thread"):
            async with app:
                raise AssertionError
        assert (asyncio.all_tasks(), descriptors()) == before
        await asyncio.sleep(0.15)  # a runner that was killed would be started again by then
        assert asyncio.all_tasks() == before[0]
        assert "runner-died" not in logs.events()
    async with app:
        async with asyncio.timeout(10):
            await ran.wait()


def test_a_watch_whose_thread_is_refused_keeps_no_descriptor(refuse: Refusal, tmp_path: Path) -> None:
    watch = Watch(tmp_path / "leases.db", "pricing", lambda _news: False)
    before = descriptors()
    for _ in range(3):
        refuse("singletonjob-notices")
        with pytest.raises(RuntimeError, match="can't start new thread"):
            watch.start()
        assert descriptors() == before
    watch.stop()


def test_the_probes_whose_thread_is_refused_close_their_port_and_can_be_started_again(refuse: Refusal) -> None:
    server = HealthServer(SingletonJobs("pricing", store=MemoryStore()), "127.0.0.1", 0)
    before = descriptors()
    refuse("singletonjob-health")
    with pytest.raises(OSError, match="can't start new thread"):
        server.start()
    assert descriptors() == before
    server.stop()
    with server:
        assert server.port


def test_an_app_runs_and_stops_though_the_thread_that_reports_to_systemd_is_refused(
    refuse: Refusal, logs: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    refuse("singletonjob-systemd")
    with notifying(lambda: Health.of({}, ready=True), wanted=True) as tell:
        tell("READY=1")
    assert [record.getMessage() for record in logs.records] == [
        "nothing is reported to systemd: no thread can be started (can't start new thread)"
    ]
    assert os.environ["NOTIFY_SOCKET"] == "/run/systemd/notify"


async def test_a_signal_stops_the_app_in_good_order_though_the_watchdog_is_refused(refuse: Refusal) -> None:
    store = MemoryStore()
    app = SingletonJobs("pricing", store=store)

    @app.interval("1s", name="job")
    async def job() -> None: ...

    with Capture() as logs:
        serving = asyncio.create_task(app.serve())
        await until(lambda: app.is_leader("job"))
        refuse("singletonjob-watchdog")
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(10):
            await serving
        assert refuse.times == 0
    assert store._records["pricing", "job"].holder is None
    assert "watchdog-refused" in logs.events()


def test_a_log_thread_that_is_refused_costs_lines_and_no_beat(refuse: Refusal) -> None:
    app = SingletonJobs("pricing", store=MemoryStore(), lock_expiry="300ms", heartbeat_interval="50ms", margin="30ms")
    ran = threading.Event()
    app.interval("1s", name="job")(ran.set)
    refuse("singletonjob-log", 3)
    with Capture() as logs, app.in_thread():
        assert ran.wait(10)
        wait_for(lambda: sum(int(line.getMessage().split()[0]) for line in logs.of("log-lines-lost")) == 3)
        assert app.is_leader("job")
    assert all("can't start new thread" in line.getMessage() for line in logs.of("log-lines-lost"))
