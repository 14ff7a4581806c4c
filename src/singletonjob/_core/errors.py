"""What can go wrong, as types. Every error of this library derives from `SingletonJobError`."""

from __future__ import annotations

__all__ = [
    "ConfigError",
    "DuplicateJobError",
    "LeadershipLost",
    "ScheduleError",
    "SingletonJobError",
    "StoreError",
    "StoreUnavailable",
]


class SingletonJobError(Exception):
    """The root of all errors that this library raises."""


class ConfigError(SingletonJobError, ValueError):
    """A value is missing, unknown or out of range; the text names the job, the option and what to write instead.

    Raised where the value is written; at the start for what stands in the environment or in the file.
    """


class DuplicateJobError(ConfigError):
    """Two jobs of one app have one name; the text names both places."""


class ScheduleError(ConfigError):
    """An interval, a cron expression or a time zone that cannot be used."""


class StoreError(SingletonJobError):
    """The store refused or misunderstood a request; the cause is chained."""


class StoreUnavailable(StoreError):
    """The store gave no usable answer in time: unreachable, starting, or its connection is in doubt.

    Whether it carried the request out is not known.
    """


class LeadershipLost(SingletonJobError):
    """The term that this run belongs to is over. Only ever raised inside a job body, by `Run.check`."""
