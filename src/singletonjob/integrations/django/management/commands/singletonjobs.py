"""`manage.py singletonjobs VERB`: the commands of `singletonjob`, for the app that the settings name."""

# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# Django brings no types.

from __future__ import annotations

import argparse
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ....._core.errors import ConfigError
from .....cli import COMMANDS, main
from ...configuration import app_name, configured_app

__all__ = ["Command"]

OF_THE_APP = ("run", "status", "next", "check", "pause", "resume", "step-down", "trigger", "forget")
VERBS = (*OF_THE_APP, "health")


class Command(BaseCommand):  # type: ignore[misc]  # as above
    """Arguments and exit codes are those of `singletonjob VERB`, without MODULE:APP."""

    help = "Run and operate the jobs of this project: " + "; ".join(f"{verb}: {COMMANDS[verb][0]}" for verb in VERBS)

    def add_arguments(self, parser: CommandParser) -> None:
        """What comes after `manage.py singletonjobs`; the verb's own parser reads the rest."""
        parser.add_argument("verb", choices=VERBS, metavar="VERB", help=", ".join(VERBS))
        parser.add_argument("words", nargs=argparse.REMAINDER, metavar="...", help="see singletonjobs VERB --help")

    def handle(self, *_arguments: object, **options: Any) -> None:
        """Raises `CommandError` with exit code 2 for settings that cannot be used."""
        own = CommandParser(add_help=False, allow_abbrev=False)  # Django takes these from anywhere in the line
        own.add_argument("--settings")
        own.add_argument("--pythonpath")
        _, words = own.parse_known_args(options["words"])
        verb = options["verb"]
        try:
            if verb in OF_THE_APP:
                configured_app()
                words = [app_name(), *words]
        except ConfigError as error:
            raise CommandError(str(error), returncode=2) from error
        if code := main([verb, *words]):
            sys.exit(code)
