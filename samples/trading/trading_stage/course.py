"""The course of events: start the replicas, stop the leader, let the feed fall silent, kill the next leader, end."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from trading_desk.sink import Sink, StaleWrite

from .ledger import JOBS, Ledger
from .process import Replica
from .summary import HandOver, Summary, missed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .ledger import Entry, Gap
    from .market import Market
    from .process import SignalName

__all__ = ["SILENCE", "Course", "View"]

SILENCE = 2.5
"""For how many seconds the feed says nothing: long enough for the alarm."""

FIRST_LIMIT = 20.0
"""Seconds until somebody must have taken a snapshot. A Redis that has just started holds back for five."""

HAND_OVER_LIMIT = 7.0
"""For how many seconds a hand-over is awaited: longer than the lease of a dead leader lasts."""

END_LIMIT = 10.0
"""For how many seconds a replica may go on after SIGTERM."""


class View(Protocol):
    """Where the show is seen."""

    def say(self, elapsed: float, line: str, style: str = "") -> None:
        """Something happened, `elapsed` seconds after the start. `style` is a colour, for a view that has them."""
        ...

    def draw(self, course: Course) -> None:
        """Some time has passed."""
        ...


class _Over(Exception):
    """The course cannot go on."""


class Course:
    """One show."""

    def __init__(
        self, *, replicas: int, seconds: float, store: str, directory: Path, market: Market, view: View
    ) -> None:
        self.count = replicas
        self.seconds = seconds
        self.store = store
        self.ledger = Ledger()
        self.market = market
        self.replicas: list[Replica] = []
        self._directory = directory
        self._view = view
        self._sink = Sink(directory / "desk.db")
        self._hand_overs: list[HandOver] = []
        self._late_writes = 0
        self._refused = 0
        self._troubles: list[str] = []
        self._readers: list[asyncio.Task[None]] = []
        self._elected: dict[str, list[str]] = {}  # not said yet
        self._failing: set[tuple[str, str]] = set()  # said already
        self._silent: tuple[float, float] | None = None
        self._feed_url = ""
        self.began = time.monotonic()
        self.ending_at = float("inf")

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began

    @property
    def staleness(self) -> float | None:
        """How old the newest snapshot is, in seconds. None: there is none yet."""
        return self.ledger.staleness(time.monotonic())

    async def run(self) -> Summary:
        """Go through all of it; afterwards no replica is left."""
        async with self.market.open() as self._feed_url:
            try:
                with suppress(_Over):
                    await self._perform()
            finally:
                await self._end()
        return self._summary()

    async def _perform(self) -> None:
        for _ in range(self.count):
            await self._start()
        if not await self._until(lambda: bool(self.ledger.snapshots), FIRST_LIMIT):
            words = self.replicas[0].last_words()
            self._troubles.append(f"no snapshot within {FIRST_LIMIT:.0f} s; {self.replicas[0].name} says: {words}")
            return
        began = self.elapsed
        rest = self.seconds - SILENCE
        await self._pause(0.25 * rest)
        await self._take_down("SIGTERM")
        await self._pause(0.25 * rest)
        await self._silence()
        await self._pause(0.25 * rest)
        await self._take_down("SIGKILL")
        await self._pause(max(1.0, began + self.seconds - self.elapsed))

    # -- what happens --------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        replica = await Replica.start(
            f"replica-{len(self.replicas) + 1}", store=self.store, feed_url=self._feed_url, directory=self._directory
        )
        self.replicas.append(replica)
        self._readers.append(asyncio.create_task(self._follow(replica)))
        self._say(f"{replica.name} starts, process {replica.pid}")

    async def _take_down(self, name: SignalName) -> None:
        """End the replica that takes the snapshots; then start another in its place, as a deployment does."""
        if not await self._until(lambda: "snapshot" in self.ledger.leaders, HAND_OVER_LIMIT):
            self._troubles.append(f"nobody to send the {name} to: no replica takes the snapshots")
            return
        old = next(one for one in self.replicas if one.name == self.ledger.leaders["snapshot"])
        token = self.ledger.token("snapshot", old.name)
        prices = self.ledger.prices
        self._say(f"{name} to {old.name}, which takes the snapshots", "yellow" if name == "SIGTERM" else "red")
        old.send(name)

        def done() -> HandOver | None:
            return HandOver.find(self.ledger, name, old.name, old.signalled_at)

        await self._until(lambda: done() is not None, HAND_OVER_LIMIT)
        hand_over = done()
        if hand_over is None:
            self._troubles.append(f"no other replica took a snapshot within {HAND_OVER_LIMIT:.0f} s of the {name}")
            return
        self._hand_overs.append(hand_over)
        self._say(str(hand_over), "green")
        if token is not None:
            self._deliver_late(prices, token)
        await self._until(lambda: old.gone_at is not None, END_LIMIT)
        await self._start()

    def _deliver_late(self, prices: dict[str, float], token: int) -> None:
        """Write once more what the old leader wrote last, as a packet does that was held up on its way."""
        self._late_writes += 1
        try:
            self._sink.publish(prices, token=token)
        except StaleWrite:
            self._refused += 1
            self._say("a late write of the old leader arrives: the sink refuses its token")
        else:
            self._say("a late write of the old leader arrives, and the sink TAKES it", "red")

    async def _silence(self) -> None:
        self._say(f"the feed falls silent for {SILENCE} s; its connection stays open", "yellow")
        self.market.silent = True
        began = time.monotonic()
        await self._pause(SILENCE)
        self.market.silent = False
        self._silent = (began, time.monotonic())
        self._say("the feed speaks again")

    async def _end(self) -> None:
        self._say("all replicas are told to stop")
        self.ending_at = time.monotonic()
        for replica in self.replicas:
            if replica.gone_at is None and replica.signal is None:
                replica.send("SIGTERM")
        if self._readers:
            await asyncio.wait(self._readers, timeout=END_LIMIT)
        for replica in self.replicas:
            replica.kill()
        await asyncio.gather(*self._readers)
        self._sink.close()

    # -- following the tapes -------------------------------------------------------------------------------------------

    async def _follow(self, replica: Replica) -> None:
        await replica.read(lambda entry: self._take(replica, entry))
        killed = replica.signal == "SIGKILL"
        self.ledger.gone(replica.name, replica.signalled_at if killed else time.monotonic())
        if replica.trouble is not None:
            self._troubles.append(replica.trouble)

    def _take(self, replica: Replica, entry: Entry) -> None:
        self.ledger.add(replica.name, entry)
        match entry.what:
            case "elected":
                self._elected.setdefault(replica.name, []).append(entry.job)
            case "gap":
                self._say(f"first run of {replica.name}: run.previous_end was {entry.value:.2f} s ago")
            case "alarm":
                self._say(f"ALARM: the last good snapshot is {entry.value:.1f} s old", "bold red")
            case "fresh":
                self._say(f"all clear: there is a snapshot again, {entry.value:.1f} s old", "green")
            case "failed" if (replica.name, entry.job) not in self._failing:
                self._failing.add((replica.name, entry.job))
                self._say(f"a run of {entry.job} fails on {replica.name}: {entry.value}", "yellow")
            case "snapshot":
                self._failing.discard((replica.name, entry.job))
            case _:
                pass

    def _say(self, line: str, style: str = "") -> None:
        self._say_who_leads()
        self._view.say(self.elapsed, line, style)

    def _say_who_leads(self) -> None:
        """One line for all jobs that a replica has won."""
        while self._elected:
            replica, jobs = self._elected.popitem()
            self._view.say(self.elapsed, f"{replica} leads {', '.join(sorted(jobs, key=JOBS.index))}", "green")

    async def _pause(self, seconds: float) -> None:
        await self._until(lambda: False, seconds)

    async def _until(self, condition: Callable[[], bool], limit: float) -> bool:
        """Let time pass until the condition holds (True) or `limit` seconds are over. Raises `_Over` in trouble."""
        deadline = time.monotonic() + limit
        while not condition():
            if self._troubles:
                raise _Over
            if time.monotonic() >= deadline:
                return False
            self._say_who_leads()
            self._view.draw(self)
            await asyncio.sleep(0.02)
        return True

    def _summary(self) -> Summary:
        ledger = self.ledger
        gaps = ledger.gaps(until=self.ending_at)
        longest = max(gaps, key=lambda gap: gap.seconds, default=None)
        return Summary(
            replicas=self.count,
            snapshots=len(ledger.snapshots),
            snapshots_missed=sum(missed(gap.seconds) for gap in gaps),
            features=ledger.counts["features"],
            dropped_overlap=ledger.dropped["overlap"],
            dropped_late=ledger.dropped["late"],
            hand_overs=self._hand_overs,
            silence=SILENCE if self._silent else 0.0,
            alarms=len(ledger.alarms),
            longest_stale=longest.seconds if longest else 0.0,
            longest_stale_at="" if longest is None else self._what_happened(longest),
            overlapping_runs=ledger.overlapping(),
            late_writes=self._late_writes,
            late_writes_refused=self._refused,
            most_connections=self.market.most_connections,
            troubles=self._troubles,
        )

    def _what_happened(self, gap: Gap) -> str:
        """What fell into the time between two snapshots."""
        happened = [(f"the {replica.signal}", replica.signalled_at, replica.signalled_at) for replica in self.replicas]
        if self._silent is not None:
            happened.insert(0, ("the silent feed", *self._silent))
        return next((what for what, since, until in happened if since <= gap.until and gap.since <= until), "")
