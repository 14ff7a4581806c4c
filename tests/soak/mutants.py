"""Breaks the library in one place after the other, and sees that a test catches each: which one, and how fast.

Each mutant is a copy of src in a temporary directory. `--third N` takes every third one, from the Nth.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from soak._evidence import ROOT, arguments, conclude, say
from soak._mutant_hunt import FOUND
from soak._mutant_table import MUTANTS, Mutant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["Outcome", "hunt", "mutated", "run", "try_all"]

PACKAGE = ROOT / "src" / "singletonjob"

SIMULATED = {"_election.py", "_heartbeat.py", "_lease.py", "_runner.py", "stores/rules.py"}
"""What the simulation runs of the library, clocks and stores being its own."""

LIMIT = 110.0
"""Seconds for one mutant. A test that hangs because of it has caught it, which pytest-timeout says long before."""

AT_ONCE = 2


class Outcome(NamedTuple):
    """`caught_by` is the test that failed, or where the simulation went wrong; None: the mutant survived. `trouble`: it
    could not be tried."""

    mutant: Mutant
    caught_by: str | None
    seconds: float
    trouble: str = ""

    @property
    def line(self) -> str:
        name = f"{self.mutant.name} (`{self.mutant.file}`)"
        if self.trouble:
            return f"{name}: ERROR, {self.trouble}"
        return f"{name}: {'SURVIVED' if self.caught_by is None else self.caught_by}, {self.seconds:.1f} s"


def mutated(mutant: Mutant, text: str) -> str:
    """The file's text with the mutant in it. Raises `ValueError` unless `old` stands there once."""
    found = text.count(mutant.old)
    if found != 1:
        raise ValueError(
            f"{mutant.name}: its text stands in {mutant.file} {found} times; write one that stands there once"
        )
    return text.replace(mutant.old, mutant.new)


def run(mutant: Mutant) -> Outcome:
    """Break a copy of the library and run the mutant's tests on it, up to the first that fails."""
    options = ["-x", "-q", "-p", "no:cacheprovider", "--timeout=30"]

    def verdict(done: subprocess.CompletedProcess[str]) -> str | None:
        if done.returncode == 0:
            return None
        failed = re.search(r"^FAILED (\S+)", done.stdout, re.MULTILINE)
        if done.returncode != 1 or failed is None:
            last = (done.stdout + done.stderr).strip().splitlines()[-1:]
            raise ValueError(f"pytest ended with code {done.returncode}: {''.join(last)}")
        return failed[1]

    return _try(mutant, ["-m", "pytest", *options, *mutant.tests], verdict)


def hunt(mutant: Mutant, seconds: float) -> Outcome:
    """Break a copy of the library and simulate fleets on it until a promise is broken, for so many seconds."""

    def verdict(done: subprocess.CompletedProcess[str]) -> str | None:
        if done.returncode not in (0, FOUND):
            raise ValueError(f"the simulation ended with code {done.returncode}: {done.stderr[-200:]}")
        return done.stdout.strip() or None

    return _try(mutant, [str(Path(__file__).with_name("_mutant_hunt.py")), str(seconds)], verdict)


def _try(
    mutant: Mutant, command: list[str], verdict: Callable[[subprocess.CompletedProcess[str]], str | None]
) -> Outcome:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as directory:
        source = Path(directory, "src")
        shutil.copytree(PACKAGE, source / PACKAGE.name)  # the bytecode too, which saves the time to compile it
        file = source / PACKAGE.name / mutant.file
        environment = os.environ | {
            "PYTHONPATH": f"{source}{os.pathsep}{ROOT / 'tests'}",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(Path(directory, "hypothesis")),
        }
        try:
            file.write_text(mutated(mutant, file.read_text()))
            for stale in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
                stale.unlink()  # it would pass for the mutant's, if that was of the same size and second
            done = subprocess.run(
                [sys.executable, *command],
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                timeout=LIMIT,
                check=False,
            )
            return Outcome(mutant, verdict(done), time.monotonic() - began)
        except ValueError as error:
            return Outcome(mutant, None, 0.0, str(error))
        except subprocess.TimeoutExpired:
            return Outcome(mutant, None, LIMIT, f"no result within {LIMIT:g} s")


def try_all(
    mutants: Sequence[Mutant], trial: Callable[[Mutant], Outcome] = run, *, at_once: int = AT_ONCE
) -> Iterable[Outcome]:
    """The outcome of each, in their order."""
    with ThreadPoolExecutor(at_once) as pool:
        yield from pool.map(trial, mutants)


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--third", type=int, choices=(1, 2, 3), help="only every third, from this one (all)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only those whose name or file contains this (all)")
    parser.add_argument(
        "--simulation",
        type=float,
        metavar="SECONDS",
        help="instead of the tests, simulate for at most so long, and say which profile and seed shows the mutant",
    )
    options = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if options.only in f"{mutant.name} {mutant.file}"]
    trial = run
    if options.simulation is not None:
        trial = partial(hunt, seconds=options.simulation)
        chosen = [mutant for mutant in chosen if mutant.file in SIMULATED]
    if options.third is not None:
        chosen = chosen[options.third - 1 :: 3]
    began = time.monotonic()
    outcomes: list[Outcome] = []
    for outcome in try_all(chosen, trial):
        say(outcome.line)
        outcomes.append(outcome)
    missed = sum(outcome.caught_by is None for outcome in outcomes)
    summary = f"{len(outcomes) - missed} of {len(outcomes)} mutants caught, in {time.monotonic() - began:.0f} s"
    lines = [summary, *(outcome.line for outcome in outcomes)]
    if options.simulation is not None:
        # What it misses is the tests' matter; this is the table of what each profile is good for.
        good = bool(outcomes) and not any(outcome.trouble for outcome in outcomes)
        conclude("mutants-simulation", lines, good=good, record=options.record)
    conclude("mutants", lines, good=bool(outcomes) and not missed, record=options.record)


if __name__ == "__main__":
    main()
