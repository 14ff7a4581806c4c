"""The site as a whole: what is in it, and that the pages on the Python interface have every public name.

Whether it builds, and whether its links lead somewhere, is for `sh scripts/docs` to see.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import griffe
import pytest
import yaml

from code_blocks import blocks, pages

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

MODULES = (
    "singletonjob",
    *("singletonjob.control", "singletonjob.probes", "singletonjob.prometheus", "singletonjob.telemetry"),
    *("singletonjob.integrations.django.asgi", "singletonjob.testing", "singletonjob.testing.contract"),
    *(f"singletonjob.stores{name}" for name in ("", ".memory", ".orders", ".protocol", ".rules")),
)
"""Those whose `__all__` is public."""

LISTED = [
    path
    for page in ("api.md", "api-stores.md")
    for path in re.findall(r"^::: ([\w.]+)$", (DOCS / page).read_text(), re.MULTILINE)
]

APP = "singletonjob.SingletonJobs"


class Loader(yaml.SafeLoader):
    """As mkdocs reads its file: with tags of its own, which matter to nobody here."""


def settings() -> dict[str, Any]:
    found: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)  # noqa: S506 - a safe one
    return found


def in_nav(entry: object) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict):
        for part in entry.values():
            yield from in_nav(part)
    elif isinstance(entry, list):
        for part in entry:
            yield from in_nav(part)


def test_every_page_is_in_the_navigation_once() -> None:
    assert sorted(in_nav(settings()["nav"])) == sorted(page.name for page in DOCS.glob("*.md"))


def test_a_page_begins_with_its_only_title() -> None:
    for page in DOCS.glob("*.md"):
        prose = re.sub(r"^( *)(```+).*?^\1\2", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        text = re.sub(r"<!--.*?-->", "", prose, flags=re.DOTALL)
        assert text.startswith("# "), page.name
        assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1, page.name


def test_a_list_begins_after_an_empty_line() -> None:
    """GitHub shows it as a list without one, too; Python-Markdown goes on with the paragraph."""
    item = re.compile(r"([-*]|\d+\.) ")
    wrong: list[str] = []
    for page in pages():
        code = {
            line
            for block in blocks(page.read_text(), page.name)
            for line in range(block.line, block.line + block.text.count("\n") + 1)
        }
        lines = page.read_text().splitlines()
        for number, (before, line) in enumerate(zip(lines, lines[1:], strict=False), 2):
            begins = item.match(line) and before and not before.startswith((" ", "#")) and not item.match(before)
            if begins and number not in code:
                wrong.append(f"{page.name}:{number}: {line}")
    assert not wrong, "\n".join(wrong)


# -- the Python interface ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def package() -> griffe.Object | griffe.Alias:
    return griffe.load("singletonjob", search_paths=[ROOT / "src"], resolve_aliases=True)


def home(package: griffe.Object | griffe.Alias, path: str) -> griffe.Object | griffe.Alias:
    """What a dotted name means, where it is defined."""
    found = package[path.removeprefix("singletonjob").lstrip(".")] if path != "singletonjob" else package
    return found.final_target if isinstance(found, griffe.Alias) else found


def public(package: griffe.Object | griffe.Alias) -> set[str]:
    names: set[str] = set()
    for module in MODULES:
        exports = home(package, module).exports
        assert exports, f"{module} has no __all__"
        names |= {f"{module}.{name}" for name in exports}
    return names


def test_the_pages_on_the_python_interface_list_every_public_name(package: griffe.Object | griffe.Alias) -> None:
    listed = {home(package, path).path for path in LISTED}
    assert [path for path in sorted(public(package)) if home(package, path).path not in listed] == []
    assert len(listed) == len(LISTED), "one is listed twice"


def test_the_pages_import_only_what_is_public(package: griffe.Object | griffe.Alias) -> None:
    known = public(package) | set(LISTED)
    used = {
        f"{module}.{name.partition(' as ')[0].strip()}"
        for page in pages()
        for block in blocks(page.read_text(), page.name)
        if block.language in {"python", "pycon"}
        for module, names in re.findall(r"^\s*from (singletonjob[\w.]*) import ([\w, ]+)", block.text, re.MULTILINE)
        for name in names.split(",")
    }
    assert used
    assert used - known == set()


def test_every_public_name_and_its_public_members_have_a_docstring(package: griffe.Object | griffe.Alias) -> None:
    bare: list[str] = []
    for path in sorted(public(package) | set(LISTED)):
        found = home(package, path)
        if found.is_module:
            continue
        if found.docstring is None:
            bare.append(path)
        if found.is_class and not path.startswith("singletonjob.testing.contract."):  # those hold tests
            # Fields stand in the text of their class; a method tells of itself.
            members = {**found.inherited_members, **found.members} if path == APP else found.members
            bare += [
                f"{path}.{name}"
                for name, member in members.items()
                if not name.startswith("_") and is_callable(member) and member.docstring is None
            ]
    assert not bare, "\n".join(bare)


def is_callable(member: griffe.Object | griffe.Alias) -> bool:
    return member.is_function or (member.is_attribute and "property" in member.labels)


def test_every_error_that_a_public_function_raises_by_name_is_in_its_docstring(
    package: griffe.Object | griffe.Alias,
) -> None:
    silent: list[str] = []
    for path in sorted(public(package)):
        found = home(package, path)
        if found.is_module:
            continue
        functions = [found] if found.is_function else [one for one in found.members.values() if one.is_function]
        for function in functions:
            if function.name.startswith("_") or function.docstring is None or function.name == "make_store":
                continue
            # What follows `raise` in the function's own text; what it calls may raise more.
            errors = set(re.findall(r"^\s+raise ([A-Z]\w+)\(", function.source, re.MULTILINE))
            text = function.docstring.value + (found.docstring.value if found.docstring else "")
            silent += [f"{path}.{function.name}: {error}" for error in sorted(errors) if error not in text]
    assert not silent, "\n".join(silent)
