"""The Django app: it starts the jobs' app where, and only where, the process serves."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# Django brings no types.

from __future__ import annotations

from django.apps import AppConfig
from django.core.checks import register

from ..._core.errors import ConfigError
from .checks import check_settings
from .configuration import configured_app, starts
from .serving import is_command, is_serving

__all__ = ["SingletonJobConfig"]


class SingletonJobConfig(AppConfig):  # type: ignore[misc]  # as above
    """`INSTALLED_APPS += ["singletonjob.integrations.django"]`."""

    name = "singletonjob.integrations.django"
    label = "singletonjob"
    verbose_name = "Singleton jobs"

    def ready(self) -> None:
        """Called when Django has loaded all models. Raises `ConfigError` if a server cannot run with these settings."""
        register(check_settings)
        if is_command():
            return
        serves = is_serving()
        try:
            wanted = starts()
        except ConfigError:
            if serves:
                raise
            return  # the system check reports it
        if serves if wanted is None else wanted:
            configured_app().start()
