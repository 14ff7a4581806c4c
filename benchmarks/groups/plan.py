"""What a group of benchmarks is: steps to take, and what its records show."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from benchmarks.field import FIELD
from benchmarks.heat import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.assignment import Assignment
    from benchmarks.records import Check, Record, Results
    from benchmarks.server import RedisServer

__all__ = ["MS", "SECOND", "Group", "Settings", "Step", "entry", "in_turn"]

T = TypeVar("T")

MS = 1_000_000
SECOND = 1000 * MS


class Settings(NamedTuple):
    """How long and how often: `seconds` per window (None: the group's own), `rounds` of all contestants.

    `replicas` and `jobs` of each are the fleet's.
    """

    rounds: int
    seconds: float | None
    server: RedisServer
    replicas: int = 100
    jobs: int = 20


class Step(NamedTuple):
    """One heat: `cost` is about how many seconds it takes."""

    label: str
    cost: float
    run: Callable[[], list[Record]]


class Group(Protocol):
    """A module of this package."""

    TITLE: str

    def steps(self, settings: Settings, /) -> list[Step]: ...

    def checks(self, results: Results, /) -> list[Check]: ...

    def tables(self, results: Results, /) -> list[str]: ...


def in_turn(contestants: Sequence[T], rounds: int) -> Iterator[tuple[int, list[T]]]:
    """The order in each round: first as written, then shuffled, the same way in each run."""
    order = list(contestants)
    source = random.Random(5)
    for turn in range(1, rounds + 1):
        yield turn, list(order)
        source.shuffle(order)


def entry(contestant: str, assignment: Assignment, *, second: bool = False) -> Entry:
    """That contestant's way of doing what `assignment` says."""
    known = FIELD[contestant]
    return Entry(
        contestant,
        assignment._replace(
            module=known.module,
            flavour=known.flavour,
            uvloop=known.uvloop,
            offset=assignment.offset if known.phase is None else known.phase,
        ),
        second,
    )
