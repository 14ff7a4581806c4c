"""The table of quotes."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):  # type: ignore[misc]  # Django brings no types
    initial = True
    dependencies: list[tuple[str, str]] = []  # noqa: RUF012 - Django's form
    operations = [  # noqa: RUF012
        migrations.CreateModel(
            name="Quote",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField(unique=True)),
                ("price", models.DecimalField(decimal_places=2, max_digits=10)),
                ("token", models.BigIntegerField()),
            ],
        )
    ]
