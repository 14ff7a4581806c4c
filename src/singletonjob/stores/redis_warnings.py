"""What goes wrong beside the leases and makes no verdict wrong, as log lines."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .redis_address import Place

__all__ = ["evicts", "not_named", "not_published"]


def evicts(place: Place, policy: str) -> None:
    text = f"throws keys away when its memory is full ({policy}), a lease too: two may lead then"
    _warn("eviction-policy", place, f"{text}; set maxmemory-policy noeviction")


def not_published(place: Place, why: str) -> None:
    text = "a release was not published; others take over a heartbeat later; grant PUBLISH and the channel"
    _warn("publish-failed", place, f"{text} by ACL SETUSER ({why})")


def not_named(place: Place, why: str) -> None:
    _warn("names-failed", place, f"the set of job names was not updated ({why})")


def _warn(event: str, place: Place, text: str) -> None:
    fields = {"event": event, "job": None, "node": None, "token": None, "reason": None}
    logging.getLogger("singletonjob").warning("redis store: %s: %s", place, text, extra=fields)
