"""Translate the options of other tools into what to write here."""

from __future__ import annotations

__all__ = ["advice_on_option"]

UNITS = {"milliseconds": "ms", "seconds": "s", "minutes": "m", "hours": "h", "days": "d"}
CRON = "write @app.cron('0 3 * * *'), a cron expression"
FIRST = "write it first, without a name: @app.interval('5s')"
ONE_RUN = "a job has one run at a time in the whole fleet, so leave it out"
NO_RETRIES = "a failed run is not tried again, on purpose; the next one comes when it is due"
OPTIONS: dict[str, str] = {
    **dict.fromkeys(("second", "minute", "hour", "day", "month", "week", "year", "at", "crontab"), CRON),
    **dict.fromkeys(("day_of_week", "day_of_month", "month_of_year", "hour_of_day", "cron", "cron_string"), CRON),
    **dict.fromkeys(("interval", "period", "delay", "run_every", "repeat", "frequency", "schedule"), FIRST),
    **dict.fromkeys(("max_instances", "max_running_jobs", "concurrency", "allow_concurrent", "unique"), ONE_RUN),
    **dict.fromkeys(("max_retries", "retries", "retry", "autoretry_for", "retry_backoff", "attempts"), NO_RETRIES),
    **dict.fromkeys(("timezone", "time_zone", "zone"), "write tz="),
    **dict.fromkeys(("id", "job_id", "key", "task", "task_id"), "write name="),
    **dict.fromkeys(("args", "kwargs", "data"), "bind them to the function with functools.partial"),
    **dict.fromkeys(("func", "function", "target"), "write the decorator above the function"),
    **dict.fromkeys(
        ("lock_timeout", "lock_ttl", "ttl", "expire", "lease_duration", "lock_at_most_for"), "write lock_expiry="
    ),
    **dict.fromkeys(("misfire_grace_time", "expires", "starting_deadline_seconds"), "write late_limit=, for cron"),
    **dict.fromkeys(("soft_time_limit", "time_limit", "max_run_time", "job_timeout"), "write timeout="),
    **dict.fromkeys(
        ("next_run_time", "start_date", "end_date", "start", "until"), "write enabled=, a function that is asked"
    ),
    **dict.fromkeys(("replace_existing", "conflict_policy"), "no schedule is stored, so leave it out"),
    **dict.fromkeys(
        ("executor", "queue", "pool", "thread_pool"), "a sync body has a thread of its own, so leave it out"
    ),
    **dict.fromkeys(
        ("jobstore", "broker", "redis", "redis_url", "url", "backend"), "write store= in SingletonJobs(...)"
    ),
    **dict.fromkeys(("grace", "stop_timeout", "graceful_timeout"), "write shutdown_grace="),
    "coalesce": "write misfire='fire_once' for True, misfire='catch_up' for False, for cron",
    "jitter": "one replica runs the job, so there is no herd; to spread jobs give each an offset=, for a fixed rate",
    "trigger": "write @app.interval, @app.fixed_rate or @app.cron",
    "lock_at_least_for": "the grid of a fixed rate and the slots of cron run once each, so leave it out",
}


def advice_on_option(name: str, value: object) -> str | None:
    """Say how to write the option `name` of another tool; None if no tool in the table has such an option."""
    if name in UNITS and isinstance(value, (int, float)):
        return f"write @app.interval('{value:g}{UNITS[name]}')"
    if name == "weeks" and isinstance(value, (int, float)):
        return f"write @app.interval('{7 * value:g}d')"
    return OPTIONS.get(name.lower())
