"""`singletonjob pause`, `resume`, `step-down` and `trigger`: an operator's orders, given through the store."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from .._errors import StoreError
from ..control import Control
from ..jobs.options import APP_READERS, read
from ..jobs.sources import resolve_sources
from ..threads import run_patiently
from .loading import store_arguments

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Coroutine
    from typing import Any

    from ..control import OrderResult

__all__ = ["pause_arguments", "resume_arguments", "step_down_arguments", "trigger_arguments"]

SOURCES = """
Project and store may come from SINGLETONJOB_PROJECT and SINGLETONJOB_STORE, or from
singletonjob.toml. Whoever may write the project's keys may do this; no replica is asked.
"""
CODES = "Exit code 0: it is so; 1: it is not, or the store does not answer; 2: wrong usage, no such job.\n"

PAUSE = f"""\
examples:
  singletonjob pause price-tick --reason "feed is down" --for 2h
  singletonjob pause 'price-*'
  singletonjob pause --all

Who leads gives its lease back when the run in flight has ended; nobody runs the job until
it is resumed, or the time of --for is over. It outlives every replica.
{SOURCES}
{CODES}"""
RESUME = f"""\
examples:
  singletonjob resume price-tick
  singletonjob resume --all
{SOURCES}
{CODES}"""
STEP_DOWN = f"""\
examples:
  singletonjob step-down price-tick
  singletonjob step-down price-tick --json

Who leads gives its lease back when the run in flight has ended, and stays away until
another term began: at most one lock_expiry, for which a sole replica is idle.
{SOURCES}
{CODES}"""
TRIGGER = f"""\
examples:
  singletonjob trigger daily-report
  singletonjob trigger daily-report --wait 30s

The leader runs the job once more, now; not while a run is in flight. What it has not begun
within --wait (default: two heartbeats) is withdrawn, and never begins.
{SOURCES}
{CODES}"""


def pause_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `pause` takes."""
    _common(parser, PAUSE, many=True)
    parser.add_argument("--reason", metavar="TEXT", default="", help="why, for whoever looks at status")
    parser.add_argument("--for", metavar="TIME", dest="lasting", help="resume by itself after so long: 10m, 2h, 1d")
    parser.set_defaults(handler=_pause)


def resume_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `resume` takes."""
    _common(parser, RESUME, many=True)
    parser.set_defaults(handler=_resume)


def step_down_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `step-down` takes."""
    _common(parser, STEP_DOWN, many=False)
    parser.set_defaults(handler=_step_down)


def trigger_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `trigger` takes."""
    _common(parser, TRIGGER, many=False)
    parser.add_argument("--wait", metavar="TIME", help="withdraw it when it was not begun within that (2 heartbeats)")
    parser.set_defaults(handler=_trigger)


def _common(parser: argparse.ArgumentParser, epilog: str, *, many: bool) -> None:
    parser.epilog = epilog
    if many:
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("jobs", metavar="JOB", nargs="?", help="a job's name, or a pattern such as 'price-*'")
        which.add_argument("--all", action="store_true", help="every job of the project")
    else:
        parser.add_argument("job", metavar="JOB", help="the job's name")
    store_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print a list of objects, one for each job")


def _pause(options: argparse.Namespace) -> int:
    order = partial(Control.pause, jobs=_which(options), reason=options.reason, lasting=options.lasting)
    return _give(options, order)


def _resume(options: argparse.Namespace) -> int:
    return _give(options, partial(Control.resume, jobs=_which(options)))


def _which(options: argparse.Namespace) -> str:
    return "*" if options.all else options.jobs


def _step_down(options: argparse.Namespace) -> int:
    async def order(control: Control) -> tuple[OrderResult, ...]:
        return (await control.step_down(options.job),)

    return _give(options, order)


def _trigger(options: argparse.Namespace) -> int:
    async def order(control: Control) -> tuple[OrderResult, ...]:
        return (await control.trigger(options.job, wait=options.wait),)

    return _give(options, order)


def _give(options: argparse.Namespace, order: Callable[[Control], Coroutine[Any, Any, tuple[OrderResult, ...]]]) -> int:
    """Give the order, print what came of it, and return the exit code."""
    given = {"project": options.project, "store": options.store}
    code = read({name: value for name, value in given.items() if value is not None}, APP_READERS)
    found = resolve_sources(code, (), os.environ).options()
    control = Control(found.project, found.store, heartbeat=lambda job: found.of_job(job, {}).heartbeat_interval)
    try:
        results = run_patiently(order(control))
    except StoreError as error:
        print(f"singletonjob {options.command}: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps([asdict(result) for result in results]))
    else:
        for result in results:
            print(f"{result.job}: {_told(result)}")
    return 0 if all(result.good for result in results) else 1


def _told(result: OrderResult) -> str:
    holder, took = result.holder or "nobody", f"{result.seconds * 1000:.0f} ms"
    match result.outcome:
        case "paused":
            return "paused; nobody led it" if result.holder is None else f"paused; {holder} gives its lease back"
        case "resumed":
            return "resumed"
        case "not-paused":
            return "was not paused"
        case "handed-over":
            return f"handed over to {holder} after {took}"
        case "idle":
            return f"its leader stepped down, and nobody else took it within {took}; it is free to lead again now"
        case "asked" | "led":
            return f"{holder} still leads it after {took}; a run in flight may take so long"
        case "started":
            return f"{holder} started an extra run after {took}"
        case "busy":
            return f"not run: a run was in flight on {holder}"
        case "withdrawn" | "gone":
            return f"not run: nobody took it within {took}; it is withdrawn"
        case "pending":
            return "not run: another trigger is waiting to be taken"
        case "nobody":
            return "nobody leads it now; `singletonjob status` tells whether it is paused"
        case "foreign":
            return f"its leader {holder} is another implementation, which reads no orders"
        case "failed":
            return f"failed: {result.error}"
