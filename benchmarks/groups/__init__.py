"""The groups of benchmarks, by the name that the command line knows them by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.groups import fleet, imports, many, overlap, sync, ticks, timeline

if TYPE_CHECKING:
    from benchmarks.groups.plan import Group

__all__ = ["GROUPS"]

GROUPS: dict[str, Group] = {
    "ticks": ticks,
    "many": many,
    "sync": sync,
    "overlap": overlap,
    "imports": imports,
    "fleet": fleet,
    "timeline": timeline,
}
