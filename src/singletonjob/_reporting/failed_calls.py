"""Says which calls of the user's code failed, without flooding the log: a job of every 50 ms may fail each time."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .log_writer import shown

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FailedCalls"]

EVERY = 60.0
"""Seconds between two lines about failures of one kind."""

KINDS = 50
"""Of failures of one job. What comes on top counts as one more kind, because a program may make types without end."""


class FailedCalls:
    """Tells a new kind of failure at once and in full, and its repetitions in one line a minute, with their count.

    A kind is the type of an exception and the line that raised it. `say` is `Journal.say`, `now` the boot clock.
    """

    def __init__(self, say: Callable[..., None], now: Callable[[], float]) -> None:
        self._say = say
        self._now = now
        self._kinds: dict[str | None, dict[str, _Kind]] = {}

    def failed(
        self,
        event: str,
        what: str,
        error: BaseException | None,
        *,
        job: str | None = None,
        token: int | None = None,
        level: int = logging.ERROR,
    ) -> None:
        """A call failed; `what` is for people, for example `run failed`. None: there was no exception."""
        kinds = self._kinds.setdefault(job, {})
        name = _kind(event, error)
        if name not in kinds and len(kinds) >= KINDS:
            name = "others"
        kind = kinds.setdefault(name, _Kind(event, level))
        kind.held += 1
        kind.text = what if error is None else f"{what}: {shown(error)}"
        kind.token = token
        now = self._now()
        if kind.held == 1 and now >= kind.quiet_until:
            self._say(level, event, kind.text, job=job, token=token, error=error)
            kind.told(now)
        else:
            self._sum_up(job, kind, now)

    def settle(self, job: str, *, at_once: bool = False) -> bool:
        """Tell what is held back and may be told now; return True while more is held back."""
        kinds = self._kinds.get(job)
        if not kinds:
            return False
        now = self._now()
        for kind in kinds.values():
            if kind.held:
                self._sum_up(job, kind, now, at_once=at_once)
        return any(kind.held for kind in kinds.values())

    def _sum_up(self, job: str | None, kind: _Kind, now: float, *, at_once: bool = False) -> None:
        if at_once or now >= kind.quiet_until:
            text = f"{kind.text} ({kind.held} like this in {now - kind.told_at:.0f} s)"
            self._say(kind.level, kind.event, text, job=job, token=kind.token)
            kind.told(now)


@dataclass(slots=True)
class _Kind:
    event: str
    level: int
    text: str = ""
    token: int | None = None
    held: int = 0  # how many were not told yet
    told_at: float = 0.0
    quiet_until: float = 0.0

    def told(self, now: float) -> None:
        self.held, self.told_at, self.quiet_until = 0, now, now + EVERY


def _kind(event: str, error: BaseException | None) -> str:
    if error is None:
        return event
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
    return f"{event} {type(error).__module__}.{type(error).__qualname__} {where}"
