"""What pytest gets from this library: three fixtures, which load the rest of it when a test asks for one of them.

pytest imports this module in every project that has the library installed: it must cost next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from datetime import datetime

    from .._app import SingletonJobs
    from .flaky import FlakyStore
    from .world import virtual_time

__all__ = ["singletonjob_app", "singletonjob_store", "singletonjob_time"]


@pytest.fixture
def singletonjob_store() -> FlakyStore:
    """A new store in memory, that fails when the test tells it to: a `FlakyStore`."""
    from .flaky import FlakyStore

    return FlakyStore()


@pytest.fixture
def singletonjob_app(singletonjob_store: FlakyStore) -> Generator[SingletonJobs]:
    """An app without jobs, on `singletonjob_store`, whose lease lasts 1 s instead of 10 s.

    Not started; `app.start()` is undone at the end of the test.
    """
    from .._app import SingletonJobs

    app = SingletonJobs(
        "test", store=singletonjob_store, heartbeat_interval=0.3, lock_expiry=1, max_backoff_delay=0.5, shutdown_grace=1
    )
    yield app
    app.stop()


@pytest.fixture
def singletonjob_time() -> Generator[Callable[..., virtual_time]]:
    """`virtual_time`; what it makes is closed at the end of the test: `world = singletonjob_time(start, app)`."""
    from .world import virtual_time

    worlds: list[virtual_time] = []

    def make(start: str | datetime, /, *apps: SingletonJobs) -> virtual_time:
        worlds.append(virtual_time(start, *apps))
        return worlds[-1]

    yield make
    for world in reversed(worlds):
        world.close()
