"""`singletonjob status`: who leads which job, from the store alone."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING

from .._errors import StoreError
from ..jobs.options import APP_READERS, read
from ..jobs.sources import resolve_sources
from ..stores import from_url
from ..threads import run_patiently
from .loading import store_arguments
from .status_rows import COLUMNS, as_object, row

if TYPE_CHECKING:
    import argparse

    from ..stores import LeaseStore
    from ..stores.protocol import JobView

__all__ = ["arguments"]

EXAMPLE = """\
examples:
  singletonjob status --store redis://cache:6379/0 --project pricing
  singletonjob status --watch
  singletonjob status --json

Project and store may come from SINGLETONJOB_PROJECT and SINGLETONJOB_STORE, or from
singletonjob.toml. A job is there once it was led for the first time.

Exit code 0, also when nobody leads; 1: the store does not answer; 2: wrong usage.
"""

WATCH_EVERY = 1.0
HOME_AND_CLEAR = "\x1b[H\x1b[J"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `status` takes."""
    parser.epilog = EXAMPLE
    store_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print a list of objects, one for each job")
    parser.add_argument("--watch", action="store_true", help="print it again each second, until Ctrl-C")
    parser.set_defaults(handler=status)


def status(options: argparse.Namespace) -> int:
    """Print it; returns 1 when the store does not answer. Raises `ConfigError` for a store that cannot be one."""
    given = {"project": options.project, "store": options.store}
    code = read({name: value for name, value in given.items() if value is not None}, APP_READERS)
    found = resolve_sources(code, (), os.environ).options()
    store = from_url(found.store) if isinstance(found.store, str) else found.store
    if options.watch:
        return _watch(store, found.project, as_json=options.json)
    try:
        views = run_patiently(store.peek(found.project))
    except StoreError as error:
        print(f"singletonjob status: {error}", file=sys.stderr)
        return 1
    _print(views, found.project, as_json=options.json)
    return 0


def _watch(store: LeaseStore, project: str, *, as_json: bool) -> int:
    clear = sys.stdout.isatty() and not as_json
    answered = False
    try:
        while True:
            try:
                views = run_patiently(store.peek(project))
                answered = True
                print(HOME_AND_CLEAR * clear, end="")
                _print(views, project, as_json=as_json)
            except StoreError as error:
                answered = False
                print(f"{HOME_AND_CLEAR * clear}singletonjob status: {error}", file=sys.stderr, flush=True)
            time.sleep(WATCH_EVERY)
    except KeyboardInterrupt:
        return 0 if answered else 1


def _print(views: tuple[JobView, ...], project: str, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([as_object(view) for view in views]), flush=True)
    elif not views:
        print(f"no job of the project {project} was ever led in this store", flush=True)
    elif sys.stdout.isatty() and _print_table(views):
        return
    else:
        rows = [COLUMNS, *_rows(views)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for cells in rows:
            print("  ".join(map(str.ljust, cells, widths)).rstrip(), flush=True)


def _print_table(views: tuple[JobView, ...]) -> bool:
    """With rich, where it is installed."""
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ModuleNotFoundError:  # it comes with the extra `cli`
        return False
    table = Table(*COLUMNS, box=None, header_style="bold")
    for view, cells in zip(views, _rows(views), strict=True):
        table.add_row(*map(Text, cells), style=None if view.holder else "dim")
    Console().print(table)
    return True


def _rows(views: tuple[JobView, ...]) -> list[tuple[str, ...]]:
    wall = time.time_ns() // 1000
    return [row(view, wall) for view in views]
