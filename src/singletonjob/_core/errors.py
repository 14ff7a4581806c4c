"""The exceptions of the library. All of them derive from `SingletonJobError`."""

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
    """The base of all errors that this library raises."""


class ConfigError(SingletonJobError, ValueError):
    """A value is missing, unknown or out of range. The text names the job, the option and what to write instead.

    Raised where the value is written in code; at the start for values in the environment or in the file.
    """


class DuplicateJobError(ConfigError):
    """Two jobs of one app have the same name; the text names both places."""


class ScheduleError(ConfigError):
    """An interval, a cron expression or a time zone that cannot be used."""


class StoreError(SingletonJobError):
    """The store refused or misunderstood a request; the cause is chained."""


class StoreUnavailable(StoreError):
    """The store gave no usable answer in time: it is unreachable or starting, or the connection is in doubt.

    The store may or may not have carried the request out.
    """


class LeadershipLost(SingletonJobError):
    """The term of this run is over. Raised inside a job body only, by `Run.check`."""
