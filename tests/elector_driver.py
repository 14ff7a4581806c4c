"""An elector driven by hand: for tests that give it the time and the store's answers."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from singletonjob._core.elector import Elector, LogEvent
from singletonjob._jobs.options import JOB_READERS, JobOptions, read, resolve
from singletonjob.stores.protocol import Acquire, Batch, Granted, JobState, Progress, Reply

if TYPE_CHECKING:
    from singletonjob.stores.protocol import Verdict

__all__ = ["CLOCK", "STATE", "Driver", "Liveness", "leading", "options"]

CLOCK = 50_000_000
STATE = JobState(wall=1)


def options(**given: object) -> JobOptions:
    return resolve(read(given, JOB_READERS))


class Liveness:
    """Vouches for everything until told otherwise."""

    def __init__(self) -> None:
        self.until: dict[str, float] = {}

    def alive_until(self, job: str) -> float:
        return self.until.get(job, inf)

    def progress(self, job: str, now: float) -> Progress:
        return Progress(ended_ago=now)


class Driver:
    """An elector, driven by hand. Its store's clock is its own, `CLOCK` at time zero."""

    def __init__(
        self,
        *jobs: str,
        enabled: tuple[str, ...] | None = None,
        read: bool = True,
        amnesia_guard: bool = True,
        draw: float = 0.5,
        **given: Any,
    ) -> None:
        names = jobs or ("a",)
        self.liveness = Liveness()
        self.elector = Elector(
            project="p",
            node="n-1",
            jobs={job: options(**given) for job in names},
            enabled=names if enabled is None else enabled,
            random=lambda: draw,
            **({} if amnesia_guard else {"amnesia_guard": False}),  # on unless somebody says otherwise
        )
        self.effects: list[Any] = []
        self.wake_at = inf
        if read:
            self.reading(0.0)

    def reading(self, now: float, up_for: float | None = inf) -> None:
        batch = self.poll(now)
        assert batch is not None
        assert batch.requests == ()
        self.receive(now, up_for=up_for)

    def poll(self, now: float) -> Batch | None:
        step = self.elector.poll(now, self.liveness)
        self._take_effects()
        self.wake_at = step.wake_at
        return step.batch

    def receive(self, now: float, *verdicts: Verdict, **reply: Any) -> None:
        self.elector.receive(now, Reply(clock=CLOCK + int(now * 1e6), verdicts=verdicts, **reply))
        self._take_effects()

    def fail(self, now: float) -> None:
        self.elector.receive(now, None, "it broke")
        self._take_effects()

    def _take_effects(self) -> None:
        self.elector.check()
        self.effects += self.elector.take_effects()

    def lead(self, now: float = 0.0, token: int = 7, after: float = 0.0) -> None:
        """Ask at `now` and be granted `after` seconds later."""
        assert isinstance(self.one(now), Acquire)
        self.receive(now + after, Granted(token=token, state=STATE))

    def one(self, now: float) -> Any:
        """The one request that goes out at `now`."""
        batch = self.poll(now)
        assert batch is not None, f"nothing goes out at {now}; the next poll is at {self.wake_at}"
        assert len(batch.requests) == 1, batch.requests
        return batch.requests[0]

    def of(self, kind: type) -> list[Any]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def notes(self) -> list[str]:
        return [effect.event for effect in self.of(LogEvent)]


def leading(*jobs: str, **given: Any) -> Driver:
    """One that was granted its lease, of token 7, at time zero."""
    driver = Driver(*jobs, **given)
    driver.lead()
    return driver
