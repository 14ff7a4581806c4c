"""Instants as tests write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from .._core.errors import ConfigError

__all__ = ["Moment", "micros"]

Moment = str | datetime
"""An aware datetime, or text as `datetime.fromisoformat` reads it, with an offset from UTC: `2026-03-01T00:00Z`."""


def micros(moment: Moment, what: str) -> int:
    """The instant in microseconds since the epoch. Raises `ConfigError` naming `what` for what is none."""
    try:
        when = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    except ValueError:
        raise ConfigError(f"{what}: {moment!r} is no instant; write '2026-03-01T00:00Z', say") from None
    if when.utcoffset() is None:
        raise ConfigError(f"{what}: {when.isoformat()} has no offset from UTC; write '{when.isoformat()}Z', say")
    return (when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
