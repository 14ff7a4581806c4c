"""One replica of the pricing service: `python -m trading_desk.replica NAME STORE FEED_URL SINK_FILE`.

All replicas are started the same way; which of them works is decided by the leases.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from singletonjob import Elected, RunFinished, SingletonJobs, SteppedDown, TicksDropped

from .feed import Feed
from .jobs import Features, Snapshot, StaleAlarm
from .sink import Sink
from .tape import Tape

if TYPE_CHECKING:
    from singletonjob import Event

__all__ = ["build", "main"]


def build(*, name: str, store: str, feed_url: str, sink_file: Path, tape: Tape) -> SingletonJobs:
    """The service. On Redis a crash costs about a `lock_expiry`: four seconds here, for three times the calls."""
    app = SingletonJobs("trading-desk", store, node_id=name, heartbeat_interval="1s", lock_expiry="4s")
    app.add(Snapshot(Feed(feed_url), Sink(sink_file), tape))
    app.add(Features(Sink(sink_file), tape))  # a sink each: this one is used from the job's own thread
    app.add(StaleAlarm(Sink(sink_file), tape))
    app.subscribe(lambda event: note(event, tape))
    return app


def note(event: Event, tape: Tape) -> None:
    """Put on the tape what the library tells."""
    match event:
        case Elected():
            tape.write("elected", event.job, event.token)
        case SteppedDown():
            tape.write("stepped-down", event.job, event.reason)
        case TicksDropped():
            tape.write("dropped", event.job, [event.count, event.cause])
        case RunFinished(outcome="failed"):
            tape.write("failed", event.job, str(event.error))
        case _:
            pass


def stop_with_the_show() -> None:
    """Stop as if a SIGTERM had come when whoever started us is gone: our standard input then ends."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def main(name: str, store: str, feed_url: str, sink_file: str) -> None:
    """Work until SIGTERM; then end the runs in flight, release the leases, return."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    stop_with_the_show()
    build(name=name, store=store, feed_url=feed_url, sink_file=Path(sink_file), tape=Tape()).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
