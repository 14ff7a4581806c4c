"""A look into a Cluster from outside: who leads, and whether it will do. On connections of its own."""

from __future__ import annotations

import asyncio
import secrets
from itertools import count
from typing import TYPE_CHECKING, TypeVar

from ..._core.errors import StoreError
from ..._core.protocol import Finding
from .cluster_map import ClusterMap
from .cluster_slots import SLOTS, redirect, slot_of_job, slot_of_names
from .errors import translated
from .inspect import inspect as inspect_server
from .peek import SECONDS, questions, sound, views
from .wire import names_key

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Sequence

    from ..._core.protocol import JobView
    from ..._system.clock import Clock
    from .cluster_address import NodeAddress, Where

__all__ = ["inspect", "look"]

V = TypeVar("V")


async def look(seeds: Sequence[NodeAddress], clock: Clock, project: str) -> tuple[JobView, ...]:
    """How the project's jobs stand on the Cluster of `seeds`, by name. Raises `StoreError`, also where one of the nodes
    does not answer: who leads its jobs is not known."""
    cluster = ClusterMap(seeds, clock)
    try:
        with translated(seeds[0], "CLUSTER SLOTS, SMEMBERS, GET, PTTL, HMGET and TIME"):
            async with asyncio.timeout(SECONDS):
                await cluster.learn(SECONDS)
                (found,) = await cluster.ask(
                    slot_of_names(project), [(b"SMEMBERS", names_key(project).encode())], SECONDS
                )
                by_node: dict[Where | None, list[str]] = {}
                for name in sound(found) or ():
                    job = name.decode(errors="replace")
                    by_node.setdefault(cluster.owner(slot_of_job(project, job)), []).append(job)
                looks = await _all(_of_node(cluster, project, jobs) for jobs in by_node.values())
    finally:
        cluster.abort()
    return tuple(sorted(view for found in looks for view in found))


async def inspect(seeds: Sequence[NodeAddress], clock: Clock, project: str) -> tuple[Finding, ...]:
    """What there is to say about each master of the Cluster of `seeds`. Raises `StoreError` where one of them cannot be
    asked."""
    cluster = ClusterMap(seeds, clock)
    try:
        with translated(seeds[0], "CLUSTER SLOTS"):
            async with asyncio.timeout(SECONDS):
                await cluster.learn(SECONDS)
    finally:
        cluster.abort()
    masters = cluster.masters
    told = await _all(
        inspect_server(seeds[0].at(where), project, on_cluster=_kept_by(cluster, project, where)) for where in masters
    )
    unserved = sum(cluster.owner(slot) is None for slot in range(SLOTS))
    findings = [Finding("ok", f"a Cluster of {len(masters)} masters")]
    if unserved:
        findings = [
            Finding("error", f"{unserved} of the Cluster's {SLOTS} slots are served by no node; see CLUSTER INFO")
        ]
    for where, of_node in zip(masters, told, strict=True):
        findings += [finding._replace(text=f"{where[0]}:{where[1]}: {finding.text}") for finding in of_node]
    return tuple(findings)


async def _of_node(cluster: ClusterMap, project: str, jobs: list[str]) -> list[JobView]:
    """The jobs of one node; those that are moving are asked for where they went."""
    first = slot_of_job(project, jobs[0])
    where = cluster.owner(first)
    if where is None:
        raise StoreError(f"redis store: {cluster}: no node serves the slot {first}")
    node = cluster.node(where)
    with translated(node.address, "GET, PTTL, HMGET and TIME"):
        replies = await node.call([*questions(project, jobs), (b"TIME",)], SECONDS)
        for at, job in enumerate(jobs):
            three = slice(3 * at, 3 * at + 3)
            if any(redirect(reply, node.address.host) for reply in replies[three]):
                replies[three] = await cluster.ask(slot_of_job(project, job), questions(project, [job]), SECONDS)
        return views(jobs, replies)


async def _all(looks: Iterable[Coroutine[None, None, V]]) -> list[V]:
    """All results, when all have ended: one that goes on after another failed would leave its connection open."""
    results = await asyncio.gather(*looks, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]


def _kept_by(cluster: ClusterMap, project: str, where: Where) -> str:
    """The name of no job, whose slot the node serves."""
    nobodys = f"check.{secrets.token_hex(4)}"
    return next(name for at in count() if cluster.owner(slot_of_job(project, name := f"{nobodys}.{at}")) == where)
