"""The table of heartbeats and expiries in docs/sizing.md is what the options and the promises come to."""

from __future__ import annotations

from math import ceil
from pathlib import Path

from singletonjob._jobs.options import JOB_READERS, read, resolve

PAGE = (Path(__file__).parents[2] / "docs/sizing.md").read_text()
ROWS = [
    [cell.strip(" *") for cell in line.strip("|").split("|")]
    for line in PAGE.partition("<!-- lease-table -->")[2].partition("<!-- /lease-table -->")[0].splitlines()
    if line.startswith("| ") and "`" not in line and "--" not in line
]


def seconds(number: float) -> str:
    return f"{round(number, 2):g} s"


def test_each_line_of_the_table_is_what_its_options_come_to() -> None:
    assert len(ROWS) > 5
    for row in ROWS:
        expiry, heartbeat, margin = row[:3]
        given = {"lock_expiry": expiry, "heartbeat_interval": heartbeat, "margin": margin, "max_backoff_delay": "60s"}
        options = resolve(read({name: value.replace(" ", "") for name, value in given.items()}, JOB_READERS))
        spare = options.lock_expiry - options.margin - options.heartbeat_interval
        soonest, latest = options.lock_expiry - options.heartbeat_interval, 1.01 * options.lock_expiry + 0.1
        assert options.warning is None
        assert row[3:] == [
            seconds(options.call_timeout),
            seconds(spare - options.call_timeout),
            f"{soonest:g} to {ceil(round(latest * 10, 6)) / 10:g} s",
            seconds(options.margin - options.lock_expiry / 100),
            f"{3 / options.heartbeat_interval:.2g}",
        ], row


def test_the_line_in_bold_is_the_default() -> None:
    defaults = resolve({})
    (bold,) = [line for line in PAGE.splitlines() if line.startswith("| **")]
    assert bold.startswith(f"| **{defaults.lock_expiry:g} s** | **{defaults.heartbeat_interval:g} s** |")
