"""The year 2026, run through: unmodified replicas that take over from each other, at the clock changes too.

Only what is measured in seconds is an hour here, else ten million beats would be run through as well: the beats, the
stamps of the loop, and the sleeps that are cut.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from simulation.scenario import TRAVEL, Fleet, Job, micros
from singletonjob._runtime import service as _service
from singletonjob._system import timers as _timer

if TYPE_CHECKING:
    from simulation.scenario import Replica
    from singletonjob import Run

HOUR = 3600.0
DAY = 24 * HOUR
NEW_YORK, BEIRUT = "America/New_York", "Asia/Beirut"
BEGIN = datetime(2025, 12, 31, 21, 59, 59, tzinfo=UTC)
"""A second before the year begins in Beirut."""
END = datetime(2027, 1, 1, 5, tzinfo=UTC)
"""It ends in New York."""
CHANGES = [
    datetime(2026, 3, 8, 7, tzinfo=UTC),
    datetime(2026, 3, 28, 22, tzinfo=UTC),
    datetime(2026, 10, 24, 21, tzinfo=UTC),
    datetime(2026, 11, 1, 6, tzinfo=UTC),
]
"""When the clocks are changed, in New York and in Beirut."""


async def instant(_run: Run, _replica: Replica) -> None:
    """A body that takes no time."""


def local(scheduled: int, zone: str) -> datetime:
    return datetime.fromtimestamp(scheduled // 1_000_000, ZoneInfo(zone))


def after_begin(moment: datetime) -> float:
    return (moment - BEGIN).total_seconds()


@pytest.fixture(autouse=True)
def _in_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_service, "STAMP_EVERY", HOUR)
    monkeypatch.setattr(_timer, "LONGEST_SLEEP", HOUR)


def year(*jobs: Job, begin: datetime) -> Fleet:
    """A fleet on a store that has been up for long enough."""
    options: dict[str, Any] = {"lock_expiry": 12 * HOUR, "heartbeat_interval": 4 * HOUR, "max_backoff_delay": 4 * HOUR}
    fleet = Fleet(*jobs, begin=begin, margin=2 * HOUR, stall_limit=2 * DAY, **options)
    fleet.store.started = -DAY
    return fleet


def test_a_year_of_slots_has_one_run_per_local_date_or_per_real_hour() -> None:
    jobs = [
        Job("gap", "cron", "30 2 * * *", instant, more={"tz": NEW_YORK}),
        Job("twice", "cron", "30 1 * * *", instant, more={"tz": NEW_YORK}),
        Job("hourly", "cron", "0 * * * *", instant, more={"tz": NEW_YORK}),
        Job("midnight", "cron", "0 0 * * *", instant, more={"tz": BEIRUT}),
    ]
    random = Random(2026)
    length = after_begin(END)
    # Some moments are a second before a clock change, or before a slot of that night; the others fall anywhere.
    moments = [after_begin(change) + hours * HOUR - 1 for change in CHANGES for hours in (-0.5, 0, 0.5)]
    moments = sorted([*moments, *(random.uniform(DAY, length - DAY) for _ in range(30))])
    with year(*jobs, begin=BEGIN) as fleet:
        leader = fleet.start("r0")
        for number, moment in enumerate(moments, 1):
            fleet.until(moment - 0.4)
            successor = fleet.start(f"r{number}")
            fleet.until(moment)
            leader.stop()
            leader = successor
        fleet.until(length - 1)
        for name in ("gap", "twice", "midnight"):
            zone = BEIRUT if name == "midnight" else NEW_YORK
            dates = Counter(local(run.scheduled, zone).date() for run in fleet.runs(name))
            in_year = [count for day, count in dates.items() if day.year == 2026]
            assert in_year == [1] * 365
        hours = [run.scheduled for run in fleet.runs("hourly") if local(run.scheduled, NEW_YORK).year == 2026]
        assert len(hours) == 8760
        assert {later - earlier for earlier, later in pairwise(hours)} == {3_600_000_000}
        begin = micros(BEGIN)
        late = [run.started - (run.scheduled - begin) / 1e6 for run in fleet.history.runs]
        assert min(late) >= 0
        assert max(late) < TRAVEL
        assert len({run.process for run in fleet.runs("hourly")}) >= 30
        assert fleet.said("misfired") == []


def test_c29_a_yearly_slot_and_an_interval_of_400_days_come_when_they_should() -> None:
    jobs = [Job("yearly", "cron", "0 0 1 1 *", instant), Job("long", "interval", "400d", instant)]
    with year(*jobs, begin=datetime(2026, 1, 2, tzinfo=UTC)) as fleet:
        fleet.start("a")
        fleet.until(410 * DAY)
        (yearly,) = fleet.runs("yearly")
        assert yearly.scheduled == micros(datetime(2027, 1, 1, tzinfo=UTC))
        assert 364 * DAY <= yearly.started < 364 * DAY + TRAVEL
        first, second = fleet.runs("long")
        assert 400 * DAY <= second.started - first.ended < 400 * DAY + TRAVEL
