"""Not a scheduler: a process that imported asyncio and redis.asyncio and holds one connection, to weigh ours by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redis.asyncio import Redis

from benchmarks.contestants.until_told import run, sigterm

if TYPE_CHECKING:
    from benchmarks.assignment import Assignment, Stamps


def main(assignment: Assignment, stamps: Stamps) -> None:
    run(serve(assignment, stamps), uvloop=assignment.uvloop)


async def serve(assignment: Assignment, stamps: Stamps) -> None:
    client = Redis.from_url(assignment.store)
    await client.get("anything")
    stamps.ready()
    await sigterm()
    await client.aclose()
