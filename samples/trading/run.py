"""The trading desk: `python samples/trading/run.py`. A price feed, three replicas, a stop, a silence and a crash."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

from singletonjob import ConfigError
from singletonjob.stores import from_url
from trading_stage.course import Course
from trading_stage.market import Market
from trading_stage.views import chosen_view

LEAST_SECONDS = 8.0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, choices=range(2, 11), default=3, metavar="N", help="how many (3)")
    parser.add_argument("--seconds", type=float, default=20.0, metavar="S", help="how long; 8 or more (20)")
    parser.add_argument("--store", metavar="URL", help="where the leases are (a SQLite file of its own)")
    parser.add_argument(
        "--json", action="store_true", help="print the summary as a JSON object; the rest goes to stderr"
    )
    options = parser.parse_args()
    if not LEAST_SECONDS <= options.seconds < float("inf"):
        parser.error(f"--seconds {options.seconds:g}: write {LEAST_SECONDS:g} or more")
    if options.store is not None:
        try:
            from_url(options.store)
        except ConfigError as error:
            parser.error(f"--store: {error}")
    return options


def main() -> int:
    """Show it. Returns 0 when all went as promised, 1 when not, 130 after Ctrl-C."""
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="trading-desk-") as temporary:
        directory = Path(temporary)
        with chosen_view(json=options.json) as view:
            course = Course(
                replicas=options.replicas,
                seconds=options.seconds,
                store=options.store or f"sqlite:///{directory / 'leases.db'}",
                directory=directory,
                market=Market(),
                view=view,
            )
            try:
                summary = asyncio.run(course.run())
            except KeyboardInterrupt:
                return 130
    text = "\n".join(f"{what:<24}  {how_much}" for what, how_much in summary.lines())
    print(json.dumps(summary.as_json()) if options.json else f"\n{text}")  # noqa: T201 - it is a program
    return 0 if summary.good else 1


if __name__ == "__main__":
    sys.exit(main())
