"""The probes over real sockets, in a thread of their own; clients that mean no good; and the command that asks them."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any

import pytest

from servers import free_port
from singletonjob import SingletonJobs
from singletonjob.cli import main
from singletonjob.probes import HealthServer
from singletonjob.probes.server import PATIENCE, PLACES
from singletonjob.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

SANE = 10.0
"""Seconds after which something that should take a moment is given up."""


def jobs(**options: Any) -> SingletonJobs:
    app = SingletonJobs("pricing", store=MemoryStore(), **options)
    app.interval("50ms", name="poll")(lambda: None)
    return app


def ask(port: int, path: str, method: str = "GET") -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", port, timeout=SANE)
    connection.request(method, path)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text) if text.startswith(b"{") else text.decode() or None


def raw(port: int, data: bytes, *, end: bool = False) -> bytes:
    """All that comes back for these bytes; `end`: our side is closed after them."""
    with socket.create_connection(("127.0.0.1", port), timeout=SANE) as client:
        client.sendall(data)
        if end:
            client.shutdown(socket.SHUT_WR)
        return all_of(client)


def all_of(client: socket.socket) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while part := client.recv(65536):
            received += part
    return received


@pytest.fixture
def app() -> Iterator[SingletonJobs]:
    one = jobs()
    with one.in_thread():
        deadline = time.monotonic() + SANE
        while not one.is_leader("poll") and time.monotonic() < deadline:
            time.sleep(0.005)
        yield one


@pytest.fixture
def port(app: SingletonJobs) -> Iterator[int]:
    with HealthServer(app, "127.0.0.1", 0) as server:
        yield server.port


# -- what a probe gets ---------------------------------------------------------------------------------------------


def test_a_leader_is_live_and_ready_and_says_that_it_leads(port: int) -> None:
    body = {"status": "ok", "live": True, "ready": True, "jobs": {"poll": "leading"}}
    assert ask(port, "/livez") == (200, body)
    assert ask(port, "/readyz") == (200, body)
    assert ask(port, "/healthz?pretty") == (200, body)
    assert ask(port, "/livez", "HEAD") == (200, None)


def test_an_app_that_has_not_started_is_live_but_not_ready() -> None:
    with HealthServer(jobs(), "127.0.0.1", 0) as server:
        assert ask(server.port, "/readyz")[0] == 503
        assert ask(server.port, "/livez")[0] == 200


def test_the_probe_answers_while_a_body_blocks_the_job_loop_and_tells_a_starved_and_a_stuck_loop() -> None:
    one = SingletonJobs("pricing", store=MemoryStore(), stall_limit=3, lock_expiry=3, heartbeat_interval=1)
    blocked, go_on = threading.Event(), threading.Event()

    @one.interval("1h")
    async def block() -> None:
        blocked.set()
        go_on.wait(60)

    with one.in_thread(), HealthServer(one, "127.0.0.1", 0) as server:
        try:
            assert blocked.wait(SANE)
            seen: list[tuple[int, str]] = []
            deadline = time.monotonic() + 2 * SANE
            while time.monotonic() < deadline and (503, "stuck") not in seen:
                status, body = ask(server.port, "/livez")
                if (status, body["jobs"]["block"]) not in seen:
                    seen.append((status, body["jobs"]["block"]))
                time.sleep(0.05)
            assert seen == [(200, "leading"), (200, "starved"), (503, "stuck")]
        finally:
            go_on.set()


def test_in_a_forked_child_the_app_does_not_run_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "forked.py").write_text("""
import os, time, warnings
from singletonjob import SingletonJobs
warnings.simplefilter("ignore")
app = SingletonJobs("pricing", store="memory")
app.interval(1, name="poll")(lambda: None)
with app.in_thread():
    while not app.is_leader("poll"):
        time.sleep(0.01)
    if os.fork() == 0:
        print(app.health(), flush=True)
        os._exit(0)
    os.wait()
    print(app.health(), flush=True)
