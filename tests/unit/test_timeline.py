"""The README's picture and figures: what is drawn and written is what the kept records say."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import pytest

from benchmarks import report
from benchmarks.groups import GROUPS
from benchmarks.heat import ROOT
from benchmarks.records import HOME, load
from benchmarks.timeline_events import hand_overs, lost_ticks, overlaps
from benchmarks.timeline_picture import timeline

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.records import Record

PICTURE = ROOT / "docs" / "pictures" / "timeline.svg"


def replica(
    seat: int, terms: list[tuple[int, float, float | None]], runs: list[tuple[int, float]], **told: object
) -> Record:
    """A process that lives from the begin on; its runs take 30 ms."""
    return {
        "row": f"replica {seat}",
        "contestant": str(seat),
        "until": 3.0,
        "began": -1.0,
        "signal": None,
        "signalled": None,
        "ended": None,
        "released": None,
        "expires": None,
        "terms": [{"token": token, "from": begin, "to": end} for token, begin, end in terms],
        "beats": [],
        "runs": [[tick, start, start + 0.03] for tick, start in runs],
        **told,
    }


def between(file: Path, name: str) -> str:
    """What stands between the file's markers."""
    return file.read_text().split(f"<!-- bench:{name} -->\n")[1].split(f"\n<!-- /bench:{name} -->")[0]


def test_a_hand_over_is_told_from_the_signal_with_the_ticks_between_the_runs_of_both() -> None:
    records = [
        replica(1, [(7, -0.5, 0.52)], [(4, 0.4), (5, 0.5)], signal="SIGTERM", signalled=0.51, released=0.54, ended=0.6),
        replica(2, [(8, 0.55, None)], [(8, 0.8), (9, 0.9)]),
    ]
    (event,) = hand_overs(records)
    assert event.heir is records[1]
    assert [event.after(moment) for moment in (event.given, event.elected, event.next_run)] == [30, 40, 290]
    assert event.lost == 2
    assert lost_ticks(records) == 2


def test_a_signal_to_a_replica_that_did_not_lead_hands_nothing_over() -> None:
    records = [
        replica(1, [(7, -0.5, None)], [(4, 0.4)]),
        replica(2, [(6, -1.0, -0.6)], [], signal="SIGTERM", signalled=0.51, ended=0.6),
    ]
    (event,) = hand_overs(records)
    assert event.heir is None
    assert event.lost == 0


def test_after_a_kill_the_lease_is_free_when_the_store_says_so() -> None:
    records = [
        replica(1, [(7, -0.5, None)], [(5, 0.5)], signal="SIGKILL", signalled=0.51, expires=1.4, ended=0.52),
        replica(2, [(8, 1.41, None)], [(15, 1.5)]),
    ]
    (event,) = hand_overs(records)
    assert event.after(event.given) == 890
    assert event.lost == 9


@pytest.mark.parametrize(("second", "found"), [(0.53, 0), (0.529, 1)])
def test_a_run_that_begins_before_the_other_has_ended_overlaps_it(second: float, found: int) -> None:
    assert overlaps([replica(1, [], [(5, 0.5)]), replica(2, [], [(6, second)])]) == found


def test_the_picture_in_the_docs_is_drawn_from_the_kept_record() -> None:
    results = load("timeline")
    assert results is not None
    assert PICTURE.read_text() == timeline(results.records, results.origin["date"])


def test_the_kept_record_shows_what_is_promised() -> None:
    results = load("timeline")
    assert results is not None
    assert [check.text for check in GROUPS["timeline"].checks(results) if not check.passed] == []


def test_the_picture_stands_alone_and_is_small() -> None:
    text = PICTURE.read_text()
    ET.fromstring(text)  # noqa: S314 - our own file
    assert len(text) < 60_000
    assert text.replace("http://www.w3.org/2000/svg", "").count("http") == 0
    assert not [word for word in ("@import", "@font-face", "<image", "<script", "href") if word in text]


def test_figures_in_the_readme_and_in_the_results_are_those_of_the_records() -> None:
    assert between(ROOT / "README.md", "summary") == report.summary().strip()
    for name in GROUPS:
        results = load(name)
        if results is not None:
            assert between(HOME / "results.md", name) == report.section(name, results).strip(), name
