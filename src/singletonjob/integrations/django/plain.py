"""The plain command `singletonjob` in a Django project, where nothing has set Django up yet."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# Django brings no types.

from __future__ import annotations

import django
from django.apps import apps

__all__ = ["set_up"]


def set_up() -> None:
    """Set Django up, so that a module of jobs can import models. An app that the settings name is configured by them.

    Raises `ConfigError` for a wrong setting SINGLETONJOB, and whatever Django and the project's code raise.
    """
    if not apps.ready:
        django.setup()
    if apps.is_installed("singletonjob.integrations.django"):
        from .configuration import configured_app

        configured_app()
