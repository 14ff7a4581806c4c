"""Refusals to start where no job loop can run: inside another loop, or under an async library that is not asyncio."""

from __future__ import annotations

import asyncio

from .._core.errors import SingletonJobError

__all__ = ["refuse_running_loop", "require_asyncio"]


def refuse_running_loop() -> None:
    """Raise `SingletonJobError` if an asyncio loop runs in this thread, so that `asyncio.run` would refuse."""
    if asyncio._get_running_loop() is not None:  # noqa: SLF001 - get_running_loop raises where there is none
        raise SingletonJobError(
            "app.run() cannot be called where an asyncio event loop runs already, as in a notebook or in an async"
            " function; write `await app.serve()` instead, or app.start() and later app.stop(), which use a thread"
        )


def require_asyncio() -> None:
    """Raise `SingletonJobError` if no asyncio loop runs in this thread, as under trio."""
    if asyncio._get_running_loop() is None:  # noqa: SLF001 - as above
        raise SingletonJobError(
            "no asyncio event loop runs here, and the jobs need one (asyncio only, trio and curio do not do); write"
            " app.start() and later app.stop(), which run the jobs on an asyncio loop in a thread"
        )
