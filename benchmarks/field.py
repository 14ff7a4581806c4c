"""The contestants: what they are called in tables, which module runs them, which grid their ticks are held against."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["FIELD", "Contestant", "Grid"]

Grid = Literal["own", "asked", "fitted"]
"""Whose word on the grid counts: the contestant's own per tick; the one asked for; the best fit to what came."""


class Contestant(NamedTuple):
    """One of the field; `place` names its environment, `phase` its grid's offset where that cannot be chosen."""

    label: str
    module: str
    grid: Grid
    flavour: str = ""
    uvloop: bool = False
    place: str = "main"
    phase: int | None = None
    server: bool = False


FIELD = {
    "floor": Contestant("bare timerfd in asyncio", "floor", "own"),
    "floor_uvloop": Contestant("bare timerfd in uvloop", "floor", "own", uvloop=True),
    "floor_callback": Contestant("bare timerfd in asyncio, callback", "floor", "own", "callback"),
    "floor_thread": Contestant("bare timerfd in a thread", "floor", "own", "thread"),
    "ours": Contestant("singletonjob", "ours", "own"),
    "ours_uvloop": Contestant("singletonjob, uvloop", "ours", "own", uvloop=True),
    "ours_sync": Contestant("singletonjob, sync body", "ours", "own", "sync"),
    "ours_redis": Contestant("singletonjob, leader on Redis", "ours", "own", server=True),
    "ours_follower": Contestant("singletonjob, follower on Redis", "ours", "own", "follower", server=True),
    "bare_redis": Contestant("asyncio + redis.asyncio, one connection", "bare_redis", "own", server=True),
    "call_at": Contestant("asyncio call_at loop", "loops", "own"),
    "call_at_uvloop": Contestant("uvloop call_at loop", "loops", "own", uvloop=True),
    "naive": Contestant("asyncio sleep(period) loop", "loops", "own", "naive"),
    "aps3": Contestant("APScheduler 3, asyncio", "apscheduler3", "asked"),
    "aps3_background": Contestant("APScheduler 3, background", "apscheduler3", "asked", "background"),
    "aps4": Contestant("APScheduler 4 (pre-release)", "apscheduler4", "asked", place="apscheduler4"),
    "aiocron": Contestant("aiocron", "aiocron", "asked", phase=0),
    "arq": Contestant("arq", "arq", "asked", place="arq", phase=0, server=True),
    "redbeat": Contestant("Celery beat with RedBeat", "redbeat", "fitted", server=True),
    "pydocket": Contestant("pydocket", "pydocket", "fitted", server=True),
}
