"""The pictures of docs/how-it-works.md show what the replicas do now."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from simulation.timelines import PICTURES, crash, graceful

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulation.timelines import Timeline


def without_numbers(svg: str) -> list[str]:
    """Its shapes and texts; other versions of asyncio take other turns, so moments may differ by microseconds."""
    return [re.sub(r"\d+(\.\d+)?", "0", line) for line in svg.splitlines()]


@pytest.mark.parametrize(("name", "draw"), [("graceful-hand-over", graceful), ("crash-hand-over", crash)])
def test_the_picture_in_the_docs_is_the_one_that_is_drawn_from_what_happens(
    name: str, draw: Callable[[], Timeline]
) -> None:
    there = (PICTURES / f"{name}.svg").read_text()
    ET.fromstring(there)  # noqa: S314 - our own file
    assert without_numbers(there) == without_numbers(draw().svg()), "run python -m simulation.timelines"
