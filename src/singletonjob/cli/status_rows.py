"""A job's state as `status` prints it: a row of the table, with ages, and an object for `--json`, with dates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .instants import iso
from .pauses import paused, paused_object

if TYPE_CHECKING:
    from ..stores.protocol import JobView

__all__ = ["COLUMNS", "as_object", "row", "span"]

COLUMNS = ("JOB", "LEADER", "SINCE", "LAST RUN", "RUNS", "STAND-BY", "LEASE", "TOKEN", "PAUSED")


def row(view: JobView, wall: int) -> tuple[str, ...]:
    """One row under `COLUMNS`; `wall` is this machine's wall clock, for a store that does not give its own."""
    now = view.wall or wall
    lease = "" if view.holder is None else "no end" if view.expires_in is None else f"{view.expires_in:.1f} s"
    return (
        view.job,
        view.holder or "nobody",
        _ago(view.since, now),
        _last_run(view, now),
        f"{view.runs}, {view.failures} failed" if view.failures else str(view.runs) if view.runs else "",
        "?" if view.standby is None else str(view.standby),
        lease,
        str(view.token or ""),
        "" if view.paused is None else paused(view.paused),
    )


def as_object(view: JobView) -> dict[str, Any]:
    """The same for `--json`."""
    return {
        "job": view.job,
        "leader": view.holder,
        "token": view.token,
        "since": _date(view.since),
        "expires_in": view.expires_in,
        "last_end": _date(view.ended),
        "last_outcome": view.outcome or None,
        "last_good_end": _date(view.good),
        "runs": view.runs,
        "failures": view.failures,
        "stand_by": view.standby,
        "paused": paused_object(view.paused),
    }


def span(seconds: float) -> str:
    """A length of time for people, in its two largest units: `3 s`, `4 m 10 s`, `2 h 5 m`, `3 d 4 h`."""
    whole = max(int(seconds), 0)
    for size, unit, next_size, next_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // next_size
            return f"{whole // size} {unit}" + (f" {rest} {next_unit}" if rest else "")
    return f"{whole} s"


def _last_run(view: JobView, now: int) -> str:
    if view.ended is None:
        return ""
    last = f"{view.outcome} {_ago(view.ended, now)}".strip()
    if view.outcome in {"", "ok"}:
        return last
    return f"{last}, {'never ok' if view.good is None else f'ok {_ago(view.good, now)}'}"


def _ago(instant: int | None, now: int) -> str:
    return "" if instant is None else f"{span((now - instant) / 1e6)} ago"


def _date(instant: int | None) -> str | None:
    return None if instant is None else iso(instant)
