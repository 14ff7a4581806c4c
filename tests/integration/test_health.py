"""The probes over real sockets, in a thread of their own."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any

import pytest

from singletonjob import SingletonJobs
from singletonjob.health import PLACES, HealthServer
from singletonjob.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator


def jobs(**options: Any) -> SingletonJobs:
    app = SingletonJobs("pricing", store=MemoryStore(), **options)
    app.interval("50ms", name="poll")(lambda: None)
    return app


def ask(port: int, path: str, method: str = "GET") -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text) if text else None


@pytest.fixture
def app() -> Iterator[SingletonJobs]:
    one = jobs()
    with one.in_thread():
        deadline = time.monotonic() + 10
        while not one.is_leader("poll") and time.monotonic() < deadline:
            time.sleep(0.005)
        yield one


def test_a_leader_is_live_and_ready_and_says_that_it_leads(app: SingletonJobs) -> None:
    port = HealthServer(app, "127.0.0.1", 0).start()
    body = {"status": "ok", "jobs": {"poll": "leading"}}
    assert ask(port, "/livez") == (200, body)
    assert ask(port, "/readyz") == (200, body)
    assert ask(port, "/healthz?pretty") == (200, body)
    assert ask(port, "/livez", "HEAD") == (200, None)


def test_an_app_that_has_not_started_is_not_ready() -> None:
    port = HealthServer(jobs(), "127.0.0.1", 0).start()
    assert ask(port, "/readyz")[0] == 503
    assert ask(port, "/livez")[0] == 200


def test_the_probe_answers_while_a_body_blocks_the_job_loop_and_tells_a_stuck_loop() -> None:
    one = SingletonJobs("pricing", store=MemoryStore(), stall_limit=3, lock_expiry=3, heartbeat_interval=1)
    blocked, go_on = threading.Event(), threading.Event()

    @one.interval("1h")
    async def block() -> None:
        blocked.set()
        go_on.wait(30)

    with one.in_thread():
        port = HealthServer(one, "127.0.0.1", 0).start()
        try:
            assert blocked.wait(10)
            assert ask(port, "/livez") == (200, {"status": "ok", "jobs": {"block": "leading"}})
            deadline = time.monotonic() + 20
            while (answer := ask(port, "/livez"))[0] == 200 and time.monotonic() < deadline:
                time.sleep(0.05)
            assert answer == (503, {"status": "stuck", "jobs": {"block": "stuck"}})
        finally:
            go_on.set()


def test_only_get_is_taken_and_unknown_paths_are_told(app: SingletonJobs) -> None:
    port = HealthServer(app, "127.0.0.1", 0).start()
    assert ask(port, "/livez", "POST")[0] == 405
    assert ask(port, "/metricz") == (404, {"error": "try /livez, /readyz or /healthz"})


def test_slow_and_endless_requests_cost_a_place_for_a_moment_and_no_more(app: SingletonJobs) -> None:
    port = HealthServer(app, "127.0.0.1", 0).start()
    with socket.create_connection(("127.0.0.1", port)) as endless:
        endless.sendall(b"GET /" + b"x" * 20_000)
        endless.settimeout(10)
        with contextlib.suppress(ConnectionResetError):
            assert endless.recv(100) == b""
    slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(PLACES)]
    try:
        time.sleep(0.1)
        with socket.create_connection(("127.0.0.1", port)) as turned_away:
            turned_away.settimeout(10)
            assert turned_away.recv(100) == b""
        for each in slow:
            each.settimeout(10)
            assert each.recv(100) == b""
        assert ask(port, "/livez")[0] == 200
    finally:
        for each in slow:
            each.close()


def test_an_address_that_is_taken_is_an_error_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        HealthServer(jobs(), "127.0.0.1", taken.getsockname()[1]).start()
