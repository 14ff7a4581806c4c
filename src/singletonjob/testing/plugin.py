"""The pytest plugin: three fixtures, which load the rest of the library on first use, and a separate SQLite store for
each worker of pytest-xdist.

Workers that share a store compete: a job runs in one of them, and tests in the others wait for a run in vain. pytest
imports this module in every project that has the library installed: it must cost next to nothing.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from datetime import datetime

    from .._app import SingletonJobs
    from .flaky import FlakyStore
    from .virtual_world import virtual_time

__all__ = ["singletonjob_app", "singletonjob_store", "singletonjob_time"]

SHARED = "singletonjob_shared_store"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ini option by which workers share a SQLite file."""
    parser.addini(SHARED, "True: the workers of pytest-xdist share the SQLite file of SINGLETONJOB_STORE", "bool")


def pytest_configure(config: pytest.Config) -> None:
    """In a worker, name a SQLite file of its own in SINGLETONJOB_STORE, which its child processes inherit."""
    worker: dict[str, str] | None = getattr(config, "workerinput", None)
    if worker is None or config.getini(SHARED) or _scheme() != "sqlite":
        return
    from shutil import rmtree
    from tempfile import mkdtemp

    directory = mkdtemp(prefix=f"singletonjob-{worker['workerid']}-")
    config.add_cleanup(partial(rmtree, directory, ignore_errors=True))
    os.environ["SINGLETONJOB_STORE"] = f"sqlite:///{directory}/leases.db"


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say which store the workers have, if there are workers and they might share it."""
    scheme = _scheme() if config.getoption("dist", "no") != "no" else "memory"
    if scheme in {"", "memory"}:
        return None
    if scheme == "sqlite" and not config.getini(SHARED):
        return f"singletonjob: each worker has a SQLite file of its own; {SHARED} = true lets them share one"
    store = scheme if scheme == "sqlite" else f"{scheme}://..."
    return (
        f"singletonjob: all workers share the store {store}, so a job runs in one of them alone;"
        " call app.configure(project=...) with the worker's name in conftest.py"
    )


def _scheme() -> str:
    """The scheme of the store's URL in the environment or the options file; empty if neither names a store."""
    url = os.environ.get("SINGLETONJOB_STORE", "").strip()
    if not url and (os.environ.get("SINGLETONJOB_CONFIG") or Path("singletonjob.toml").exists()):
        from .._core.errors import ConfigError
        from .._jobs.sheets import file_sheet

        try:
            setting = file_sheet(os.environ).app.get("store")
        except ConfigError:  # an app of a test reports it, if there is one
            return ""
        url = str(setting.value).strip() if setting is not None else ""
    return url.partition(":")[0].lower()


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
    from .virtual_world import virtual_time

    worlds: list[virtual_time] = []

    def make(start: str | datetime, /, *apps: SingletonJobs) -> virtual_time:
        worlds.append(virtual_time(start, *apps))
        return worlds[-1]

    yield make
    for world in reversed(worlds):
        world.close()
