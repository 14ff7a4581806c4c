"""A look into the Redis store from outside: who leads. Reads only, on a connection of its own."""

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
"""What one look may take in all."""

CHUNK = 100
"""So many jobs are asked about in one go."""


async def look(address: Place, project: str) -> tuple[JobView, ...]:
    """How the project's jobs stand on the server at `address`, by name. Raises `StoreError`, also
    for a replica, which may tell what was, and for a node of a Cluster that a plain URL names."""
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
                listeners = None if isinstance(heard, Exception) else int(heard[1])  # it is a right of its own
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
    """Three commands for each job; `TIME` is to be asked after the last of them."""
    commands: list[tuple[bytes, ...]] = []
    for job in jobs:
        lock, state = lock_key(project, job).encode(), state_key(project, job).encode()
        fields = (b"holder", b"token", b"since", b"done", b"paused", b"run")
        commands += [(b"GET", lock), (b"PTTL", lock), (b"HMGET", state, *fields)]
    # A hand-over in the midst of them is rare, and looks like the lease of another implementation. A transaction would
    # need rights that nothing else needs.
    return commands


def _views(jobs: Iterable[str], replies: Iterable[Any], listeners: int | None) -> list[JobView]:
    """What the replies to `_questions`, and then to `TIME`, say. Raises an error that is not about one job.

    `listeners` hear the notices of the project; None: it is not known how many.
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
    if value is None or left == -2:  # gone, in between
        return seen
    # Where the state names another, the leader is another implementation, which keeps none and does not listen.
    ours = holder == value
    return seen._replace(
        holder=value.decode(errors="replace"),
        token=int(token) if ours else None,
        since=int(since) if ours else None,
        expires_in=left / 1000 if left >= 0 else None,
        standby=max(listeners - 1, 0) if ours and listeners is not None else listeners,
    )


def _sound(reply: Any) -> Any:
    """The reply, None for the error of a bad key. Raises an error that is not about one job."""
    if not isinstance(reply, Exception):
        return reply
    if code_of(reply) in SERVER_WIDE:
        raise reply
    return None