""")
    done = subprocess.run(
        [sys.executable, "forked.py"], cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines() == [
        "Health(status='ok', ready=False, jobs={'poll': 'disabled'})",
        "Health(status='ok', ready=True, jobs={'poll': 'leading'})",
    ]


# -- what else may come in -----------------------------------------------------------------------------------------


def test_post_and_unknown_paths_are_refused_and_a_body_is_not_read(port: int) -> None:
    assert ask(port, "/livez", "POST")[0] == 405
    assert ask(port, "/metricz") == (404, "there are /livez, /readyz, /healthz and /metrics\n")
    with socket.create_connection(("127.0.0.1", port), timeout=SANE) as client:
        client.sendall(b"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 30000\r\n\r\n" + b"x" * 10_000)
        status = client.recv(13)
        for _ in range(2):
            client.sendall(b"x" * 10_000)  # who still sends is not cut off before it could read
            time.sleep(0.05)
        client.shutdown(socket.SHUT_WR)
        assert (status + all_of(client)).startswith(b"HTTP/1.1 405 Method Not Allowed\r\n")


@pytest.mark.parametrize(
    ("data", "statuses"),
    [
        (b"garbage\r\n\r\n", {b"400"}),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)) + b"\r\n\r\n", {b"400"}),  # TLS, and more
        (b"GET /livez HTTP/2.0\r\n\r\n", {b"505"}),
        (b"GET http://x/livez HTTP/1.1\r\n\r\n", {b"404"}),
        (b"GET /li vez HTTP/1.1\r\n\r\n", {b"400"}),
        (b"GET /livez\x00 HTTP/1.1\r\n\r\n", {b"404"}),
        (b"GET /liv\xff HTTP/1.1\r\n\r\n", {b"404"}),
        (b"GET /" + b"x" * 70_000, {b"414"}),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 50_000, {b"431", b""}),  # the answer may be lost in the reset
    ],
)
def test_what_is_no_request_for_a_probe_is_refused(data: bytes, statuses: set[bytes], port: int) -> None:
    assert raw(port, data)[9:12] in statuses
    assert ask(port, "/livez")[0] == 200


def test_a_connection_is_never_kept_whatever_the_client_asks_for(port: int) -> None:
    one = b"GET /livez HTTP/1.1\r\nConnection: keep-alive\r\n\r\n"
    received = raw(port, one + one)
    assert received.count(b"HTTP/1.1 ") == 1
    assert b"\r\nConnection: close\r\n" in received


def test_a_client_that_has_closed_its_side_gets_its_answer(port: int) -> None:
    assert raw(port, b"GET /livez HTTP/1.1\r\n\r\n", end=True).startswith(b"HTTP/1.1 200 ")
    assert raw(port, b"GET /livez HTTP/1.0\n\n", end=True).startswith(b"HTTP/1.1 200 ")
    assert raw(port, b"", end=True) == b""


def test_a_client_that_stays_silent_is_dropped(port: int) -> None:
    began = time.monotonic()
    assert raw(port, b"GET /livez HTTP/1.1") == b""
    assert PATIENCE * 0.9 < time.monotonic() - began < 5 * PATIENCE


def test_200_clients_that_only_sit_there_do_not_keep_a_probe_out(port: int) -> None:
    slow = [socket.create_connection(("127.0.0.1", port), timeout=SANE) for _ in range(200)]
    try:
        for each in slow:
            with contextlib.suppress(OSError):  # it may have lost its place already
                each.sendall(b"GET /livez HTTP/1.1\r\nX: ")
        for _ in range(5):
            began = time.monotonic()
            assert ask(port, "/livez")[0] == 200
            assert time.monotonic() - began < 2 * PATIENCE
        for each in slow:
            assert all_of(each) == b""
    finally:
        for each in slow:
            each.close()


def test_one_client_more_than_there_are_places_takes_that_of_the_oldest(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("singletonjob.probes.server._Client.timeout", 60.0)  # nobody leaves for want of it
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=SANE)) for _ in range(PLACES)]
        assert ask(port, "/livez")[0] == 200
        assert all_of(slow[0]) == b""
        slow[-1].sendall(b"GET /readyz HTTP/1.1\r\n\r\n")
        assert all_of(slow[-1]).startswith(b"HTTP/1.1 200 ")


def test_a_flood_of_clients_is_taken_at_a_bounded_rate_and_answered_from_one_look_at_the_app(
    app: SingletonJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[float] = []
    health = app.health
    monkeypatch.setattr(app, "health", lambda: looked.append(time.monotonic()) or health())  # type: ignore[func-returns-value]  # that is the point
    answered: list[float] = []
    with HealthServer(app, "127.0.0.1", 0) as server:
        began = time.monotonic()

        def flood() -> None:
            while time.monotonic() < began + 1:
                assert raw(server.port, b"GET /healthz HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200 ")
                answered.append(time.monotonic())

        clients = [threading.Thread(target=flood) for _ in range(8)]
        for each in clients:
            each.start()
        for each in clients:
            each.join(SANE)
        took = time.monotonic() - began
    assert 10 < len(answered) <= took * 200 + 1
    assert len(looked) <= took * 10 + 1


def test_an_answer_that_cannot_be_made_is_an_error_of_that_answer_alone(
    app: SingletonJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    prometheus = pytest.importorskip("singletonjob.prometheus")

    def broken(_: object) -> None:
        raise RuntimeError("the metrics are broken")

    monkeypatch.setattr(prometheus, "exposition", broken)
    with HealthServer(app, "127.0.0.1", 0) as server:
        assert ask(server.port, "/metrics") == (500, "RuntimeError('the metrics are broken')\n")
        assert ask(server.port, "/livez")[0] == 200


# -- the port ------------------------------------------------------------------------------------------------------


def test_an_address_that_is_taken_is_an_error_at_once_and_leaves_nothing_behind() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        HealthServer(jobs(), "127.0.0.1", taken.getsockname()[1]).start()


def test_after_the_stop_the_port_is_free_and_the_thread_has_ended() -> None:
    server = HealthServer(jobs(), "127.0.0.1", 0)
    port = server.start()
    with socket.create_connection(("127.0.0.1", port), timeout=SANE) as client:
        ask(port, "/livez")  # so the other one is in as well
        server.stop()
        assert all_of(client) == b""
    assert not any(thread.name == "singletonjob-health" for thread in threading.enumerate())
    with HealthServer(jobs(), "127.0.0.1", port) as again:
        assert ask(again.port, "/livez")[0] == 200
    again.stop()


def test_a_name_is_served_on_each_of_its_addresses_and_all_addresses_of_ipv6_are_those_of_ipv4_too() -> None:
    for host in ("localhost", "::"):
        try:
            server = HealthServer(jobs(), host, 0)
            server.start()
        except OSError as error:
            pytest.skip(f"no IPv6 here: {error}")
        with contextlib.closing(socket.create_connection(("127.0.0.1", server.port), timeout=SANE)):
            assert ask(server.port, "/livez")[0] == 200
        server.stop()


def test_the_thread_does_not_keep_the_process_and_neither_do_its_clients(tmp_path: Path) -> None:
    (tmp_path / "short.py").write_text("""
