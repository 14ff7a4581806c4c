"""The project's own app: its models."""

from __future__ import annotations

from django.apps import AppConfig

__all__ = ["ShopConfig"]


class ShopConfig(AppConfig):  # type: ignore[misc]  # Django brings no types
    name = "shop"
    default_auto_field = "django.db.models.BigAutoField"
