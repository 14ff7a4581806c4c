"""What the settings say: `SINGLETONJOB = {"APP": "shop.jobs:app", "PROJECT": ..., "STORE": ..., "START": ...}`."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# Django brings no types.

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from django.conf import settings

from ..._core.errors import ConfigError
from ...cli.named_objects import attribute_of, described
from .connections import with_fresh_connections

if TYPE_CHECKING:
    from ..._app import SingletonJobs

__all__ = ["app_name", "configured_app", "starts"]

KEYS = ("APP", "PROJECT", "STORE", "START")


def _setting() -> dict[str, Any]:
    found: object = getattr(settings, "SINGLETONJOB", None)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def app_name() -> str:
    """`MODULE:APP` as the settings name it. Raises `ConfigError` if they do not."""
    name = _setting().get("APP")
    if not isinstance(name, str) or not name:
        example = 'write SINGLETONJOB = {"APP": "shop.jobs:app"}'
        raise ConfigError(f"the Django setting SINGLETONJOB does not name the jobs' app; {example}")
    return name if ":" in name else f"{name}:app"


def _written() -> dict[str, Any]:
    written = _setting()
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
    module, _, attribute = app_name().partition(":")
    try:
        found = importlib.import_module(module)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
            raise ConfigError(f"SINGLETONJOB['APP']: there is no module {module!r}") from error
        raise ConfigError(f"SINGLETONJOB['APP']: cannot import {module!r}: {described(error)}") from error
    try:
        app = attribute_of(found, module, attribute)
    except ConfigError as error:
        raise ConfigError(f"SINGLETONJOB['APP']: {error}") from error
    if not isinstance(app, SingletonJobs):
        raise ConfigError(f"SINGLETONJOB['APP']: {module}:{attribute} is {app!r}, not a SingletonJobs")
    app.configure(project=written.get("PROJECT"), store=written.get("STORE"))
    app.wrap_jobs(with_fresh_connections)
    return app
