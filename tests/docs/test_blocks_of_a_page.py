"""The reader of the pages' code blocks sees what it is for: what belongs together, and where each line stands."""

from __future__ import annotations

import ast

import pytest

from code_blocks import blocks, modules


def read(*lines: str) -> dict[str, list[tuple[int, str]]]:
    """The modules of a page with these lines, each line with its number in the page; without empty ones."""
    made = modules(blocks("\n".join(lines), "docs/a-page.md"))
    for module in made:
        ast.parse(module.text)
        assert len(module.text.splitlines()) == len(module.lines)
    return {
        module.name.removeprefix("pages.a_page."): [
            (line, text) for line, text in zip(module.lines, module.text.splitlines(), strict=True) if text
        ]
        for module in made
    }


def test_all_python_blocks_of_a_page_are_one_module_in_order() -> None:
    page = (
        "```python",
        "a = 1",
        "```",
        "text",
        "```sh",
        "ls",
        "```",
        "* item",
        "    ```python",
        "    b = a",
        "    ```",
    )
    assert read(*page) == {"blocks": [(2, "a = 1"), (10, "b = a")]}


def test_what_the_reader_has_to_imagine_comes_before_its_block() -> None:
    assert read("<!-- python", "a = 1", "-->", "", "```python", "b = a", "```") == {
        "blocks": [(2, "a = 1"), (6, "b = a")]
    }


def test_a_new_module_does_not_go_on_with_the_blocks_before_it() -> None:
    page = (
        "```python",
        "a = 1",
        "```",
        "<!-- python: new module -->",
        "```python",
        "a = ''",
        "```",
        "```python",
        "b = a",
        "```",
    )
    assert read(*page) == {"blocks": [(2, "a = 1")], "blocks_1": [(6, "a = ''"), (9, "b = a")]}


def test_a_title_names_a_file_that_the_others_import_from() -> None:
    page = (
        *('```python title="jobs.py"', "a = 1", "```"),
        *('<!-- python title="shop/feeds.py"', "c = 1", "-->", "```python"),
        *("import jobs", "from jobs import a", "from shop.feeds import c", "from jobs_of_others import d", "```"),
        *('```python title="jobs.py"', "b = 1", "```"),
    )
    assert read(*page) == {
        "jobs": [(2, "a = 1"), (14, "b = 1")],
        "shop.feeds": [(5, "c = 1")],
        "blocks": [
            (8, "from pages.a_page import jobs"),
            (9, "from pages.a_page.jobs import a"),
            (10, "from pages.a_page.shop.feeds import c"),
            (11, "from jobs_of_others import d"),
        ],
    }


def test_the_code_of_another_library_is_no_part_of_a_module() -> None:
    assert read("```python {.other}", "import celery", "```", "```python", "a = 1", "```") == {"blocks": [(5, "a = 1")]}


def test_of_an_interactive_session_the_statements_count() -> None:
    page = ("```pycon", ">>> for a in 'ab':", "...     a", "'a'", "'b'", "```")
    assert read(*page) == {"blocks": [(2, "for a in 'ab':"), (3, "    a")]}


def test_what_awaits_outside_of_a_function_stands_in_one() -> None:
    page = ("```python", "a = 1", "```", "```python", "await b()", "```")
    assert read(*page) == {"blocks": [(2, "a = 1"), (5, "async def _awaits_1() -> None:"), (5, "    await b()")]}


@pytest.mark.parametrize(
    "page",
    [
        ("<!-- python", "a = 1", "-->", "text", "```python", "b = a", "```"),
        ("<!-- python", "a = 1", "-->", "```sh", "ls", "```"),
        ("<!-- python: new module -->",),
        ("<!-- python: new -->", "```python", "a = 1", "```"),
        ("```python", "a = 1"),
        ("<!-- python", "a = 1", "```python", "b = a", "```"),
    ],
)
def test_what_has_no_end_and_a_comment_without_a_block_are_errors(page: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"^docs/a-page.md:\d"):
        blocks("\n".join(page), "docs/a-page.md")
