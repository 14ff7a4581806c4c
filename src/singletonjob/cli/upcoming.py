"""`singletonjob next`: when the jobs of an app, or a cron expression, run next. Needs neither project nor store."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from .._core.errors import ConfigError
from .._core.schedule import CronSchedule, FixedRateSchedule, IntervalSchedule
from .._jobs.cron_forms import make_cron
from .._reporting.log_lines import NO_JOBS
from .clock_changes import ClockChanges
from .instants import EPOCH, iso, local, moment
from .loading import app_arguments, load_app

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._core.cron import Cron
    from .._core.schedule import Schedule

__all__ = ["arguments", "following", "when"]

EXAMPLE = """\
examples:
  singletonjob next jobs:app
  singletonjob next '0 3 * * *' --tz Asia/Singapore --count 3
  singletonjob next '@hourly' --after 2026-01-31T09:00:00Z --json

A cron slot is shown in its own time zone and in UTC. Days on which the clocks of
that zone change are marked, and what that does to a slot is said below it. An
interval job has no instants: it runs some time after the end of the run before.
--after without an offset means the time zone of --tz. --json has UTC only.

Exit code 0; 1: the expression has no further slot; 2: it, or the app, is wrong.
"""

MOST = 10_000


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `next` takes."""
    parser.epilog = EXAMPLE
    parser.add_argument("what", metavar="MODULE:APP|EXPRESSION", help="an app, or a cron expression in quotes")
    parser.add_argument("--tz", metavar="ZONE", help="the expression's time zone (UTC)")
    parser.add_argument("--after", type=moment, metavar="TIME", help="only what is strictly later (now)")
    parser.add_argument("--count", type=_count, default=5, metavar="N", help="how many of each (5)")
    parser.add_argument("--json", action="store_true", help="print a list; for an app an object of lists by job")
    app_arguments(parser)
    parser.set_defaults(handler=show_next)


def show_next(options: argparse.Namespace) -> int:
    """Print it. Raises `ConfigError` and `ScheduleError` for what cannot be read."""
    if _is_expression(options.what):
        return _of_expression(options)
    if options.tz is not None:
        raise ConfigError("--tz: is for a cron expression; each job of an app has a time zone of its own")
    return _of_app(options)


def following(schedule: Schedule, after: int, count: int) -> list[int]:
    """The next `count` instants strictly after `after`, in microseconds; none for an interval."""
    step: Callable[[int], int | None]
    if isinstance(schedule, CronSchedule):
        step = schedule.cron.after
    elif isinstance(schedule, FixedRateSchedule):
        step = schedule.after
    else:
        return []
    found: list[int] = []
    while len(found) < count and (later := step(found[-1] if found else after)) is not None:
        found.append(later)
    return found


def when(schedule: Schedule) -> str:
    """The schedule in a few words."""
    if isinstance(schedule, CronSchedule):
        order = " (seconds first)" if len(schedule.cron.expression.split()) == 6 else ""
        return f"cron {schedule.cron.expression!r}{order} in {schedule.cron.tz}"
    if isinstance(schedule, FixedRateSchedule):
        shift = f" plus {schedule.offset / 1e6:g} s" if schedule.offset else ""
        return f"at each multiple of {schedule.period / 1e6:g} s{shift}"
    if isinstance(schedule, IntervalSchedule):
        with suppress(Exception):  # it may be the user's function, which need not work outside of a run
            return f"{schedule.every():g} s after the end of each run"
    return "an interval after the end of each run"


def _of_expression(options: argparse.Namespace) -> int:
    cron = make_cron(options.what, "UTC" if options.tz is None else options.tz)
    schedule = CronSchedule(cron)
    found = following(schedule, _after(options, cron), options.count)
    if options.json:
        print(json.dumps([iso(instant) for instant in found]))
    elif found:
        _show(schedule, found)
    for warning in cron.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if found:
        return 0
    print(f"singletonjob next: {options.what!r} has no slot after that", file=sys.stderr)
    return 1


def _of_app(options: argparse.Namespace) -> int:
    jobs = load_app(options.what, app_dir=options.app_dir, factory=options.factory).resolved().jobs
    if not jobs:
        print(f"singletonjob next: {NO_JOBS}", file=sys.stderr)
    after = _after(options)
    found = {job.name: following(job.schedule, after, options.count) for job in sorted(jobs, key=lambda job: job.name)}
    if options.json:
        print(json.dumps({name: [iso(instant) for instant in instants] for name, instants in found.items()}))
        return 0
    schedules = {job.name: job.schedule for job in jobs}
    for name, instants in found.items():
        _show(schedules[name], instants, f"{name}: ")
    return 0


def _show(schedule: Schedule, instants: list[int], name: str = "") -> None:
    """The schedule in words, and a line for each instant; for a cron slot its local time, and what a change did."""
    print(f"{name}{when(schedule)}")
    if not isinstance(schedule, CronSchedule) or schedule.cron.tz == "UTC":
        for instant in instants:
            print(f"  {iso(instant)}")
        return
    changes = ClockChanges(schedule.cron)
    for instant in instants:
        change = changes.on_the_day_of(instant)
        mark = "" if change is None else f"   clock change {change}"
        print(f"  {local(schedule.cron, instant)}   {iso(instant)}{mark}")
        why = changes.why(instant)
        if why is not None:
            print(f"    {why}")


def _after(options: argparse.Namespace, cron: Cron | None = None) -> int:
    after: datetime | None = options.after
    if after is None:
        return time.time_ns() // 1000
    if after.tzinfo is None:
        zone = UTC if cron is None else cron.local(0).tzinfo
        after = after.replace(tzinfo=zone)
    return (after - EPOCH) // timedelta(microseconds=1)


def _is_expression(text: str) -> bool:
    """Whether it is a cron expression rather than an app; either has what the other cannot have."""
    if text.strip().startswith("@") or len(text.split()) > 1:
        return True
    if ":" not in text or re.search(r"[*,]", text):
        raise ConfigError(
            f"{text!r} is neither MODULE:APP nor a cron expression; write jobs:app, or '0 3 * * *' in quotes"
        )
    return False


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a count; write 1 to {MOST}")
    return int(text)
