"""For ASGI servers: stop the jobs when the server stops, which Django's own application is not told.

uvicorn ends by the signal that it got, so nothing that Python does at exit happens there (`atexit`), and without this
the lease would be left to expire.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from .configuration import configured_app

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Receive = Callable[[], Awaitable[Any]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]
    Application = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]

__all__ = ["with_jobs"]


def with_jobs(application: Application) -> Application:
    """`application`, and the lifespan protocol beside it: `application = with_jobs(get_asgi_application())`.

    At the end of the lifespan the app is stopped, in a thread: runs drain, leases are given back.
    """

    async def wrapped(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await application(scope, receive, send)
            return
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await asyncio.to_thread(configured_app().stop)
        await send({"type": "lifespan.shutdown.complete"})

    return wrapped
