"""The README's picture: hand-overs of a rolling deploy and of a crash, as they happened in one run."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.groups.plan import Step
from benchmarks.records import Check, bounded
from benchmarks.timeline_course import record
from benchmarks.timeline_events import hand_overs, overlaps
from benchmarks.timeline_replica import LOCK_EXPIRY

if TYPE_CHECKING:
    from benchmarks.groups.plan import Settings
    from benchmarks.records import Record, Results
    from benchmarks.timeline_events import HandOver

__all__ = ["TITLE", "checks", "steps", "tables"]

TITLE = "Timeline: a rolling deploy and a crash"


def steps(settings: Settings) -> list[Step]:
    return [Step("a rolling deploy and a crash", 24, partial(_run, settings))]


def _run(settings: Settings) -> list[Record]:
    return record(settings.server.fresh())


def checks(results: Results) -> list[Check]:
    """The promises that a single run can show: S1, S5, L1, L2."""
    records = results.records
    tokens = [term["token"] for one in records for term in one["terms"]]
    in_order = sorted((term["from"], term["token"]) for one in records for term in one["terms"])
    found = [
        Check(f"runs that overlap: {overlaps(records)}", passed=overlaps(records) == 0),
        Check("tokens grow from term to term", passed=[token for _, token in in_order] == sorted(set(tokens))),
    ]
    for event in hand_overs(records):
        if event.elected is None or event.given is None:
            continue
        if event.signal == "SIGTERM":
            since, words, bound = event.given, "the release", 50.0
        else:
            since = max(beat for beat in event.old["beats"] if beat < event.at)
            words, bound = "its last renewal", 1000 * 1.01 * LOCK_EXPIRY + 100
        text = f"{event.signal} of {event.old['row']}: from {words} to the next term"
        found.append(bounded(text, 1000 * (event.elected - since), bound, unit="ms"))
    return found


def tables(results: Results) -> list[str]:
    lines = [
        "| milliseconds after the signal | the lease is free | the next leads | the next run | ticks lost |",
        "| --- | --: | --: | --: | --: |",
        *(_row(event) for event in hand_overs(results.records)),
    ]
    return ["\n".join(lines)]


def _row(event: HandOver) -> str:
    if event.heir is None:
        return f"| {event.signal} of {event.old['row']}, which did not lead | | | | |"
    moments = (event.given, event.elected, event.next_run)
    cells = " | ".join(str(event.after(moment)) for moment in moments)
    return f"| {event.signal} of {event.old['row']} | {cells} | {event.lost} |"
