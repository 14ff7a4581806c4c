"""What the settings say: `SINGLETONJOB = {"APP": "shop.jobs:app", "PROJECT": ..., "STORE": ..., "START": ...}`."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# Django brings no types.

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from django.conf import settings

from ..._errors import ConfigError
from ...cli.loading import attribute_of
from .connections import with_fresh_connections

if TYPE_CHECKING:
    from ..._app import SingletonJobs

__all__ = ["configured_app", "starts"]

KEYS = ("APP", "PROJECT", "STORE", "START")


def _written() -> dict[str, Any]:
    found: object = getattr(settings, "SINGLETONJOB", None)
    written = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    if not isinstance(written.get("APP"), str):
        example = 'write SINGLETONJOB = {"APP": "shop.jobs:app"}'
        raise ConfigError(f"the Django setting SINGLETONJOB does not name the jobs' app; {example}")
    unknown = sorted(key for key in written if key not in KEYS)
    if unknown:
        raise ConfigError(f"SINGLETONJOB: unknown {', '.join(unknown)}; there are: {', '.join(KEYS)}")
    if written.get("START") not in (None, True, False):
        raise ConfigError(f"SINGLETONJOB['START'] is {written['START']!r}; write True, False or None")
    return written


def starts() -> bool | None:
    """Whether the app starts with Django; None: where the process serves. Raises `ConfigError` for bad settings."""
    start: bool | None = _written().get("START")
    return start


@cache
def configured_app() -> SingletonJobs:
    """The app that the settings name, imported, with project and store from there. Raises `ConfigError`."""
    from ..._app import SingletonJobs

    written = _written()
    module, _, attribute = written["APP"].partition(":")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # a module that it imports is missing
        raise ConfigError(f"SINGLETONJOB['APP']: there is no module {module!r}") from error
    try:
        app = attribute_of(found, module, attribute or "app")
    except ConfigError as error:
        raise ConfigError(f"SINGLETONJOB['APP']: {error}") from error
    if not isinstance(app, SingletonJobs):
        raise ConfigError(f"SINGLETONJOB['APP']: {module}:{attribute or 'app'} is {app!r}, not a SingletonJobs")
    app.configure(project=written.get("PROJECT"), store=written.get("STORE"))
    app.wrap_jobs(with_fresh_connections)
    return app
