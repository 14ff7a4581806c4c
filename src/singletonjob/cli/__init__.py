"""The command line: finds the command, reads its options, turns errors into one line and an exit code.

Exit codes: 0 good, 1 the answer is no (a run did not stop, two ran at once), 2 wrong usage or configuration. A
command's module is imported only when that command was asked for: `run` is the long life of a process, what is
loaded here stays.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from typing import TYPE_CHECKING, NoReturn

from singletonjob._core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["main"]


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` whose errors are one line: the usage block of argparse would hide it."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def _run(parser: argparse.ArgumentParser) -> None:
    from . import run

    run.arguments(parser)


def _demo(parser: argparse.ArgumentParser) -> None:
    from . import demo

    demo.arguments(parser)


def _status(parser: argparse.ArgumentParser) -> None:
    from . import status

    status.arguments(parser)


def _next(parser: argparse.ArgumentParser) -> None:
    from . import upcoming

    upcoming.arguments(parser)


def _check(parser: argparse.ArgumentParser) -> None:
    from . import check

    check.arguments(parser)


def _pause(parser: argparse.ArgumentParser) -> None:
    from . import control

    control.pause_arguments(parser)


def _resume(parser: argparse.ArgumentParser) -> None:
    from . import control

    control.resume_arguments(parser)


def _step_down(parser: argparse.ArgumentParser) -> None:
    from . import control

    control.step_down_arguments(parser)


def _trigger(parser: argparse.ArgumentParser) -> None:
    from . import control

    control.trigger_arguments(parser)


def _forget(parser: argparse.ArgumentParser) -> None:
    from . import control

    control.forget_arguments(parser)


def _generate(parser: argparse.ArgumentParser) -> None:
    from . import generate

    generate.arguments(parser)


def _health(parser: argparse.ArgumentParser) -> None:
    from . import health

    health.arguments(parser)


COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "run": ("run an app's jobs until SIGTERM or Ctrl-C", _run),
    "demo": ("watch real processes hand a job over, stopped and killed", _demo),
    "status": ("show who leads which job, from the store alone", _status),
    "next": ("show when jobs, or a cron expression, run next", _next),
    "check": ("show what holds for an app and why, and test its store", _check),
    "pause": ("let nobody run a job, until it is resumed", _pause),
    "resume": ("end a pause", _resume),
    "step-down": ("hand a job over to another replica", _step_down),
    "trigger": ("have the leader run a job once more, now", _trigger),
    "forget": ("delete what the store keeps of a job that was renamed or removed", _forget),
    "health": ("ask a running process how it is, for exec probes", _health),
    "generate": ("write the module that registers every job class of a package", _generate),
}
"""Name -> one line for the overview, and what adds the command's arguments; it sets `handler` as a default."""


def _parser(chosen: str | None) -> Parser:
    """The parser of everything; only the chosen command has its arguments."""
    parser = Parser(
        prog="singletonjob",
        description="Periodic jobs that run on exactly one replica, with a fast hand-over.",
        epilog="Example: singletonjob run jobs:app --store sqlite. Each command has a --help of its own.",
        allow_abbrev=False,
    )
    parser.add_argument("-V", "--version", action="store_true", help="show the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=Parser)
    for name, (summary, add_arguments) in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if name == chosen:
            add_arguments(command)
    return parser


def _show_version(_options: argparse.Namespace) -> int:
    from .._process.version import UNKNOWN, __version__

    version = "of an unknown version (its package metadata is not here)" if __version__ == UNKNOWN else __version__
    print(f"singletonjob {version}")
    return 0


def _unknown(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, COMMANDS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"write one of: {', '.join(COMMANDS)}"
    return f"there is no command {name!r}; {hint}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `argv` without the program's name, by default the process's own.

    Raises `SystemExit` where argparse does (`--help`, wrong usage: code 2) and where `app.run()` does.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    chosen = next((word for word in words if not word.startswith("-")), None)
    parser = _parser(chosen)
    if chosen is not None and chosen not in COMMANDS:
        parser.error(_unknown(chosen))
    options, more = parser.parse_known_args(words)
    if more and "words" in options and not any(word.startswith("-") for word in more):
        options.words += more  # argparse ends a list of words at the first option
    elif more:
        parser.error(f"unrecognized arguments: {' '.join(more)}")
    if chosen is None and not options.version:
        parser.error(f"a command is missing; write one of: {', '.join(COMMANDS)}")
    handler: Callable[[argparse.Namespace], int] = _show_version if options.version else options.handler
    name = "singletonjob" if options.version else f"singletonjob {chosen}"
    try:
        code = handler(options)
        sys.stdout.flush()  # here, where an error can still be told
        return code
    except ConfigError as error:
        print(f"{name}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        # Python would try to write the rest once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno != errno.EPIPE:  # then the reader left (`| head`)
            print(f"{name}: the output cannot be written: {error.strerror}", file=sys.stderr)
        return 1
