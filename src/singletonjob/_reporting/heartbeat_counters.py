"""What a replica's heartbeat did: plain counters, and the frozen form of them that users get."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, get_args

from .._core.elector import Draining, Ended
from .._core.values import MisfireCause, Reason
from .histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._core.elector import Effect, Elector
    from .._core.protocol import Batch, Reply
    from .log_lines import Journal

__all__ = ["VERDICTS", "BeatStats", "Beats"]

VERDICTS = (
    "granted",
    "renewed",
    "refused",
    "barred",
    "released",
    "claimed",
    "not_claimed",
    "failed",
    "void",
    "unknown",
)
"""What may become of a request: a verdict of the store, or that it came too late (`void`), or no answer (`unknown`)."""

RECENT = 1000
"""Durations that are kept one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatStats:
    """What the heartbeat of one replica did since its app started.

    `verdicts` counts requests by what became of them (`VERDICTS`), `stepped_down` the ends of terms by the reason that
    was first (the keys are job and reason), `misfires` the slots that did not run when due, by job and cause.
    `duration` tells how long the store took to answer, in seconds; `recent` are the newest of these one by one, each
    with its number, from 1 up; `failures` counts exchanges without a usable answer. `remaining` is, by job, how many
    seconds of usable lease are left, renewals to come not counted; 0 where this replica does not lead. `paused`, by
    job: an operator paused it, as far as the store has told us. `store_up`: the store serves us, as far as the last
    exchange tells.
    """

    project: str
    node_id: str
    store_up: bool
    verdicts: Mapping[str, int]
    stepped_down: Mapping[tuple[str, Reason], int]
    misfires: Mapping[tuple[str, MisfireCause], int]
    failures: int
    duration: Histogram
    recent: tuple[tuple[int, float], ...]
    remaining: Mapping[str, float]
    paused: Mapping[str, bool]


class Held(Protocol):
    """A lease, as far as it is counted."""

    @property
    def remaining(self) -> float: ...


class Beating(Protocol):
    """A heartbeat, as far as it is counted."""

    @property
    def leases(self) -> Mapping[str, Held]: ...

    @property
    def store_up(self) -> bool: ...


class Beats:
    """Counts on the heartbeat's thread, and is asked from any.

    Nothing is locked: each count is one entry of a dictionary or one bucket, and copying those is one step of the
    interpreter.
    """

    def __init__(self, heartbeat: Beating, elector: Elector, journal: Journal, jobs: Mapping[str, object]) -> None:
        self._heartbeat = heartbeat
        self._elector = elector
        self._journal = journal
        self._jobs = tuple(jobs)
        self._verdicts: dict[str, int] = dict.fromkeys(VERDICTS, 0)
        self._stepped_down: dict[tuple[str, Reason], int] = {}  # made as they come: of a thousand jobs, few end so
        self._ending: dict[str, int] = {}  # by job, the token of the term that was counted last
        self._duration = Histogram()
        self._recent: deque[tuple[int, float]] = deque(maxlen=RECENT)
        self._answers = self._failures = 0

    def answered(self, batch: Batch, reply: Reply | None, seconds: float) -> None:
        """An exchange is over; `reply` is None where no usable answer came."""
        if reply is not None:
            self._answers += 1
            self._duration.add(seconds)
            self._recent.append((self._answers, seconds))
            if not reply.void:
                for kind, count in Counter(map(type, reply.verdicts)).items():
                    name = kind.__name__
                    self._verdicts["not_claimed" if name == "NotClaimed" else name.lower()] += count
                return
        else:
            self._failures += 1
        self._verdicts["unknown" if reply is None else "void"] += len(batch.requests)

    def carried_out(self, effect: Effect) -> None:
        """The elector decided this; a term that drains may end otherwise in the end, but was given up for the first."""
        if isinstance(effect, (Draining, Ended)) and self._ending.get(effect.job) != effect.token:
            self._ending[effect.job] = effect.token
            which = effect.job, effect.reason
            self._stepped_down[which] = self._stepped_down.get(which, 0) + 1

    def frozen(self) -> BeatStats:
        """As users get them. Safe from any thread."""
        leases, standings = dict(self._heartbeat.leases), self._elector.standings
        return BeatStats(
            project=self._elector.project,
            node_id=self._elector.node,
            store_up=self._heartbeat.store_up,
            verdicts=self._verdicts.copy(),
            stepped_down={(job, reason): 0 for job in self._jobs for reason in get_args(Reason)}
            | self._stepped_down.copy(),
            misfires={(job, cause): 0 for job in self._jobs for cause in get_args(MisfireCause)}
            | self._journal.misfires.copy(),
            failures=self._failures,
            duration=self._duration.copy(),
            recent=tuple(self._recent),
            paused={job: standings[job].paused for job in self._jobs},
            remaining={job: leases[job].remaining if job in leases else 0.0 for job in self._jobs},
        )
