"""The datagrams that a program sends to systemd, received on a socket of the test."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
import warnings
from typing import TYPE_CHECKING

import pytest

from singletonjob import Health, SingletonJobs
from singletonjob._process.systemd import notifying
from singletonjob.testing import FlakyStore
from waiting import until, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from virtual_loop import Capture

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no systemd")

FINE = Health.of({"a": "following"}, ready=True)
NO_STORE = Health.of({"a": "store_down"}, ready=False)
STUCK = Health.of({"a": "stuck"}, ready=True)


class Manager:
    """The socket that systemd would listen on."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.setblocking(False)
        self.told: list[str] = []

    def heard(self) -> list[str]:
        """All that has arrived so far."""
        while True:
            try:
                self.told.append(self.socket.recv(1000).decode())
            except BlockingIOError:
                return self.told


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    found = Manager(str(tmp_path / "notify"))
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    with found.socket:
        yield found


@pytest.fixture
def app() -> SingletonJobs:
    app = SingletonJobs("pricing", store="memory")

    @app.interval("1h")
    async def sweep() -> None: ...

    return app


# -- which ways to run ---------------------------------------------------------------------------------------------


def test_an_app_that_owns_its_program_says_ready_once_it_takes_part_and_stopping_when_its_stop_begins(
    manager: Manager, app: SingletonJobs
) -> None:
    async def main() -> None:
        serving = asyncio.create_task(app.serve())
        await until(manager.heard, what="READY=1")
        assert manager.heard() == ["READY=1"]
        assert app.health().jobs["sweep"] != "disabled"
        signal.raise_signal(signal.SIGTERM)
        await serving

    asyncio.run(main())
    assert manager.heard() == ["READY=1", "STOPPING=1"]


def test_run_tells_systemd_as_serve_does(manager: Manager, app: SingletonJobs) -> None:
    def stop() -> None:
        wait_for(manager.heard, what="READY=1")
        os.kill(os.getpid(), signal.SIGTERM)

    stopper = threading.Thread(target=stop)
    stopper.start()
    app.run()
    stopper.join()
    assert manager.heard() == ["READY=1", "STOPPING=1"]


def test_stopping_is_said_while_a_run_in_flight_still_drains(manager: Manager, app: SingletonJobs) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    @app.interval("1h")
    async def slow() -> None:
        begun.set()
        await may_end.wait()

    async def main() -> None:
        serving = asyncio.create_task(app.serve())
        await begun.wait()
        signal.raise_signal(signal.SIGTERM)
        await until(lambda: "STOPPING=1" in manager.heard(), what="STOPPING=1")
        assert not serving.done()
        may_end.set()
        await serving

    asyncio.run(main())


def test_ready_is_said_while_the_store_is_down_because_systemd_would_otherwise_end_the_start_and_restart_for_ever(
    manager: Manager,
) -> None:
    store = FlakyStore()
    store.down()
    app = SingletonJobs("pricing", store=store)
    app.interval("1h", name="sweep")(lambda: None)

    async def main() -> None:
        serving = asyncio.create_task(app.serve())
        await until(manager.heard, what="READY=1")
        assert not app.health().ready
        signal.raise_signal(signal.SIGTERM)
        await serving

    asyncio.run(main())
    assert manager.heard() == ["READY=1", "STOPPING=1"]


def test_an_app_that_cannot_start_does_not_say_ready(manager: Manager) -> None:
    with pytest.raises(Exception, match="store"):
        SingletonJobs("pricing", store="nonsense://").run()
    assert manager.heard() == []


def test_an_app_inside_a_program_of_the_users_leaves_systemd_to_that_program(
    manager: Manager, app: SingletonJobs
) -> None:
    path = os.environ["NOTIFY_SOCKET"]

    async def inside() -> None:
        async with app:
            assert os.environ["NOTIFY_SOCKET"] == path
        serving = asyncio.create_task(app.serve(signals=False))
        await until(lambda: app.health().jobs["sweep"] != "disabled")
        assert os.environ["NOTIFY_SOCKET"] == path
        serving.cancel()
        await asyncio.wait([serving])

    with app.in_thread():
        assert os.environ["NOTIFY_SOCKET"] == path
    asyncio.run(inside())
    assert manager.heard() == []


# -- the watchdog --------------------------------------------------------------------------------------------------


