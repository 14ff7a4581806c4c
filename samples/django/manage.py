"""Django's command line; `python manage.py singletonjobs run` is a process for the jobs alone."""

from __future__ import annotations

import os
import sys

from django.core.management import execute_from_command_line


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
