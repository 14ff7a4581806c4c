"""Runs one contestant: `python -m benchmarks.contestants ASSIGNMENT`, until SIGTERM.

What a contestant says about itself at its end is one JSON object on stdout.
"""

from __future__ import annotations

import importlib
import sys

from benchmarks.assignment import Assignment, Stamps


def main() -> None:
    assignment = Assignment.from_json(sys.argv[1])
    contestant = importlib.import_module(f"benchmarks.contestants.{assignment.module}")
    contestant.main(assignment, Stamps(assignment.stamps))


main()
