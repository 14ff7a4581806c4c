"""What holds for all tests, and the fixtures that several files have in common.

Fixtures import what they need themselves: many tests run where there are no servers, and a trial of a mutant may not
find the library imported already (`soak/_mutant_bench.py`).
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    import redis

    from proxy import Proxy
    from servers import Server
    from virtual_loop import Capture

# Whoever starts the tests in the background may have had these ignored, and what they start would inherit that.
for _number, _handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
    (signal.SIGQUIT, signal.SIG_DFL),
):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, _handler)

# Nothing of the surroundings configures an app of a test, nor one of a process that a test starts.
for _name in [n for n in os.environ if n.startswith(("SINGLETONJOB_", "KUBERNETES_", "NOTIFY_SOCKET", "WATCHDOG_"))]:
    del os.environ[_name]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the seconds that the tests of each directory took, those of several workers added up."""
    seconds: dict[str, float] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                directory = "/".join(report.nodeid.split("/")[:2])
                seconds[directory] = seconds.get(directory, 0.0) + report.duration
    for directory, took in sorted(seconds.items()):
        terminalreporter.write_line(f"{took:7.1f} s  {directory}")


@pytest.fixture
def logs() -> Iterator[Capture]:
    from virtual_loop import Capture

    with Capture() as capture:
        yield capture


@pytest.fixture
def _often_switched() -> Iterator[None]:
    """The threads of the test take turns as often as they can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory; what is imported from it is forgotten afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


# -- a server of Redis ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests of a file, for those in which its version can hardly matter."""
    from servers import Server

    with Server("valkey-9", tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="module")
def server(newest: Server) -> Server:
    """The one that `client` and `proxy` belong to; files have their own where others matter."""
    return newest


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    """A client to look and interfere with, of the server of the file, which is empty now."""
    with server.client(decode_responses=True) as client:
        client.flushall()
        yield client


@pytest.fixture
async def proxy(server: Server, client: redis.Redis) -> AsyncIterator[Proxy]:
    """What stands between the server of the file, which is empty now, and whoever is given its port."""
    from proxy import Proxy

    async with Proxy(server.port) as proxy:
        yield proxy
