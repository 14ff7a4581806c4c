"""A job as `status` prints it: a row and notes for people, with ages, and an object for `--json`, with dates."""

from __future__ import annotations

from itertools import zip_longest
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from .._core.errors import ConfigError
from .._core.schedule import IntervalSchedule
from .instants import iso
from .pauses import paused, paused_object
from .upcoming import following

if TYPE_CHECKING:
    from .._core.protocol import JobView
    from .._core.schedule import Schedule
    from .._jobs.definition import JobDefinition
    from .._jobs.options import JobOptions

__all__ = ["COLUMNS", "Seen", "as_object", "span", "table"]

COLUMNS = ("JOB", "LEADER", "LED FOR", "LAST RUN", "RUNS", "FAILED", "STANDBY", "LEASE", "TOKEN")

NARROWEST = 7
"""No column is made narrower than this."""

LATE_AFTER = 2
"""A job is late if no run has ended for so many `lock_expiry` after one was due: a crash of its leader costs one."""


class Seen:
    """One job at one look. `definition` and `options` are the app's, if one was named; `wall` is this machine's wall
    clock, for a store that does not give its own."""

    def __init__(
        self, view: JobView, wall: int, definition: JobDefinition | None = None, options: JobOptions | None = None
    ) -> None:
        self.view = view
        self.now: int = view.wall or wall
        self.off: bool = options is not None and options.enabled is False
        schedule = None if definition is None or self.off else definition.schedule
        self.next: int | None = next(iter(following(schedule, self.now, 1)), None) if schedule is not None else None
        self.late_since: int | None = None
        if schedule is not None and options is not None and view.ended is not None and view.paused is None:
            due = _due_after(schedule, view.ended)
            if due is not None and self.now - due > LATE_AFTER * options.lock_expiry * 1e6:
                self.late_since = due

    def row(self) -> tuple[str, ...]:
        """The cells under `COLUMNS`."""
        view = self.view
        lease = "" if view.holder is None else "no end" if view.expires_in is None else f"{view.expires_in:.1f} s"
        return (
            view.job,
            view.holder or "nobody",
            "" if view.since is None else self._age(view.since),
            "" if view.ended is None else f"{view.outcome} {self._age(view.ended)} ago".strip(),
            str(view.runs or ""),
            str(view.failures or ""),
            "?" if view.standby is None else str(view.standby),
            lease,
            str(view.token or ""),
        )

    def notes(self) -> list[str]:
        """What stands below the row: why the job does not work as it should, and its next slot."""
        view = self.view
        notes: list[str] = []
        if view.paused is not None:
            notes.append(f"paused {self._age(view.paused.at)} ago {paused(view.paused)}")
        if self.off:
            notes.append("off by configuration")
        if view.outcome not in {"", "ok"}:
            good = "no run is known to have ended well" if view.good is None else f"last ok {self._age(view.good)} ago"
            notes.append(good)
        if self.late_since is not None:
            notes.append(f"late: a run was due {self._age(self.late_since)} ago, and none has ended since")
        if self.next is not None and self.next - self.now > 60_000_000:
            notes.append(f"next run in {span((self.next - self.now) / 1e6)}, at {iso(self.next)}")
        return notes

    def _age(self, instant: int) -> str:
        return span((self.now - instant) / 1e6)


def as_object(seen: Seen, *, with_schedule: bool) -> dict[str, Any]:
    """The same for `--json`. `with_schedule`: an app is known, so `late` and `next` are."""
    view = seen.view
    schedule = {"late": seen.late_since is not None, "next": _date(seen.next)} if with_schedule else {}
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
        "standby": view.standby,
        "paused": paused_object(view.paused),
        **schedule,
    }


def table(jobs: list[Seen], width: int | None) -> list[str]:
    """Lines of at most `width` characters, if that can be; None: as wide as they are.

    What does not fit loses the token first. Then the cells are wrapped, but never the names of job and leader, which
    people copy.
    """
    rows = [COLUMNS, *(job.row() for job in jobs)]
    if width is not None and _width(_widths(rows)) > width:
        rows = [cells[:-1] for cells in rows]
    widths = _widths(rows)
    while width is not None and _width(widths) > width and max(widths[2:]) > NARROWEST:
        widths[widths.index(max(widths[2:]), 2)] -= 1
    lines: list[str] = []
    for job, cells in zip([None, *jobs], rows, strict=True):
        parts = [wrap(cell, wide) for cell, wide in zip(cells, widths, strict=True)]
        lines += [_joined(line, widths) for line in zip_longest(*parts, fillvalue="")]
        for note in job.notes() if job is not None else ():
            lines += wrap(note, width or len(note) + 4, initial_indent="    ", subsequent_indent="      ")
    return lines


def span(seconds: float) -> str:
    """A length of time for people, in its two largest units: `3 s`, `4 m 10 s`, `2 h 5 m`, `3 d 4 h`."""
    whole = max(int(seconds), 0)
    for size, unit, next_size, next_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // next_size
            return f"{whole // size} {unit}" + (f" {rest} {next_unit}" if rest else "")
    return f"{whole} s"


def _due_after(schedule: Schedule, ended: int) -> int | None:
    """The instant at which a run is due, after one that ended at `ended`; None: never, or it is not known."""
    if not isinstance(schedule, IntervalSchedule):
        return next(iter(following(schedule, ended, 1)), None)
    try:
        return ended + int(schedule.every() * 1e6)
    except ConfigError:
        return None


def _widths(rows: list[tuple[str, ...]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _width(widths: list[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def _joined(cells: tuple[str, ...], widths: list[int]) -> str:
    return "  ".join(map(str.ljust, cells, widths)).rstrip()


def _date(instant: int | None) -> str | None:
    return None if instant is None else iso(instant)
