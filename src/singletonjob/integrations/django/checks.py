"""Django's system checks of the setting SINGLETONJOB: `manage.py check` reports each mistake in one line."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false
# Django brings no types.

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.checks import Error, Warning  # noqa: A004 - Django's name

from ..._core.errors import ConfigError
from .configuration import app_name, configured_app, starts

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["check_settings"]


def check_settings(**_: object) -> list[Any]:
    """The first mistake, if there is one.

    E001: no app is named. E002: a key is unknown or its value is wrong. E003: the app cannot be imported, or is none.
    W001: project, store or options of the jobs are missing or wrong; a warning only, because the environment in which
    `migrate` or `collectstatic` run may lack them.
    """
    steps: tuple[tuple[Any, str, Callable[[], object]], ...] = (
        (Error, "E001", app_name),
        (Error, "E002", starts),
        (Error, "E003", configured_app),
        (Warning, "W001", lambda: configured_app().resolved().options()),
    )
    for kind, number, step in steps:
        try:
            step()
        except ConfigError as error:
            return [kind(str(error), id=f"singletonjob.{number}")]
    return []
