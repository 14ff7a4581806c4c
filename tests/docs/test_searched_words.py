"""Words that a reader types into the search of the site, and the page that must answer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("word", "page", "answer"),
    [
        ("notebook", "script.md", r"app\.start\(\)"),
        ("trio", "script.md", r"asyncio\*\* \(uvloop included\)"),
        ("trio", "web.md", r"start fails with an error that says so"),
        ("multiprocessing", "processes.md", r'if __name__ == "__main__":'),
        ("multiprocessing", "script.md", r"imports the script again"),
        ("aiohttp", "web.md", r"await jobs\.astart\(\)"),
        ("on_event", "fastapi.md", r"are not called any more"),
        ("depends", "fastapi.md", r"A job opens what\nit needs itself"),
        ("dictconfig", "logs.md", r'"disable_existing_loggers": False'),
        ("notify", "systemd.md", r"READY=1"),
        ("xdist", "testing.md", r"singletonjob_shared_store"),
        ("threads", "sizing.md", r"400"),
    ],
)
def test_a_section_with_the_word_has_the_answer(word: str, page: str, answer: str) -> None:
    sections = re.split(r"^#+ ", (DOCS / page).read_text(), flags=re.MULTILINE)
    found = [section for section in sections if word in section.lower()]
    assert any(re.search(answer, section) for section in found), f"{page}: {len(found)} sections have {word!r}"
