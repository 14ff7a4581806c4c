"""Pages, each followed in a new virtual environment that holds the wheel of this tree and nothing else."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from howto.following import Follower
from howto.page import BadPage
from howto.place import build_wheel, fresh_environment
from howto.session import NotAsPrinted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["Followed", "follow_each"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """What came of a page: `wrong` says where it does not do what it says, and `seconds` how long it took."""

    page: Path
    seconds: float
    wrong: str | None


def follow_each(pages: Iterable[Path], say: Callable[[str], object]) -> Iterator[Followed]:
    """Follow one after the other; `say` is told of each step."""
    with tempfile.TemporaryDirectory(prefix="howto-") as name:
        directory = Path(name)
        (directory / "wheel").mkdir()
        wheel = build_wheel(directory / "wheel")
        with Follower(directory) as follower:
            for page in pages:
                begun = time.monotonic()
                say(f"{page.stem}:")
                place = directory / f"{page.stem}-environment"
                place.mkdir()
                wrong = None
                try:
                    follower.follow(page, fresh_environment(place, wheel), say)
                except (BadPage, NotAsPrinted) as error:
                    wrong = f"{page.name}, {error}"
                yield Followed(page=page, seconds=time.monotonic() - begun, wrong=wrong)
