"""The probes on a port of their own, in a thread of its own: it answers while a body blocks the job loop.

Nothing that a client does may hurt the jobs, which share the interpreter with this thread. So everything is bounded,
per client and in sum: clients at a time and per second, the time of each in all (not per byte), the length of its head
and the pieces that it comes in, and how often an answer is made anew. No body is looked at, no connection is kept.
"""

from __future__ import annotations

import asyncio
import errno
import re
import socket
import threading
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from math import inf
from typing import TYPE_CHECKING

from .answers import METHODS, ROUTES, Answer, answer, refusal

if TYPE_CHECKING:
    from typing import Self

    from .._app import SingletonJobs

__all__ = ["HealthServer"]

PATIENCE = 2.0
"""Seconds that a client has in all: for its request, the answer, and to leave."""

PLACES = 64
"""Clients at a time. One more takes the place of the oldest: who only sits there cannot keep a probe out."""

PACE = 0.005
"""Seconds between two clients that come in, so that a flood costs a few per cent of a core and not the interpreter."""

LONGEST_HEAD = 8192
"""Bytes; what a proxy adds to a request fits well."""

MOST_PIECES = 16
"""A head may come in so many; a byte at a time would wake us thousands of times."""

KEPT_FOR = 0.1
"""Seconds that an answer is good for, so that asking often costs no more than asking ten times a second."""

END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
REQUEST_LINE = re.compile(rb"([A-Z]+) (/[!-~]*) HTTP/1\.[01]\r?\n")


class HealthServer:
    """Serves `/livez`, `/readyz`, `/healthz` and `/metrics` of `app` at `host:port`, see `answer`.

    Its thread does not keep the process alive. As a context manager it starts and stops with the block.
    """

    def __init__(self, app: SingletonJobs, host: str, port: int) -> None:
        self._app = app
        self._host = host
        self._port = port
        self._clients: dict[asyncio.Task[None], None] = {}  # in the order in which they came
        self._kept: dict[str, tuple[float, Answer]] = {}
        self._listeners: list[socket.socket] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event
        self._thread: threading.Thread

    @property
    def port(self) -> int:
        """The port that it listens on; that of the system's choice for port 0, after the start."""
        return self._port

    def start(self) -> int:
        """Listen, and return the port. Raises `OSError` if it cannot; nothing is left behind then."""
        self._listeners = _listeners(self._host, self._port)
        self._port = self._listeners[0].getsockname()[1]
        # Not the user's policy: uvloop would be loaded a second time for a few bytes.
        self._loop = asyncio.SelectorEventLoop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="singletonjob-health", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._loop.close()
            self._loop = None
            for listener in self._listeners:
                listener.close()
            raise OSError(errno.EAGAIN, str(error)) from error
        return self._port

    def stop(self) -> None:
        """Close the port and end the thread. Clients of this moment get no answer."""
        if self._loop is None:
            return
        with suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE)
        self._loop = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    # -- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        loop = self._loop
        assert loop is not None  # noqa: S101 - set by start
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        accepting = [asyncio.create_task(self._accept(listener)) for listener in self._listeners]
        await self._stop.wait()
        for task in [*accepting, *self._clients]:
            task.cancel()
        await asyncio.wait(accepting)
        for listener in self._listeners:
            listener.close()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError:  # no descriptor is left: those who wait are taken later
                await asyncio.sleep(KEPT_FOR)
                continue
            if len(self._clients) >= PLACES:
                next(iter(self._clients)).cancel()
            task = asyncio.create_task(self._client(connection))
            self._clients[task] = None
            task.add_done_callback(partial(self._left, connection))
            await asyncio.sleep(PACE)

    def _left(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        connection.close()
        del self._clients[task]

    async def _client(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with suppress(OSError):  # it left, or used up its time (a TimeoutError is one too)
            async with asyncio.timeout(PATIENCE):
                reply = self._reply(await _head(connection))
                await loop.sock_sendall(connection, reply)
                connection.shutdown(socket.SHUT_WR)
                # A socket that is closed with bytes unread resets the connection, and the answer may get lost.
                for _ in range(MOST_PIECES):
                    if not await loop.sock_recv(connection, LONGEST_HEAD):
                        break

    def _reply(self, head: bytes | None) -> bytes:
        """The whole answer to this head; None: it was too long."""
        request = None if head is None else REQUEST_LINE.match(head)
        method = ""
        if head is None:
            found = refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the head of the request is too long")
        elif request is None:
            found = refusal(HTTPStatus.BAD_REQUEST, "this is no request of HTTP/1.1")
        else:
            method, target = (part.decode("ascii") for part in request.groups())
            found = self._answer(method, target.partition("?")[0])
        lines = [f"HTTP/1.1 {found.status.value} {found.status.phrase}"]
        lines += [f"{name}: {value}" for name, value in [*found.headers, ("Connection", "close")]]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + (b"" if method == "HEAD" else found.body)

    def _answer(self, method: str, path: str) -> Answer:
        if method not in METHODS or path not in ROUTES:
            return answer(self._app, method, path)
        now = asyncio.get_running_loop().time()
        made, kept = self._kept.get(path, (-inf, None))
        if kept is None or now - made >= KEPT_FOR:
            try:
                kept = answer(self._app, method, path)
            except Exception as error:  # of the metrics, say; the other probes go on
                kept = refusal(HTTPStatus.INTERNAL_SERVER_ERROR, repr(error))
            self._kept[path] = now, kept
        return kept


async def _head(connection: socket.socket) -> bytes | None:
    """What came up to the empty line, or until the client ended its side; None: that was too much."""
    loop = asyncio.get_running_loop()
    head = b""
    for _ in range(MOST_PIECES):
        piece = await loop.sock_recv(connection, LONGEST_HEAD)
        head += piece
        if not piece:
            return b""  # no client that may be in a hurry leaves its request unended
        if len(head) > LONGEST_HEAD:
            return None
        if END_OF_HEAD.search(head):
            return head
    return None


def _listeners(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of `host`, all on one port."""
    found: list[socket.socket] = []
    refused: OSError | None = None
    try:
        for family, _, _, _, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            free = found[0].getsockname()[1] if found else port
            try:
                found.append(_listener(family, (address[0], free, *address[2:]), both=host == "::"))
            except OSError as error:
                # `localhost` has an address of IPv6 in many containers that have no IPv6.
                if error.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
                    raise
                refused = error
        if refused is not None and not found:
            raise refused
    except OSError:
        for listener in found:
            listener.close()
        raise
    return found


def _listener(family: int, address: tuple[object, ...], *, both: bool) -> socket.socket:
    """`both`: an address of IPv6 that takes clients of IPv4 too."""
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if both else 1)
        listener.bind(address)
        listener.listen()
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
