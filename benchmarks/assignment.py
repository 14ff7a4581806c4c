"""What one contestant's process is to do, and the file in which its bodies leave their stamps.

Imported by every contestant, so it imports hardly anything: what it loads would count as the contestant's memory.
"""

from __future__ import annotations

import json
import mmap
from itertools import count
from pathlib import Path
from struct import Struct
from time import CLOCK_REALTIME, clock_gettime_ns
from typing import NamedTuple

__all__ = ["Assignment", "Mark", "Stamps", "now"]

_READY = Struct("q")
_RECORD = Struct("qqq")


def now() -> int:
    """The wall clock in nanoseconds; the first statement of every body."""
    return clock_gettime_ns(CLOCK_REALTIME)


class Assignment(NamedTuple):
    """What to run: `jobs` jobs, each every `period` nanoseconds on the grid of the epoch plus `offset`.

    With several jobs, job i has the offset `offset + i * spread`. A body waits for `body` nanoseconds; 0 is a no-op.
    """

    module: str
    stamps: str
    period: int
    offset: int = 0
    jobs: int = 1
    spread: int = 0
    body: int = 0
    uvloop: bool = False
    flavour: str = ""
    store: str = "memory"
    project: str = "bench"
    traced: bool = False

    def to_json(self) -> str:
        return json.dumps(self._asdict())

    @classmethod
    def from_json(cls, text: str) -> Assignment:
        return cls(**json.loads(text))

    def offset_of(self, job: int) -> int:
        return self.offset + job * self.spread

    def grid_point(self, instant: int) -> int:
        """The newest point of the grid at or before `instant`."""
        return instant - (instant - self.offset) % self.period


class Mark(NamedTuple):
    """One call of a body: the grid point that the contestant meant (0: it does not say), its start, its end (or 0)."""

    planned: int
    start: int
    end: int


class Stamps:
    """The calls of the bodies in one process, in a file that the harness reads when the process is gone.

    A mapped file takes a stamp in a fraction of a microsecond, and needs no word between the two processes.
    """

    def __init__(self, path: str) -> None:
        with Path(path).open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        self._places = (len(self._map) - _READY.size) // _RECORD.size
        self._next = count().__next__

    @staticmethod
    def make(path: Path, places: int) -> None:
        """An empty file for so many calls."""
        path.write_bytes(bytes(_READY.size + places * _RECORD.size))

    def ready(self) -> None:
        """Say that the measuring may begin, where no body will be called soon; a first stamp says so by itself."""
        _READY.pack_into(self._map, 0, 1)

    def add(self, planned: int, start: int) -> int:
        """Keep a call, and return its place."""
        place = self._next()
        if place < self._places:
            _RECORD.pack_into(self._map, _READY.size + place * _RECORD.size, planned, start, 0)
        return place

    def end(self, place: int) -> None:
        """The body of that call has ended."""
        if place < self._places:
            _RECORD.pack_into(self._map, _READY.size + place * _RECORD.size, *self.at(place)[:2], now())

    def at(self, place: int) -> Mark:
        return Mark(*_RECORD.unpack_from(self._map, _READY.size + place * _RECORD.size))

    @property
    def is_ready(self) -> bool:
        (flag,) = _READY.unpack_from(self._map, 0)
        return bool(flag) or self.at(0).start > 0

    def marks(self) -> list[Mark]:
        """All calls so far."""
        found: list[Mark] = []
        for place in range(self._places):
            mark = self.at(place)
            if not mark.start:
                break
            found.append(mark)
        return found

    def close(self) -> None:
        self._map.close()
