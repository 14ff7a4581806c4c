"""What happened in a simulation, in true time: runs from the bodies, leases from the store, faults from the injector.

Nothing here comes from the library's own events. `text` is the whole of it, one line per happening: the same seed gives
the same text, byte for byte.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Fault", "History", "Lease", "Life", "Refusal", "Sample", "SimRun"]


@dataclass(slots=True)
class SimRun:
    """One execution of a body. `counted`: ticks that its replica had accounted for when it started.

    `started` is the moment of the last check where the process was frozen between that and the body's first statement;
    then `woke` is the moment of the first statement, and `told` whether the run said there that its term is over.
    """

    process: str
    machine: int
    job: str
    token: int
    scheduled: int
    tick: int | None
    kind: str
    started: float
    counted: int
    ended: float = inf
    rude: bool = False  # it ignored its cancellation
    sync: bool = False
    looks: bool = True  # a sync body that asks whether it is to stop; async ones are cancelled
    woke: float | None = None
    told: bool = False

    def __str__(self) -> str:
        sync = "sync " if self.sync else ""
        return (
            f"{self.process} {self.job} {sync}{self.kind} run, token {self.token % 10**9}, due {self.scheduled % 10**9}"
        )


@dataclass(slots=True)
class Lease:
    """One term as the store has it: from its grant to `ends`, which renewals move, or until it was given back.

    `heard` is what its replica may know of it: when each reply that says yes came, and when its request was sent.
    `gone`: from then on the store does not have it any more, though its holder was promised it until `ends`; `unseen`:
    and no up-time tells so.
    """

    job: str
    node: str
    token: int
    granted: float
    ends: float
    released: bool = False
    replaced: bool = False  # by a new one of the same replica
    gone: float = inf
    unseen: bool = False
    lapses: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])  # gone for a while
    renewed: list[float] = field(default_factory=list[float])
    heard: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])

    @property
    def good(self) -> list[tuple[float, float]]:
        """`heard`; where nobody noted that, as if the store's answer had come at once."""
        return self.heard or [(when, when) for when in (self.granted, *self.renewed)]

    def gone_unseen(self, when: float) -> bool:
        """Whether the store did not have it at that moment, which no up-time tells."""
        return (self.unseen and self.gone <= when) or any(begin <= when < end for begin, end in self.lapses)


@dataclass(slots=True)
class Fault:
    """Something that was done to the replica `process` ("" for the store or all), from `begin` to `end`."""

    kind: str
    process: str
    begin: float
    end: float
    job: str = ""  # a leader of this job was aimed at


class Life(NamedTuple):
    """A process, from its start to its end; `crashed`, or stopped in good order."""

    process: str
    begin: float
    end: float
    crashed: bool


class Refusal(NamedTuple):
    """A replica heard at `heard` that `holder` has the lease, which then lasts until `until` at least.

    Minus infinity: the replica need not take a grant before that moment for a loss.
    """

    heard: float
    holder: str
    until: float


class Sample(NamedTuple):
    """`is_leader(job)` was True in a replica at this moment."""

    when: float
    process: str
    job: str


