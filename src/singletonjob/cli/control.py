"""`singletonjob pause`, `resume`, `step-down`, `trigger` and `forget`: orders of an operator, through the store."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from typing import TYPE_CHECKING

from .._core.errors import StoreError
from ..control import Control, control_of
from ..stores.name_look_ups import run_patiently
from .pauses import paused, paused_object, seconds
from .target import SOURCES, job_arguments, jobs_named, resolved_target

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from ..control import OrderResult

__all__ = ["forget_arguments", "pause_arguments", "resume_arguments", "step_down_arguments", "trigger_arguments"]

CODES = "Exit code 0: it is so; 1: it is not, or the store does not answer; 2: wrong usage, no such job.\n"

PAUSE = f"""\
examples:
  singletonjob pause jobs:app price-tick --reason "feed is down" --for 2h
  singletonjob pause 'price-*'
  singletonjob pause --all
  singletonjob pause price-tick --for 1h --replace

The leader releases its lease when the run in flight has ended; nobody runs the job until
it is resumed, or the time of --for is over. The pause outlives every replica. A job that
is paused already stays as it is, unless --replace is given.
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
  singletonjob trigger daily-report --wait-end

The leader runs the job once more, now; not while a run is in flight. What it has not begun
within --wait (default: two heartbeats) is withdrawn, and never begins. With --wait-end the
command returns when the run has ended, with exit code 0 only if it ended well.
{SOURCES}
{CODES}"""


FORGET = f"""\
examples:
  singletonjob forget old-name
  singletonjob forget 'old-*'

Deletes what the store keeps of a job that was renamed or removed, so that status shows it
no more. Refused while somebody leads it or it is paused, for a job that the app still has,
and for ten minutes after it was last led or run.
{SOURCES}
{CODES}"""


def pause_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `pause` takes."""
    _common(parser, PAUSE, many=True)
    parser.add_argument("--reason", metavar="TEXT", default="", help="why, for whoever looks at status")
    parser.add_argument(
        "--for", metavar="TIME", dest="lasting", type=_time, help="resume by itself after so long: 10m, 2h, 1d"
    )
    parser.add_argument("--replace", action="store_true", help="also if it is paused already")
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
    parser.add_argument(
        "--wait", metavar="TIME", type=_time, help="withdraw it when it was not begun within that (2 heartbeats)"
    )
    parser.add_argument("--wait-end", action="store_true", help="return when the run has ended")
    parser.set_defaults(handler=_trigger)


def forget_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `forget` takes."""
    _common(parser, FORGET, many=True)
    parser.set_defaults(handler=_forget)


def _time(text: str) -> str:
    """A duration with its unit: people who write 10 may mean seconds or minutes."""
    if text.replace(".", "", 1).isdecimal():
        raise argparse.ArgumentTypeError(f"{text} of what? Write {text}s, {text}m or {text}h")
    return text


def _common(parser: argparse.ArgumentParser, epilog: str, *, many: bool) -> None:
    parser.epilog = epilog
    job_arguments(parser, many=many)
    parser.add_argument("--json", action="store_true", help="print a list of objects, one for each job")


def _pause(options: argparse.Namespace) -> int:
    given = {"reason": options.reason, "lasting": options.lasting, "replace": options.replace}
    return _give(options, partial(Control.pause, **given))


def _resume(options: argparse.Namespace) -> int:
    return _give(options, Control.resume)


def _forget(options: argparse.Namespace) -> int:
    return _give(options, Control.forget)


def _step_down(options: argparse.Namespace) -> int:
    async def order(control: Control, job: str) -> tuple[OrderResult, ...]:
        return (await control.step_down(job),)

    return _give(options, order)


def _trigger(options: argparse.Namespace) -> int:
    async def order(control: Control, job: str) -> tuple[OrderResult, ...]:
        return (await control.trigger(job, wait=options.wait, wait_end=options.wait_end),)

    return _give(options, order)


def _give(
    options: argparse.Namespace, order: Callable[[Control, str], Coroutine[Any, Any, tuple[OrderResult, ...]]]
) -> int:
    """Give the order for the jobs that are named, print what came of it, and return the exit code."""
    jobs = jobs_named(options)
    target = resolved_target(options)
    store = target.options().store

    async def given() -> tuple[OrderResult, ...]:
        try:
            return await order(control_of(target, running=False), jobs)
        finally:
            if not isinstance(store, str):
                await store.close()

    try:
        results = run_patiently(given())
    except StoreError as error:
        print(f"singletonjob {options.command}: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps([_object(result) for result in results]))
    else:
        for result in results:
            print(f"{result.job}: {_told(result, options.command)}{_was(result)}")
    return 0 if all(result.good for result in results) else 1


def _object(result: OrderResult) -> dict[str, Any]:
    return {
        "job": result.job,
        "outcome": result.outcome,
        "leader": result.holder,
        "seconds": result.seconds,
        "error": result.error,
        "paused": paused_object(result.pause),
        "was_paused": paused_object(result.was),
    }


def _was(result: OrderResult) -> str:
    return "" if result.was is None else f"; it was paused {paused(result.was)}"


def _told(result: OrderResult, command: str) -> str:
    holder, took = result.holder or "nobody", f"{result.seconds * 1000:.0f} ms"
    match result.outcome:
        case "paused":
            ends = "it is resumed"
            if result.pause is not None and result.pause.until is not None:
                ends = seconds(result.pause.until)
            led = "nobody led it" if result.holder is None else f"{holder} releases its lease"
            return f"paused until {ends}; {led}"
        case "is-paused":
            cure = "; write --replace to replace that" if command == "pause" else "; resume it first"
            return f"not done: it is paused {'' if result.pause is None else paused(result.pause)}{cure}"
        case "resumed":
            return "resumed"
        case "not-paused":
            return "was not paused"
        case "handed-over":
            return f"handed over to {holder} after {took}"
        case "idle":
            return f"its leader stepped down, and nobody else took it within {took}; it is free to lead again now"
        case "led" if command == "forget":
            return f"not forgotten: {holder} leads it; remove the job from the code, and stop the replicas that have it"
        case "asked" | "led":
            return f"{holder} still leads it after {took}; a run in flight may take so long"
        case "started":
            return f"{holder} started an extra run after {took}"
        case "ran-ok" | "ran-failed" | "ran-cancelled" | "ran-timeout":
            how = {"ran-ok": "ended well", "ran-failed": "failed", "ran-cancelled": "was cancelled"}
            return (
                f"the extra run on {holder} {how.get(result.outcome, 'ran into its timeout')}, {took} after the order"
            )
        case "forgotten":
            return "forgotten"
        case "recent":
            return "not forgotten: it was led or ran within the last ten minutes; try again later"
        case "busy":
            return f"not run: a run was in flight on {holder}"
        case "withdrawn" | "gone":
            return f"not run: nobody took it within {took}; it is withdrawn"
        case "pending":
            return "not run: another trigger is waiting to be taken"
        case "nobody":
            return "nobody leads it now"
        case "foreign":
            return f"its leader {holder} is another implementation, which reads no orders"
        case "failed":
            return f"failed: {result.error}"
