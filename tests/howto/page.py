"""What a how-to page asks of its reader, read from its Markdown: files to write, commands to run, output to see.

A fence with `title="NAME"` is a file; the same title again continues it. A `sh` fence without a title is run. A `text`
fence is what the commands before it print. What a reader does without being told so by a fence stands in comments,
which no rendering shows, before the fence that they are about:

    <!-- howto: page -->                          the page takes part
    <!-- howto: background NAME until "TEXT" -->  the commands go on; the page does when they have printed TEXT
    <!-- howto: exit N -->                        they end with this code, not with 0
    <!-- howto: expect "TEXT" -->                 they print TEXT
    <!-- howto: needs PROGRAM -->                 run where there is this program
    <!-- howto: skip because REASON -->           not run
    <!-- howto: output of NAME -->                the text is what NAME prints, since the last stop or kill of any

and on their own:

    <!-- howto: wait NAME "TEXT" -->              until NAME prints TEXT, or has since the last stop or kill of any
    <!-- howto: wait NAME NAME "TEXT" as NAME --> until one of them does, which has the last name, too, from then on
    <!-- howto: stop NAME exit N -->              Ctrl-C; it ends with this code (without `exit N`: 0)
    <!-- howto: stop all -->                      Ctrl-C in each terminal that is left; all end with 0
    <!-- howto: quit NAME -->                     Ctrl-\\, which ends it on the spot
    <!-- howto: with NAME=VALUE -->               a variable that the reader has set
    <!-- howto: file NAME                         a file that the reader has; its text follows, to the comment's end

What the reader must imagine (`<!-- python`, see tests/code_blocks.py) is put in front of the file.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["BadPage", "Commands", "Ending", "File", "Output", "Step", "Wait", "is_page", "steps"]

_OPENING = re.compile(r"^(?P<indent> *)(?P<fence>`{3,})(?P<language>\w*)(?P<rest>.*)$")
_TITLE = re.compile(r'\btitle="([^"]+)"')
_COMMENT = re.compile(r"^\s*<!--\s*(?P<kind>howto:|python\b)(?P<body>.*)$", re.DOTALL)


class BadPage(Exception):
    """A comment or fence of a page that says nothing; the text names the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """Write this text, at the end of the file if an earlier step wrote it."""

    line: int
    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Commands:
    """Run these. With a `name`, in the background."""

    line: int
    text: str
    name: str | None = None
    until: str | None = None
    code: int = 0
    expected: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    skip: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """This is what the last commands, or those in the background with this name, print."""

    line: int
    text: str
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Wait until one of those in the background prints `text`; it is called `alias` as well then."""

    line: int
    names: tuple[str, ...]
    text: str
    alias: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """End the commands in the background: by Ctrl-C, after which they exit with `code`, or without it by SIGQUIT."""

    line: int
    name: str
    code: int | None


Step: TypeAlias = File | Commands | Output | Wait | Ending


def is_page(markdown: str) -> bool:
    """Whether a page asks to be run."""
    return re.search(r"^<!-- howto: page\b", markdown, re.MULTILINE) is not None


def steps(markdown: str) -> list[Step]:
    """All that a page asks for, in its order. Raises `BadPage`."""
    found: list[Step] = []
    notes = _Notes()
    for part in _parts(markdown):
        if isinstance(part, _Comment):
            found += notes.take(part)
        else:
            found += notes.spend(part)
    if notes.pending:
        raise BadPage(f"line {notes.line}: a comment without a fence after it")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comment:
    line: int
    kind: str
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fence:
    line: int
    language: str
    title: str | None
    text: str


def _parts(markdown: str) -> Iterator[_Comment | _Fence]:
    lines = iter(enumerate(markdown.splitlines(), 1))
    for number, line in lines:
        if comment := _COMMENT.match(line):
            body = comment["body"]
            while "-->" not in body:
                body += "\n" + _next(lines, number)
            yield _Comment(line=number, kind=comment["kind"].rstrip(":"), body=body.partition("-->")[0])
        elif opening := _OPENING.match(line):
            text = ""
            while (inner := _next(lines, number)).strip() != opening["fence"]:
                text += inner.removeprefix(opening["indent"]) + "\n"
            title = _TITLE.search(opening["rest"])
            name = title[1] if title else None
            yield _Fence(line=number, language=opening["language"], title=name, text=text)


def _next(lines: Iterator[tuple[int, str]], begun: int) -> str:
    for _, line in lines:
        return line
    raise BadPage(f"line {begun}: what begins here does not end")


@dataclass(slots=True)
class _Notes:
    """What comments said of the fence that is to come."""

    line: int = 0
    imagined: str = ""
    of: str | None = None
    about: Commands = field(default_factory=lambda: Commands(line=0, text=""))

    @property
    def pending(self) -> bool:
        return self.of is not None or self.about != Commands(line=0, text="")

    def take(self, comment: _Comment) -> list[Step]:
        """Remember it; or what it asks for itself."""
        if comment.kind == "python":
            return self._imagine(comment)
        first, _, rest = comment.body.strip().partition("\n")
        self.line = comment.line
        if first.startswith("skip because "):
            self.about = replace(self.about, skip=first.removeprefix("skip because "))
            return []
        match shlex.split(first):
            case ["page"]:
                return []
            case ["background", name, "until", text]:
                self.about = replace(self.about, name=name, until=text)
            case ["exit", code]:
                self.about = replace(self.about, code=int(code))
            case ["expect", text]:
                self.about = replace(self.about, expected=(*self.about.expected, text))
            case ["needs", program]:
                self.about = replace(self.about, needs=(*self.about.needs, program))
            case ["output", "of", name]:
                self.of = name
            case ["wait", name, text]:
                return [Wait(line=comment.line, names=(name,), text=text, alias=name)]
            case ["wait", *names, text, "as", alias]:
                return [Wait(line=comment.line, names=tuple(names), text=text, alias=alias)]
            case ["stop", name]:
                return [Ending(line=comment.line, name=name, code=0)]
            case ["stop", name, "exit", code]:
                return [Ending(line=comment.line, name=name, code=int(code))]
            case ["quit", name]:
                return [Ending(line=comment.line, name=name, code=None)]
            case ["with", setting]:
                return [Commands(line=comment.line, text=f"export {shlex.quote(setting)}\n")]
            case ["file", name]:
                return [File(line=comment.line, name=name, text=rest.rstrip() + "\n")]
            case _:
                raise BadPage(f"line {comment.line}: howto: {first!r} is none of what tests/howto/page.py lists")
        return []

    def _imagine(self, comment: _Comment) -> list[Step]:
        first, _, rest = comment.body.partition("\n")
        code = textwrap.dedent(rest).strip("\n") + "\n"
        if title := _TITLE.search(first):
            return [File(line=comment.line, name=title[1], text=code)]
        if not first.strip():  # else it is `python: new module`
            self.imagined += code
        return []

    def spend(self, fence: _Fence) -> list[Step]:
        """The step that a fence is, with what was said of it."""
        imagined, about, of = self.imagined, self.about, self.of
        self.imagined = ""
        if fence.title is not None:
            return [File(line=fence.line, name=fence.title, text=(imagined and imagined + "\n") + fence.text)]
        if fence.language == "sh":
            self.about = Commands(line=0, text="")
            return [replace(about, line=fence.line, text=fence.text)]
        if fence.language == "text":
            self.of = None
            return [Output(line=fence.line, text=fence.text, name=of)]
        return []
