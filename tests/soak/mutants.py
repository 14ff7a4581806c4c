"""Breaks the library in one place after the other and checks that a test catches each: which one, and how fast.

Each mutant is a copy of src in a temporary directory. `--third N` takes every third one, from the Nth. A mutant whose
text does not fit the library counts as broken, not as caught: one with a type error, or one whose first failure is a
programming error instead of a failed test. Then the run fails, because nothing is known about that promise.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from soak._evidence import ROOT, arguments, conclude, say
from soak._mutant_bench import DIED, OTHER_SOURCE
from soak._mutant_faults import PACKAGE, misfits, mutated
from soak._mutant_hunt import FAULTY, FOUND
from soak._mutant_table import MUTANTS, Mutant

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Self

__all__ = ["Bench", "Outcome", "controls", "hunt", "try_all"]

SIMULATED = {"_core/elector.py", "_runtime/heartbeat.py", "_runtime/lease.py", "_runtime/runner.py", "stores/rules.py"}
"""What the simulation runs of the library, clocks and stores being its own."""

LIMIT = 110.0
"""Seconds for one mutant. A test that hangs because of it has caught it, which pytest-timeout says long before."""

AT_ONCE = 2


class Outcome(NamedTuple):
    """`caught_by` is the test that failed, or where the simulation went wrong; None: no test caught the mutant.

    `broken` is the programming error that shows that the mutant's text does not fit the library. `trouble` says why
    the mutant could not be tried. If both are empty, a mutant that was not caught survived.
    """

    mutant: Mutant
    caught_by: str | None
    seconds: float
    trouble: str = ""
    broken: str = ""

    @property
    def survived(self) -> bool:
        return self.caught_by is None and not self.trouble and not self.broken

    @property
    def line(self) -> str:
        name = f"{self.mutant.promise}, {self.mutant.name} (`{self.mutant.file}`)"
        if self.trouble:
            return f"{name}: ERROR, {self.trouble}"
        if self.broken:
            return f"{name}: BROKEN, {self.broken}"
        return f"{name}: {'SURVIVED' if self.survived else self.caught_by}, {self.seconds:.1f} s"


@contextmanager
def _copy_with(mutant: Mutant) -> Iterator[Path]:
    """Make a directory with a copy of the library, the mutant in it. Raises `ValueError` as `mutated` does."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as directory:
        shutil.copytree(PACKAGE, Path(directory, PACKAGE.name))  # the bytecode too, which saves the time to compile it
        file = Path(directory, PACKAGE.name, mutant.file)
        file.write_text(mutated(mutant, file.read_text()))
        for stale in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
            stale.unlink()  # it would pass for the mutant's, if that was of the same size and second
        yield Path(directory)


class Bench:
    """Tries mutants, one at a time, in a process that is ready for it; a context manager, which ends the process."""

    def __enter__(self) -> Self:
        self._storage = tempfile.TemporaryDirectory(prefix="bench-")
        environment = os.environ | {
            "PYTHONPATH": str(ROOT / "tests"),
            "HYPOTHESIS_STORAGE_DIRECTORY": self._storage.name,
        }
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("_mutant_bench.py"))],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
        self._storage.cleanup()

    def try_on(self, mutant: Mutant) -> Outcome:
        """Break a copy of the library and run the mutant's tests on it, up to the first that fails.

        Where it cannot be tried, once more: what a broken library leaves behind may end pytest before it has told.
        """
        began, trouble = time.monotonic(), ""
        for _ in range(2):
            try:
                with _copy_with(mutant) as source:
                    failed, fault = self._failed(source, mutant.tests)
                if fault is not None:
                    return Outcome(mutant, None, 0.0, broken=fault)
                return Outcome(mutant, failed, time.monotonic() - began)
            except ValueError as error:
                trouble = str(error)
            if self._process.poll() is not None:
                break
        return Outcome(mutant, None, 0.0, trouble)

    def _failed(self, source: Path, tests: Sequence[str]) -> tuple[str | None, str | None]:
        """Return the first test that failed, and the programming error that it failed with; each may be None."""
        options = ["-x", "-q", "-p", "no:cacheprovider", "--timeout=30"]
        asked = {"source": str(source), "arguments": [*options, *tests], "seconds": LIMIT}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise ValueError(f"the bench ended with code {self._process.wait()}")
        code, output, failed, fault = json.loads(answer).values()
        if code == 0:
            return None, None
        if code is None:
            raise ValueError(f"no result within {LIMIT:g} s")
        if code == OTHER_SOURCE:
            raise ValueError("the library that was tested is not the mutant")
        if fault is None and (failed is None or code not in (1, DIED)):
            raise ValueError(f"pytest ended with code {code}: {''.join(output.strip().splitlines()[-1:])}")
        return failed, fault


