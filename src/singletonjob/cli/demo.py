"""`singletonjob demo`: the main job on show, with real processes and measured hand-overs."""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from pathlib import Path

from singletonjob._core.errors import ConfigError

__all__ = ["arguments"]

EXAMPLE = """\
examples:
  singletonjob demo
  singletonjob demo --workers 5 --seconds 60
  singletonjob demo --store memory          each worker alone: see what goes wrong

Several worker processes share one job of each shape: price-tick every 100 ms,
book-sync 1 s after its last end, candle-close each second by cron. The worker
that runs price-tick is stopped (SIGTERM) and killed (SIGKILL) in turn. Bodies
stamp their start and end; overlaps and hand-over times come from the stamps.

Exit code 0: no two runs of one job at once, hand-overs seen; 1: not so.
"""

LEAST_SECONDS = 6
MOST_WORKERS = 20


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `demo` takes."""
    parser.epilog = EXAMPLE
    parser.add_argument("--workers", type=_workers, default=3, metavar="N", help="how many processes (3)")
    parser.add_argument("--seconds", type=_seconds, default=20.0, metavar="S", help="how long (20)")
    parser.add_argument("--store", metavar="URL", help="the store (a SQLite file of the demo's own)")
    parser.add_argument("--json", action="store_true", help="print one JSON object, and nothing else")
    parser.set_defaults(handler=demo)


def _workers(text: str) -> int:
    if not text.isdecimal() or not 2 <= int(text) <= MOST_WORKERS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of workers; write 2 to {MOST_WORKERS}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not LEAST_SECONDS <= seconds < math.inf:
        raise argparse.ArgumentTypeError(
            f"{text!r} is too short or no number; write {LEAST_SECONDS} or more, for one hand-over of each kind"
        )
    return seconds


def demo(options: argparse.Namespace) -> int:
    """Show it; returns 0 when all went as promised, 1 when not, 130 after Ctrl-C. Raises `ConfigError` for a store
    that cannot be used."""
    from .demo_session import Interrupts, Session
    from .demo_view import chosen_view

    with tempfile.TemporaryDirectory(prefix="singletonjob-demo-", ignore_cleanup_errors=True) as temporary:
        directory = Path(temporary)
        store = options.store or f"sqlite:///{directory / 'leases.db'}"
        _check(store)
        with Interrupts() as interrupts:
            with chosen_view(json=options.json) as view:
                session = Session(
                    workers=options.workers,
                    seconds=options.seconds,
                    store=store,
                    directory=directory,
                    view=view,
                    interrupts=interrupts,
                )
                report = session.run(options.store or "a SQLite file")
            print(json.dumps(report.as_json()) if options.json else f"\n{report.as_text()}", flush=True)
    if interrupts.count:
        return 130
    return 0 if report.good else 1


def _check(store: str) -> None:
    """A store that no worker could use is an error of the one who asked for it, not of the workers."""
    from singletonjob.stores import from_url

    try:
        from_url(store)
    except ConfigError as error:
        raise ConfigError(f"--store: {error}") from error
