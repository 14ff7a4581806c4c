"""Wall-clock instants as the command line writes and reads them: ISO 8601 in UTC, and the time of a job's zone."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .._core.cron import Cron

__all__ = ["EPOCH", "iso", "local", "moment"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def iso(instant: int) -> str:
    """`2026-01-31T09:00:00Z` for microseconds since the epoch, with a fraction where there is one."""
    return (EPOCH + timedelta(microseconds=instant)).isoformat().replace("+00:00", "Z")


def local(cron: Cron, instant: int) -> str:
    """`Sat 2026-01-31 17:00:00 +08:00`: the instant on the clocks of the expression's zone."""
    wall = cron.local(instant).isoformat(" ")
    return f"{cron.local(instant):%a} {wall[:19]} {wall[19:]}"


def moment(text: str) -> datetime:
    """The date and time that an argument names; naive where it names no offset. Raises argparse's error."""
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no date and time; write 2026-01-31T09:00:00Z or 2026-01-31T09:00"
        ) from None
