"""Runs benchmarks and writes what they found; see README.md beside this file."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from benchmarks import pictures, report
from benchmarks.groups import GROUPS
from benchmarks.groups.plan import Settings, Step
from benchmarks.records import HOME, Record, Results, load, machine, save
from benchmarks.server import redis_server

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Exit code 0: all that was asked for holds; 1: something does not; 2: wrong usage."""
    parser = argparse.ArgumentParser(
        prog="sh scripts/bench",
        description="Measures ours and the peers side by side, and writes benchmarks/results.md, the README's figures "
        "and the pictures.",
        epilog="example: sh scripts/bench ticks sync --rounds 5",
    )
    parser.add_argument(
        "names",
        nargs="+",
        choices=[*GROUPS, "all", "report"],
        metavar="NAME",
        help=(f"one of {', '.join(GROUPS)}; all: all of them; report: tables and pictures anew, from the last results"),
    )
    parser.add_argument("--rounds", type=int, default=5, help="how often each contestant runs (default: 5)")
    parser.add_argument("--seconds", type=float, help="length of each window (default: the group's own, 3 to 12 s)")
    parser.add_argument("--minutes", type=float, help="the same in minutes")
    parser.add_argument("--replicas", type=int, default=100, help="how many the fleet has (default: 100)")
    parser.add_argument("--jobs", type=int, default=20, help="how many jobs each of them has (default: 20)")
    parser.add_argument("--dry", action="store_true", help="print what is found, and write no file but the raw stamps")
    options = parser.parse_args(arguments)
    names = list(GROUPS) if "all" in options.names else [name for name in GROUPS if name in options.names]
    found: dict[str, Results] = {}
    with redis_server() as server:
        seconds = options.seconds if options.minutes is None else 60 * options.minutes
        settings = Settings(options.rounds, seconds, server, options.replicas, options.jobs)
        plans = {name: GROUPS[name].steps(settings) for name in names}
        if plans.keys() & {"ticks", "many", "overlap", "fleet", "timeline"}:
            server.start()
        progress = Progress([step for plan in plans.values() for step in plan])
        for name, plan in plans.items():
            (HOME / "raw" / f"{name}.jsonl").unlink(missing_ok=True)
            records = [record for step in plan for record in progress.take(name, step)]
            found[name] = Results(machine(max(record["round"] for record in records)), records)
            if not options.dry:
                save(name, found[name])
    if "report" in options.names:
        found |= {name: results for name in GROUPS if (results := load(name)) is not None}
    if not options.dry:
        pictures.draw()
        report.write()
    passed = True
    for name, results in found.items():
        if options.dry:
            sys.stdout.write(report.section(name, results) + "\n\n")
            passed &= all(check.passed for check in GROUPS[name].checks(results))
            continue
        for check in GROUPS[name].checks(results):
            sys.stdout.write(f"{name}: {check.text}: {'PASS' if check.passed else 'FAIL'}\n")
            passed &= check.passed
        for fault in results.faults():
            sys.stdout.write(f"{name}: could not take part: {fault}\n")
    return 0 if passed else 1


class Progress:
    """Says on stderr what runs now, and how long all will take."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._left = sum(step.cost for step in steps)
        self._planned = self._taken = 0.0

    def take(self, group: str, step: Step) -> list[Record]:
        # What steps take in truth, against their plan, corrects the rest.
        pace = self._taken / self._planned if self._planned else 1.0
        sys.stderr.write(f"{group}: {step.label}; {self._left * pace / 60:.1f} min left\n")
        begun = time.monotonic()
        records = step.run()
        self._taken += time.monotonic() - begun
        self._planned += step.cost
        self._left -= step.cost
        for record in records:
            if record["fault"]:
                sys.stderr.write(f"  {record['contestant']}: {record['fault']}\n")
        return records


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
