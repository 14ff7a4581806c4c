"""A pause as the command line prints it, in words and as an object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .instants import iso

if TYPE_CHECKING:
    from .._core.orders import Paused

__all__ = ["paused", "paused_object", "seconds"]


def paused(pause: Paused) -> str:
    """Who, until when and why: `by ann@host until 2026-01-31T09:00:00Z: the feed is down`."""
    until = "" if pause.until is None else f" until {seconds(pause.until)}"
    return f"by {pause.by}{until}{': ' * bool(pause.reason)}{pause.reason}"


def paused_object(pause: Paused | None) -> dict[str, Any] | None:
    """The same for `--json`, with exact dates; None for no pause."""
    if pause is None:
        return None
    until = None if pause.until is None else iso(pause.until)
    return {"by": pause.by, "at": iso(pause.at), "until": until, "reason": pause.reason}


def seconds(instant: int) -> str:
    """The date of an instant, without the fraction of the second."""
    return iso(instant - instant % 1_000_000)
