"""Schedules and zones as other tools write them: each is refused with what to write here, and that is accepted."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from singletonjob import ConfigError, SingletonJobs
from singletonjob._core.cron import Cron
from singletonjob._core.errors import ScheduleError
from singletonjob._jobs.cron_forms import make_cron

SRC = Path(__file__).parents[2] / "src"


def refusal(expression: str, tz: Any = "UTC") -> str:
    with pytest.raises(ScheduleError) as caught:
        make_cron(expression, tz)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("expression", "good", "zone"),
    [
        ("0 9 * * 1-5 America/New_York", "0 9 * * 1-5", "America/New_York"),
        ("00 14 * * * * America/Detroit", "00 14 * * * *", "America/Detroit"),
        ("CRON_TZ=Asia/Hong_Kong 30 8 * * *", "30 8 * * *", "Asia/Hong_Kong"),
        ("TZ=UTC @daily", "@daily", "UTC"),
        ("@daily Europe/Berlin", "@daily", "Europe/Berlin"),
        ("USING CRON 0 1 * * * America/New_York", "0 1 * * *", "America/New_York"),
        ("0 3 * * * Europe/Berlin # nightly", "0 3 * * *", "Europe/Berlin"),
    ],
)
def test_a_zone_in_the_expression_is_told_apart(expression: str, good: str, zone: str) -> None:
    assert refusal(expression).endswith(f"the time zone stands apart here; write {good!r} and tz={zone!r}")
    make_cron(good, zone)


@pytest.mark.parametrize(
    ("expression", "good"),
    [
        ("0 3 * * * # nightly", "0 3 * * *"),
        ("0 3 * * * root /usr/bin/backup", "0 3 * * *"),
        ("0 3 * * * /usr/bin/backup --all", "0 3 * * *"),
        ('"0 3 * * *"', "0 3 * * *"),
        ("cron(0/5 8-17 ? * MON-FRI *)", "0/5 8-17 * * MON-FRI"),
        ("0 0 12 ? * MON-FRI *", "0 0 12 * * MON-FRI"),
        ("0 12 * * ? 2026", "0 12 * * *"),
        ("daily", "@daily"),
        ("every day at 03:00", "0 3 * * *"),
        ("Mon..Fri *-*-* 03:00:00", "0 3 * * *"),
    ],
)
def test_what_else_stands_around_or_for_an_expression_is_refused_with_one_that_is_accepted(
    expression: str, good: str
) -> None:
    text = refusal(expression)
    assert text.startswith(f"cron expression {expression!r}: ")
    assert f"write {good!r}" in text or f"such as {good!r}" in text
    make_cron(good, "UTC")


@pytest.mark.parametrize(
    ("expression", "every"),
    [("@every 1h30m", "1h30m"), ("rate(5 minutes)", "5m"), ("rate(1 day)", "1d"), ("5m", "5m"), ("0.5s", "0.5s")],
)
def test_a_duration_is_an_interval_here(expression: str, every: str) -> None:
    assert f"write @app.interval({every!r})" in refusal(expression)
    SingletonJobs("pricing", "memory").interval(every, name="job")(lambda: None)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("@reboot", "no schedule begins with the machine; write @app.interval(...)"),
        ("@fortnightly", "unknown alias; write one of @yearly"),
        ("0~30 3 * * *", "~ (a random value) is not supported"),
        ("0 1\N{EN DASH}5 * * *", "a dash of a word processor; write -"),
        ("0 3 * *", "has 4 fields; write five"),
    ],
)
def test_what_has_no_like_here_is_named(expression: str, words: str) -> None:
    assert words in refusal(expression)


@pytest.mark.parametrize(
    ("expression", "short"),
    [
        ("0 0 * * sunday", "0 0 * * 0"),
        ("0 6 * * Monday-Friday", "0 6 * * 1-5"),
        ("0 0 1 January,may *", "0 0 1 1,5 *"),
        ("0 0 * * friday#2", "0 0 * * 5#2"),
        ("0 0 * * 7-3", "0 0 * * 0-3"),
        ("0 0 * * SUN-SUNDAY", "0 0 * * 0"),
    ],
)
def test_names_in_full_and_a_week_that_begins_with_7_are_accepted(expression: str, short: str) -> None:
    long, brief, at = Cron(expression), Cron(short), 1_796_000_000_000_000
    for _ in range(20):
        assert long.after(at) == brief.after(at)
        at = brief.after(at) or 0


@pytest.mark.parametrize("backwards", ["0 22-2 * * *", "50-10 * * * *", "0 0 28-3 * *", "0 0 * 11-2 *", "0 0 * * 5-1"])
def test_what_is_advised_for_a_range_that_runs_backwards_is_accepted(backwards: str) -> None:
    advice = re.search(r"write (\S+)$", refusal(backwards))
    assert advice is not None
    make_cron(re.sub(r"\S+-\S+", advice[1], backwards), "UTC")


# -- zones ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tz", "name"), [("utc", "UTC"), ("Z", "UTC"), (UTC, "UTC"), (ZoneInfo("Europe/Berlin"), "Europe/Berlin")]
)
def test_a_zone_may_be_a_zone_info_and_utc_in_any_case(tz: Any, name: str) -> None:
    app = SingletonJobs("pricing", "memory")
    app.cron("0 3 * * *", tz=tz, name="report")(lambda: None)
    (job,) = app.resolved().jobs
    assert job.schedule.cron.tz == name  # type: ignore[attr-defined]  # a CronSchedule


@pytest.mark.parametrize(
    ("tz", "words"),
    [
        ("europe/berlin", "did you mean 'Europe/Berlin'?"),
        ("Europe/Berln", "did you mean 'Europe/Berlin'?"),
        ("Mars/Olympus", "write an IANA name such as 'Europe/Berlin', or 'UTC'"),
        (timezone(timedelta(hours=2)), "write an IANA name"),
        (None, "write an IANA name"),
    ],
)
def test_an_unknown_zone_is_refused_with_the_nearest_name(tz: Any, words: str) -> None:
    text = refusal("0 3 * * *", tz)
    assert "is not known; " in text
    assert words in text


def test_a_machine_without_zone_data_is_told_apart_from_a_wrong_name() -> None:
    code = (
        "import sys; sys.modules['tzdata'] = None\n"
        "from singletonjob import SingletonJobs\n"
        "try: SingletonJobs('p', 'memory').cron('0 3 * * *', tz='Europe/Paris', name='job')(lambda: None)\n"
        "except ValueError as error: print(error)"
    )
    environment = {"PYTHONPATH": str(SRC), "PYTHONTZPATH": ""}
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "'Europe/Paris' cannot be looked up, because this machine has no time zone data" in told.stdout
    assert "pip install tzdata" in told.stdout


def test_a_bad_expression_names_the_job() -> None:
    with pytest.raises(
        ConfigError, match=r"^\[Job: report\] cron expression '@every 5m': write @app\.interval\('5m'\)"
    ):
        SingletonJobs("pricing", "memory").cron("@every 5m", name="report")(lambda: None)
