"""The Django app: it starts the jobs' app where, and only where, the process serves."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# Django brings no types.

from __future__ import annotations

from django.apps import AppConfig

from .configuration import configured_app, starts
from .serving import is_serving

__all__ = ["SingletonJobConfig"]


class SingletonJobConfig(AppConfig):  # type: ignore[misc]  # as above
    """`INSTALLED_APPS += ["singletonjob.integrations.django"]`."""

    name = "singletonjob.integrations.django"
    label = "singletonjob"
    verbose_name = "Singleton jobs"

    def ready(self) -> None:
        """Called when Django has loaded all models. Raises `ConfigError` for settings that cannot be used."""
        wanted = starts()
        if is_serving() if wanted is None else wanted:
            configured_app().start()
