"""One worker process of the demo: an app with one job of each shape, whose bodies stamp when they began and ended.

Started by the demo as `python -m singletonjob.cli.demo_worker STORE DIRECTORY NAME`, with a pipe as its standard input.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from singletonjob import ConfigError, Elected, Run, RunStarted, SingletonJobs, SteppedDown, TicksDropped

from .demo_stamps import StampWriter

if TYPE_CHECKING:
    from collections.abc import Generator

    from singletonjob import Event

__all__ = ["PROJECT", "main"]

PROJECT = "singletonjob-demo"


def build(store: str, name: str, stamps: StampWriter) -> SingletonJobs:
    """The app that every worker runs, with default settings."""
    app = SingletonJobs(PROJECT, store=store, node_id=name)
    numbers = itertools.count(1)

    @contextmanager
    def stamped(job: str) -> Generator[None]:
        number = next(numbers)
        stamps.write("start", job, number)
        try:
            yield
        finally:
            stamps.write("end", job, number)

    @app.fixed_rate("100ms")
    async def price_tick(run: Run) -> None:
        with stamped("price-tick"):
            # Every twentieth takes 250 ms, so that two ticks arrive while it is in flight, and are dropped.
            steps = 50 if (run.tick or 0) % 20 == 0 else 1
            for _ in range(steps):
                await asyncio.sleep(0.005)
                if run.stopping:
                    break

    @app.interval("1s")
    def book_sync() -> None:
        with stamped("book-sync"):
            time.sleep(0.02)

    @app.cron("* * * * * *")
    async def candle_close() -> None:
        with stamped("candle-close"):
            await asyncio.sleep(0.01)

    def note(event: Event) -> None:
        match event:
            case Elected():
                stamps.write("elected", event.job, event.token)
            case SteppedDown():
                stamps.write("stepped-down", event.job, event.reason)
            case RunStarted():
                stamps.write("late", event.job, round(event.lateness * 1e6))
            case TicksDropped():
                stamps.write("dropped", event.job, event.count)
            case _:
                pass

    app.subscribe(note)
    return app


def end_with_the_demo(directory: Path) -> None:
    """End this process, and clear up, when the demo is gone: the pipe that is our standard input then reads EOF.

    A demo killed with SIGKILL can do neither for itself.
    """

    def watch() -> None:
        # Not sys.stdin.read(): a daemon thread inside it makes the interpreter abort when the worker ends by itself.
        while os.read(0, 1):
            pass
        shutil.rmtree(directory, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, name="demo-watch", daemon=True).start()


def main(store: str, directory: Path, name: str) -> None:
    """Work until SIGTERM. Exits with 2 and one line on stderr if the app cannot start."""
    end_with_the_demo(directory)
    app = build(store, name, StampWriter(directory / f"{name}.stamps"))
    try:
        app.run()
    except ConfigError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from error


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
