"""What the probes say, whoever carries it."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .._app import SingletonJobs
    from .._reporting.health import Health

__all__ = ["METHODS", "ROUTES", "Answer", "answer", "mounted", "refusal"]

METHODS = ("GET", "HEAD")
"""What is answered."""

ROUTES = ("/livez", "/readyz", "/healthz", "/metrics")
"""The paths that there are; `answer` tells what each says."""

TEXT = "text/plain; charset=utf-8"


class Answer(NamedTuple):
    """One answer; the body is that of GET, whoever carries it leaves it out for HEAD."""

    status: HTTPStatus
    content_type: str
    body: bytes

    @property
    def headers(self) -> list[tuple[str, str]]:
        """All that belongs to it, the body's length too."""
        found = [
            ("Content-Type", self.content_type),
            ("Content-Length", str(len(self.body))),
            ("Cache-Control", "no-store"),  # else a proxy on the way could keep a dead process alive
        ]
        if self.status is HTTPStatus.METHOD_NOT_ALLOWED:
            found.append(("Allow", ", ".join(METHODS)))
        return found


def answer(app: SingletonJobs, method: str, path: str) -> Answer:
    """What `app` has to say to this request; safe from any thread, and while a body blocks the job loop.

    `/livez`: 503 when something is stuck, else 200; depends neither on leading nor on the store. `/readyz`: 200 once
    the app has started and has seen its store, else 503; never depends on leading. `/healthz`: 200. All three have
    `app.health()` as JSON. `/metrics`: Prometheus text; 501 where prometheus-client is not installed. Any other path
    is 404, any method but GET and HEAD is 405.
    """
    if method not in METHODS:
        return refusal(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are served here")
    match path:
        case "/livez":
            health = app.health()
            return _told(health, good=health.live)
        case "/readyz":
            health = app.health()
            return _told(health, good=health.ready)
        case "/healthz":
            return _told(app.health(), good=True)
        case "/metrics":
            return _metrics(app)
        case _:
            return refusal(HTTPStatus.NOT_FOUND, f"there are {', '.join(ROUTES[:-1])} and {ROUTES[-1]}")


def mounted(path: str) -> str:
    """The path for `answer`, of one that still has before it what we are mounted under.

    Frameworks and proxies do not agree on who takes which prefix away (in ASGI `path` begins with `root_path`, or
    does not). No probe's path has a second slash, so the last part tells it.
    """
    return "/" + path.rpartition("/")[2]


def refusal(status: HTTPStatus, text: str) -> Answer:
    """A line of plain text."""
    return Answer(status, TEXT, f"{text}\n".encode())


def _told(health: Health, *, good: bool) -> Answer:
    body = {"status": health.status, "live": health.live, "ready": health.ready, "jobs": dict(health.jobs)}
    status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
    return Answer(status, "application/json", json.dumps(body).encode() + b"\n")


def _metrics(app: SingletonJobs) -> Answer:
    try:
        from ..prometheus import exposition

        body, content_type = exposition(app)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "prometheus_client":
            raise
        text = "/metrics needs prometheus-client: pip install 'singletonjob[prometheus]'"
        return refusal(HTTPStatus.NOT_IMPLEMENTED, text)
    return Answer(HTTPStatus.OK, content_type, body)
