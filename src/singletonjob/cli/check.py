"""`singletonjob check`: what holds for an app, where each value was written, and whether its store will do."""

from __future__ import annotations

import json
import time
from dataclasses import fields
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core.errors import StoreError
from .._core.protocol import Batch, Finding, Inspectable
from .._core.schedule import CronSchedule, FixedRateSchedule
from .._jobs.options import resolve
from .._jobs.sources import told
from .._jobs.timing import schedule_warnings
from .._reporting.log_lines import NO_JOBS
from ..stores import from_url
from ..stores.name_look_ups import run_patiently
from .instants import iso
from .loading import app_arguments, load_app, store_arguments
from .upcoming import following, when

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from .._core.schedule import Schedule
    from .._jobs.options import AppOptions, JobOptions
    from .._jobs.sheets import Setting
    from .._jobs.sources import Resolved
    from ..stores import LeaseStore

__all__ = ["arguments"]

EXAMPLE = """\
examples:
  singletonjob check jobs:app
  singletonjob check jobs:app --store redis://cache:6379/0
  singletonjob check pricing.jobs:make_app --factory --app-dir src --json

Run it where the app will run: with its environment, its file and its network. No job
is started, and no lease is asked for.

Exit code 0: all is well; 1: the store will not do; 2: the configuration is wrong.
"""

APP_ONLY = ("project", "store", "node_id", "stall_limit", "amnesia_guard")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `check` takes."""
    parser.epilog = EXAMPLE
    parser.add_argument("app", metavar="MODULE:APP", help="where the SingletonJobs object is, for example jobs:app")
    app_arguments(parser)
    store_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object, and nothing else")
    parser.set_defaults(handler=check)


def check(options: argparse.Namespace) -> int:
    """Print it; returns 1 when the store will not do. Raises `ConfigError` for a configuration that is wrong."""
    app = load_app(options.app, app_dir=options.app_dir, factory=options.factory)
    app.configure(project=options.project, store=options.store)
    found = app.resolved()
    settled = found.options()
    store = from_url(settled.store) if isinstance(settled.store, str) else settled.store
    flags = [name for name in ("project", "store") if getattr(options, name) is not None]
    report = _report(found, settled, flags)
    findings = run_patiently(_tested(store, settled))
    report["store"] = [finding._asdict() for finding in findings]
    report["ok"] = all(finding.level != "error" for finding in findings)
    if options.json:
        print(json.dumps(report))
    else:
        _print(report)
    return 0 if report["ok"] else 1


async def _tested(store: LeaseStore, settled: AppOptions) -> list[Finding]:
    """What is good and what is not about the store, at once as a replica would find it."""
    project, bound = settled.project, resolve(*settled.layers).call_timeout
    try:
        reply = await store.exchange(Batch(project, "check", bound))
        findings = [Finding("ok", "the store answers")]
        if reply.up_for is None:
            text = "the store does not tell its up-time: a restart that forgets goes unseen; grant INFO"
            findings.append(Finding("warning", text))
        if isinstance(store, Inspectable):
            findings += await store.inspect(project)
        return findings
    except StoreError as error:
        return [Finding("error", str(error))]
    finally:
        await store.close()


# -- what is said ---------------------------------------------------------------------------------------------------


def _report(found: Resolved, settled: AppOptions, flags: list[str]) -> dict[str, Any]:
    app = {name: getattr(settled, name) for name in APP_ONLY} | _plain(resolve(*settled.layers))
    options = _listed(app, found.app)
    for name in flags:
        options[name]["source"] = f"command line --{name}"
    jobs: dict[str, Any] = {}
    warnings = [] if found.jobs else [NO_JOBS]
    warnings += [f"{note.job}: {note.text}" if note.job else note.text for note in found.notes]
    now = time.time_ns() // 1000
    for job in found.jobs:
        own = found.of_job(job.name)
        upcoming = following(job.schedule, now, 1)
        jobs[job.name] = {
            "schedule": when(job.schedule),
            "next": iso(upcoming[0]) if upcoming else None,
            "zone_data": _zone_data(job.schedule),
            "options": _listed(_timing(job.schedule, now) | _plain(own), found.of_jobs[job.name]),
        }
        said = [own.warning] if own.warning else []
        said += schedule_warnings(job.schedule)
        warnings += [f"{job.name}: {warning}" for warning in said]
    return {"options": options, "jobs": jobs, "warnings": warnings}


def _zone_data(schedule: Schedule) -> str | None:
    """Where the rules of the time zone come from: the system's files win, and may be older than the package's."""
    if not isinstance(schedule, CronSchedule) or schedule.cron.tz == "UTC":
        return None
    from zoneinfo import TZPATH

    places = (place for place in TZPATH if (Path(place) / schedule.cron.tz).is_file())
    return next(places, "the package tzdata")


def _listed(values: Mapping[str, object], settings: Mapping[str, Setting]) -> dict[str, dict[str, object]]:
    """Each value as JSON has it, durations in seconds, with its source."""
    listed: dict[str, dict[str, object]] = {}
    for name, value in values.items():
        plain = value if isinstance(value, (bool, int, float)) or value is None else told(name, value)
        listed[name] = {"value": plain, "source": settings[name].source if name in settings else "default"}
    return listed


def _plain(options: JobOptions) -> dict[str, object]:
    return {field.name: getattr(options, field.name) for field in fields(options)}


def _timing(schedule: Schedule, now: int) -> dict[str, object]:
    """The options of the schedule; `late_limit` as it is for the next slot after `now`."""
    if isinstance(schedule, CronSchedule):
        limit = schedule.limit(schedule.cron.after(now) or now)
        return {
            "tz": schedule.cron.tz,
            "misfire": schedule.misfire,
            "catch_up_limit": schedule.catch_up_limit,
            "late_limit": limit if isfinite(limit) else None,
        }
    if isinstance(schedule, FixedRateSchedule):
        return {"offset": schedule.offset / 1e6}
    return {}


def _print(report: Mapping[str, Any]) -> None:
    options = report["options"]
    _print_options("options", options)
    for name, job in report["jobs"].items():
        zone = f" (zone data from {job['zone_data']})" if job["zone_data"] else ""
        upcoming = f"{zone}; next at {job['next']}" if job["next"] else zone
        own = {key: entry for key, entry in job["options"].items() if entry != options.get(key)}
        _print_options(f"job {name}: {job['schedule']}{upcoming}", own)
    for warning in report["warnings"]:
        print(f"warning: {warning}")
    for finding in report["store"]:
        print(f"{finding['level']}: {finding['text']}")


def _print_options(head: str, options: Mapping[str, Mapping[str, object]]) -> None:
    print(head)
    rows = [(name, told(name, entry["value"]), str(entry["source"])) for name, entry in options.items()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print(f"  {'  '.join(map(str.ljust, row, widths)).rstrip()}")
    print()
