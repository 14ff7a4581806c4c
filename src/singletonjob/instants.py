"""Wall-clock instants, as people and their programs have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["instant"]


def instant(wall: int) -> datetime:
    """The aware UTC datetime of a wall-clock instant in microseconds since the epoch."""
    from datetime import UTC, datetime, timedelta  # not at the start of every program

    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=wall)
