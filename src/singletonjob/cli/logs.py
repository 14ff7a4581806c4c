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


class TextFormatter(logging.Formatter):
    """Time (UTC), level, message in columns; the logger's name only where it is not this library's."""

    def format(self, record: logging.LogRecord) -> str:
        # The base class builds message, traceback and stack; the prefix goes in front of all of it.
        name = "" if record.name.partition(".")[0] == "singletonjob" else f"{record.name}: "
        return f"{_timestamp(record, ' ')} {record.levelname:<7} {name}{super().format(record)}"


class JsonFormatter(logging.Formatter):
    """One JSON object per line: ts, level, logger, message, the record's own fields, exc (a traceback), stack."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "ts": _timestamp(record, "T"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for field in FIELDS:
            value = getattr(record, field, None)
            if value is not None:
                line[field] = value
        if record.exc_info:
            line["exc"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        # A field of an odd type must not cost the line.
        return json.dumps(line, ensure_ascii=False, default=str)


def set_up(style: str, level: str) -> None:
    """Send all logging to stderr, from `level` up. Does nothing where the root logger has handlers already.

    Called before the user's module is imported, so that the module may replace it, or call `basicConfig` in vain.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])
