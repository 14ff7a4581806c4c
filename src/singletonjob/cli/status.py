"""`singletonjob status`: who leads which job, from the store alone."""

from __future__ import annotations

import json
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

from .._core.errors import StoreError
from .._core.protocol import JobView
from ..stores import from_url
from ..stores.memory import MemoryStore
from ..stores.name_look_ups import run_patiently
from .status_rows import Seen, as_object, table
from .target import SOURCES, resolved_target, target_arguments

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Coroutine

__all__ = ["arguments"]

EXAMPLE = f"""\
examples:
  singletonjob status jobs:app
  singletonjob status --store redis://cache:6379/0 --project pricing
  singletonjob status jobs:app --watch
  singletonjob status jobs:app --json
{SOURCES}
Without an app, a job is shown once it was led for the first time.

Exit code 0, also when nobody leads; 1: the store does not answer, or knows no job of the
project; 2: wrong usage.
"""

WATCH_EVERY = 1.0
HOME_AND_CLEAR = "\x1b[H\x1b[J"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `status` takes."""
    parser.epilog = EXAMPLE
    parser.add_argument("words", metavar="MODULE:APP", nargs="?", help="the same as --app")
    target_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print a list of objects, one for each job")
    parser.add_argument("--watch", action="store_true", help="print it again each second, until Ctrl-C")
    parser.set_defaults(handler=status)


def status(options: argparse.Namespace) -> int:
    """Print it; returns 1 when the store does not answer or knows no job. Raises `ConfigError` for a wrong app,
    project or store."""
    options.app = options.app or options.words
    target = resolved_target(options)
    found = target.options()
    store = from_url(found.store) if isinstance(found.store, str) else found.store
    definitions = {job.name: job for job in target.jobs}

    async def look() -> list[Seen]:
        views = await store.peek(found.project)
        never_led = definitions.keys() - {view.job for view in views}
        wall = time.time_ns() // 1000
        return [
            Seen(view, wall, definitions[view.job], target.of_job(view.job))
            if view.job in definitions
            else Seen(view, wall)
            for view in sorted([*views, *map(JobView, never_led)])
        ]

    def show(jobs: list[Seen]) -> None:
        if options.json:
            print(json.dumps([as_object(job, with_schedule=bool(definitions)) for job in jobs]), flush=True)
        elif not jobs:
            print(f"no job of the project {found.project} was ever led in this store", file=sys.stderr, flush=True)
        else:
            width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
            print(*table(jobs, width), sep="\n", flush=True)

    if options.watch:
        return _watch(look, show, clear=sys.stdout.isatty() and not options.json)
    try:
        jobs = run_patiently(look())
    except StoreError as error:
        print(f"singletonjob status: {error}", file=sys.stderr)
        return 1
    if isinstance(store, MemoryStore):
        print("singletonjob status: a store in memory shows this command's own process alone", file=sys.stderr)
    show(jobs)
    return 0 if jobs and not isinstance(store, MemoryStore) else 1


def _watch(
    look: Callable[[], Coroutine[Any, Any, list[Seen]]], show: Callable[[list[Seen]], None], *, clear: bool
) -> int:
    answered = False
    try:
        while True:
            try:
                jobs = run_patiently(look())
                answered = True
                print(HOME_AND_CLEAR * clear, end="")
                show(jobs)
            except StoreError as error:
                answered = False
                print(f"{HOME_AND_CLEAR * clear}singletonjob status: {error}", file=sys.stderr, flush=True)
            time.sleep(WATCH_EVERY)
    except KeyboardInterrupt:
        return 0 if answered else 1