def hunt(mutant: Mutant, seconds: float) -> Outcome:
    """Break a copy of the library and simulate fleets on it until a promise is broken, for so many seconds."""
    began = time.monotonic()
    try:
        with _copy_with(mutant) as source:
            done = subprocess.run(
                [sys.executable, str(Path(__file__).with_name("_mutant_hunt.py")), str(seconds)],
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": f"{source}{os.pathsep}{ROOT / 'tests'}"},
                capture_output=True,
                text=True,
                timeout=LIMIT,
                check=False,
            )
            if done.returncode == FAULTY:
                return Outcome(mutant, None, 0.0, broken=done.stdout.strip())
            if done.returncode not in (0, FOUND):
                raise ValueError(f"the simulation ended with code {done.returncode}: {done.stderr[-200:]}")
            return Outcome(mutant, done.stdout.strip() or None, time.monotonic() - began)
    except ValueError as error:
        return Outcome(mutant, None, 0.0, str(error))
    except subprocess.TimeoutExpired:
        return Outcome(mutant, None, LIMIT, f"no result within {LIMIT:g} s")


def try_all(mutants: Sequence[Mutant], *, at_once: int = AT_ONCE) -> Iterable[Outcome]:
    """The outcome of each, in their order."""
    with ExitStack() as benches:
        free: SimpleQueue[Bench] = SimpleQueue()
        for _ in range(at_once):
            free.put(benches.enter_context(Bench()))

        def on_a_free_one(mutant: Mutant) -> Outcome:
            bench = free.get()
            try:
                return bench.try_on(mutant)
            finally:
                free.put(bench)

        with ThreadPoolExecutor(at_once) as pool:
            yield from pool.map(on_a_free_one, mutants)


def controls(mutants: Sequence[Mutant]) -> list[Mutant]:
    """Mutants that break nothing, one per file of tests, each with all tests that are to catch one there.

    They must survive, or the others were caught by tests that fail anyhow.
    """
    chosen: dict[tuple[str, ...], dict[str, Mutant]] = {}
    for mutant in mutants:
        *files, _, expression = mutant.tests
        chosen.setdefault(tuple(files), {})[f"({expression})"] = mutant
    return [
        replace(mutant, name="nothing is broken", new=mutant.old, tests=(*files, "-k", " or ".join(expressions)))
        for files, expressions in chosen.items()
        for mutant in [next(iter(expressions.values()))]
    ]


def hunt_all(mutants: Sequence[Mutant], seconds: float) -> Iterable[Outcome]:
    """Where the simulation goes wrong with each, in their order."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(partial(hunt, seconds=seconds), mutants)


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--third", type=int, choices=(1, 2, 3), help="only every third, from this one (all)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only those whose line contains this (all)")
    parser.add_argument(
        "--simulation",
        type=float,
        metavar="SECONDS",
        help="instead of the tests, simulate for at most so long, and say which profile and seed shows the mutant",
    )
    options = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if options.only in f"{mutant.promise}, {mutant.name} {mutant.file}"]
    if options.simulation is not None:
        chosen = [mutant for mutant in chosen if mutant.file in SIMULATED]
    if options.third is not None:
        chosen = chosen[options.third - 1 :: 3]
    began = time.monotonic()
    unfit = misfits(chosen)
    outcomes = [Outcome(mutant, None, 0.0, broken=reason) for mutant, reason in unfit.items()]
    for outcome in outcomes:
        say(outcome.line)
    chosen = [mutant for mutant in chosen if mutant not in unfit]
    for outcome in try_all(chosen) if options.simulation is None else hunt_all(chosen, options.simulation):
        say(outcome.line)
        outcomes.append(outcome)
    caught = sum(outcome.caught_by is not None for outcome in outcomes)
    broken = sum(bool(outcome.broken) for outcome in outcomes)
    failing = [] if options.simulation is not None else [one for one in try_all(controls(chosen)) if not one.survived]
    seconds = time.monotonic() - began
    lines = [f"{caught} of {len(outcomes)} mutants caught, {broken} broken, in {seconds:.0f} s"]
    lines += (f"with nothing broken, {one.line}" for one in failing)
    lines += (outcome.line for outcome in outcomes)
    if options.simulation is not None:
        # What it misses is the tests' matter; this is the table of what each profile is good for.
        good = bool(outcomes) and not any(outcome.trouble or outcome.broken for outcome in outcomes)
        conclude("mutants-simulation", lines, good=good, record=options.record)
    good = bool(outcomes) and caught == len(outcomes) and not failing
    conclude("mutants", lines, good=good, record=options.record)


if __name__ == "__main__":
    main()
