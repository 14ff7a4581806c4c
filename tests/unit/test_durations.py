from __future__ import annotations

import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from singletonjob._core.errors import ConfigError, ScheduleError
from singletonjob._jobs.duration import duration, positive

CENTURY = 36_500 * 86_400


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("250ms", 0.25),
        ("0.3s", 0.3),
        ("10m", 600.0),
        ("2h", 7200.0),
        ("1d", 86400.0),
        ("1m30s", 90.0),
        ("1d2h3m4s5ms", 93784.005),
        ("1.5h", 5400.0),
        ("00:00:03", 3.0),
        ("01:02:03.5", 3723.5),
        ("36:00:00", 129600.0),
        ("PT1M30S", 90.0),
        ("PT0.25S", 0.25),
        ("P1D", 86400.0),
        ("P1DT12H", 129600.0),
        ("3", 3.0),
        ("0.5", 0.5),
        (" 10s\n", 10.0),
        ("0", 0.0),
        ("57ms", 0.057),
        ("36500d", float(CENTURY)),
        (3, 3.0),
        (0.25, 0.25),
        (0, 0.0),
        (timedelta(milliseconds=20), 0.02),
        (timedelta(days=1, microseconds=1), 86400.000001),
    ],
)
def test_a_duration_means_what_it_says(written: object, seconds: float) -> None:
    assert duration(written, what="lock_expiry") == seconds


@pytest.mark.parametrize(
    "written",
    [
        *[
            "",
            " ",
            "s",
            "P",
            "PT",
            "P1DT",
            "PT1",
            "-1s",
            "+1s",
            "-3",
            "1x",
            "1 m",
            "1m 30s",
            "30s1m",
            "1s1s",
            "1M",
            "1S",
        ],
        *[
            "1e3",
            "0x10",
            "1_000",
            ".5s",
            "1.",
            "1,5s",
            "nan",
            "inf",
            "infinity",
            "00:60:00",
            "00:00:60",
            "00:30",
            "0:0:1",
        ],
        *["1:2:3:4", "P1Y", "P1M", "P1W", "pt1m", "١s", "1s\n1s", "36501d", "9" * 400],
        *[True, False, None, math.nan, math.inf, -math.inf, -1, -0.001, timedelta(seconds=-1), timedelta.max],
        *[10**400, -(10**400), b"1s", [1], {}, object, 1j],
    ],
)
def test_what_is_no_duration_is_refused_by_name(written: object) -> None:
    with pytest.raises(ConfigError, match=r"^margin: .* is not a duration; write seconds as a number.*'250ms'.*$"):
        duration(written, what="margin")


def test_an_error_stays_on_one_line_of_readable_length() -> None:
    with pytest.raises(ConfigError) as caught:
        duration("1s\n" * 10_000, what="margin")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("written", [0, 0.0, "0s", "00:00:00", timedelta(0), "0.0000000001s"])
def test_zero_is_a_duration_but_not_a_positive_one(written: object) -> None:
    assert duration(written, what="offset") == 0
    with pytest.raises(ScheduleError, match=r"^every: .* must be greater than zero; write '250ms'"):
        positive(written, what="every", error=ScheduleError)


@given(st.integers(0, 10**9))
def test_milliseconds_are_exact_in_every_form(ms: int) -> None:
    seconds = ms / 1000
    assert duration(f"{ms}ms", what="x") == seconds
    assert duration(f"{ms // 1000}.{ms % 1000:03}s", what="x") == seconds
    assert duration(f"PT{ms // 1000}.{ms % 1000:03}S", what="x") == seconds
    assert duration(timedelta(milliseconds=ms), what="x") == seconds
    minutes, rest = divmod(ms, 60_000)
    assert duration(f"{minutes // 60}:{minutes % 60:02}:{rest // 1000:02}.{rest % 1000:03}", what="x") == seconds
    assert duration(f"{minutes}m{rest}ms", what="x") == seconds


@given(st.one_of(st.text(), st.floats(), st.integers(), st.timedeltas(), st.booleans(), st.none()))
def test_whatever_is_written_gives_usable_seconds_or_a_config_error(written: object) -> None:
    try:
        seconds = duration(written, what="x")
    except ConfigError:
        return
    assert 0 <= seconds <= CENTURY
