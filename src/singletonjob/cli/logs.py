"""Log lines of `singletonjob run`: on stderr, as text for people or as JSON for machines."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

__all__ = ["LEVELS", "JsonFormatter", "TextFormatter", "set_up"]

LEVELS = ("debug", "info", "warning", "error")

FIELDS = ("event", "job", "node", "token", "reason")
"""What the library's records carry beside their text, where it applies."""


def _timestamp(record: logging.LogRecord, separator: str) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(separator, "milliseconds").replace("+00:00", "Z")


def _shown(value: object) -> str:
    """A value as text. One that cannot be shown must not cost the line."""
    try:
        return str(value)
    except Exception as error:
        return f"<{type(value).__name__}, whose text raised {type(error).__name__}>"


def _message(record: logging.LogRecord) -> str:
    """The message; where a library gave it arguments that do not fit, as it was written, and what is wrong."""
    try:
        return record.getMessage()
    except Exception as error:
        return f"{_shown(record.msg)} (its arguments do not fit: {_shown(error)})"


class TextFormatter(logging.Formatter):
    """Time (UTC), level, message in columns; the logger's name only where it is not this library's."""

    def format(self, record: logging.LogRecord) -> str:
        # The base class builds message, traceback and stack; the prefix goes in front of all of it.
        name = "" if record.name.partition(".")[0] == "singletonjob" else f"{record.name}: "
        return f"{_timestamp(record, ' ')} {record.levelname:<7} {name}{super().format(record)}"


class JsonFormatter(logging.Formatter):
    """One JSON object per line: ts, level, logger, message, the record's own fields, exc (a traceback), stack.

    In ASCII, so that no encoding of stderr and no line separator of Unicode can break a line.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "ts": _timestamp(record, "T"),
            "level": record.levelname,
            "logger": record.name,
            "message": _message(record),
        }
        for field in FIELDS:
            value = getattr(record, field, None)
            if value is not None:
                line[field] = value if isinstance(value, str | int) else _shown(value)
        if record.exc_info:
            line["exc"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return json.dumps(line)


def set_up(style: str, level: str) -> None:
    """Send all logging to stderr, from `level` up, and Python's warnings (logger `py.warnings`) along with it.

    Does nothing where the root logger or this library's logger has handlers already. Called before the user's module is
    imported, so that the module may replace it, or call `basicConfig` in vain.
    """
    if logging.getLogger().handlers or logging.getLogger("singletonjob").handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.captureWarnings(True)
