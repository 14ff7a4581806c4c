"""Cron expressions: the instants they name, and what is refused. Instants were computed with `zoneinfo` alone."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from singletonjob._core.cron import Cron
from singletonjob._core.errors import ScheduleError

SRC = Path(__file__).parents[2] / "src"


def us(text: str) -> int:
    """`2026-03-08T07:00` or with seconds, in UTC, as microseconds since the epoch."""
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


def following(expression: str, zone: str, start: str, count: int) -> list[str]:
    cron, instant = Cron(expression, zone), us(start)
    found: list[str] = []
    for _ in range(count):
        later = cron.after(instant)
        assert later is not None
        assert later > instant
        found.append(datetime.fromtimestamp(later / 1e6, UTC).isoformat().removesuffix(":00+00:00"))
        instant = later
    return found


def stamps(start: str, texts: list[str]) -> list[str]:
    """`05:30`, `02T06:30` and `11-02T06:30` completed from `start`, so that the tables stay readable."""
    return [start[: max(0, 16 - len(text))] + text for text in texts]


def check(expression: str, zone: str, start: str, expected: str) -> None:
    wanted = stamps(start, expected.split())
    assert following(expression, zone, start, len(wanted)) == wanted


@pytest.mark.parametrize(
    ("start", "expected"),
    [("2017-10-29T01:45", "02:30 03:30 04:30"), ("2017-10-28T23:45", "29T00:30 29T01:30 29T02:30")],
)
def test_c11_an_hourly_job_goes_on_hourly_after_the_clocks_went_back(start: str, expected: str) -> None:
    check("30 * * * *", "Europe/Helsinki", start, expected)


def test_c11_forty_hours_over_the_autumn_change_are_3600_seconds_apart() -> None:
    found = following("30 * * * *", "Europe/Vienna", "2017-10-28T08:09", 40)
    assert (found[0], found[-1]) == ("2017-10-28T08:30", "2017-10-29T23:30")
    instants = [us(text) for text in found]
    assert {later - earlier for earlier, later in pairwise(instants)} == {3_600_000_000}


@pytest.mark.parametrize(
    ("expression", "zone", "start", "expected"),
    [
        ("0 2 * * *", "America/Los_Angeles", "2025-03-09T09:00", "10:00 10T09:00"),
        ("30 2 * * *", "America/New_York", "2026-03-08T06:30", "07:00 09T06:30"),
    ],
)
def test_c12_a_time_that_the_spring_change_swallows_fires_when_the_gap_ends(
    expression: str, zone: str, start: str, expected: str
) -> None:
    check(expression, zone, start, expected)


def test_c55_a_fixed_time_fires_in_the_first_pass_of_the_repeated_hour_only() -> None:
    check("30 1 * * *", "America/New_York", "2026-11-01T05:00", "05:30 02T06:30 03T06:30")


@pytest.mark.parametrize(
    ("expression", "zone", "start", "expected"),
    [
        ("0 * * * *", "America/Los_Angeles", "2026-11-01T07:30", "08:00 09:00 10:00 11:00"),
        ("*/30 * * * *", "America/New_York", "2026-11-01T05:00", "05:30 06:00 06:30 07:00 07:30"),
    ],
)
def test_c56_an_interval_like_job_fires_in_both_passes(expression: str, zone: str, start: str, expected: str) -> None:
    check(expression, zone, start, expected)


def test_c56_a_step_in_the_seconds_makes_a_job_interval_like_too() -> None:
    assert following("*/30 30 1 * * *", "America/New_York", "2026-11-01T05:00", 4) == [
        "2026-11-01T05:30",
        "2026-11-01T05:30:30+00:00",
        "2026-11-01T06:30",
        "2026-11-01T06:30:30+00:00",
    ]


def test_c57_inside_the_repeated_hour_the_next_slot_is_later() -> None:
    assert following("* * * * *", "America/New_York", "2026-11-01T06:30:15", 2) == [
        "2026-11-01T06:31",
        "2026-11-01T06:32",
    ]


@pytest.mark.parametrize(
    ("expression", "start", "expected"),
    [
        ("0 * * * *", "2019-10-05T15:13", "16:00 17:00"),
        ("15 2 * * *", "2019-10-05T14:00", "15:30 06T15:15"),
        ("45 1 * * *", "2026-04-04T14:00", "14:45 05T15:15"),
    ],
)
def test_c58_a_shift_of_half_an_hour_follows_the_same_rules(expression: str, start: str, expected: str) -> None:
    check(expression, "Australia/Lord_Howe", start, expected)


@pytest.mark.parametrize(
    ("expression", "zone", "start", "expected"),
    [
        ("0 0 * * *", "America/Santiago", "2025-09-06T12:00", "07T04:00 08T03:00"),
        ("0 0 * * *", "Africa/Cairo", "2026-04-23T12:00", "23T22:00 24T21:00"),
        ("0 0 * * *", "Asia/Beirut", "2026-03-27T12:00", "27T22:00 28T22:00 29T21:00"),
        ("0 0 * * *", "America/Havana", "2026-03-07T12:00", "08T05:00 09T04:00"),
        ("0 1 4 11 *", "America/Sao_Paulo", "2018-11-04T02:00", "03:00"),
    ],
)
def test_c59_a_change_at_midnight_loses_no_day(expression: str, zone: str, start: str, expected: str) -> None:
    check(expression, zone, start, expected)


@pytest.mark.parametrize(
    ("expression", "zone", "start", "expected"),
    [
        ("0 0 * * *", "Europe/Prague", "2026-03-28T23:30", "29T22:00 30T22:00"),
        ("0 12 * * 0", "Europe/Berlin", "2022-03-24T11:00", "27T10:00 04-03T10:00"),
    ],
)
def test_c60_days_are_calendar_days_not_86400_seconds(expression: str, zone: str, start: str, expected: str) -> None:
    check(expression, zone, start, expected)


@pytest.mark.parametrize(
    ("expression", "zone", "start", "expected"),
    [
        ("* * * */3 *", "America/New_York", "2015-02-15T05:00", "2015-04-01T04:00"),
        ("* * * 5 *", "America/Los_Angeles", "2022-02-22T18:39:51", "2022-05-01T07:00"),
    ],
)
def test_c61_a_jump_to_another_month_takes_that_month_s_offset(
    expression: str, zone: str, start: str, expected: str
) -> None:
    check(expression, zone, start, expected)


@pytest.mark.parametrize(
    ("expression", "zone", "start", "expected"),
    [
        ("0 20 * * *", "Europe/Paris", "2022-10-29T22:00", "30T19:00 31T19:00 11-01T19:00"),
        ("5 2 * * *", "Europe/Dublin", "2025-10-24T12:00", "25T01:05 26T02:05 27T02:05"),
        ("0 17 * * *", "America/New_York", "2015-10-31T12:00", "31T21:00 11-01T22:00 11-02T22:00"),
    ],
)
def test_c62_a_daily_job_keeps_its_wall_time_over_a_change(
    expression: str, zone: str, start: str, expected: str
) -> None:
    check(expression, zone, start, expected)


def test_c63_every_fifteen_seconds_goes_on_through_the_repeated_hour() -> None:
    cron, end = Cron("*/15 * * * * *", "Europe/London"), us("2025-10-26T03:00")
    found, instant = [], us("2025-10-26T00:30") - 1
    while (later := cron.after(instant)) is not None and later < end:
        found.append(later)
        instant = later
    assert found == list(range(us("2025-10-26T00:30"), end, 15_000_000))
    assert len(found) == 600


@pytest.mark.parametrize(
    ("zone", "start", "expected"),
    [("UTC", "2025-10-05T02:00", "03:00 04:00"), ("Australia/Sydney", "2025-10-04T14:30", "15:00 16:00 17:00")],
)
def test_c64_only_the_job_s_own_zone_matters(
    zone: str, start: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Australia/Sydney")
    time.tzset()
    try:
        check("0 * * * *", zone, start, expected)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("expression", "zone", "start", "expected"),
    [
        ("0 */2 * * *", "Europe/Berlin", "2025-10-25T21:30", "22:00 26T00:00 26T01:00 26T03:00"),
        ("0 */2 * * *", "Europe/Berlin", "2026-03-28T22:30", "23:00 29T02:00 29T04:00"),
        ("0 */2 * * *", "Europe/London", "2024-10-26T22:30", "23:00 27T02:00 27T04:00"),
        ("0 1-23/2 * * *", "Europe/London", "2024-10-26T23:30", "27T00:00 27T01:00 27T03:00 27T05:00"),
    ],
)
def test_c65_every_two_hours_means_even_hours_of_the_wall_clock(
    expression: str, zone: str, start: str, expected: str
) -> None:
    check(expression, zone, start, expected)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0,30 2 * * *", "07:00 09T06:00 09T06:30"),
        ("0 2,3 * * *", "07:00 09T06:00 09T07:00"),
        ("*/30 * * * *", "07:00 07:30 08:00"),
    ],
)
def test_c66_several_times_inside_a_gap_merge_into_one_run(expression: str, expected: str) -> None:
    check(expression, "America/New_York", "2026-03-08T06:30", expected)


def test_c67_a_daily_job_runs_once_in_the_night_of_the_autumn_change() -> None:
    check("20 2 * * *", "Europe/Paris", "2020-10-24T12:00", "25T00:20 26T01:20 27T01:20")


@pytest.mark.parametrize(
    ("expression", "zone", "runs"),
    [
        ("30 2 * * *", "America/New_York", 365),
        ("30 1 * * *", "America/New_York", 365),
        ("0 0 * * *", "Asia/Beirut", 365),
        ("0 * * * *", "America/New_York", 8760),
    ],
)
def test_c68_a_year_has_one_run_per_local_date_or_per_real_hour(expression: str, zone: str, runs: int) -> None:
    cron = Cron(expression, zone)
    first, last = datetime(2026, 1, 1, tzinfo=cron.local(0).tzinfo), datetime(2027, 1, 1, tzinfo=cron.local(0).tzinfo)
    instant, dates, count = round(first.timestamp()) * 1_000_000 - 1, set(), 0
    while (later := cron.after(instant)) is not None and later < last.timestamp() * 1e6:
        instant, count = later, count + 1
        dates.add(cron.local(later).date())
    assert (count, len(dates)) == (runs, 365)


@pytest.mark.parametrize(
    ("expression", "start", "expected"),
    [
        ("0 0 * * 0", "2020-08-31T00:00", "2020-09-06T00:00 2020-09-13T00:00"),
        ("0 0 * * SUN", "2020-08-31T00:00", "2020-09-06T00:00 2020-09-13T00:00"),
        ("30 7 * * 4", "2018-02-09T00:00", "15T07:30"),
    ],
)
def test_c69_weekdays_count_from_sunday_as_0(expression: str, start: str, expected: str) -> None:
    check(expression, "UTC", start, expected)


@pytest.mark.parametrize(
    ("expression", "start", "expected"),
    [
        ("15 10,12 * * 1,7", "2018-12-08T12:00", "09T10:15 09T12:15 10T10:15 10T12:15 16T10:15"),
        (
            "0 9 * * MON-SUN",
            "2026-01-04T12:00",
            "05T09:00 06T09:00 07T09:00 08T09:00 09T09:00 10T09:00 11T09:00 12T09:00",
        ),
        ("0 0 * * 2-7", "2026-01-05T12:00", "06T00:00 07T00:00 08T00:00 09T00:00 10T00:00 11T00:00 13T00:00"),
        ("0 0 * * FRI-SUN", "2026-01-05T12:00", "09T00:00 10T00:00 11T00:00 16T00:00"),
        ("0 0 * * 7", "2026-01-05T12:00", "11T00:00 18T00:00"),
        ("0 0 * * 5/2", "2026-01-05T12:00", "09T00:00 11T00:00 16T00:00"),
    ],
)
def test_c70_7_is_sunday_alone_in_a_list_and_at_the_end_of_a_range(expression: str, start: str, expected: str) -> None:
    check(expression, "UTC", start, expected)


@pytest.mark.parametrize(
    ("expression", "start", "expected"),
    [
        ("0 16 4 * 5", "2016-11-01T00:00", "04T16:00 11T16:00 18T16:00 25T16:00 12-02T16:00 12-04T16:00 12-09T16:00"),
        (
            "30 4 1,15 * 5",
            "2026-01-01T00:00",
            "01T04:30 02T04:30 09T04:30 15T04:30 16T04:30 23T04:30 30T04:30 02-01T04:30",
        ),
    ],
)
def test_c71_with_both_day_fields_restricted_either_may_match(expression: str, start: str, expected: str) -> None:
    check(expression, "UTC", start, expected)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [("0 0 1-31 * 5", "02T00:00 03T00:00 04T00:00"), ("0 0 */2 * 1", "05T00:00 19T00:00 02-09T00:00 02-23T00:00")],
)
def test_c72_a_day_field_is_restricted_unless_its_text_begins_with_a_star(expression: str, expected: str) -> None:
    check(expression, "UTC", "2026-01-01T00:00", expected)


def test_c73_a_day_that_one_of_the_months_has_is_accepted() -> None:
    check("0 0 31 2,3 *", "UTC", "2026-01-01T00:00", "03-31T00:00")


def test_c74_a_day_that_never_comes_is_accepted_where_the_weekday_field_makes_it_valid() -> None:
    check("0 0 31 2 1-5", "UTC", "2026-01-01T00:00", "02-02T00:00 02-03T00:00 02-04T00:00")


@pytest.mark.parametrize(
    ("start", "expected"), [("2016-02-29T09:00", "2020-02-29T09:00"), ("2096-02-29T09:00", "2104-02-29T09:00")]
)
def test_c75_a_leap_day_comes_again_after_four_or_eight_years(start: str, expected: str) -> None:
    check("0 9 29 2 *", "UTC", start, expected)


@pytest.mark.parametrize(
    ("expression", "zone", "start", "expected"),
    [
        ("0 9 * * *", "UTC", "2028-02-29T00:00", "09:00 03-01T09:00"),
        ("0 9 L * *", "UTC", "2028-02-28T12:00", "29T09:00 03-31T09:00"),
        ("0 9 1 3 *", "UTC", "2028-02-29T12:00", "03-01T09:00 2029-03-01T09:00"),
        ("0 9 29 * *", "UTC", "2028-02-29T12:00", "03-29T09:00"),
        ("0 0 29 2 *", "Pacific/Auckland", "2028-02-28T00:00", "11:00 2032-02-28T11:00"),
        ("*/30 0 29 2 TUE", "UTC", "2028-02-28T00:00", "29T00:00 29T00:30 2029-02-06T00:00"),
    ],
)
def test_c75_on_a_leap_day_every_other_schedule_goes_on(expression: str, zone: str, start: str, expected: str) -> None:
    check(expression, zone, start, expected)


def test_c77_a_step_starts_anew_with_each_hour() -> None:
    check("*/45 * * * *", "UTC", "2017-08-26T15:45", "16:00 16:45 17:00 17:45")


def test_c79_six_fields_are_seconds_first() -> None:
    check("0 19 * * * *", "UTC", "2026-01-01T00:00", "00:19 01:19 02:19")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 0 31 * *", "03-31T00:00 05-31T00:00 07-31T00:00 08-31T00:00 10-31T00:00 12-31T00:00"),
        ("0 0 L * *", "02-28T00:00 03-31T00:00 04-30T00:00"),
    ],
)
def test_c80_day_31_skips_short_months_and_l_is_the_last_day(expression: str, expected: str) -> None:
    check(expression, "UTC", "2026-01-31T00:00", expected)


@pytest.mark.parametrize(
    ("expression", "start", "expected"),
    [
        pytest.param("0 0 LW * *", "2026-01-01T00:00", "30T00:00 02-27T00:00", id="the-last-working-day"),
        pytest.param("0 0 * * 5L", "2026-01-01T00:00", "30T00:00 02-27T00:00", id="the-last-friday"),
        pytest.param("0 0 * * FRI#2", "2026-01-01T00:00", "09T00:00 02-13T00:00", id="the-second-friday"),
        pytest.param("5/15 * * * *", "2026-01-01T00:00", "00:05 00:20 00:35 00:50 01:05", id="a-step-from-a-value"),
        pytest.param("5-5/15 * * * *", "2026-01-01T00:00", "00:05 01:05", id="a-step-within-a-range-of-one"),
        pytest.param("0 0 1 jan-MAR *", "2026-01-01T00:00", "02-01T00:00 03-01T00:00 2027-01-01T00:00", id="names"),
        pytest.param("0 0 * * */2", "2026-01-03T00:00", "04T00:00 06T00:00 08T00:00 10T00:00 11T00:00", id="dow-step"),
    ],
)
def test_names_steps_and_special_days(expression: str, start: str, expected: str) -> None:
    check(expression, "UTC", start, expected)


def test_c79_a_step_in_the_first_of_six_fields_counts_seconds() -> None:
    cron, start = Cron("*/30 * * * * *"), us("2026-01-01T00:00")
    assert cron.after(start) == start + 30_000_000
    assert cron.after(start + 30_000_000) == start + 60_000_000


@pytest.mark.parametrize(
    "expression", ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 31 2 */2", "* * */20 * 1L"]
)
def test_c73_a_date_that_never_comes_is_refused_at_once(expression: str) -> None:
    began = time.perf_counter()
    with pytest.raises(ScheduleError, match=r"day-of-month .* never comes"):
        Cron(expression)
    assert time.perf_counter() - began < 0.25  # five times the promise


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("0 22-2 * * *", "hour '22-2' runs backwards; write 22-23,0-2"),
        ("0 0 * * FRI-MON", "day-of-week 'FRI-MON' runs backwards; write 5-6,0-1"),
        ("0 0 * * 6-2", "runs backwards; write 6-6,0-2"),
    ],
)
def test_c76_a_range_that_wraps_is_refused_never_swapped(expression: str, words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        Cron(expression)


def test_c77_a_step_that_does_not_divide_its_field_is_warned_of_once() -> None:
    assert Cron("*/15 * * * *").warnings == ()
    assert Cron("0 */6 * * *").warnings == ()
    for step in ("*/45", "*/7"):
        (warning,) = Cron(f"{step} * * * *").warnings
        assert f"minute '{step}'" in warning
        assert "use an interval" in warning


@pytest.mark.parametrize(
    ("expression", "field"),
    [
        ("*/66 * * * *", "minute '*/66'"),
        ("*/360 * * * *", "minute '*/360'"),
        ("*/0 * * * *", "minute '*/0'"),
        ("1-5/0 * * * *", "minute '1-5/0'"),
        ("60 * * * *", "minute '60'"),
        ("0 24 * * *", "hour '24'"),
        ("0 0 0 * *", "day-of-month '0'"),
        ("0 0 * 13 *", "month '13'"),
        ("0 0 * * 8", "day-of-week '8'"),
        ("0 0 * * FRI#6", "day-of-week 'FRI#6'"),
        ("0 0 * * 1,,2", "day-of-week ''"),
        ("*-5 * * * *", "minute '*-5'"),
        ("0 0 * MON *", "month 'MON'"),
        ("1.5 * * * *", "minute '1.5'"),
        ("-1 * * * *", "minute '-1'"),
        ("１ * * * *", "minute '１'"),
        ("0 0 L/2 * *", "day-of-month 'L/2'"),
        ("0 L * * *", "hour 'L'"),
        ("9" * 5000 + " * * * *", "minute"),
    ],
)
def test_c78_a_value_or_step_out_of_its_field_is_refused_naming_the_field(expression: str, field: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        Cron(expression)
    assert field in str(caught.value)
    assert "; write" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("expression", ["* * * *", "0 0 12 * * * *", "", "   ", "@reboot", None, 5])
def test_c79_what_is_no_five_or_six_fields_is_refused_saying_what_is_accepted(expression: str) -> None:
    with pytest.raises(ScheduleError, match=r"write (five|one of @yearly)"):
        Cron(expression)


@pytest.mark.parametrize(
    ("expression", "token"),
    [
        ("0 0 15W * *", "W"),
        ("0 0 W * *", "W"),
        ("0 0 ? * 1", "?"),
        ("H * * * *", "H"),
        ("H/5 * * * *", "H"),
        ("H(1-5) * * * *", "H"),
    ],
)
def test_c80_a_sign_of_another_tool_is_refused_by_name(expression: str, token: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        Cron(expression)
    assert f"has {token}, which is not supported" in str(caught.value)


@pytest.mark.parametrize(
    "zone", ["Europe/Berln", "EST5", "", 3, None, "utc ", "right/UTC", "localtime", "../UTC", "Europe"]
)
def test_c106_an_unknown_zone_is_refused_by_name(zone: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        Cron("0 0 * * *", zone)
    assert repr(zone) in str(caught.value)


@pytest.mark.parametrize("environment", [None, "nonsense", '"Europe/Rome"', "Europe/Rome"])
def test_c106_the_zone_is_utc_unless_given_whatever_the_machine_says(
    environment: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if environment is None:
        monkeypatch.delenv("TZ", raising=False)
    else:
        monkeypatch.setenv("TZ", environment)
    assert Cron("0 3 * * *").after(us("2026-07-01T00:00")) == us("2026-07-01T03:00")


def test_utc_needs_no_zone_data_and_any_other_zone_without_them_is_refused_by_name() -> None:
    code = (
        "import sys; sys.modules['tzdata'] = None\n"
        "from singletonjob._core.cron import Cron\n"
        "assert Cron('0 3 * * *').after(0) == 3 * 3600 * 10**6\n"
        "assert 'zoneinfo' not in sys.modules\n"
        "try: Cron('0 3 * * *', 'Europe/Paris')\n"
        "except ValueError as error: print(error)"
    )
    environment = {"PYTHONPATH": str(SRC), "PYTHONTZPATH": ""}
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.startswith("time zone 'Europe/Paris' is not known")


@pytest.mark.parametrize("answer", [0, -3600])
def test_an_answer_that_is_not_later_is_an_error_never_a_loop(answer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cron = Cron("0 3 * * *")
    monkeypatch.setattr(Cron, "_after", lambda cron, start: start + answer)
    with pytest.raises(ScheduleError, match="no later slot found after 2026-01-01"):
        cron.after(us("2026-01-01T00:00"))


@pytest.mark.parametrize(
    ("alias", "expression"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        (" @Hourly", "0 * * * *"),
    ],
)
def test_an_alias_is_its_expression(alias: str, expression: str) -> None:
    assert Cron(alias).mark == Cron(expression).mark
    assert Cron(alias).after(0) == Cron(expression).after(0)


def test_the_mark_changes_with_the_slots_and_not_with_the_spelling() -> None:
    mark = Cron("0 3 * * MON", "Asia/Singapore").mark
    assert mark == Cron(" 0  3 * * mon", "Asia/Singapore").mark == Cron("0 0 3 * * 1", "Asia/Singapore").mark
    assert len({mark, Cron("0 3 * * MON").mark, Cron("0 4 * * MON", "Asia/Singapore").mark}) == 3
    # What replicas of other versions wrote into the store must mean the same.
    assert Cron("0 3 * * MON", "Asia/Singapore").mark == "4c36963d"


def test_local_is_the_wall_time_of_the_zone() -> None:
    local = Cron("0 3 * * *", "Asia/Singapore").local(us("2026-01-01T00:00") + 250_000)
    assert local.isoformat() == "2026-01-01T08:00:00.250000+08:00"
    assert local.utcoffset() == timedelta(hours=8)


@pytest.mark.parametrize("year", [-500, 9900, 20_000])
def test_a_clock_beyond_the_calendar_has_no_next_slot(year: int) -> None:
    assert Cron("* * * * *", "Europe/Paris").after((year - 1970) * 31_556_952_000_000) is None


def test_a_repeated_hour_is_seen_although_the_next_candidate_is_a_year_away() -> None:
    """15:20 minutes into the first pass: the next 01:15 is in the second pass, not in a year with the same offset."""
    check("15 1-1 1 11 *", "America/New_York", "2026-11-01T05:20", "06:15 2027-11-01T05:15")


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ("2026-01-01T00:00", "2026-01-01T00:00"),
        ("2026-01-01T00:00", "2026-01-01T02:59"),
        ("2026-01-01T00:00", "2026-01-01T03:00"),
        ("2026-01-01T00:00", "2026-01-09T02:00"),
        ("2026-01-01T00:00", "2026-06-01T02:59:59"),
        ("2026-01-01T00:00", "2027-06-01T00:00"),
    ],
)
def test_newest_is_the_last_slot_of_a_range(low: str, high: str) -> None:
    for cron in (Cron("0 3 * * *"), Cron("* 3 * * MON"), Cron("30 2 1 * *", "Europe/Paris")):
        last, instant = None, us(low)
        while (later := cron.after(instant)) is not None and later <= us(high):
            last = instant = later
        assert cron.newest(us(low), us(high)) == last


def test_newest_of_two_centuries_takes_few_steps() -> None:
    cron, end = Cron("* * * * * *"), us("2200-01-01T00:00")
    began = time.perf_counter()
    assert cron.newest(0, end) == end
    assert time.perf_counter() - began < 0.1


def test_a_next_slot_costs_microseconds() -> None:
    cron, instant, took = Cron("30 2 * * MON-FRI", "America/New_York"), us("2026-01-01T00:00"), []
    for _ in range(300):
        began = time.perf_counter()
        later = cron.after(instant)
        took.append(time.perf_counter() - began)
        assert later is not None
        instant = later
    assert statistics.median(took) < 250e-6  # five times the promise of 50 us
