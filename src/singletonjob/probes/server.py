"""The probes on a port of their own, in threads of their own: they answer while a body blocks the job loop.

The server is the standard library's. Here it is only bounded: clients at a time and per second, the time that each may
stay silent, and how often an answer is made anew. No body is read, and no connection is kept.
"""

from __future__ import annotations

import errno
import socket
import threading
import time
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf
from typing import TYPE_CHECKING, Any

from .._system.clock import SystemClock
from .answers import METHODS, ROUTES, Answer, answer, refusal

if TYPE_CHECKING:
    from typing import Self

    from .._app import SingletonJobs

__all__ = ["HealthServer"]

PATIENCE = 2.0
"""Seconds for which a client may stay silent."""

PLACES = 64
"""Clients at a time. One more takes the place of the oldest, so that idle clients cannot keep a probe out."""

PACE = 0.005
"""Seconds between two clients that come in, so that a flood costs a few per cent of a core and not the interpreter."""

KEPT_FOR = 0.1
"""Seconds that an answer is good for, so that frequent requests cost no more than ten per second."""

UNREAD = 16
"""So many pieces of what a client still sends are read after the answer."""


class HealthServer:
    """Serves `/livez`, `/readyz`, `/healthz` and `/metrics` of `app` at `host:port`, see `answer`.

    Its threads do not keep the process alive. As a context manager it starts and stops with the block.
    """

    def __init__(self, app: SingletonJobs, host: str, port: int) -> None:
        self._app = app
        self._host = host
        self._port = port
        self._kept: dict[str, tuple[float, Answer]] = {}
        self._servers: list[_Server] = []
        self._threads: list[threading.Thread] = []

    @property
    def port(self) -> int:
        """The port that it listens on; that of the system's choice for port 0, after the start."""
        return self._port

    def start(self) -> int:
        """Listen, and return the port. Raises `OSError` if it cannot; nothing is left behind then."""
        listeners = _listeners(self._host, self._port)
        self._port = listeners[0].getsockname()[1]
        self._servers = [_Server(listener, self._answer) for listener in listeners]
        for server in self._servers:
            thread = threading.Thread(target=server.serve_forever, args=(0.2,), name="singletonjob-health", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                self.stop()
                raise OSError(errno.EAGAIN, str(error)) from error
            self._threads.append(thread)
        return self._port

    def stop(self) -> None:
        """Close the port and end the threads. Clients of this moment get no answer."""
        servers, self._servers = self._servers, []
        threads, self._threads = self._threads, []
        for server, _ in zip(servers, threads, strict=False):
            server.shutdown()
        for server in servers:
            server.server_close()
        for thread in threads:
            thread.join(PATIENCE)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def _answer(self, method: str, path: str) -> Answer:
        if method not in METHODS or path not in ROUTES:
            return answer(self._app, method, path)
        now = SystemClock.boot()
        made, kept = self._kept.get(path, (-inf, None))
        if kept is None or now - made >= KEPT_FOR:
            try:
                kept = answer(self._app, method, path)
            except Exception as error:  # of the metrics, for example; the other probes go on
                kept = refusal(HTTPStatus.INTERNAL_SERVER_ERROR, repr(error))
            self._kept[path] = now, kept
        return kept


class _Server(ThreadingHTTPServer):
    """The server behind one listener, with a bounded number of clients, in the order in which they came."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, listener: socket.socket, reply: Any) -> None:
        super().__init__(("", 0), partial(_Client, reply), bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self._clients: dict[socket.socket, None] = {}
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._clients[request] = None
            oldest = next(iter(self._clients)) if len(self._clients) > PLACES else None
        if oldest is not None:
            with suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)  # its thread reads the end
        super().process_request(request, client_address)
        time.sleep(PACE)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._clients.pop(request, None)
        super().shutdown_request(request)

    def server_close(self) -> None:
        super().server_close()
        with self._lock:
            clients = list(self._clients)
        for client in clients:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left, or that could not be read, is nothing to report."""


class _Client(BaseHTTPRequestHandler):
    """One request of one client."""

    protocol_version = "HTTP/1.1"
    timeout = PATIENCE

    def __init__(self, reply: Any, *arguments: Any) -> None:
        self._reply = reply
        super().__init__(*arguments)

    def do_GET(self) -> None:
        self._send(self._reply(self.command, self.path.partition("?")[0]))

    do_HEAD = do_GET  # noqa: N815 - likewise

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Answer what the standard library refuses: a request that cannot be read, or another method."""
        if code == HTTPStatus.NOT_IMPLEMENTED:
            self._send(self._reply(self.command, self.path))
        else:
            self._send(refusal(HTTPStatus(code), message or HTTPStatus(code).phrase))

    def _send(self, found: Answer) -> None:
        self.request_version = "HTTP/1.1"  # else a request that cannot be read is answered without a head
        self.send_response_only(found.status, found.status.phrase)
        for name, value in [*found.headers, ("Connection", "close")]:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(found.body)
        self.close_connection = True
        # A socket that is closed with bytes unread resets the connection, and the answer may get lost.
        self.connection.shutdown(socket.SHUT_WR)
        for _ in range(UNREAD):
            if not self.connection.recv(8192):
                break

    def log_message(self, format: str, *_arguments: object) -> None:  # noqa: A002 - the standard library's name
        """Probes are not logged."""


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
        listener.listen(PLACES)
    except OSError:
        listener.close()
        raise
    return listener
