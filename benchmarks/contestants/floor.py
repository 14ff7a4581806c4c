"""The floor: a bare timerfd in an asyncio loop, and in a thread.

In the loop: the descriptor is registered with `add_reader`; its callback reads it and resolves the future that one
coroutine awaits. That coroutine reads the clock, sets the descriptor to the next grid point, and awaits the body, which
is passed the grid point it runs for. So a tick costs one wake-up of the loop, one read, one clock reading, one
timerfd_settime and one future; a tick that passed while the loop was busy is lost. It is the least that runs an async
body, never two at once, and so what ours is held against.

As a callback: no coroutine and no future, the reader's callback calls a plain function. In the thread: a read that
blocks, and a plain function. Both show what lies below, and neither could await anything.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from benchmarks.assignment import now
from benchmarks.contestants.timerfd import timerfd
from benchmarks.contestants.until_told import run

if TYPE_CHECKING:
    from benchmarks.assignment import Assignment, Stamps


def main(assignment: Assignment, stamps: Stamps) -> None:
    if assignment.flavour == "thread":
        in_thread(assignment, stamps)
    elif assignment.flavour == "callback":
        run(as_callback(assignment, stamps), uvloop=assignment.uvloop)
    else:
        run(in_loop(assignment, stamps), uvloop=assignment.uvloop)


async def in_loop(assignment: Assignment, stamps: Stamps) -> None:
    async def body(planned: int) -> None:
        start = now()
        stamps.add(planned, start)

    loop = asyncio.get_running_loop()
    fd, set_to = timerfd(blocking=False)
    waiter = loop.create_future()

    def wake() -> None:
        os.read(fd, 8)
        waiter.set_result(None)

    loop.add_reader(fd, wake)
    set_to(assignment.grid_point(now()) + assignment.period)
    while True:
        await waiter
        waiter = loop.create_future()
        due = assignment.grid_point(now())
        set_to(due + assignment.period)
        await body(due)


async def as_callback(assignment: Assignment, stamps: Stamps) -> None:
    def body(planned: int) -> None:
        start = now()
        stamps.add(planned, start)

    fd, set_to = timerfd(blocking=False)

    def wake() -> None:
        os.read(fd, 8)
        due = assignment.grid_point(now())
        set_to(due + assignment.period)
        body(due)

    loop = asyncio.get_running_loop()
    loop.add_reader(fd, wake)
    set_to(assignment.grid_point(now()) + assignment.period)
    await loop.create_future()


def in_thread(assignment: Assignment, stamps: Stamps) -> None:
    def body(planned: int) -> None:
        start = now()
        stamps.add(planned, start)

    fd, set_to = timerfd(blocking=True)
    set_to(assignment.grid_point(now()) + assignment.period)
    while True:
        os.read(fd, 8)
        due = assignment.grid_point(now())
        set_to(due + assignment.period)
        body(due)
