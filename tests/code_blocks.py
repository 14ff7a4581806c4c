"""The fenced code blocks of the pages (README.md, CONTRIBUTING.md, docs/*.md), and the Python modules that they make.

What a page may say to whoever reads its blocks, in comments that no reader sees:

    <!-- python
    async def fetch_prices() -> dict[str, float]: ...
    -->                                what the reader has to imagine: it is put in front of the block that follows
    <!-- python title="feeds.py"
    ...
    -->                                the same as a file of its own, to be imported from
    <!-- python: new module -->        the block that follows does not go on with the blocks before it

All Python blocks of a page are one module, in order. A fence with a title, `python title="jobs.py"`, is that file, and
the same title again goes on with it. A fence `python {.other}` shows another library and is compiled alone. A block of
`pycon` is the lines behind its prompts. A block that awaits outside of a function stands inside of one.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from textwrap import dedent, indent

__all__ = ["Block", "Module", "blocks", "modules", "pages"]

ROOT = Path(__file__).parents[1]

FENCE = re.compile(r"(?P<mark>`{3,}|~{3,})\s*(?P<info>.*)")
HIDDEN = re.compile(r"<!--\s*python\b(?P<info>[^\n]*)")
TITLE = re.compile(r'title="([^"]+)"')
IMPORT_FROM = re.compile(r"^(\s*from )(\w+)(?=[\w.]* import\b)", re.MULTILINE)
IMPORT = re.compile(r"^(\s*)import (\w+)(?=\s*(?:$|as\b|#))", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Lines of a page, the first of which has this number."""

    line: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Block(Text):
    """What stands between two fences, dedented. `hidden` are the comments before it, by title ("" for its own file)."""

    page: str
    language: str
    title: str = ""
    other: bool = False
    new: bool = False
    hidden: tuple[tuple[str, Text], ...] = ()

    @property
    def place(self) -> str:
        """Page and line, as editors know how to open them."""
        return f"{self.page}:{self.line}"


@dataclass(slots=True, kw_only=True)
class Module:
    """The text of one file that a page's blocks make, and the page's line for each of its own."""

    name: str
    page: str
    text: str = ""
    lines: list[int] = field(default_factory=list)

    def append(self, part: str, first: int) -> None:
        """Go on with the page's lines from `first` on."""
        self.text += part + "\n"
        self.lines += range(first, first + part.count("\n") + 1)


def pages() -> list[Path]:
    """All pages whose blocks are checked."""
    top = [ROOT / name for name in ("README.md", "CONTRIBUTING.md")]
    found = [*(page for page in top if page.exists()), *sorted((ROOT / "docs").glob("*.md"))]
    assert len(found) > 1, f"no page under {ROOT}"
    return found


def blocks(text: str, page: str) -> list[Block]:
    """The blocks of a page, in order. Raises `ValueError`, naming the place, for what has no end and for a
    comment that belongs to no block.
    """
    lines = text.splitlines()
    found: list[Block] = []
    hidden: list[tuple[str, Text]] = []
    new = False
    number = 0
    while number < len(lines):
        line = lines[number].strip()
        number += 1
        if comment := HIDDEN.match(line):
            start = number
            if comment["info"].lstrip().startswith(":"):
                if line != "<!-- python: new module -->":
                    raise ValueError(f"{page}:{number}: write <!-- python: new module -->")
                new = True
                continue
            number = _end(lines, start, "-->", page)
            title = TITLE.search(comment["info"])
            part = Text(line=start + 1, text=dedent("\n".join(lines[start:number])))
            hidden.append((title[1] if title else "", part))
            number += 1
        elif fence := FENCE.fullmatch(line):
            start = number
            number = _end(lines, start, fence["mark"], page)
            info = fence["info"]
            title = TITLE.search(info)
            block = Block(
                page=page,
                line=start + 1,
                text=dedent("\n".join(lines[start:number])),
                language=re.split(r"[\s{]", info, maxsplit=1)[0],
                title=title[1] if title else "",
                other=".other" in info,
                new=new,
                hidden=tuple(hidden),
            )
            number += 1
            if (new or hidden) and block.language not in {"python", "pycon"}:
                raise ValueError(f"{block.place}: a comment for Python stands before a block of {block.language!r}")
            found.append(block)
            hidden, new = [], False
        elif line and (new or hidden):
            raise ValueError(f"{page}:{number}: a comment for Python has to stand right before its block")
    if new or hidden:
        raise ValueError(f"{page}:{number}: a comment for Python has to stand right before its block")
    return found


def _end(lines: list[str], start: int, mark: str, page: str) -> int:
    """Where the line is that consists of this mark."""
    for number in range(start, len(lines)):
        if lines[number].strip() == mark:
            return number
    raise ValueError(f"{page}:{start}: nothing ends what begins here; write {mark}")


def modules(found: list[Block]) -> list[Module]:
    """The files that the Python blocks of one page make; they import each other by what their titles say.

    Each is `pages.PAGE.NAME`, so that the files of all pages can be looked at together.
    """
    package = ["pages", re.sub(r"\W", "_", PurePosixPath(found[0].page).stem)] if found else []
    made: list[Module] = []
    current: dict[str, Module] = {}

    def module(title: str, page: str, *, new: bool) -> Module:
        if new or title not in current:
            stem = title.removesuffix(".py").replace("/", ".") or "blocks"
            taken = {one.name for one in made}
            names = (f"{stem}_{count}" if count else stem for count in range(len(made) + 1))
            name = next(free for name in names if (free := ".".join([*package, name])) not in taken)
            current[title] = Module(name=name, page=page)
            made.append(current[title])
        return current[title]

    for block in found:
        if block.language not in {"python", "pycon"} or block.other:
            continue
        own = module(block.title, block.page, new=block.new)
        for title, part in block.hidden:
            target = module(title, block.page, new=False) if title else own
            target.append(part.text, part.line)
        text = _statements(block.text) if block.language == "pycon" else block.text
        if _awaits(text):
            own.append(f"async def _awaits_{len(own.lines)}() -> None:", block.line)
            text = indent(text, "    ")
        own.append(text, block.line)
    tops = {title.removesuffix(".py").partition("/")[0] for title in current if title}
    for one in made:
        one.text = _relocated(one.text, tops, ".".join(package))
    return made


def _statements(session: str) -> str:
    """The statements of an interactive session; what it answered becomes empty lines."""
    return "\n".join(line[4:] if line.startswith((">>> ", "... ")) else "" for line in session.splitlines())


def _awaits(text: str) -> bool:
    """Whether this is right only inside an async function."""
    try:
        compile(text, "<block>", "exec")
    except SyntaxError:
        try:
            compile(text, "<block>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        except SyntaxError:
            return False
        return True
    return False


def _relocated(text: str, tops: set[str], package: str) -> str:
    """With imports of the page's own files from where they really are; line by line the same."""
    text = IMPORT_FROM.sub(lambda found: f"{found[1]}{package}.{found[2]}" if found[2] in tops else found[0], text)
    return IMPORT.sub(
        lambda found: f"{found[1]}from {package} import {found[2]}" if found[2] in tops else found[0], text
    )
