"""A program to freeze; docs/freezing.md says how. Its store and further options come from the environment."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pricing.feed import Feed
from pricing.jobs import Snapshot
from pricing.registration import add_singleton_jobs
from singletonjob import SingletonJobs

if TYPE_CHECKING:
    from singletonjob import Job


def make(cls: type[Job]) -> Job:
    """The jobs whose constructors need arguments."""
    if cls is Snapshot:
        return Snapshot(Feed())
    raise LookupError(cls)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    app = SingletonJobs("pricing")
    add_singleton_jobs(app, make)
    app.run()


if __name__ == "__main__":
    main()
