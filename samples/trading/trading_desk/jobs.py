"""The desk's three jobs. Each runs on one replica of all; which one may differ from job to job."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from singletonjob import FixedRateJob, IntervalJob

if TYPE_CHECKING:
    from singletonjob import Run, Term

    from .feed import Feed, Prices
    from .sink import Sink
    from .tape import Tape

__all__ = ["TOO_OLD", "Features", "Snapshot", "StaleAlarm"]

log = logging.getLogger(__name__)

TOO_OLD = 1.2
"""Seconds after which nobody should act on a snapshot any more: two of them were missed."""


class Snapshot(FixedRateJob, every="500ms"):
    """Puts the market's prices into the sink, twice a second."""

    def __init__(self, feed: Feed, sink: Sink, tape: Tape) -> None:
        self._feed = feed
        self._sink = sink
        self._tape = tape
        self._term = 0

    async def on_elected(self, term: Term) -> None:
        """Connect, before the first run. If it raises, this replica gives the lease back and another gets its turn."""
        await self._feed.open()
        log.info("%s: connected to the feed, token %d", term.job, term.token)

    async def on_stepped_down(self, reason: str) -> None:
        """Disconnect. A lease that is given back is given back after this, so the feed sees one of us at a time."""
        await self._feed.close()
        log.info("disconnected from the feed: %s", reason)

    async def execute(self, run: Run) -> None:
        with self._tape.run(run):
            if run.token != self._term:  # the first run of a term
                self._term = run.token
                if run.previous_end is not None:
                    self._tape.write("gap", run.job, (run.started_at - run.previous_end).total_seconds())
            prices = self._feed.newest()  # raises if the feed is silent: no snapshot is better than an old one
            self._sink.publish(prices, token=run.token)
            self._tape.write("snapshot", run.job, prices)


class Features(FixedRateJob, every="100ms"):
    """Computes what the models eat, ten times a second, from the last snapshots.

    The body is sync, as numerical code is, so it has a thread of its own. Every 20th tick fits the model anew and takes
    250 ms: the two ticks that arrive meanwhile are dropped, since what they would compute is out of date by then.
    """

    def __init__(self, sink: Sink, tape: Tape) -> None:
        self._sink = sink
        self._tape = tape

    def execute(self, run: Run) -> None:
        with self._tape.run(run):
            age = self._sink.age()
            if age is None or age > TOO_OLD:
                return  # somebody would trade on it
            if (run.tick or 0) % 20 == 0 and run.wait(0.25):
                return  # asked to stop: the next leader is waiting
            self._tape.write("features", run.job, momentum(self._sink.newest(10)))


class StaleAlarm(IntervalJob, every="200ms"):
    """Says once when the last good snapshot is too old, and once when there is a fresh one. One pager rings, not N."""

    def __init__(self, sink: Sink, tape: Tape) -> None:
        self._sink = sink
        self._tape = tape
        self._raised_in: int | None = None  # the term: a later one does not know, and twice is better than never

    async def execute(self, run: Run) -> None:
        with self._tape.run(run):
            age = self._sink.age()
            raised = run.token == self._raised_in
            if age is not None and (age > TOO_OLD) != raised:
                self._raised_in = None if raised else run.token
                self._tape.write("fresh" if raised else "alarm", run.job, age)


def momentum(snapshots: list[Prices]) -> dict[str, float]:
    """How far each price lies above its mean over the snapshots (the newest first), in basis points."""
    means = {symbol: sum(prices[symbol] for prices in snapshots) / len(snapshots) for symbol in snapshots[0]}
    return {symbol: (price / means[symbol] - 1) * 10_000 for symbol, price in snapshots[0].items()}
