"""Packages that this library needs, and that a file of the user's program may hide: `redis.py` beside `jobs.py`."""

from __future__ import annotations

import importlib.util

from .._core.errors import ConfigError

__all__ = ["refuse_hidden"]


def refuse_hidden(package: str) -> None:
    """Raise `ConfigError` if an import of `package` would find a file of that name, or nothing."""
    try:
        spec = importlib.util.find_spec(package)
    except ValueError:  # something that is no ordinary module stands for it
        return
    if spec is None:
        raise ConfigError(f"the package {package} is not installed; install this library again, with its dependencies")
    if spec.submodule_search_locations is None:
        raise ConfigError(f"the file {spec.origin} hides the package {package}, which is needed here; rename the file")
