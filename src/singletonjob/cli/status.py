"""`singletonjob status`: who leads which job, from the store alone."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from .._errors import StoreError
from ..jobs.options import APP_READERS, read
from ..jobs.sources import resolve_sources
from ..stores import from_url
from ..threads import run_patiently
from .instants import iso
from .loading import store_arguments

if TYPE_CHECKING:
    import argparse

    from ..stores import LeaseStore
    from ..stores.orders import Paused
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

COLUMNS = ("JOB", "LEADER", "TOKEN", "SINCE", "TIME LEFT", "LAST END", "PAUSED")
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
        print(json.dumps([_object(view) for view in views]), flush=True)
    elif not views:
        print(f"no job of the project {project} was ever led in this store", flush=True)
    elif sys.stdout.isatty() and _print_table(views):
        return
    else:
        rows = [COLUMNS, *map(_row, views)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            print("  ".join(map(str.ljust, row, widths)).rstrip(), flush=True)


def _print_table(views: tuple[JobView, ...]) -> bool:
    """With rich, where it is installed."""
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ModuleNotFoundError:  # it comes with the extra `cli`
        return False
    table = Table(*COLUMNS, box=None, header_style="bold")
    for view in views:
        table.add_row(*map(Text, _row(view)), style=None if view.holder else "dim")
    Console().print(table)
    return True


def _row(view: JobView) -> tuple[str, ...]:
    left = "" if view.holder is None else "no end" if view.expires_in is None else f"{view.expires_in:.1f} s"
    since, ended = _seconds(view.since), _seconds(view.ended)
    return (view.job, view.holder or "nobody", str(view.token or ""), since, left, ended, _pause(view.paused))


def _pause(paused: Paused | None) -> str:
    if paused is None:
        return ""
    until = "" if paused.until is None else f" until {_seconds(paused.until)}"
    return f"by {paused.by} at {_seconds(paused.at)}{until}{': ' * bool(paused.reason)}{paused.reason}"


def _seconds(instant: int | None) -> str:
    return "" if instant is None else iso(instant - instant % 1_000_000)


def _object(view: JobView) -> dict[str, Any]:
    return {
        "job": view.job,
        "holder": view.holder,
        "token": view.token,
        "since": None if view.since is None else iso(view.since),
        "expires_in": view.expires_in,
        "last_end": None if view.ended is None else iso(view.ended),
        "paused": None if view.paused is None else _paused_object(view.paused),
    }


def _paused_object(paused: Paused) -> dict[str, Any]:
    until = None if paused.until is None else iso(paused.until)
    return {"by": paused.by, "at": iso(paused.at), "until": until, "reason": paused.reason}
