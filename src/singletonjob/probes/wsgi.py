"""The probes as a WSGI app, to be mounted beside Flask, Django and the like."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .answers import answer, mounted

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

    from .._app import SingletonJobs

__all__ = ["HealthWSGI"]


class HealthWSGI:
    """`DispatcherMiddleware(web, {"/health": HealthWSGI(jobs)})`: `/health/livez` and so on, as `answer` has them.

    It tells of the process that answers. Where jobs and web workers are separate processes, use a `HealthServer` in
    the one that has the jobs.
    """

    def __init__(self, app: SingletonJobs) -> None:
        self._app = app

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        """Answer one request, and leave its body unread."""
        method: str = environ["REQUEST_METHOD"]
        found = answer(self._app, method, mounted(environ.get("PATH_INFO", "")))
        start_response(f"{found.status.value} {found.status.phrase}", found.headers)
        return [] if method == "HEAD" else [found.body]
