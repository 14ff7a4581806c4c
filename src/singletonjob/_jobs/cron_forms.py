"""Translate cron expressions and time zones of other tools into ours."""

from __future__ import annotations

import re
from datetime import UTC, tzinfo
from typing import Any

from .._core.cron import Cron
from .._core.errors import ScheduleError
from .hidden_packages import refuse_hidden

__all__ = ["make_cron"]

FORMS = (
    (
        r"(?:USING CRON |(?:CRON_)?TZ=(?P<zone>\S+)\s+)(?P<rest>.+)",
        "the time zone stands apart here; write {rest!r} and tz={zone!r}",
    ),
    (r"@every\s+(?P<rest>\S+)", "write @app.interval({rest!r})"),
    (
        r"@reboot",
        "no schedule begins with the machine; write @app.interval(...), which runs first when a replica begins to lead",
    ),
    (r"rate\((?P<count>\d+)\s+(?P<unit>[smhd])\w*\)", "write @app.interval('{count}{unit}')"),
    (
        r"cron\((?P<rest>[^)]*)\)",
        "this is the form of AWS, which has a year at the end and ? for *; write its first five fields alone",
    ),
    (r"(?P<quote>['\"])(?P<rest>.*)(?P=quote)", "there are quotes inside the text; write {rest!r}"),
    (r".*[\u2010-\u2015\u2212].*", "it has a dash of a word processor; write -"),
    (r"(?P<rest>\d+(?:\.\d+)?(?:ms|s|m|h|d))", "this is a duration; write @app.interval({rest!r})"),
    (r"(?P<rest>yearly|annually|monthly|weekly|daily|midnight|hourly)", "write '@{rest}'"),
    (
        r"every\b.*|at\b.*|on\b.*|.*\*-\*-\*.*|.*\d\d:\d\d.*",
        "write five fields, such as '0 3 * * *' for each day at 03:00",
    ),
    (r".*~.*", "~ (a random value) is not supported; write a value of your own"),
)
"""Pairs of a pattern for the complete expression, in any case, and an advice with the pattern's groups as fields."""

ZONE = re.compile(r"[A-Z]\w+(?:/[\w+-]+)+|UTC|GMT", re.ASCII)


def make_cron(expression: str, tz: object) -> Cron:
    """The expression in the zone, an IANA name or a `ZoneInfo`.

    Raises `ScheduleError`, which says what to write instead of the forms of other tools.
    """
    name: Any = _zone_name(tz)
    refuse_hidden("cronsim")
    try:
        return Cron(expression, name)
    except ScheduleError:
        if not _is_good("* * * * *", name):
            raise ScheduleError(_unknown_zone(name)) from None
        if isinstance(expression, str) and (advice := _advice_on(expression)):  # pyright: ignore[reportUnnecessaryIsInstance] - users are not always typed
            raise ScheduleError(f"cron expression {expression!r}: {advice}") from None
        raise


def _advice_on(expression: str) -> str | None:
    """Say what to write instead of the expression; None if no known tool writes such an expression."""
    text = expression.strip()
    for pattern, words in FORMS:
        if found := re.fullmatch(pattern, text, re.IGNORECASE):
            parts = {name: part or "" for name, part in found.groupdict().items()}
            inside = _behind(parts["rest"]) if text.lower().startswith(("cron(", "using cron ")) else None
            return inside or words.format_map(parts)
    return _behind(text)


def _behind(text: str) -> str | None:
    """Say what to do with the words after a good expression; None if there is no such expression or no such word."""
    words = text.replace("?", "*").split()
    for count in (1,) if text.startswith("@") else (6, 5):
        good, rest = " ".join(words[:count]), " ".join(words[count:]).partition(" #")[0]
        if not rest or not _is_good(good):
            continue
        if ZONE.fullmatch(rest):
            return f"the time zone stands apart here; write {good!r} and tz={rest!r}"
        if rest.startswith("#"):
            return f"a comment is no part of it; write {good!r}"
        if re.fullmatch(r"[\d*,/-]+", rest):
            return f"a year is not supported; write {good!r}"
        return f"a command ({rest!r}) stands behind it; write {good!r}, and the command in the job's body"
    return None


def _is_good(expression: str, tz: str = "UTC") -> bool:
    try:
        Cron(expression, tz)
    except ScheduleError:
        return False
    return True


def _zone_name(value: object) -> object:
    """The IANA name of a `ZoneInfo`, and `UTC` for what means it; anything else as it is."""
    if isinstance(value, tzinfo):
        return "UTC" if value is UTC else getattr(value, "key", None) or value
    return "UTC" if isinstance(value, str) and value.upper() in {"UTC", "Z"} else value


def _unknown_zone(name: object) -> str:
    """Why there is no such time zone, and what to write or to install."""
    from difflib import get_close_matches
    from zoneinfo import available_timezones

    known = {zone.lower(): zone for zone in available_timezones()}
    if not known:
        return (
            f"time zone {name!r} cannot be looked up, because this machine has no time zone data; install it:"
            " pip install tzdata, or the package tzdata of the system"
        )
    near = get_close_matches(str(name).lower(), known, 1, 0.8)
    advice = f"did you mean {known[near[0]]!r}?" if near else "write an IANA name such as 'Europe/Berlin', or 'UTC'"
    return f"time zone {name!r} is not known; {advice}"
