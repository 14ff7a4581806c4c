"""Periodic jobs that run on exactly one replica, with a fast hand-over.

    from singletonjob import Run, SingletonJobs

    app = SingletonJobs("pricing", store="sqlite")

    @app.fixed_rate("500ms")
    async def price_tick(run: Run) -> None:
        ...

    app.run()

The public names load on first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._core.errors import (
    ConfigError,
    DuplicateJobError,
    LeadershipLost,
    ScheduleError,
    SingletonJobError,
    StoreError,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from ._app import SingletonJobs
    from ._core.values import (
        Elected,
        Event,
        Misfired,
        RunFinished,
        RunStarted,
        SteppedDown,
        StoreDown,
        StoreUp,
        TicksDropped,
    )
    from ._jobs.definition import CronJob, FixedRateJob, IntervalJob, Job
    from ._jobs.handles import Run, Term
    from ._reporting.health import Health
    from ._reporting.histogram import Histogram
    from ._reporting.job_counters import JobStats

__all__ = [
    "ConfigError",
    "CronJob",
    "DuplicateJobError",
    "Elected",
    "Event",
    "FixedRateJob",
    "Health",
    "Histogram",
    "IntervalJob",
    "Job",
    "JobStats",
    "LeadershipLost",
    "Misfired",
    "Run",
    "RunFinished",
    "RunStarted",
    "ScheduleError",
    "SingletonJobError",
    "SingletonJobs",
    "SteppedDown",
    "StoreDown",
    "StoreError",
    "StoreUnavailable",
    "StoreUp",
    "Term",
    "TicksDropped",
]

__version__: str
"""The version of the installed distribution; "0+unknown" where it has no metadata, as in a zip application."""


def __getattr__(name: str) -> object:
    if name not in (*__all__, "__version__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import _app
    from ._core import values
    from ._jobs import definition, handles
    from ._process import version
    from ._reporting import health, histogram, job_counters

    homes = (_app, definition, handles, values, health, histogram, job_counters, version)
    home = next(home for home in homes if name in home.__all__)
    return globals().setdefault(name, getattr(home, name))
