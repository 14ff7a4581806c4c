"""`manage.py singletonjobs run`: a process for the jobs alone. `manage.py singletonjobs status`: who leads which."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# Django brings no types.

from __future__ import annotations

import argparse
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ....._errors import ConfigError
from ...configuration import configured_app

__all__ = ["Command"]


class Command(BaseCommand):  # type: ignore[misc]  # as above
    """Exit codes as those of `singletonjob run` and `singletonjob status`."""

    help = "Run the jobs of this project, or show who leads which of them."

    def add_arguments(self, parser: CommandParser) -> None:
        """What comes after `manage.py singletonjobs`."""
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="run|status")
        verbs.add_parser("run", help="run the jobs until SIGTERM or Ctrl-C")
        status = verbs.add_parser("status", help="show who leads which job, from the store alone")
        status.add_argument("--json", action="store_true", help="print a list of objects, one for each job")
        status.add_argument("--watch", action="store_true", help="print it again each second, until Ctrl-C")

    def handle(self, *_arguments: object, **options: Any) -> None:
        """Raises `CommandError` with exit code 2 for settings that cannot be used."""
        try:
            app = configured_app()
            if options["verb"] == "run":
                app.run()
                return
            from .....cli.status import status

            found = app.resolved().options()
            wanted = argparse.Namespace(
                project=found.project, store=found.store, json=options["json"], watch=options["watch"]
            )
            code = status(wanted)
        except ConfigError as error:
            raise CommandError(str(error), returncode=2) from error
        if code:
            sys.exit(code)
