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

from ._errors import (
    ConfigError,
    DuplicateJobError,
    LeadershipLost,
    ScheduleError,
    SingletonJobError,
    StoreError,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from ._app import Health, JobStats, SingletonJobs
    from ._job import CronJob, FixedRateJob, IntervalJob
    from ._lease import Run, Term
    from ._model import (
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

__all__ = [
    "ConfigError",
    "CronJob",
    "DuplicateJobError",
    "Elected",
    "Event",
    "FixedRateJob",
    "Health",
    "IntervalJob",
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

_HOMES = {
    "_app": ("Health", "JobStats", "SingletonJobs"),
    "_job": ("CronJob", "FixedRateJob", "IntervalJob"),
    "_lease": ("Run", "Term"),
    "_model": (
        "Elected",
        "Event",
        "Misfired",
        "RunFinished",
        "RunStarted",
        "SteppedDown",
        "StoreDown",
        "StoreUp",
        "TicksDropped",
    ),
}


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            from importlib import import_module

            value: object = getattr(import_module(f".{home}", __name__), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
