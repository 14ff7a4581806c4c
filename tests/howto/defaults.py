"""What pages say of the default settings, computed from them."""

from __future__ import annotations

from singletonjob import SingletonJobs

__all__ = ["longest_stop"]


def longest_stop() -> float:
    """How many seconds a stop takes at most while the store does not answer, as docs/processes.md has it."""
    app = SingletonJobs("pricing", store="memory")

    @app.interval("1s")
    def tick() -> None: ...

    options = app.resolved().of_job("tick")
    call_timeout = (options.lock_expiry - options.margin - options.heartbeat_interval) / 3
    return options.shutdown_grace + options.margin + 1 + 2 * call_timeout
