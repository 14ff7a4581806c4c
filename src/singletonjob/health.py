"""How an app stands, and the probes of `singletonjob run --health`: a small HTTP server in a thread of its own.

The server answers while a body blocks the job loop, since that is when one asks. It only reads, takes GET alone, and
a slow or malicious client costs it one of a few places for two seconds.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._app import SingletonJobs

__all__ = ["Health", "HealthServer"]

PATIENCE = 2.0
"""Seconds that a client has for its request, and again to take the answer."""

PLACES = 16
"""Clients at a time; further ones are turned away at once."""

LONGEST_REQUEST = 4096
"""Bytes of a request's head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How the app stands, per job and in sum.

    Each job is `following`, `leading`, `store_down`, `stuck` (the job loop gives no sign of life, or a run outlived
    its timeout and grace) or `disabled`. `status` is the worst of them: `stuck`, `store_down`, else `ok`. `ready`: it
    has started and has seen its store at least once (or no job needs one).
    """

    status: Literal["ok", "store_down", "stuck"]
    ready: bool
    jobs: Mapping[str, str]


class HealthServer:
    """Serves `/livez`, `/readyz` and `/healthz` of `app` at `host:port`.

    `/livez` is 200 while the loops turn and nothing is stuck; it depends neither on leading nor on the store.
    `/readyz` is 200 once the app has started and has seen its store; it never depends on leading. `/healthz` is
    always 200, with `app.health()` as JSON.
    """

    def __init__(self, app: SingletonJobs, host: str, port: int) -> None:
        self._app = app
        self._host = host
        self._port = port
        self._clients = 0

    def start(self) -> int:
        """Listen, and return the port (that of the system's choice for port 0). Raises `OSError` if it cannot."""
        listening: Future[int] = Future()
        thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(listening)), name="singletonjob-health", daemon=True
        )
        thread.start()
        return listening.result()

    async def _serve(self, listening: Future[int]) -> None:
        try:
            server = await asyncio.start_server(self._client, self._host, self._port, limit=LONGEST_REQUEST)
        except OSError as error:
            listening.set_exception(error)
            return
        listening.set_result(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients += 1
        try:
            if self._clients <= PLACES:
                async with asyncio.timeout(PATIENCE):
                    head = await reader.readuntil(b"\r\n\r\n")
                method, _, rest = head.decode("latin-1").partition(" ")
                status, body = self._answer(method, rest.partition(" ")[0].partition("?")[0])
                import json

                content = json.dumps(body).encode() + b"\n"
                lines = (
                    f"HTTP/1.1 {status}",
                    "Content-Type: application/json",
                    f"Content-Length: {len(content)}",
                    "Connection: close",
                )
                writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + (b"" if method == "HEAD" else content))
                async with asyncio.timeout(PATIENCE):
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        finally:
            self._clients -= 1
            writer.close()
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await writer.wait_closed()

    def _answer(self, method: str, path: str) -> tuple[str, object]:
        if method not in {"GET", "HEAD"}:
            return "405 Method Not Allowed", {"error": "GET only"}
        health = self._app.health()
        body = {"status": health.status, "jobs": dict(health.jobs)}
        match path:
            case "/livez":
                return ("503 Service Unavailable" if health.status == "stuck" else "200 OK"), body
            case "/readyz":
                return ("200 OK" if health.ready else "503 Service Unavailable"), body
            case "/healthz":
                return "200 OK", body
            case _:
                return "404 Not Found", {"error": "try /livez, /readyz or /healthz"}
