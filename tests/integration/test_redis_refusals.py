"""What a server says when it does not want us: its own words reach the user, with the command that it refused."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from servers import KINDS, Server
from singletonjob import StoreError
from singletonjob.stores import from_url
from singletonjob.stores.protocol import Batch
from waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def door(says: bytes) -> Iterator[str]:
    """The URL of a server that says that to whoever comes, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    visitor, _ = listener.accept()
                except OSError:
                    return
                with visitor:
                    visitor.recv(1000)
                    visitor.sendall(says)

        threading.Thread(target=serve, daemon=True).start()
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
        listener.shutdown(socket.SHUT_RDWR)


async def refusal(url: str, bound: float = 5.0) -> str:
    store = from_url(url)
    try:
        with pytest.raises(StoreError) as caught:
            await store.exchange(Batch("pricing", "me", bound))
    finally:
        await store.close()
    return str(caught.value)


@pytest.mark.parametrize(
    ("says", "told"),
    [
        (
            b"-DENIED Redis is running in protected mode.\r\n",
            "refused TIME: DENIED Redis is running in protected mode.",
        ),
        (b"-ERR max number of clients reached\r\n", "max number of clients reached"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "Connection closed by server; if it speaks TLS, write rediss:// in the URL"),
    ],
)
async def test_what_a_server_says_before_it_closes_the_connection_is_told(says: bytes, told: str) -> None:
    with door(says) as url:
        assert (await refusal(url)).endswith(told)


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_refused_at_the_log_in_is_told_as_that(kind: str, tmp_path: Path) -> None:
    with Server(kind, tmp_path) as server:
        url, told = server.url.replace("/0", "/99"), "refused the log-in (AUTH, SELECT): DB index is out of range"
        assert told in await refusal(url)
        with pytest.raises(StoreError) as caught:
            await from_url(url).peek("pricing")
        assert told in str(caught.value)
        assert (await refusal(server.url.replace("redis:", "rediss:"), 0.3)).endswith(
            "no answer to TIME in time; a server that does not speak TLS is as silent as that"
        )


async def test_a_plain_url_of_a_node_with_a_database_names_the_scheme_of_a_cluster(tmp_path: Path) -> None:
    with Server(KINDS[0], tmp_path, {"cluster-enabled": "yes"}) as node:
        assert "write redis+cluster://host:6379" in await refusal(node.url.replace("/0", "/3"))


def test_a_plain_url_of_a_sentinel_names_the_scheme_of_sentinels(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "sentinel.conf").write_text(f"port {port}\nsentinel monitor service 127.0.0.1 1 1\n")
    words = ["redis-server", str(tmp_path / "sentinel.conf"), "--sentinel"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as sentinel:

        def answers() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        wait_for(answers, what="the Sentinel", alive=sentinel)
        text = asyncio.run(refusal(f"redis://127.0.0.1:{port}/0"))
        sentinel.terminate()
    assert text.endswith("if it is a Sentinel, write redis+sentinel://host:26379/service/0")
