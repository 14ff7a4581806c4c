"""Wall-clock instants as the command line writes and reads them: ISO 8601, UTC."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta

__all__ = ["iso", "moment"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def iso(instant: int) -> str:
    """`2026-01-31T09:00:00Z` for microseconds since the epoch, with a fraction where there is one."""
    return (EPOCH + timedelta(microseconds=instant)).isoformat().replace("+00:00", "Z")


def moment(text: str) -> datetime:
    """The date and time that an argument names; naive where it names no offset. Raises argparse's error."""
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no date and time; write 2026-01-31T09:00:00Z or 2026-01-31T09:00"
        ) from None