def test_a_sign_of_life_is_sent_while_livez_would_be_good_and_not_while_a_job_is_stuck(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "20000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    state, looks = [NO_STORE], []

    def health() -> Health:
        looks.append(state[0])
        return state[0]

    def looked_three_times() -> None:
        seen = len(looks)
        wait_for(lambda: len(looks) >= seen + 3, what="three more looks at the health")

    with notifying(health, wanted=True) as tell:
        tell("READY=1")
        wait_for(lambda: manager.heard()[:3] == ["READY=1", "WATCHDOG=1", "WATCHDOG=1"], what="two signs of life")
        state[0] = STUCK
        looked_three_times()
        silent_from = len(manager.heard())
        looked_three_times()
        assert len(manager.heard()) == silent_from
        state[0] = FINE
        wait_for(lambda: len(manager.heard()) >= silent_from + 2, what="signs of life after it was stuck")
        tell("STOPPING=1")
        wait_for(lambda: manager.heard()[-1] == "WATCHDOG=1" and "STOPPING=1" in manager.told, what="one in the drain")
    assert set(manager.heard()) == {"READY=1", "WATCHDOG=1", "STOPPING=1"}
    assert not [thread for thread in threading.enumerate() if thread.name == "singletonjob-systemd"]


@pytest.mark.parametrize(
    ("microseconds", "process", "interval"),
    [
        ("3000000", None, 1.5),
        ("3000000", os.getpid, 1.5),
        ("3000000", os.getppid, None),  # of the shell that started us, say: systemd waits for that one's
        ("9" * 30, None, threading.TIMEOUT_MAX),
        (None, None, None),
    ],
)
def test_a_sign_of_life_is_due_at_half_the_limit_if_the_watchdog_is_for_this_process(
    microseconds: str | None, process: Callable[[], int] | None, interval: float | None
) -> None:
    from singletonjob._process.systemd import watchdog_interval

    environ = {"WATCHDOG_USEC": microseconds, "WATCHDOG_PID": None if process is None else str(process())}
    assert watchdog_interval({name: value for name, value in environ.items() if value is not None}) == interval


# -- children ------------------------------------------------------------------------------------------------------


def test_a_program_that_a_body_starts_does_not_inherit_the_socket_and_the_program_has_it_again_afterwards(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "60000000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    before = dict(os.environ)
    for _ in range(2):  # a second run of one process tells systemd, too
        with notifying(lambda: FINE, wanted=True) as tell:
            assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} & os.environ.keys()
            tell("READY=1")
        assert dict(os.environ) == before
    assert manager.heard() == ["READY=1", "READY=1"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_tells_systemd_nothing_and_does_not_have_the_socket_afterwards(manager: Manager) -> None:
    child = -1
    with notifying(lambda: FINE, wanted=True) as tell:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # there is more than one thread
            child = os.fork()
        if child == 0:
            tell("STOPPING=1")
    if child == 0:
        os._exit("NOTIFY_SOCKET" in os.environ)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert manager.heard() == []


# -- what may fail -------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are of Linux")
def test_an_abstract_socket_is_told_as_one_with_a_path_is(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"singletonjob-test-{os.getpid()}"
    manager = Manager(f"\0{name}")
    monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
    with manager.socket, notifying(lambda: FINE, wanted=True) as tell:
        tell("READY=1")
        wait_for(manager.heard, what="READY=1")


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("/nowhere/notify", "No such file or directory"),
        ("vsock:2:1234", "write the path of a socket"),
        ("/" + "long" * 100, "too long"),
    ],
)
def test_a_socket_that_cannot_be_told_costs_one_line_of_the_log_and_harms_nothing(
    address: str, why: str, app: SingletonJobs, logs: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    monkeypatch.setenv("WATCHDOG_USEC", "2000")

    async def main() -> None:
        serving = asyncio.create_task(app.serve())
        await until(lambda: app.is_leader("sweep"))
        signal.raise_signal(signal.SIGTERM)
        await serving

    asyncio.run(main())
    said = [record.getMessage() for record in logs.records if getattr(record, "event", "") == "systemd-failed"]
    assert len(said) == 1
    assert "NOTIFY_SOCKET" in said[0]
    assert address in said[0]
    assert why in said[0]


@pytest.mark.parametrize("limit", ["soon", "", "0", "-5"])
def test_a_limit_of_the_watchdog_that_is_no_number_is_said_once_and_ready_is_told_all_the_same(
    limit: str, manager: Manager, logs: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", limit)
    with notifying(lambda: FINE, wanted=True) as tell:
        tell("READY=1")
    assert manager.heard() == ["READY=1"]
    (line,) = [record.getMessage() for record in logs.records]
    assert f"WATCHDOG_USEC: {limit!r}" in line


def test_without_the_variable_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    monkeypatch.setenv("WATCHDOG_USEC", "2000")
    before = threading.active_count()
    with notifying(lambda: FINE, wanted=True) as tell:
        tell("READY=1")
        assert threading.active_count() == before
