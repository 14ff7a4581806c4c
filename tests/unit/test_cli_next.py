"""`singletonjob next`: upcoming instants of an app's jobs or of a cron expression, without project and store."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from singletonjob.cli import main

if TYPE_CHECKING:
    from pathlib import Path

JOBS = """
from singletonjob import SingletonJobs
app = SingletonJobs()

@app.fixed_rate("500ms", offset="100ms")
def price_tick(): ...

@app.interval("1m", name="sync")
def sync(): ...

@app.interval(lambda: 1 / 0, name="odd")
def odd(): ...

@app.cron("0 3 * * *", tz="Asia/Singapore")
def daily_report(): ...

def make_app():
    return app
"""

AFTER = ("--after", "2026-01-31T09:00:00Z")


@pytest.fixture(autouse=True)
def project(workplace: Path) -> Path:
    """A directory with an app that has neither project nor store."""
    (workplace / "next_jobs.py").write_text(JOBS)
    return workplace


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["next", *words]) == 0
    return capsys.readouterr().out


def test_an_expression_gives_a_list_of_utc_instants(capsys: pytest.CaptureFixture[str]) -> None:
    output = ask(capsys, "0 3 * * *", "--tz", "Asia/Singapore", *AFTER, "--count", "2", "--json")
    assert json.loads(output) == ["2026-01-31T19:00:00Z", "2026-02-01T19:00:00Z"]


def test_what_is_asked_for_is_strictly_later(capsys: pytest.CaptureFixture[str]) -> None:
    output = ask(capsys, "0 9 * * *", *AFTER, "--count", "1", "--json")
    assert json.loads(output) == ["2026-02-01T09:00:00Z"]


def test_without_json_each_line_has_the_local_time_first(capsys: pytest.CaptureFixture[str]) -> None:
    output = ask(capsys, "0 3 * * *", "--tz", "Asia/Singapore", *AFTER, "--count", "1")
    assert output.splitlines() == [
        "cron '0 3 * * *' in Asia/Singapore",
        "  Sun 2026-02-01 03:00:00 +08:00   2026-01-31T19:00:00Z",
    ]


def test_an_expression_in_utc_has_one_column(capsys: pytest.CaptureFixture[str]) -> None:
    output = ask(capsys, "*/30 0 9 * * *", *AFTER, "--count", "2")
    assert output.splitlines() == [
        "cron '*/30 0 9 * * *' (seconds first) in UTC",
        "  2026-01-31T09:00:30Z",
        "  2026-02-01T09:00:00Z",
    ]


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        pytest.param(
            "30 2 * * * | America/New_York | 2026-03-07",
            """\
  Sat 2026-03-07 02:30:00 -05:00   2026-03-07T07:30:00Z
  Sun 2026-03-08 03:00:00 -04:00   2026-03-08T07:00:00Z   clock change +1 h
    02:30 does not exist (clocks go from 02:00 to 03:00); runs at 03:00
  Mon 2026-03-09 02:30:00 -04:00   2026-03-09T06:30:00Z""",
            id="a-time-in-a-gap",
        ),
        pytest.param(
            "0,15,30 2 * * * | America/New_York | 2026-03-08",
            """\
  Sun 2026-03-08 03:00:00 -04:00   2026-03-08T07:00:00Z   clock change +1 h
    02:00 to 02:30 do not exist (clocks go from 02:00 to 03:00); runs at 03:00
  Mon 2026-03-09 02:00:00 -04:00   2026-03-09T06:00:00Z""",
            id="times-in-a-gap-merge",
        ),
        pytest.param(
            "0 * * * * | America/New_York | 2026-03-08T00:30",
            """\
  Sun 2026-03-08 01:00:00 -05:00   2026-03-08T06:00:00Z   clock change +1 h
  Sun 2026-03-08 03:00:00 -04:00   2026-03-08T07:00:00Z   clock change +1 h
    02:00 does not exist (clocks go from 02:00 to 03:00); left out
  Sun 2026-03-08 04:00:00 -04:00   2026-03-08T08:00:00Z   clock change +1 h""",
            id="an-interval-like-one-leaves-out-the-gap",
        ),
        pytest.param(
            "30 1 * * * | America/New_York | 2026-11-01",
            """\
  Sun 2026-11-01 01:30:00 -04:00   2026-11-01T05:30:00Z   clock change -1 h
    01:30 comes twice (clocks go from 02:00 to 01:00); runs the first time only
  Mon 2026-11-02 01:30:00 -05:00   2026-11-02T06:30:00Z""",
            id="a-time-that-comes-twice",
        ),
        pytest.param(
            "*/30 * * * * | America/New_York | 2026-11-01T00:30",
            """\
  Sun 2026-11-01 01:00:00 -04:00   2026-11-01T05:00:00Z   clock change -1 h
    01:00, 01:30 come twice (clocks go from 02:00 to 01:00); runs both times
  Sun 2026-11-01 01:30:00 -04:00   2026-11-01T05:30:00Z   clock change -1 h
  Sun 2026-11-01 01:00:00 -05:00   2026-11-01T06:00:00Z   clock change -1 h
  Sun 2026-11-01 01:30:00 -05:00   2026-11-01T06:30:00Z   clock change -1 h
  Sun 2026-11-01 02:00:00 -05:00   2026-11-01T07:00:00Z   clock change -1 h""",
            id="an-interval-like-one-runs-both-times",
        ),
        pytest.param(
            "0 12 * * * | America/New_York | 2026-03-08",
            """\
  Sun 2026-03-08 12:00:00 -04:00   2026-03-08T16:00:00Z   clock change +1 h
  Mon 2026-03-09 12:00:00 -04:00   2026-03-09T16:00:00Z""",
            id="a-time-that-the-change-leaves-alone",
        ),
        pytest.param(
            "0 0 * * * | America/Santiago | 2025-09-06",
            """\
  Sun 2025-09-07 01:00:00 -03:00   2025-09-07T04:00:00Z   clock change +1 h
    00:00 does not exist (clocks go from 00:00 to 01:00); runs at 01:00
  Mon 2025-09-08 00:00:00 -03:00   2025-09-08T03:00:00Z""",
            id="a-gap-at-midnight",
        ),
        pytest.param(
            "45 1 * * * | Australia/Lord_Howe | 2026-04-04T12:00",
            """\
  Sun 2026-04-05 01:45:00 +11:00   2026-04-04T14:45:00Z   clock change -30 min
    01:45 comes twice (clocks go from 02:00 to 01:30); runs the first time only
  Mon 2026-04-06 01:45:00 +10:30   2026-04-05T15:15:00Z""",
            id="half-an-hour",
        ),
        pytest.param(
            "30 30 2 * * * | America/New_York | 2026-03-08",
            """\
  Sun 2026-03-08 03:00:00 -04:00   2026-03-08T07:00:00Z   clock change +1 h
    02:30:30 does not exist (clocks go from 02:00 to 03:00); runs at 03:00
  Mon 2026-03-09 02:30:30 -04:00   2026-03-09T06:30:30Z""",
            id="seconds",
        ),
        pytest.param(
            "30 12 * * * | Pacific/Apia | 2011-12-29T20:00",
            """\
  Sat 2011-12-31 00:00:00 +14:00   2011-12-30T10:00:00Z   clock change +24 h
    12:30 does not exist (clocks go from 2011-12-30 00:00 to 2011-12-31 00:00); runs at 00:00
  Sat 2011-12-31 12:30:00 +14:00   2011-12-30T22:30:00Z   clock change +24 h""",
            id="a-day-left-out",
        ),
    ],
)
def test_days_with_a_clock_change_are_marked_and_what_it_did_to_a_slot_is_said(
    words: str, lines: str, capsys: pytest.CaptureFixture[str]
) -> None:
    expression, zone, after = words.split(" | ")
    count = sum(line.endswith("Z") or " clock change " in line for line in lines.splitlines())
    output = ask(capsys, expression, "--tz", zone, "--after", after, "--count", str(count))
    assert output.splitlines()[1:] == lines.splitlines()
    assert zone == "Pacific/Apia" or max(map(len, lines.splitlines())) <= 80


def test_of_a_repeated_hour_that_is_half_over_the_slots_are_explained_too(capsys: pytest.CaptureFixture[str]) -> None:
    lines = ask(capsys, "*/5 * * * *", "--tz", "Europe/Paris", "--after", "2026-10-25T01:02:00Z", "--count", "2")
    assert lines.splitlines()[1:3] == [
        "  Sun 2026-10-25 02:05:00 +01:00   2026-10-25T01:05:00Z   clock change -1 h",
        "    02:00 to 02:55 come twice (clocks go from 03:00 to 02:00); runs both times",
    ]


def test_the_days_of_a_whole_year_that_are_marked_are_those_on_which_the_clocks_change(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = ask(capsys, "0 12 * * *", "--tz", "Europe/Berlin", "--after", "2026-01-01", "--count", "365").splitlines()
    assert [line[6:16] + line[-20:] for line in lines if "clock" in line] == [
        "2026-03-29   clock change +1 h",
        "2026-10-25   clock change -1 h",
    ]


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("2026-07-01T12:00", "2026-07-01T11:00:00Z"),
        ("2026-07-01T12:00+00:00", "2026-07-01T13:00:00Z"),
        ("2026-07-01T12:00:00Z", "2026-07-01T13:00:00Z"),
        ("2026-01-01", "2026-01-01T00:00:00Z"),
    ],
)
def test_after_without_an_offset_is_in_the_zone_of_the_expression(
    after: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    output = ask(capsys, "@hourly", "--tz", "Europe/Berlin", "--after", after, "--count", "1", "--json")
    assert json.loads(output) == [expected]


def test_by_default_there_are_five_from_now(capsys: pytest.CaptureFixture[str]) -> None:
    before = datetime.now(UTC)
    instants = [datetime.fromisoformat(text) for text in json.loads(ask(capsys, "* * * * * *", "--json"))]
    assert len(instants) == 5
    assert before < instants[0] < before + timedelta(seconds=30)


def test_an_app_gives_an_object_of_lists_by_job(capsys: pytest.CaptureFixture[str]) -> None:
    output = ask(capsys, "next_jobs:app", *AFTER, "--count", "2", "--json")
    assert json.loads(output) == {
        "daily-report": ["2026-01-31T19:00:00Z", "2026-02-01T19:00:00Z"],
        "odd": [],
        "price-tick": ["2026-01-31T09:00:00.100000Z", "2026-01-31T09:00:00.600000Z"],
        "sync": [],
    }


def test_an_app_is_shown_with_its_schedules(capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(capsys, "next_jobs:app", *AFTER, "--count", "1").splitlines() == [
        "daily-report: cron '0 3 * * *' in Asia/Singapore",
        "  Sun 2026-02-01 03:00:00 +08:00   2026-01-31T19:00:00Z",
        "odd: an interval after the end of each run",
        "price-tick: at each multiple of 0.5 s plus 0.1 s",
        "  2026-01-31T09:00:00.100000Z",
        "sync: 60 s after the end of each run",
    ]


def test_c107_the_app_is_found_by_app_dir_and_factory(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project.parent)
    output = ask(capsys, "next_jobs:make_app", "--factory", "--app-dir", project.name, *AFTER, "--json")
    assert len(json.loads(output)["daily-report"]) == 5


def test_a_schedule_s_option_from_the_environment_counts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], project: Path
) -> None:
    (project / "next_jobs.py").write_text(JOBS.replace(', tz="Asia/Singapore"', ""))
    monkeypatch.setenv("SINGLETONJOB_JOBS__DAILY_REPORT__TZ", "Asia/Tokyo")
    output = ask(capsys, "next_jobs:app", *AFTER, "--count", "1", "--json")
    assert json.loads(output)["daily-report"] == ["2026-01-31T18:00:00Z"]


def test_an_uneven_step_is_warned_of_beside_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["next", "*/7 * * * *", "--json"]) == 0
    output = capsys.readouterr()
    assert len(json.loads(output.out)) == 5
    assert output.err.startswith("warning: cron expression '*/7 * * * *': minute '*/7' starts anew")


def test_an_expression_without_a_further_slot_is_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["next", "@yearly", "--after", "9999-06-01T00:00:00Z", "--json"]) == 1
    output = capsys.readouterr()
    assert output.out == "[]\n"
    assert output.err == "singletonjob next: '@yearly' has no slot after that\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["61 * * * *"], "minute '61' is out of range"),
        (["* * *"], "has 3 fields; write five"),
        (["@sometimes"], "unknown alias; write one of @yearly"),
        (["* * * * *", "--tz", "Europe/Berln"], "time zone 'Europe/Berln' is not known"),
        (["* * * * *", "--tz", ""], "time zone '' is not known"),
        (["*/5"], "'*/5' is neither MODULE:APP nor a cron expression"),
        (["next_jobs"], "'next_jobs' is neither MODULE:APP nor a cron expression; write jobs:app"),
        (["next_jobs:ap"], "next_jobs has no 'ap'; did you mean 'app'?"),
        (["next_jobs:app", "--tz", "UTC"], "--tz: is for a cron expression"),
    ],
)
def test_c106_c107_what_cannot_be_read_is_one_line_and_exit_code_2(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["next", *words]) == 2
    output = capsys.readouterr()
    assert output.err.startswith("singletonjob next: ")
    assert expected in output.err
    assert output.err.count("\n") == 1
    assert output.out == ""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["@daily", "--count", "0"], "'0' is not a count; write 1 to 10000"),
        (["@daily", "--count", "many"], "'many' is not a count"),
        (["@daily", "--after", "tomorrow"], "'tomorrow' is no date and time; write 2026-01-31T09:00:00Z"),
        (["0", "3", "*", "*", "*"], "unrecognized arguments: 3 * * *"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["next", *words])
    output = capsys.readouterr()
    assert exited.value.code == 2
    assert expected in output.err
    assert output.err.count("\n") == 1
