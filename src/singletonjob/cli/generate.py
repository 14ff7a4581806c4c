"""`singletonjob generate PACKAGE -o FILE`: writes the module that registers every job class of a package."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .._core.errors import ConfigError
from .._generate.job_scan import scan
from .._generate.registration import registration

if TYPE_CHECKING:
    import argparse

    from .._generate.job_scan import Scan

__all__ = ["arguments"]

EXAMPLE = """\
examples:
  singletonjob generate pricing -o pricing/registration.py
  singletonjob generate pricing -o src/pricing/registration.py --app-dir src
  singletonjob generate pricing -o pricing/registration.py --check

Every concrete class in PACKAGE that derives from IntervalJob, FixedRateJob or CronJob
is found by reading the source; nothing is imported. The program then calls

  from pricing.registration import add_singleton_jobs
  add_singleton_jobs(app, make=container.get)

where make(cls) builds the jobs whose constructors need arguments. Classes that cannot
be registered are named on stderr, with the reason.

Exit code 0: written, or as it was; 1: --check, and FILE is not what would be written;
2: wrong usage, or PACKAGE cannot be read.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `generate` takes."""
    parser.epilog = EXAMPLE
    parser.add_argument(
        "package", metavar="PACKAGE", help="a package or module by its dotted name, for example pricing"
    )
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the module to write")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if FILE is stale")
    parser.add_argument("--app-dir", metavar="DIR", default=".", help="where PACKAGE is (the working directory)")
    parser.set_defaults(handler=generate)


def generate(options: argparse.Namespace) -> int:
    """Write it, or compare; returns 1 for a file that is stale. Raises `ConfigError`."""
    package: str = options.package
    found = _scanned(package, options.app_dir)
    for warning in found.warnings:
        print(f"singletonjob generate: warning: {warning}", file=sys.stderr)
    if not found.jobs:
        print(f"singletonjob generate: warning: there is no job class in {package}", file=sys.stderr)
    text = registration(package, found.jobs)
    before = _read(options.output)
    jobs = f"{len(found.jobs)} job{'s' if len(found.jobs) != 1 else ''}"
    if before == text:
        print(f"{options.output} is up to date: {jobs}")
        return 0
    if options.check:
        state = "is not there" if before is None else "is stale"
        print(f"singletonjob generate: {options.output} {state}; write it anew without --check", file=sys.stderr)
        return 1
    try:
        Path(options.output).write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise ConfigError(f"--output: cannot write {options.output}: {error.strerror or error}") from error
    print(f"{options.output} is written: {jobs}")
    return 0


def _scanned(package: str, app_dir: str) -> Scan:
    if "/" in package or package.endswith(".py"):
        dotted = package.removesuffix(".py").strip("./").replace("/", ".")
        raise ConfigError(f"{package!r} is a path, not a package; write its dotted name, such as {dotted}")
    if not Path(app_dir).is_dir():
        raise ConfigError(f"--app-dir: {app_dir} is not a directory")
    return scan(package, [app_dir, *sys.path])


def _read(file: str) -> str | None:
    """What the file says now; None: it is not there."""
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"--output: cannot read {file}: {error.strerror or error}") from error
