"""Each page that can be followed, followed: its files written, its commands run, its output compared.

Here in the environment of the tests, where all that the pages install is there already; `sh scripts/howto` does the
same from an empty one, with the wheel of this tree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from howto.following import Follower, pages
from howto.place import ROOT, own_environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


TESTED_ELSEWHERE = {
    "freezing": "integration/test_frozen.py",
    "mixed-fleets": "integration/test_mixed_fleet.py",
    "operate": "integration/test_operator.py",
    "redis-cluster": "integration/test_redis_cluster.py",
    "redis-sentinel": "integration/test_redis_sentinel.py",
    "redis-tls": "integration/test_redis_tls.py",
    "runbook": "integration/test_runbook.py",
}
"""How-to pages that do more than a reader's terminal can, and what plays them."""


@pytest.fixture(scope="module")
def follower(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Follower]:
    with Follower(tmp_path_factory.mktemp("howto")) as follower:
        yield follower


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_a_page_does_what_it_says(page: Path, follower: Follower, tmp_path: Path) -> None:
    follower.follow(page, own_environment(tmp_path), print)


def how_to_pages(nav: list[Any]) -> set[str]:
    """The pages below `How-to` in the navigation of the site."""
    (below,) = [entry["How-to"] for entry in nav if "How-to" in entry]
    found: set[str] = set()
    for entry in below:
        found |= {entry} if isinstance(entry, str) else {page for pages in entry.values() for page in pages}
    return {page.removesuffix(".md") for page in found}


def test_each_how_to_page_with_commands_is_followed_or_has_a_test_of_its_own() -> None:
    followed = {page.stem for page in pages()}
    assert {"README", "tutorial"} <= followed
    there = how_to_pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    with_commands = {page for page in there if "```sh\n" in (ROOT / "docs" / f"{page}.md").read_text()}
    assert with_commands - followed == set(TESTED_ELSEWHERE)
    assert [test for test in TESTED_ELSEWHERE.values() if not (ROOT / "tests" / test).is_file()] == []