@dataclass
class History:
    """The record of one simulation; all times are true seconds since its begin."""

    runs: list[SimRun] = field(default_factory=list[SimRun])
    leases: dict[tuple[str, int], Lease] = field(default_factory=dict[tuple[str, int], Lease])
    claims: dict[tuple[str, int, int], float] = field(default_factory=dict[tuple[str, int, int], float])
    taken: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])  # triggers, by which token
    pauses: list[Fault] = field(default_factory=list[Fault])
    faults: list[Fault] = field(default_factory=list[Fault])
    losses: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])  # when, and its clock then
    unseen: set[float] = field(default_factory=set[float])  # those of these moments that no up-time tells
    refusals: dict[tuple[str, str], list[Refusal]] = field(default_factory=dict[tuple[str, str], list[Refusal]])
    foreign: list[Fault] = field(default_factory=list[Fault])  # while another implementation led a job
    scales: dict[str, float] = field(default_factory=dict[str, float])  # by replica: of its durations, if not 1
    frozen: list[Fault] = field(default_factory=list[Fault])  # all that stopped a job loop from turning
    stepped: float = 0.0  # how far the store's clock jumped forward, at most, within one lease
    steps: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])  # of the store's clock
    jumps: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])  # those that are not promised
    alive: list[Life] = field(default_factory=list[Life])
    samples: list[Sample] = field(default_factory=list[Sample])  # only those that said yes
    errors: list[str] = field(default_factory=list[str])  # from handlers of exceptions, and dead heartbeats
    _newest: dict[str, Lease] = field(default_factory=dict[str, Lease])
    healed_at: float = 0.0
    ended_at: float = 0.0
    lines: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])

    def say(self, when: float, text: str) -> None:
        """One line more, of whatever kind."""
        self.lines.append((when, text))

    def leased(self, kind: str, when: float, job: str, node: str, token: int, ends: float) -> None:
        """The store granted or renewed a term's lease, until `ends`."""
        lease = self.leases.get((job, token))
        if kind == "granted" or lease is None:
            last = self._newest.get(job)
            if last is not None and last.node == node and last.ends > when:
                last.ends, last.replaced = when, True
            lease = self._newest[job] = self.leases[job, token] = Lease(job, node, token, when, ends)
        else:
            lease.ends = ends if lease.ends > when else lease.ends
            if lease.gone < inf:  # an older state has brought it back
                lease.lapses.append((lease.gone, when))
                lease.gone, lease.unseen = inf, False
            lease.renewed.append(when)
        self.say(when, f"store: {kind} {job} to {node}, token {token % 10**9}, until {ends:.3f}")

    def claimed(self, when: float, job: str, node: str, token: int, slot: int) -> None:
        """The store gave a slot to a term, for the first time or once more."""
        self.claims.setdefault((job, token, slot), when)
        self.say(when, f"store: {job} slot {slot % 10**9} claimed by {node}")

    def took(self, when: float, job: str, node: str, token: int, name: str) -> None:
        """The store gave a trigger to a term, for the first time or once more."""
        if self.taken.setdefault((job, name), token) != token:
            self.errors.append(f"{job}: trigger {name} was taken by two terms")
        self.say(when, f"store: {job} trigger {name} taken by {node}")

    def ordered(self, when: float, job: str, order: str, outcome: str) -> None:
        """An operator's order came to this."""
        if outcome == "paused":
            self.pauses.append(Fault("paused", "", when, inf, job))
        elif outcome == "resumed":
            self._end_pauses(when, job)
        self.say(when, f"store: {order} {job}: {outcome}")

    def _end_pauses(self, when: float, job: str | None = None) -> None:
        for pause in self.pauses:
            if job in (None, pause.job):
                pause.end = min(pause.end, when)

    def released(self, when: float, job: str, node: str, token: int) -> None:
        """A term's lease was given back."""
        lease = self.leases.get((job, token))
        if lease is not None:
            lease.ends = min(lease.ends, when)
            lease.released = True
        self.say(when, f"store: {job} given back by {node}, token {token % 10**9}")

    def store_lost(self, when: float, wall: int, how: str, *, told: bool) -> None:
        """The store lost its data, or went back to older ones; `wall` is its clock in microseconds."""
        self.losses.append((when, wall))
        if not told:
            self.unseen.add(when)
        self._end_pauses(when)
        self.say(when, f"store: {how}, data lost")

    def kept(self, when: float, leases: Mapping[tuple[str, str, int], float], *, told: bool = False) -> None:
        """After something happened in the store it has these leases of those in force, by job, holder and token, each
        until that moment."""
        for lease in self.leases.values():
            if min(lease.ends, lease.gone) > when:
                until = leases.get((lease.job, lease.node, lease.token), when)
                lease.ends = max(lease.ends, until)
                if until < lease.ends:
                    lease.gone, lease.unseen = until, not told

    def untold(self, since: float) -> None:
        """What was lost since then cannot be seen by the up-time any more."""
        self.unseen.update(when for when, _ in self.losses if when >= since)
        for lease in self.leases.values():
            lease.unseen = lease.unseen or since <= lease.gone < inf

    def store_stepped(self, when: float, seconds: float) -> None:
        """The store's clock jumped ahead by no more than is promised, so that each lease ends earlier."""
        self.stepped = max(self.stepped, seconds)
        self.steps.append((when, seconds))
        self.say(when, f"store: clock stepped {seconds:+.3f} s")
        for lease in self.leases.values():
            if lease.ends > when:
                lease.ends = max(when, lease.ends - seconds)

    def jumped(self, when: float, seconds: float) -> None:
        """The store's clock jumped by more than is promised, or back."""
        self.steps.append((when, seconds))
        self.jumps.append((when, seconds))
        self.say(when, f"store: clock jumped {seconds:+.3f} s")

    def refused(self, job: str, process: str, when: float, holder: str, until: float) -> None:
        """A replica has heard that the lease is somebody else's."""
        self.refusals.setdefault((process, job), []).append(Refusal(when, holder, until))

    def froze(self, kind: str, process: str, begin: float, end: float) -> None:
        """A process stood still for a while."""
        self.frozen.append(Fault(kind, process, begin, end))
        self.say(begin, f"{process}: {kind} until {end:.3f}")

    def fault(self, kind: str, process: str, begin: float, end: float, job: str = "") -> None:
        """Something went wrong for a while; without a process, in the store."""
        self.faults.append(Fault(kind, process, begin, end, job))
        self.say(begin, f"fault: {kind} {process or 'store'} until {end:.3f}")

    def heard(self, job: str, token: int, sent: float, when: float) -> None:
        """A grant or a renewal, asked for at `sent`, has come to the one who asked."""
        lease = self.leases.get((job, token))
        if lease is not None:
            lease.heard.append((when, sent))

    def moved(self, begin: float, end: float) -> float:
        """How far the store's clock stepped forward in that time."""
        return sum(seconds for when, seconds in self.steps if begin < when <= end and seconds > 0)

    @property
    def text(self) -> str:
        """Everything, one line each."""
        return "\n".join(f"{when:12.6f}  {text}" for when, text in self.lines)

    def timeline(self, until: float, seconds: float) -> str:
        """The lines of the last so many seconds before `until`, and a little after."""
        return "\n".join(f"{when:10.4f}  {text}" for when, text in self.lines if until - seconds <= when <= until + 0.5)

    @property
    def counts(self) -> Counter[str]:
        """How often each kind of fault was done."""
        return Counter(fault.kind for fault in self.faults)
