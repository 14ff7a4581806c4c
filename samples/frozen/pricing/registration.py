"""Adds one job of each job class in `pricing` to an app. Made by `singletonjob generate pricing`; do not edit."""
# fmt: off
# isort: skip_file
# flake8: noqa

from collections.abc import Callable

from singletonjob import Job, SingletonJobs

from pricing.jobs import Poll
from pricing.jobs import Report
from pricing.jobs import Snapshot

__all__ = ["add_singleton_jobs"]


def add_singleton_jobs(app: SingletonJobs, make: Callable[[type[Job]], Job]) -> None:
    """Add them; `make(cls)` builds those whose constructors need arguments."""
    app.add(Poll())
    app.add(Report())
    app.add(make(Snapshot))
