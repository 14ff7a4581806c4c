"""What the demo claims is computed from stamps by pure functions; here with stamps made by hand."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from singletonjob.cli.demo_report import BodyRun, Ledger, Report, Stop, handover, overlaps
from singletonjob.cli.demo_stamps import Stamp, StampReader, StampWriter

if TYPE_CHECKING:
    from pathlib import Path


def run(start: float, end: float | None, *, worker: str = "1", job: str = "price-tick") -> BodyRun:
    return BodyRun(job=job, worker=worker, start=start, end=end)


def stamp(at: float, kind: str, detail: object = 1, *, job: str = "price-tick") -> Stamp:
    return Stamp(at=at, kind=kind, job=job, detail=str(detail))


def ledger(*lines: tuple[str, Stamp]) -> Ledger:
    made = Ledger()
    for worker, line in lines:
        made.add(worker, line)
    return made


def report(
    *runs: BodyRun, stops: tuple[Stop, ...] = (), troubles: tuple[str, ...] = (), store: str = "sqlite"
) -> Report:
    made = ledger(*(("1", stamp(n, "late", 200)) for n in range(9)))
    lateness = made.lateness["price-tick"]
    return Report(workers=3, store=store, runs=runs, dropped=4, lateness=lateness, stops=stops, troubles=troubles)


TERM = Stop(signal="SIGTERM", worker="1", at=10.0)
KILL = Stop(signal="SIGKILL", worker="2", at=20.0)


def test_runs_of_one_job_that_share_a_moment_overlap_across_workers_and_within_one() -> None:
    assert len(overlaps([run(0, 2, worker="1"), run(1, 3, worker="2")])) == 1
    assert len(overlaps([run(0, 2), run(1, 3)])) == 1
    assert len(overlaps([run(0, 9), run(1, 2), run(3, 4)])) == 2


def test_runs_one_after_the_other_or_of_different_jobs_do_not_overlap() -> None:
    assert overlaps([run(0, 1), run(1.001, 2, worker="2")]) == []
    assert overlaps([run(0, 2), run(1, 3, worker="2", job="book-sync")]) == []


def test_a_run_without_an_end_is_open_to_this_day() -> None:
    assert len(overlaps([run(0, None), run(100, 101, worker="2")])) == 1


spans = st.lists(
    st.builds(
        lambda start, length, job: run(start, start + length, job=job),
        st.integers(0, 60),
        st.integers(0, 15),
        st.sampled_from(["price-tick", "book-sync"]),
    ),
    max_size=25,
)


@given(spans)
def test_no_pair_is_missed_and_none_is_counted_twice(runs: list[BodyRun]) -> None:
    expected = sum(
        a.job == b.job and a.start <= (b.end or 0) and b.start <= (a.end or 0) for a, b in combinations(runs, 2)
    )
    assert len(overlaps(runs)) == expected


def test_a_handover_lasts_from_the_signal_to_the_next_price_tick_elsewhere() -> None:
    runs = [
        run(9.9, 9.95, worker="3"),  # before the signal
        run(10.01, 10.02, worker="1"),  # the stopped worker itself
        run(10.03, 10.04, worker="2", job="book-sync"),  # another job
        run(10.3, 10.4, worker="3"),
        run(10.2, 10.3, worker="2"),
    ]
    assert handover(runs, TERM) == pytest.approx(200)


def test_a_handover_that_did_not_come_has_no_time() -> None:
    assert handover([run(9, 9.1, worker="2"), run(11, 12, worker="1")], TERM) is None


def test_what_a_killed_worker_left_open_ended_with_the_kill() -> None:
    made = ledger(("1", stamp(1, "start")), ("2", stamp(1.5, "start")), ("2", stamp(1.6, "end")))
    made.close("1", 1.4)
    assert [(one.worker, one.end) for one in made.runs] == [("1", 1.4), ("2", 1.6)]
    assert overlaps(made.runs) == []


def test_a_run_open_at_the_kill_overlaps_what_started_before_it() -> None:
    made = ledger(("1", stamp(1, "start")), ("2", stamp(1.3, "start")), ("2", stamp(1.35, "end")))
    made.close("1", 1.4)
    assert len(overlaps(made.runs)) == 1


def test_the_leader_is_who_was_elected_last_and_has_neither_stepped_down_nor_died() -> None:
    made = ledger(
        ("1", stamp(1, "elected", 7)), ("2", stamp(2, "elected", 8)), ("1", stamp(2.1, "stepped-down", "lost"))
    )
    assert made.leaders == {"price-tick": "2"}
    made.close("2", 3)
    assert made.leaders == {}


def test_dropped_ticks_add_up() -> None:
    made = ledger(("1", stamp(1, "dropped", 2)), ("2", stamp(2, "dropped", 1)))
    assert made.dropped["price-tick"] == 3


def test_the_json_object_has_exactly_the_promised_keys() -> None:
    made = report(run(9, 9.1), run(10.0341, 10.1, worker="2"), run(20.25, 20.3), stops=(TERM, KILL))
    assert made.as_json() == {
        "workers": 3,
        "runs": 3,
        "overlaps": 0,
        "graceful_handover_ms": [34.1],
        "crash_handover_ms": [250.0],
        "dropped": 4,
    }
    assert made.good
    assert "34 ms" in made.as_text()
    assert "price-tick is late by    0.2 ms, 0.2 ms" in made.as_text()
    assert "at most one process" in made.as_text()


def test_the_closing_words_tell_the_longest_gaps_and_why_one_after_a_crash_is_long() -> None:
    made = report(run(9, 9.1), run(10.0341, 10.1, worker="2"), run(29.2, 29.3), stops=(TERM, KILL))
    assert "within 34 ms of a SIGTERM and within 9200 ms of a SIGKILL" in made.as_text()
    assert "waits for the end of its lease" in made.as_text()
    quick = report(run(9, 9.1), run(10.0341, 10.1, worker="2"), run(20.25, 20.3), stops=(TERM, KILL))
    assert "waits for the end of its lease" not in quick.as_text()
    assert max(len(line) for line in made.as_text().splitlines()) <= 80


def test_an_overlap_is_not_good_and_the_closing_words_say_so() -> None:
    made = report(run(1, 2), run(1.5, 3, worker="2"), run(20.2, 20.3), stops=(TERM, KILL), store="memory")
    assert not made.good
    assert "NOT GOOD: two runs of one job were open at once, 1 times" in made.as_text()
    assert "memory store of its own" in made.as_text()


def test_a_handover_not_seen_or_a_worker_that_failed_is_not_good() -> None:
    seen = (run(10.1, 10.2, worker="2"), run(20.1, 20.2))
    assert report(*seen, stops=(TERM, KILL)).good
    assert not report(*seen, stops=(TERM,)).good
    failed = report(*seen, stops=(TERM, KILL), troubles=("worker 3 ended by itself",))
    assert not failed.good
    assert "worker 3 ended by itself" in failed.as_text()


def test_stamps_are_read_as_they_were_written_and_only_once(tmp_path: Path) -> None:
    path = tmp_path / "1.stamps"
    reader = StampReader(path)
    assert reader.read() == []
    writer = StampWriter(path)
    writer.write("start", "price-tick", 1)
    writer.write("end", "price-tick", 1)
    first = reader.read()
    assert [(one.kind, one.job, one.detail) for one in first] == [
        ("start", "price-tick", "1"),
        ("end", "price-tick", "1"),
    ]
    assert first[0].at <= first[1].at
    assert reader.read() == []


def test_half_a_line_waits_until_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "1.stamps"
    reader = StampReader(path)
    path.write_bytes(b"1.5 start price-tick 1\n1.6 end pri")
    assert [one.kind for one in reader.read()] == ["start"]
    with path.open("ab") as file:
        file.write(b"ce-tick 1\n")
    assert reader.read() == [stamp(1.6, "end")]
