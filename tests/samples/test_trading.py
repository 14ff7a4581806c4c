"""The trading desk of samples/trading, and the pages that tell of it."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from code_blocks import blocks
from singletonjob.testing import run_once

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "samples" / "trading"
COMMAND = [sys.executable, str(SAMPLE / "run.py")]


@pytest.fixture(autouse=True)
def _sample_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SAMPLE))


# -- the show ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shows() -> dict[str, subprocess.CompletedProcess[str]]:
    """One as it should be, and one whose replicas know nothing of each other, side by side."""
    started = {
        store: subprocess.Popen(
            [*COMMAND, "--seconds", "8", "--json", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for store, options in (("sqlite", []), ("memory", ["--store", "memory"]))
    }
    done = {}
    for store, process in started.items():
        with process:
            out, errors = process.communicate(timeout=60)
        done[store] = subprocess.CompletedProcess(process.args, process.returncode, out, errors)
    return done


@pytest.fixture(scope="module")
def show(shows: dict[str, subprocess.CompletedProcess[str]]) -> subprocess.CompletedProcess[str]:
    return shows["sqlite"]


@pytest.fixture(scope="module")
def summary(show: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert show.returncode == 0, show.stdout + show.stderr
    found: dict[str, Any] = json.loads(show.stdout)
    return found


def test_replicas_without_a_common_store_overlap_and_the_show_says_so(
    shows: dict[str, subprocess.CompletedProcess[str]],
) -> None:
    show = shows["memory"]
    assert show.returncode == 1, show.stdout + show.stderr
    summary = json.loads(show.stdout)
    assert summary["overlapping_runs"] > 0
    assert summary["most_connections"] == 3
    assert "fails on replica" in show.stderr


def test_no_two_runs_of_a_job_overlap_through_a_stop_and_a_crash(summary: dict[str, Any]) -> None:
    assert [one["signal"] for one in summary["hand_overs"]] == ["SIGTERM", "SIGKILL"]
    assert all(one["old"] != one["new"] for one in summary["hand_overs"])
    assert summary["overlapping_runs"] == 0
    assert summary["troubles"] == []


def test_another_replica_takes_the_snapshots_soon(summary: dict[str, Any]) -> None:
    for one in summary["hand_overs"]:  # within 100 and 250 ms are promised
        assert 0 < one["lead_after"] < 2
        assert 0 < one["gap"] < 4
    assert summary["snapshots"] >= 6


def test_the_slow_features_drop_ticks_and_the_silent_feed_rings_the_alarm(summary: dict[str, Any]) -> None:
    assert summary["dropped_overlap"] >= 2
    assert summary["features"] > summary["snapshots"]
    assert summary["alarms"] >= 1
    assert 1.2 < summary["longest_stale"] < 10


def test_a_late_write_of_an_old_leader_is_refused(summary: dict[str, Any]) -> None:
    assert summary["late_writes"] == summary["late_writes_refused"] == 2


def test_only_the_leader_is_connected_to_the_feed(summary: dict[str, Any]) -> None:
    assert summary["most_connections"] == 1


def test_the_lines_tell_what_happened_in_order(summary: dict[str, Any], show: subprocess.CompletedProcess[str]) -> None:
    told = [
        "starts",
        "leads",
        "SIGTERM to",
        "the feed falls silent",
        "ALARM",
        "all clear",
        "SIGKILL to",
        "told to stop",
    ]
    places = [show.stderr.find(words) for words in told]
    assert -1 not in places, show.stderr
    assert places == sorted(places), show.stderr


def test_a_terminal_shows_a_screen_of_its_own() -> None:
    main, terminal = pty.openpty()
    # Long enough for a few pictures, and then Ctrl-C: it stops its replicas.
    with subprocess.Popen(COMMAND, stdout=terminal, stderr=terminal, env={**os.environ, "TERM": "xterm"}) as process:
        os.close(terminal)
        seen = b""
        while b"\xe2\x96\xa0" not in seen:  # the mark of a snapshot
            seen += os.read(main, 65536)
        process.send_signal(2)
        try:
            while data := os.read(main, 65536):
                seen += data
        except OSError:  # the other side is closed
            pass
        assert process.wait(20) == 130
    os.close(main)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    assert "age of prices" in text
    assert "Traceback" not in text
    for pid in re.findall(r"starts, process (\d+)", text):
        assert not Path("/proc", pid).exists()


@pytest.mark.parametrize("wrong", [["--store", "nowhere:"], ["--seconds", "3"], ["--replicas", "1"]])
def test_what_cannot_be_shown_is_refused_in_one_line(wrong: list[str]) -> None:
    done = subprocess.run([*COMMAND, *wrong], capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(
        f"run.py: error: {'argument ' * (wrong[0] == '--replicas')}{wrong[0]}"
    )


# -- its parts -----------------------------------------------------------------------------------------------------


async def test_a_snapshot_goes_out_with_the_terms_token_and_the_connection_is_closed_after(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from trading_desk.feed import Feed
    from trading_desk.jobs import Snapshot
    from trading_desk.sink import Sink, StaleWrite
    from trading_desk.tape import Tape
    from trading_stage.market import Market

    market = Market()
    with closing(Sink(tmp_path / "desk.db")) as sink:
        assert sink.age() is None
        async with market.open() as url:
            await run_once(Snapshot(Feed(url), sink, Tape()), token=7)
            assert market.most_connections == 1
            assert market.connections == 0
        assert [set(prices) for prices in sink.newest(9)] == [{"BTC-USD", "ETH-USD", "SOL-USD"}]
        with pytest.raises(StaleWrite):
            sink.publish({"BTC-USD": 1.0}, token=6)
        sink.publish({"BTC-USD": 2.0}, token=7)
        assert sink.newest(1) == [{"BTC-USD": 2.0}]
        age = sink.age()
        assert age is not None
        assert 0 <= age < 5
    assert [json.loads(line)[1] for line in capfd.readouterr().out.splitlines()] == ["start", "snapshot", "end"]


async def test_a_silent_feed_makes_no_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from trading_desk import feed
    from trading_desk.jobs import Snapshot
    from trading_desk.sink import Sink
    from trading_desk.tape import Tape
    from trading_stage.market import Market

    monkeypatch.setattr(feed, "MOST_SILENCE", 0.0)
    with closing(Sink(tmp_path / "desk.db")) as sink:
        async with Market().open() as url:
            with pytest.raises(feed.SilentFeed, match="no price for"):
                await run_once(Snapshot(feed.Feed(url), sink, Tape()))
        assert sink.newest(1) == []
    assert [json.loads(line)[1] for line in capfd.readouterr().out.splitlines()] == ["start", "end"]


async def test_the_alarm_rings_once_per_term_and_gives_the_all_clear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from trading_desk import jobs
    from trading_desk.sink import Sink
    from trading_desk.tape import Tape

    with closing(Sink(tmp_path / "desk.db")) as sink:
        sink.publish({"BTC-USD": 1.0}, token=1)
        alarm = jobs.StaleAlarm(sink, Tape())
        for too_old, token in ((60.0, 7), (-1.0, 7), (-1.0, 7), (-1.0, 8), (60.0, 8), (60.0, 8)):
            monkeypatch.setattr(jobs, "TOO_OLD", too_old)
            await run_once(alarm, token=token)
    whats = [json.loads(line)[1] for line in capfd.readouterr().out.splitlines()]
    assert [what for what in whats if what not in {"start", "end"}] == ["alarm", "alarm", "fresh"]


def test_the_ledger_finds_what_overlaps_and_what_was_missed() -> None:
    from trading_stage.ledger import Entry, Gap, Ledger
    from trading_stage.summary import HandOver, missed

    ledger = Ledger()
    ledger.add("a", Entry(1.0, "start", "snapshot", 7))
    ledger.add("a", Entry(1.1, "snapshot", "snapshot", {"BTC-USD": 1.0}))
    ledger.add("a", Entry(1.2, "end", "snapshot", None))
    ledger.add("a", Entry(1.1, "start", "features", 9))
    ledger.add("a", Entry(1.5, "start", "snapshot", 7))
    ledger.gone("a", 1.6)
    ledger.add("b", Entry(2.5, "elected", "snapshot", 8))
    ledger.add("b", Entry(3.0, "start", "snapshot", 8))
    ledger.add("b", Entry(3.1, "snapshot", "snapshot", {"BTC-USD": 1.0}))
    assert ledger.overlapping() == 0
    assert (ledger.token("snapshot", "a"), ledger.token("snapshot", "b"), ledger.token("features", "b")) == (7, 8, None)
    assert ledger.gaps(until=3.4) == [Gap(1.1, 3.1), Gap(3.1, 3.4)]
    hand_over = HandOver.find(ledger, "SIGKILL", "a", 1.6)
    assert hand_over is not None
    assert (hand_over.new, round(hand_over.lead_after, 6), missed(hand_over.gap)) == ("b", 0.9, 3)

    ledger.add("c", Entry(3.2, "start", "snapshot", 8))
    assert ledger.overlapping() == 1


# -- the pages -----------------------------------------------------------------------------------------------------


def test_the_code_on_the_page_is_the_samples() -> None:
    sources = {file.name: file.read_text() for file in SAMPLE.rglob("*.py")}
    shown = blocks((ROOT / "docs" / "trading.md").read_text(), "docs/trading.md")
    pieces = [block for block in shown if block.language == "python"]
    assert len(pieces) >= 4
    for block in pieces:
        assert block.text.strip("\n") in sources[block.title], f"{block.place}: not so in {block.title}"


@pytest.mark.parametrize("page", ["docs/trading.md", "samples/trading/README.md"])
def test_the_run_that_a_page_shows_has_the_lines_that_a_run_has(page: str, summary: dict[str, Any]) -> None:
    from trading_stage.summary import HandOver, Summary

    rows = Summary(**{**summary, "hand_overs": [HandOver(**one) for one in summary["hand_overs"]]}).lines()
    text = (ROOT / page).read_text()
    assert [what for what, _ in rows if not re.search(rf"^{what}  +\S", text, re.MULTILINE)] == []
