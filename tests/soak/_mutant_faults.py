"""Tells a mutant that breaks a promise from one that is broken itself: its text no longer fits the library."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from soak._evidence import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from soak._mutant_table import Mutant

__all__ = ["PACKAGE", "fault", "misfits", "mutated"]

PACKAGE = ROOT / "src" / "singletonjob"

FAULTS = (NameError, AttributeError, TypeError, ImportError)

LUA_FAULT = re.compile(
    r"Error compiling script|nonexistent global variable|attempt to (?:call|index|compare|concatenate|perform)"
)

LUA_NAME = re.compile(r"--.*|'[^'\n]*'|([A-Za-z_]\w*)")  # not what stands in a comment or in quotes
LUA_CONSTANTS = {"false", "nil", "true"}


def fault(error: BaseException) -> str | None:
    """Return the programming error that `error` is, contains or was caused by; None if there is none.

    Python tells it by its type. Redis reports one in the script as a text, which the library passes on.
    """
    text = str(error)
    first_line = text.partition("\n")[0]
    if isinstance(error, FAULTS) or LUA_FAULT.search(text):
        return f"{type(error).__name__}: {first_line}"
    inner = [*error.exceptions] if isinstance(error, BaseExceptionGroup) else []
    if error.__cause__ is not None:
        inner.append(error.__cause__)
    return next((found for one in inner if (found := fault(one)) is not None), None)


def mutated(mutant: Mutant, text: str) -> str:
    """Return the file's text with the mutant in it. Raises `ValueError` unless `old` occurs exactly once."""
    found = text.count(mutant.old)
    if found != 1:
        raise ValueError(f"its text occurs {found} times in {mutant.file}; write one that occurs there once")
    return text.replace(mutant.old, mutant.new)


def misfits(mutants: Iterable[Mutant]) -> dict[Mutant, str]:
    """Return the mutants that cannot be tried, each with the reason.

    The reason is a text that does not occur exactly once, a type error that the unmodified file does not have, or in
    Lua a name that the unmodified file does not contain. An `AttributeError` in a task or a thread may reach a test as
    a log line and a time-out, so the type checker must find it before the tests run.
    """
    reasons: dict[Mutant, str] = {}
    python: dict[Mutant, str] = {}
    for mutant in mutants:
        original = (PACKAGE / mutant.file).read_text()
        try:
            text = mutated(mutant, original)
            if mutant.file.endswith(".py"):
                compile(text, mutant.file, "exec")  # a syntax error would end mypy for all of them
        except SyntaxError as error:
            reasons[mutant] = f"{mutant.file}: {error.msg}"
            continue
        except ValueError as error:
            reasons[mutant] = str(error)
            continue
        if mutant.file.endswith(".py"):
            python[mutant] = text
        elif unknown := {*LUA_NAME.findall(text)} - {*LUA_NAME.findall(original)} - LUA_CONSTANTS:
            reasons[mutant] = f"{mutant.file} does not contain the name {', '.join(sorted(unknown))}"
    return reasons | _type_errors(python)


def _type_errors(texts: dict[Mutant, str]) -> dict[Mutant, str]:
    """Check all mutated modules in one run of mypy: each is a module of its own beside the original."""
    if not texts:
        return {}
    with tempfile.TemporaryDirectory(prefix="mutant-types-") as directory:
        package = Path(directory, PACKAGE.name)
        shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
        # An unmodified copy, because a class in a copy is not the class that the other modules know.
        originals = {file: _beside(package, file, "original") for file in {mutant.file for mutant in texts}}
        for file, copy in originals.items():
            copy.write_text((PACKAGE / file).read_text())
        copies = {mutant: _beside(package, mutant.file, f"mutant{number}") for number, mutant in enumerate(texts)}
        for mutant, copy in copies.items():
            copy.write_text(texts[mutant])
        checked = [*originals.values(), *copies.values()]
        done = subprocess.run(
            [
                *(sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml"),
                *("--cache-dir", Path(directory, "cache"), "--no-error-summary", "--hide-error-context"),
                *(file.relative_to(directory) for file in checked),
            ],
            cwd=directory,
            env={"MYPYPATH": directory},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in (0, 1):
            raise RuntimeError(f"mypy ended with code {done.returncode}: {done.stderr or done.stdout}")
        errors: dict[Path, Counter[str]] = {file: Counter() for file in checked}
        for line in done.stdout.splitlines():
            file, _, message = line.partition(": error: ")
            path = Path(directory, file.partition(":")[0])
            if message and path in errors:
                errors[path][message.replace(path.stem, "")] += 1
        new = {mutant: errors[copy] - errors[originals[mutant.file]] for mutant, copy in copies.items()}
        return {mutant: f"mypy: {next(iter(found))}" for mutant, found in new.items() if found}


def _beside(package: Path, file: str, name: str) -> Path:
    original = package / file
    return original.with_name(f"{original.stem}_{name}.py")
