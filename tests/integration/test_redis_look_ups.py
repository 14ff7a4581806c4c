"""A resolver that does not answer: no process waits for it, neither one that runs jobs nor one that looks."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from integration.test_redis_outages import CALL_TIMEOUT, SCALED
from replicas import TICK, Fleet, boot
from singletonjob import StoreUnavailable
from singletonjob.stores.name_look_ups import run_patiently
from singletonjob.stores.protocol import Batch
from singletonjob.stores.redis.sentinel import service_from_url
from singletonjob.stores.redis.store import RedisStore, address_from_url
from waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from servers import Server

NO_RESOLVER = (
    """
import socket
socket.getaddrinfo = lambda *_, **__: threading.Event().wait()
"""
    + TICK
    + """
if __name__ == "__main__":
    app.run()
"""
)


@pytest.mark.parametrize("script", [False, True], ids=["by the command line", "as a script"])
def test_a_process_whose_look_ups_hang_for_ever_exits_within_its_grace(tmp_path: Path, script: bool) -> None:
    with Fleet(tmp_path, **SCALED) as fleet:
        replica = fleet.start(NO_RESOLVER, script=script, store="redis://cache:6379/0")
        # The command line logs where this can be read; a script's own logging is not set up.
        wait_for(lambda: "heartbeat" in str(replica.complaints()), what="its complaint")
        assert "looking up the name cache took longer than" in str(replica.complaints())
        left = replica.signal(signal.SIGTERM)
        assert replica.end() == 0
        assert boot() - left < 3 * CALL_TIMEOUT + 3


LOOK = """
import socket, sys, threading
socket.getaddrinfo = lambda *_, **__: threading.Event().wait()
from singletonjob.cli import main
sys.exit(main(["status", "--store", "redis://cache:6379/0", "--project", "pricing"]))
"""


def test_a_look_from_the_command_line_ends_although_its_name_look_up_hangs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOK],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert re.search("cache:6379.*: looking up the name cache took longer than 3", done.stderr)


@contextmanager
def slow_resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Names are found when the event is set, and later look-ups of the same name hang: the first must be used."""
    found, over, asked = threading.Event(), threading.Event(), set[Any]()
    real = socket.getaddrinfo

    def getaddrinfo(host: str, port: Any, *arguments: Any, **more: Any) -> object:
        gate = over if (host, port) in asked else found
        asked.add((host, port))
        gate.wait()
        return real("127.0.0.1", port, *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    try:
        yield found
    finally:
        found.set()
        over.set()


READING = Batch(project="pricing", node="a", bound=0.05)


def test_a_look_up_that_takes_longer_than_a_call_is_named_and_the_next_call_connects(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        store = RedisStore(address_from_url(f"redis://cache:{server.port}/0"))
        with pytest.raises(StoreUnavailable, match=r"cache:\d+, database 0: looking up the name cache took longer"):
            await store.exchange(READING)
        found.set()
        assert (await store.exchange(READING._replace(bound=20.0))).clock > 0
        await store.close()

    with slow_resolver(monkeypatch) as found:
        run_patiently(main())


def test_a_subscription_whose_look_up_takes_longer_than_its_patience_is_confirmed_the_next_time(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        address = address_from_url(f"redis://cache:{server.port}/0")
        store, patient = RedisStore(address, ping_interval=0.05), RedisStore(address)
        with pytest.raises(StoreUnavailable, match="looking up the name cache took longer"):
            await anext(store.notices("pricing"))
        found.set()
        notices = patient.notices("pricing")
        assert await anext(notices) == frozenset()
        await notices.aclose()

    with slow_resolver(monkeypatch) as found:
        run_patiently(main())


def test_a_sentinel_whose_name_is_looked_up_for_long_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        store = RedisStore(service_from_url("redis+sentinel://one,two/prices"))
        text = "sentinel one:26379: looking up the name one took longer.*sentinel two:26379: looking up the name two"
        with pytest.raises(StoreUnavailable, match=text):
            await store.exchange(READING._replace(bound=0.45))  # a third for each sentinel

    with slow_resolver(monkeypatch):
        run_patiently(main())
