"""Log lines about errors that do not affect the leases."""

from __future__ import annotations

import logging
from math import inf
from typing import TYPE_CHECKING

from ..._reporting.log_writer import write
from ..._system.clock import SystemClock

if TYPE_CHECKING:
    from ..._system.clock import Clock
    from .address import Place

__all__ = ["Warnings", "evicts"]

QUIET = 60.0
"""Seconds between two equal warnings, because a missing right shows with each release."""


class Warnings:
    """The warnings of one store, for all its servers together."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = SystemClock() if clock is None else clock
        self._said: dict[str, float] = {}

    def not_published(self, place: Place, why: str) -> None:
        text = "a release was not published; others take over a heartbeat later; grant PUBLISH and the channel"
        self._warn("publish-failed", place, f"{text} by ACL SETUSER ({why})")

    def not_named(self, place: Place, why: str) -> None:
        self._warn("names-failed", place, f"the set of job names was not updated ({why})")

    def _warn(self, event: str, place: Place, text: str) -> None:
        now = self._clock.boot()
        if now - self._said.get(event, -inf) >= QUIET:
            self._said[event] = now
            _warn(event, place, text)


def evicts(place: Place, policy: str) -> None:
    text = f"throws keys away when its memory is full ({policy}), a lease too: two may lead then"
    _warn("eviction-policy", place, f"{text}; set maxmemory-policy noeviction")


def _warn(event: str, place: Place, text: str) -> None:
    write(logging.WARNING, event, f"redis store: {place}: {text}")
