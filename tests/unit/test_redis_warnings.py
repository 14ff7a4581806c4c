"""What a Redis store says beside its verdicts, and how often."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from singletonjob._core.values import Now
from singletonjob.stores.redis.address import address_from_url
from singletonjob.stores.redis.warnings import Warnings

if TYPE_CHECKING:
    from collections.abc import Callable

PLACE = address_from_url("redis://cache:6379/0")


class HandClock:
    """A boot clock that a test moves."""

    seconds = 5000.0

    def boot(self) -> float:
        return self.seconds

    def wall(self) -> int:
        return 0

    def now(self) -> Now:
        return Now(self.wall(), self.boot())


def unpublished(warnings: Warnings) -> None:
    warnings.not_published(PLACE, "NOPERM")


def unnamed(warnings: Warnings) -> None:
    warnings.not_named(PLACE, "WRONGTYPE")


@pytest.mark.parametrize(("say", "event"), [(unpublished, "publish-failed"), (unnamed, "names-failed")])
def test_a_right_that_is_missing_is_said_once_a_minute_however_often_it_is_missed(
    say: Callable[[Warnings], None], event: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = HandClock()
    warnings = Warnings(clock)
    for _ in range(130):  # a release each second
        say(warnings)
        clock.seconds += 1
    assert [(one.levelno, one.__dict__["event"]) for one in caplog.records] == [(logging.WARNING, event)] * 3
    assert "cache:6379" in caplog.records[0].getMessage()


def test_one_of_them_does_not_hold_the_other_back(caplog: pytest.LogCaptureFixture) -> None:
    warnings = Warnings(HandClock())
    unpublished(warnings)
    unnamed(warnings)
    assert [one.__dict__["event"] for one in caplog.records] == ["publish-failed", "names-failed"]
