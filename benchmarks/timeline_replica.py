"""One replica of the timeline: an app with one job every 100 ms, which stamps what it does on the boot clock.

Started as `python -m benchmarks.timeline_replica STORE FILE NAME`; works until SIGTERM.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from singletonjob import Elected, Run, SingletonJobs, SteppedDown
from singletonjob.cli.demo_stamps import StampWriter

if TYPE_CHECKING:
    from singletonjob import Event

__all__ = ["BODY", "EVERY", "HEARTBEAT", "JOB", "LOCK_EXPIRY", "PROJECT"]

PROJECT, JOB = "timeline", "price-tick"
EVERY, BODY = 0.1, 0.03
LOCK_EXPIRY, HEARTBEAT = 1.0, 0.3


class Beats(logging.Handler):
    """Stamps what the log says of the store: each exchange, and the release."""

    def __init__(self, stamps: StampWriter) -> None:
        super().__init__()
        self._stamps = stamps

    def emit(self, record: logging.LogRecord) -> None:
        event = getattr(record, "event", None)
        if event in {"beat", "released"}:
            self._stamps.write(event, JOB, "-")


def main(store: str, file: Path, name: str) -> None:
    stamps = StampWriter(file)
    logger = logging.getLogger("singletonjob")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(Beats(stamps))
    app = SingletonJobs(PROJECT, store=store, node_id=name, lock_expiry=LOCK_EXPIRY, heartbeat_interval=HEARTBEAT)

    @app.fixed_rate(EVERY, name=JOB)
    async def price_tick(run: Run) -> None:
        stamps.write("start", JOB, run.tick)
        try:
            await asyncio.sleep(BODY)
        finally:
            stamps.write("end", JOB, run.tick)

    def note(event: Event) -> None:
        match event:
            case Elected():
                stamps.write("elected", JOB, event.token)
            case SteppedDown():
                stamps.write("stepped-down", JOB, event.reason)
            case _:
                pass

    app.subscribe(note)
    app.run()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
