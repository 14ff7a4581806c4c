"""A leader of another implementation in a simulated fleet: it knows the lock's holder and expiry, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.sim_history import Fault

if TYPE_CHECKING:
    from simulation.sim_history import History
    from simulation.sim_store import SimStore
    from simulation.sim_time import World

__all__ = ["Foreigner"]

POLL = 0.02
"""The longest time between two looks at a lock that somebody else holds, in seconds."""


class Foreigner:
    """Takes the lock of `job` when it is free, extends it, and deletes it at the moment `until`, or crashes then.

    It publishes no notice and marks nothing: of the record it changes only `holder` and `expires`. It leads until
    `expiry - margin` after its last good call.
    """

    def __init__(
        self, world: World, store: SimStore, history: History, *, job: str, expiry: float, margin: float, until: float
    ) -> None:
        self.name: str = f"foreign-{job}-{world.now:.6f}"
        self._world = world
        self._store = store
        self._history = history
        self._job = job
        self._expiry = expiry
        self._margin = margin
        self._until = until
        self._led: Fault | None = None
        store.foreigners.add(self.name)
        self._beat(world.now)

    def _beat(self, when: float) -> None:
        if when >= self._until:
            self._leave(when)
            return
        if self._store.mode == "up":
            self._call(when)
        # While it waits it looks often: otherwise one of ours would always be first, which hears of a release.
        wait = POLL if self._led is None else 0.3 * self._expiry
        self._world.at(when + wait * self._world.random.random(), self._beat)

    def _call(self, when: float) -> None:
        record, wall = self._store.record(self._job), self._store.wall()
        free = record.holder is None or (record.expires is not None and record.expires <= wall)
        if free:
            record.holder = self.name
            self._led = Fault("foreign", self.name, when, when, self._job)
            self._history.foreign.append(self._led)
            self._history.faults.append(self._led)
            self._history.say(when, f"store: {self._job} is taken by {self.name}")
        if record.holder == self.name and self._led is not None:
            record.expires = wall + round(self._expiry * 1e6)
            self._led.end = when + self._expiry - self._margin
        elif self._led is not None:
            self._led.end, self._led = min(self._led.end, when), None

    def _leave(self, when: float) -> None:
        record = self._store.record(self._job)
        if self._led is None:
            return
        self._led.end = min(self._led.end, when)
        crashes = self._store.mode != "up" or self._world.random.random() < 0.5
        if record.holder == self.name and not crashes:
            record.holder = record.expires = None
        self._history.say(when, f"{self.name}: {'crashed' if crashes else 'left'}")
