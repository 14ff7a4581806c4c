"""What the jobs write and the pages show."""

from __future__ import annotations

from django.db import models

__all__ = ["Quote"]


class Quote(models.Model):  # type: ignore[misc]  # Django brings no types
    """A price at a moment. The database refuses a second one for it."""

    at = models.DateTimeField(unique=True)
    price = models.DecimalField(max_digits=10, decimal_places=2)
    token = models.BigIntegerField()
