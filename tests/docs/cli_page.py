"""docs/cli.md from the program's own parsers. Run as a program, it writes the page's commands anew."""

from __future__ import annotations

import argparse
import re
import textwrap
from pathlib import Path

from singletonjob.cli import COMMANDS, _parser

__all__ = ["PAGE", "written"]

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"

BEGIN = "<!-- commands: written by `sh scripts/docs cli` -->\n"
END = "<!-- /commands -->\n"


def written(page: str) -> str:
    """The page with the commands as they are in the program."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    assert after, f"{PAGE.name}: its marks are gone"
    return before + BEGIN + "\n" + "\n".join(map(command, COMMANDS)) + "\n" + END + after


def command(name: str) -> str:
    """One command as a chapter of Markdown."""
    (commands,) = (action for action in _parser(name)._actions if isinstance(action, argparse._SubParsersAction))
    parser: argparse.ArgumentParser = commands.choices[name]
    actions = [action for action in parser._actions if action.dest != "help"]
    rows = [f"| {_shown(action)} | {_coded(str(action.help))} |" for action in actions]
    # Spaces inside of an option do not break.
    words = [f"singletonjob {name}", *map(_in_usage, sorted(actions, key=_order))]
    usage = textwrap.fill(" ".join(word.replace(" ", "\0") for word in words), 96, subsequent_indent=" " * 8)
    return "\n".join(
        [
            f"## {name}\n",
            f"{parser.description}\n",
            "```text\n" + usage.replace("\0", " ") + "\n```\n",
            "| argument | meaning |",
            "| --- | --- |",
            *rows,
            "",
            _epilog(parser.epilog or ""),
        ]
    )


def _order(action: argparse.Action) -> bool:
    """Options first, as argparse has them."""
    return not action.option_strings


def _value(action: argparse.Action) -> str:
    return "|".join(map(str, action.choices)) if action.choices else str(action.metavar or action.dest.upper())


def _in_usage(action: argparse.Action) -> str:
    parts = [action.option_strings[0]] if action.option_strings else []
    if action.nargs != 0:
        parts.append(_value(action))
    text = " ".join(parts)
    needed = action.required if action.option_strings else action.nargs is None
    return text if needed else f"[{text}]"


def _shown(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else _value(action).replace("|", "\\|")
    names = action.option_strings or [""]
    return ", ".join(f"`{' '.join(filter(None, (name, value)))}`" for name in names)


def _coded(text: str) -> str:
    """With options, paths, variables and names of code marked as such."""
    names = r"/[a-z]+z\b|/metrics|SINGLETONJOB_\w+|[\w-]+\.toml|lock_expiry|'price-\*'"
    code = rf"(?<![`\w])(--?[a-z][\w-]*(?![\w`])|{names})"
    return re.sub(code, lambda found: f"`{found[0].strip(chr(39))}`", text)


def _epilog(text: str) -> str:
    """Examples become a block of shell, indented lines one of their own language, all else prose."""
    out: list[str] = []
    for part in text.strip().split("\n\n"):
        if part.startswith("examples:\n"):
            lines = [re.sub(r"   +", "   # ", line.strip()) for line in part.splitlines()[1:]]
            out.append("\n".join(["```sh", *lines, "```"]))
        elif part.startswith("  "):
            out.append("\n".join(["```text", *(line[2:] for line in part.splitlines()), "```"]))
        else:
            out.append(_coded(part))
    return "\n\n".join(out) + "\n"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
