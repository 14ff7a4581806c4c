"""What a command is about: the project, the store and the jobs of an app, or of flags, environment and file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .._core.errors import ConfigError
from .._jobs.options import APP_READERS, read
from .._jobs.sources import resolve_sources
from .loading import app_arguments, load_app, store_arguments

if TYPE_CHECKING:
    import argparse

    from .._jobs.sources import Resolved

__all__ = ["SOURCES", "job_arguments", "jobs_named", "resolved_target", "target_arguments"]

SOURCES = """
Project, store and jobs come from the app, where one is named (MODULE:APP or --app). Without
one, project and store come from SINGLETONJOB_PROJECT and SINGLETONJOB_STORE, or from
singletonjob.toml. --project and --store override all of these."""


def target_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what names the app, or the project and the store."""
    parser.add_argument("--app", metavar="MODULE:APP", help="take project, store and jobs from this app")
    app_arguments(parser)
    store_arguments(parser)


def job_arguments(parser: argparse.ArgumentParser, *, many: bool) -> None:
    """Add what names the jobs that an order is for; `many`: also a pattern, or all."""
    help_text = "the job's name, after its app if you name one"
    if many:
        help_text = "the job's name or a pattern such as 'price-*', after its app if you name one"
        parser.add_argument("--all", action="store_true", help="every job of the project")
    parser.add_argument("words", metavar="[MODULE:APP] JOB", nargs="*", help=help_text)
    target_arguments(parser)


def jobs_named(options: argparse.Namespace) -> str:
    """The job, or the pattern, that the words of the command line name; an app among them goes to `options.app`.

    Raises `ConfigError` where they name none, or more than one.
    """
    apps = [word for word in options.words if ":" in word]  # the name of a job holds no colon
    jobs = [word for word in options.words if ":" not in word]
    if len(apps) + (options.app is not None) > 1:
        raise ConfigError(f"two apps are named: {', '.join([*apps, *([options.app] if options.app else [])])}")
    options.app = options.app or next(iter(apps), None)
    every = getattr(options, "all", False)
    if every and jobs:
        raise ConfigError(f"--all and {jobs[0]} exclude each other; write one of them")
    if len(jobs) > 1:
        raise ConfigError(f"one job at a time: {', '.join(jobs)} are {len(jobs)}")
    if not jobs and not every:
        raise ConfigError("a job is missing; write its name" + (", a pattern, or --all" if "all" in options else ""))
    return "*" if every else jobs[0]


def resolved_target(options: argparse.Namespace) -> Resolved:
    """The options and jobs of the app that the command names; without one, those of flags, environment and file.

    Raises `ConfigError` for an app that cannot be loaded, and for bad values.
    """
    if options.app is not None:
        app = load_app(options.app, app_dir=options.app_dir, factory=options.factory)
        app.configure(project=options.project, store=options.store)
        return app.resolved()
    given = {"project": options.project, "store": options.store}
    code = read({name: value for name, value in given.items() if value is not None}, APP_READERS)
    return resolve_sources(code, (), os.environ)
