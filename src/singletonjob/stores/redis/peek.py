"""Read the state of jobs in the Redis store, for people. Changes nothing, and uses a separate connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ..._core.orders import pause_in_force
from ..._core.protocol import JobView
from ..rules import with_run
from .errors import LOG_IN, SERVER_WIDE, code_of, translated
from .inspect import facts_of, unfit_for
from .wire import channel, lock_key, names_key, prefix, state_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .address import Place

__all__ = ["look"]

SECONDS = 3.0
"""The time limit in seconds."""

CHUNK = 100
"""The number of jobs in one request."""


async def look(address: Place, project: str) -> tuple[JobView, ...]:
    """Return the state of the project's jobs on the server at `address`, by name.

    Raises `StoreError`, also for a replica, which may have old data, and for a plain URL that names a node of a
    Cluster.
    """
    project = prefix(project, cluster=address.cluster)
    with translated(address, "SMEMBERS, GET, PTTL, HMGET and TIME"):
        async with asyncio.timeout(SECONDS):
            with translated(address, LOG_IN):
                link = await address.connect(project, SECONDS)
            try:
                name = channel(project).encode()
                info, found, heard = await link.call(
                    [(b"INFO",), (b"SMEMBERS", names_key(project).encode()), (b"PUBSUB", b"NUMSUB", name)]
                )
                listeners = None if isinstance(heard, Exception) else int(heard[1])  # it needs a separate right
                unfit = unfit_for(address, facts_of(info)) if isinstance(info, bytes) else None
                if unfit is not None:
                    raise unfit
                jobs = sorted(name.decode(errors="replace") for name in _sound(found) or ())
                found_views: list[JobView] = []
                for at in range(0, len(jobs), CHUNK):
                    chunk = jobs[at : at + CHUNK]
                    replies = await link.call([*_questions(project, chunk), (b"TIME",)])
                    found_views += _views(chunk, replies, listeners)
            finally:
                link.abort()
    return tuple(found_views)


def _questions(project: str, jobs: Iterable[str]) -> list[tuple[bytes, ...]]:
    """Return three commands for each job; `TIME` must follow the last of them."""
    commands: list[tuple[bytes, ...]] = []
    for job in jobs:
        lock, state = lock_key(project, job).encode(), state_key(project, job).encode()
        fields = (b"holder", b"token", b"since", b"done", b"paused", b"run")
        commands += [(b"GET", lock), (b"PTTL", lock), (b"HMGET", state, *fields)]
    # A hand-over between these commands is rare, and looks like the lease of another implementation. A transaction
    # would need rights that nothing else needs.
    return commands


def _views(jobs: Iterable[str], replies: Iterable[Any], listeners: int | None) -> list[JobView]:
    """Return the state from the replies to `_questions` and to `TIME`. Raises an error that concerns all jobs.

    `listeners` is the number of subscribers to the notices of the project; None: not known.
    """
    *answers, (seconds, micros) = [_sound(reply) for reply in replies]
    wall = int(seconds) * 1_000_000 + int(micros)
    return [_view(job, wall, listeners, *answers[at * 3 : at * 3 + 3]) for at, job in enumerate(jobs)]


def _view(job: str, wall: int, listeners: int | None, value: Any, left: Any, state: Any) -> JobView:
    fields: list[Any] = state or [None] * 6
    holder, token, since, done, ordered, run = fields
    _, _, ended = (done or b"").partition(b":")
    paused = pause_in_force((ordered or b"").decode(errors="replace"), wall)
    seen = JobView(job, ended=int(ended) if ended else None, paused=paused, standby=listeners, wall=wall)
    seen = with_run(seen, (run or b"").decode(errors="replace"))
    if value is None or left == -2:  # expired meanwhile
        return seen
    # If the state names another holder, the leader is another implementation, which writes no state.
    ours = holder == value
    return seen._replace(
        holder=value.decode(errors="replace"),
        token=int(token) if ours else None,
        since=int(since) if ours else None,
        expires_in=left / 1000 if left >= 0 else None,
        standby=max(listeners - 1, 0) if ours and listeners is not None else listeners,
    )


def _sound(reply: Any) -> Any:
    """Return the reply; None for a key of a wrong type. Raises an error that concerns all jobs."""
    if not isinstance(reply, Exception):
        return reply
    if code_of(reply) in SERVER_WIDE:
        raise reply
    return None
