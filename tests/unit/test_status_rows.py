"""What `status` prints of a job, on a clock that stands still."""

from __future__ import annotations

import re

import pytest

from singletonjob import SingletonJobs
from singletonjob.cli.status_rows import Seen, as_object, span, table
from singletonjob.stores.orders import Paused
from singletonjob.stores.protocol import JobView

SECOND = 1_000_000
NOON = 1_769_860_800 * SECOND  # 2026-01-31T12:00:00Z

LED = JobView("price-tick", "laptop-3c5e0a17", NOON, NOON - 7500 * SECOND, 9.1, wall=NOON, standby=2)
FAILING = LED._replace(ended=NOON - 3 * SECOND, outcome="failed", good=NOON - 7300 * SECOND, runs=120, failures=117)
PAUSED = JobView(
    "feed",
    ended=NOON - 300 * SECOND,
    outcome="ok",
    runs=12,
    wall=NOON,
    paused=Paused("ann@bastion", NOON - 60 * SECOND, NOON + 3600 * SECOND, "the exchange is closed for the holiday"),
)


def lines(*views: JobView, width: int | None = None) -> list[str]:
    return table([Seen(view, 0) for view in views], width)


def test_a_failing_job_is_told_from_a_good_one() -> None:
    _, failing, note, good = lines(FAILING, LED._replace(ended=NOON - SECOND, outcome="ok", runs=7, good=NOON - SECOND))
    assert re.search("failed 3 s ago  120 +117 ", failing)
    assert note == "    last ok 2 h 1 m ago"
    assert "ok 1 s ago" in good


def test_a_job_that_never_ended_well_says_so() -> None:
    assert lines(FAILING._replace(good=None))[2] == "    no run is known to have ended well"


def test_a_pause_stands_below_its_job_with_who_until_when_and_why() -> None:
    assert lines(PAUSED)[2] == (
        "    paused 1 m ago by ann@bastion until 2026-01-31T13:00:00Z: the exchange is closed for the holiday"
    )


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize("job", ["price-tick", "daily-report-of-singapore"])
@pytest.mark.parametrize("leader", ["laptop-3c5e0a17", "trading-7c9f68d4c-x2x9k-3c5e0a17"])
def test_the_names_of_job_and_leader_are_never_cut_and_the_token_goes_first(width: int, job: str, leader: str) -> None:
    shown = lines(FAILING._replace(job=job, holder=leader), PAUSED, width=width)
    assert f"\n{job}  {leader}  " in "\n".join(shown)
    everything = lines(FAILING._replace(job=job, holder=leader), PAUSED)
    assert ("TOKEN" in shown[0]) is (max(map(len, everything[:2])) <= width)
    if len(job) + len(leader) < 40:
        assert max(map(len, shown)) <= width


def test_with_the_app_a_job_is_late_when_no_run_ended_long_after_one_was_due() -> None:
    app = SingletonJobs("p", "memory")

    @app.interval("1m")
    def price_tick() -> None: ...

    @app.cron("0 3 * * *", tz="Asia/Singapore")
    def daily_report() -> None: ...

    @app.fixed_rate("1s", enabled=False)
    def off() -> None: ...

    target = app.resolved()
    known = {job.name: (job, target.of_job(job.name)) for job in target.jobs}

    def told(view: JobView) -> tuple[list[str], dict[str, object]]:
        seen = Seen(view, 0, *known[view.job])
        return seen.notes(), as_object(seen, with_schedule=True)

    ok = LED._replace(outcome="ok")
    notes, told_object = told(ok._replace(ended=NOON - 79 * SECOND))
    assert (notes, told_object["late"]) == ([], False)
    notes, told_object = told(ok._replace(ended=NOON - 81 * SECOND))
    assert notes == ["late: a run was due 21 s ago, and none has ended since"]
    assert told_object["late"] is True
    assert told(ok._replace(ended=NOON - 81 * SECOND, paused=PAUSED.paused))[1]["late"] is False

    report = ok._replace(job="daily-report", ended=NOON - 17 * 3600 * SECOND)
    notes, told_object = told(report)
    assert notes == ["next run in 7 h, at 2026-01-31T19:00:00Z"]
    assert told_object["next"] == "2026-01-31T19:00:00Z"
    assert told(report._replace(ended=NOON - 18 * 3600 * SECOND))[0][0].startswith("late: a run was due 17 h ago")

    assert told(JobView("off", wall=NOON))[0] == ["off by configuration"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0 s"), (0.9, "0 s"), (59, "59 s"), (60, "1 m"), (125, "2 m 5 s"), (7500, "2 h 5 m"), (273_600, "3 d 4 h")],
)
def test_a_length_of_time_is_told_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert span(seconds) == text