import socket
from singletonjob import SingletonJobs
from singletonjob.probes import HealthServer
port = HealthServer(SingletonJobs("pricing", store="memory"), "127.0.0.1", 0).start()
client = socket.create_connection(("127.0.0.1", port))
client.sendall(b"GET /")
""")
    began = time.monotonic()
    done = subprocess.run([sys.executable, "short.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert time.monotonic() - began < SANE


# -- on the command line -------------------------------------------------------------------------------------------

JOBS = """
from singletonjob import SingletonJobs
app = SingletonJobs("pricing", store="memory")
app.interval("1s", name="poll")(lambda: None)
"""


@pytest.fixture
def served(tmp_path: Path) -> Callable[..., Any]:
    """`singletonjob run jobs:app --health ADDRESS` in a process; gives the URL that it logs."""
    (tmp_path / "jobs.py").write_text(JOBS)

    @contextlib.contextmanager
    def serve(address: str) -> Generator[str]:
        words = [sys.executable, "-m", "singletonjob", "run", "jobs:app", "--health", address, "--log-format", "json"]
        with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stderr is not None
                line = json.loads(process.stderr.readline())
                assert (line["level"], line["event"]) == ("INFO", "health-served")
                yield line["message"].removeprefix("health is served on ")
                process.terminate()
                process.communicate(timeout=60)
                assert process.returncode == 0
            finally:
                process.kill()

    return serve


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `singletonjob health`."""
    try:
        code = main(["health", *words])
    except SystemExit as exited:
        code = int(str(exited.code))
    output = capsys.readouterr()
    return code, output.out, output.err


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:0", ":0"])
def test_run_tells_the_port_that_it_got_and_health_asks_it(
    address: str, served: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    if "::1" in address:
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError as error:
            pytest.skip(f"no IPv6 here: {error}")
    with served(address) as url:
        assert re.fullmatch(r"http://(127\.0\.0\.1|\[::1\]|0\.0\.0\.0):[1-9]\d*", url)
        deadline = time.monotonic() + 2 * SANE
        while asked(capsys, f"{url}/readyz")[0] != 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        while (found := asked(capsys, url)) != (0, "200 OK: ok; poll leading\n", "") and time.monotonic() < deadline:
            time.sleep(0.05)
        assert found == (0, "200 OK: ok; poll leading\n", "")
        code, out, err = asked(capsys, url.removeprefix("http://"), "--json")
        assert (code, err) == (0, "")
        assert json.loads(out) == {"status": "ok", "live": True, "ready": True, "jobs": {"poll": "leading"}}


def test_run_on_a_port_in_use_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in_use_jobs.py").write_text(JOBS)
    monkeypatch.syspath_prepend(str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code = main(["run", "in_use_jobs:app", "--app-dir", str(tmp_path), "--health", f"127.0.0.1:{port}"])
    assert code == 2
    line = f"singletonjob run: --health: cannot listen on 127.0.0.1:{port}: Address already in use\n"
    assert capsys.readouterr().err == line


@pytest.mark.parametrize("address", ["8081", "::1:8081", "::1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:http", ""])
def test_run_refuses_what_is_no_address(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["run", "jobs:app", "--health", address])
    assert exited.value.code == 2
    assert "is no address; write HOST:PORT, for example 0.0.0.0:8081 or [::]:8081" in capsys.readouterr().err


def test_health_of_what_is_not_2xx_is_exit_code_1_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with HealthServer(jobs(), "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.port}"
        assert asked(capsys, f"{url}/readyz") == (
            1,
            "",
            f"singletonjob health: {url}/readyz: 503 Service Unavailable: ok; poll disabled\n",
        )
        code, out, err = asked(capsys, f"{url}/readyz", "--json")
        assert (code, json.loads(out)["ready"], err) == (1, False, "")
        assert asked(capsys, f"{url}/nope", "--json") == (
            1,
            "",
            f"singletonjob health: {url}/nope: the answer is no JSON: 404 Not Found\n",
        )
        assert asked(capsys, f"{url}/livez?from=probe#x")[0] == 0


def test_health_of_a_port_where_nobody_listens_is_exit_code_1_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    line = f"singletonjob health: http://127.0.0.1:{port}/livez: Connection refused\n"
    assert asked(capsys, f":{port}") == (1, "", line)


@contextlib.contextmanager
def server_that(reply: Callable[[socket.socket], None]) -> Iterator[str]:
    """The URL of a server that does just this with its one client."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            with client, contextlib.suppress(OSError):
                client.recv(4096)
                reply(client)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(SANE)


def test_health_waits_for_all_of_the_answer_no_longer_than_its_timeout(capsys: pytest.CaptureFixture[str]) -> None:
    def drip(client: socket.socket) -> None:
        for _ in range(30):
            client.sendall(b"H")
            time.sleep(0.05)

    with server_that(drip) as url:
        began = time.monotonic()
        found = asked(capsys, url, "--timeout", "500ms")
        took = time.monotonic() - began
    assert found == (1, "", f"singletonjob health: {url}/livez: no answer within 0.5 s\n")
    assert 0.4 < took < 3


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (b"", "Remote end closed connection without response"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH-2.0-OpenSSH_9.6"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "302 Found"),
    ],
)
def test_health_of_what_is_no_probe_is_exit_code_1_and_one_line(
    reply: bytes, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with server_that(lambda client: client.sendall(reply)) as url:
        assert asked(capsys, url) == (1, "", f"singletonjob health: {url}/livez: {said}\n")


def test_health_does_not_ask_a_proxy_of_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with HealthServer(jobs(), "127.0.0.1", 0) as server:
        assert asked(capsys, f":{server.port}")[0] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "required: URL"),
        (["ftp://127.0.0.1:1"], "'ftp://127.0.0.1:1' is no URL"),
        (["http://"], "is no URL"),
        (["http://127.0.0.1:port"], "is no URL"),
        (["http://user:secret@127.0.0.1:1"], "is no URL"),
        (["http://127.0.0.1:1/a b"], "is no URL"),
        ([":1", "--timeout", "0"], "--timeout: '0' must be greater than zero"),
        ([":1", "--timeout", "soon"], "--timeout: 'soon' is not a duration"),
    ],
)
def test_wrong_usage_of_health_is_one_line_and_exit_code_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = asked(capsys, *words)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
