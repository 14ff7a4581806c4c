"""Cron expressions: the instants that they name in a time zone. All instants are UTC.

Five fields (minute, hour, day of month, month, day of week), or six with seconds first, or `@daily` and friends.
cronsim parses the checked expression and decides which dates match. The effects of a time zone are decided here, as in
Debian's cron(8) and HangfireIO/Cronos:

P1  Names are allowed, short or in full, 0 and 7 are both Sunday, also at the end of a range: MON-SUN.
P2  If both day fields are restricted (neither begins with `*`), one of them must match; otherwise both must.
P3  An interval-like expression (`*`, a range or a step in second, minute or hour) follows real time: it fires in both
    passes of a repeated hour and skips what a gap swallows.
P4  Any other fires in the first pass only, and a time inside a gap once, at the first instant after it.
P5  The next slot is strictly later than the given instant.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from .errors import ScheduleError

if TYPE_CHECKING:
    from datetime import tzinfo

__all__ = ["Cron"]


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    size: int
    names: tuple[str, ...] = ()


_MONTHS = "JANUARY FEBRUARY MARCH APRIL MAY JUNE JULY AUGUST SEPTEMBER OCTOBER NOVEMBER DECEMBER"
_DAYS = "SUNDAY MONDAY TUESDAY WEDNESDAY THURSDAY FRIDAY SATURDAY"
_FIELDS = (
    _Field("second", 0, 59, 60),
    _Field("minute", 0, 59, 60),
    _Field("hour", 0, 23, 24),
    _Field("day-of-month", 1, 31, 31),
    _Field("month", 1, 12, 12, tuple(_MONTHS.split())),
    _Field("day-of-week", 0, 7, 7, tuple(_DAYS.split())),
)
_ALIASES = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}
_TERM = re.compile(r"(\*(?!-)|\w{1,9})(?:-(\w{1,9}))?(?:/(\d{1,4}))?", re.ASCII)
_SPECIAL_DAY = re.compile(r"([0-7](?=L)|\w{1,9}(?=#))(L|#[1-5])", re.ASCII)
_FOREIGN = re.compile(r"\d*(W)|(H)(?:[/(].*)?|(\?)(?:/.*)?")
_ZONE = re.compile(r"(?!(?:posix|right)/|localtime$|posixrules$)[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*")
"""IANA names only: `right/` counts leap seconds, and `localtime` depends on the machine."""

_FIRST = date(1970, 1, 1)
_SECOND, _ONE_DAY, _DAY = timedelta(seconds=1), timedelta(days=1), 86_400
# Seconds since the epoch, about the years 5 to 9890: the search goes 50 years ahead, a date ends with year 9999.
_EARLIEST, _LATEST = -62_000_000_000, 250_000_000_000


class Cron:
    """A cron expression in a zone: `after` gives the next slot. Immutable, so it may be shared.

    `mark` identifies expression and zone in the store. `fixed`: P4 holds instead of P3. `warnings`: what is valid but
    probably not intended.
    Raises `ScheduleError` for an expression that is not understood or names no date, and for an unknown zone.
    """

    __slots__ = ("_calendar", "_start_of_day", "_times", "_zone", "expression", "fixed", "mark", "tz", "warnings")

    def __init__(self, expression: str, tz: str = "UTC") -> None:
        from zlib import crc32

        from cronsim import CronSim, CronSimError

        self.expression: str = expression
        self.tz: str = tz
        self._zone = _zone(tz)
        texts = _split(expression)
        warnings: list[str] = []
        checked = " ".join(_field(expression, *pair, warnings) for pair in zip(_FIELDS, texts, strict=True))
        self.warnings: tuple[str, ...] = tuple(warnings)
        self.mark: str = f"{crc32(f'{checked} {tz}'.encode()):08x}"
        self.fixed: bool = not any(sign in text for text in texts[:3] for sign in "*-/")
        impossible = f"day-of-month {texts[3]!r} never comes with month {texts[4]!r} and day-of-week {texts[5]!r}"
        try:
            # Naive and with six fields, so that cronsim applies no zone rules.
            self._calendar = CronSim(checked, datetime(2000, 1, 1))  # noqa: DTZ001 - naive, see above
        except CronSimError:  # after our own checks it refuses impossible dates only, and not all of them
            _refuse(expression, impossible)
        sets = self._calendar.hours, self._calendar.minutes, self._calendar.seconds
        self._times = tuple(sorted(times) for times in sets)
        self._start_of_day = self._time(0)
        if self._candidate(0) is None:
            _refuse(expression, impossible)

    def after(self, instant: int) -> int | None:
        """Return the first slot strictly after `instant`, both in microseconds; None: there is none within 50 years.

        Raises `ScheduleError` instead of returning an instant that is not later, because a scheduler would spin on it.
        """
        start = instant // 1_000_000
        if not _EARLIEST <= start < _LATEST:
            return None
        found = self._after(start)
        if found is not None and found <= start:
            _refuse(self.expression, f"no later slot found after {self.local(instant)}; please report this")
        return None if found is None else found * 1_000_000

    def newest(self, low: int, high: int) -> int | None:
        """Return the last slot in (low, high], in microseconds; takes about 4 log(high - low) calls of `after`."""
        found = self.after(low)
        if found is None or found > high:
            return None
        top, step = high, 1_000_000  # no slot lies in (top, high]
        while (later := self.after(found)) is not None and later <= high:
            found = later
            middle = max((found + top) // 2, high - step)  # gallop first, because the last slot is usually near
            step *= 4
            later = self.after(middle)
            if later is not None and later <= high:
                found = max(found, later)
            else:
                top = middle
        return found

    def local(self, instant: int) -> datetime:
        """Return `instant` (microseconds) as an aware datetime in the expression's zone."""
        return datetime.fromtimestamp(instant // 1_000_000, self._zone).replace(microsecond=instant % 1_000_000)

    def _after(self, start: int) -> int | None:
        offset = self._offset(start)
        wall = self._candidate(start + offset)
        while wall is not None:
            found = wall - offset
            change = self._change(start, offset, found)
            if change is None:
                if not (self.fixed and datetime.fromtimestamp(found, self._zone).fold):
                    return found
                wall = self._candidate(wall)  # P4: second pass
                continue
            start, offset = change, self._offset(change)
            if self.fixed and wall < start + offset:
                return start  # P4: all that the gap swallowed
            wall = self._candidate(start + offset - 1)
        return None

    def _change(self, start: int, offset: int, end: int) -> int | None:
        """Return the first second in (start, end] with another offset from UTC than `start`; None if none matters.

        A change and its reversal do not matter, because no matching wall time lies between them. The exception is a
        fold so near that wall times before `start` come again, so the next day is checked.
        """
        near = min(end, start + _DAY)
        low, high = (start, near) if self._offset(near) != offset else (near, end)
        if self._offset(high) == offset:
            return None
        return low + bisect_left(range(low, high), True, key=lambda second: self._offset(second) != offset)

    def _offset(self, second: int) -> int:
        offset = datetime.fromtimestamp(second, self._zone).utcoffset()
        return offset // _SECOND if offset else 0

    def _candidate(self, wall: int) -> int | None:
        """Return the next matching wall time after `wall`, in seconds without zones, within 50 years."""
        days, second = divmod(wall + 1, _DAY)
        day, time = _FIRST + timedelta(days=days), self._time(second)
        end = day.year + 50
        while day.year <= end:
            if day.month not in self._calendar.months:
                day = date(day.year + day.month // 12, day.month % 12 + 1, 1)
            elif time is not None and self._calendar.match_day(day):
                return (day - _FIRST).days * _DAY + time
            else:
                day += _ONE_DAY
            time = self._start_of_day
        return None

    def _time(self, second: int) -> int | None:
        """Return the first matching time of day at or after `second`, in seconds after midnight."""
        hour, minute = second // 3600, second // 60 % 60
        hours, minutes, seconds = self._times
        h, m = bisect_left(hours, hour), bisect_left(minutes, minute)
        if hour in hours:
            if minute in minutes:
                if (s := bisect_left(seconds, second % 60)) < len(seconds):
                    return hour * 3600 + minute * 60 + seconds[s]
                m += 1
            if m < len(minutes):
                return hour * 3600 + minutes[m] * 60 + seconds[0]
            h += 1
        return hours[h] * 3600 + minutes[0] * 60 + seconds[0] if h < len(hours) else None


def _refuse(expression: str, why: str) -> NoReturn:
    raise ScheduleError(f"cron expression {expression!r}: {why}")


def _split(expression: str) -> list[str]:
    """Return the six fields, in upper case."""
    if not isinstance(expression, str):  # pyright: ignore[reportUnnecessaryIsInstance] - users may not use a type checker
        _refuse(expression, "is not text; write five fields, such as '0 3 * * *'")
    text = expression.strip().upper()
    if text.startswith("@") and text not in _ALIASES:
        _refuse(expression, f"unknown alias; write one of {', '.join(_ALIASES).lower()}")
    fields = _ALIASES.get(text, text).split()
    if len(fields) not in (5, 6):
        accepted = "minute hour day-of-month month day-of-week, or six fields with seconds first"
        _refuse(expression, f"has {len(fields)} fields; write five, {accepted}")
    return fields if len(fields) == 6 else ["0", *fields]


def _field(expression: str, field: _Field, text: str, warnings: list[str]) -> str:
    """Return the checked field, with names as numbers and Sunday at a range's end as 7; add to `warnings`."""
    terms: list[str] = []
    for term in text.split(","):
        try:
            terms.append(_term(field, term))
        except ValueError as error:
            raise ScheduleError(f"cron expression {expression!r}: {field.name} {term!r} {error}") from None
        start, _, step = terms[-1].partition("/")
        if step and "-" not in start and field.size % int(step):
            warnings.append(
                f"cron expression {expression!r}: {field.name} {term!r} starts anew with each round of the field, so"
                " its gaps differ; for an even gap use an interval or a fixed rate"
            )
    return ",".join(terms)


def _term(field: _Field, term: str) -> str:
    """Return one item of a field's list, checked, in numbers. Raises `ValueError` that says what is wrong."""
    if field.name == "day-of-month" and term in ("L", "LW"):
        return term
    if field.name == "day-of-week" and (match := _SPECIAL_DAY.fullmatch(term)):
        return f"{_value(field, match[1])}{match[2]}"
    if match := _FOREIGN.fullmatch(term):
        raise ValueError(f"has {match[1] or match[2] or match[3]}, which is not supported; write plain values or *")
    match = _TERM.fullmatch(term)
    if match is None:
        raise ValueError("is not understood; write values, lists, ranges or steps, such as 1,5 or 1-5 or */5")
    low, high, step = match.groups()
    if step is not None:
        if not 1 <= int(step) <= field.size:
            raise ValueError(f"steps out of the field; write a step from 1 to {field.size}")
        step = f"/{int(step)}"
    if low == "*":
        return f"*{step or ''}"
    first = _value(field, low)
    if high is None:
        return f"{first}{step or ''}"
    last = _value(field, high)
    if last == 0 < first and field.name == "day-of-week":
        last = 7
    end = field.low + field.size - 1
    first = first % (end + 1) if last < first else first  # 7 is Sunday, too
    if last < first:
        raise ValueError(f"runs backwards; write {first}-{end},{field.low}-{last}")
    if last == first:
        return str(first)  # cronsim would read 5-5/15 as 5/15
    return f"{first}-{last}{step or ''}"


def _value(field: _Field, text: str) -> int:
    for number, name in enumerate(field.names, field.low):
        if text in (name, name[:3]):
            return number
    if text.isdecimal() and field.low <= int(text) <= field.high:
        return int(text)
    raise ValueError(f"is out of range; write {field.low} to {field.high}{' or a name' if field.names else ''}")


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC  # needs no zone data
    from zoneinfo import ZoneInfo

    try:
        if isinstance(name, str) and _ZONE.fullmatch(name):  # pyright: ignore[reportUnnecessaryIsInstance] - as above
            return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # no such file; a file that is no zone; a directory
        pass
    raise ScheduleError(f"time zone {name!r} is not known; write an IANA name such as 'Europe/Berlin', or 'UTC'")
