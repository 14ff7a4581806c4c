"""The probes as an ASGI app, to be mounted in Starlette, FastAPI, Litestar and the like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from .answers import answer, mounted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from .._app import SingletonJobs

    Message: TypeAlias = MutableMapping[str, Any]

__all__ = ["HealthASGI"]


class HealthASGI:
    """`api.mount("/health", HealthASGI(jobs))`: `/health/livez` and so on, as `answer` has them.

    It answers on the web server's own loop, so not while something blocks that. Where the jobs run on the same loop,
    a probe of it fails long before `stall_limit`; a liveness probe belongs on a `HealthServer`.
    """

    def __init__(self, app: SingletonJobs) -> None:
        self._app = app

    async def __call__(
        self, scope: Message, _receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        """Answer one request, and leave its body unread. Raises `ValueError` for any other kind of scope."""
        if scope["type"] != "http":
            raise ValueError(f"HealthASGI serves http, not {scope['type']}")
        found = answer(self._app, scope["method"], mounted(scope["path"]))
        headers = [(name.lower().encode(), value.encode()) for name, value in found.headers]
        await send({"type": "http.response.start", "status": int(found.status), "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else found.body})
