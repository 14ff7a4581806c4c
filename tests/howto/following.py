"""Follows pages: each in a directory of its own, with one Redis server and one choice of ports for all of them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from howto.page import is_page, steps
from howto.place import REDIS_PORT, ROOT, Ports
from howto.session import Session
from redis_replicas import old_enough
from servers import OLDEST, Server

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import Self

__all__ = ["Follower", "pages"]


def pages() -> list[Path]:
    """All pages that ask to be run; those that need Redis last, since a server that has just started grants nothing."""
    found = [path for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))] if is_page(path.read_text())]
    return sorted(found, key=lambda path: f"localhost:{REDIS_PORT}" in path.read_text())


class Follower:
    """A context manager around the server; its files are in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ports = Ports()
        self._server = Server(OLDEST, directory, port=self._ports.of[REDIS_PORT])
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self._server)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def follow(self, page: Path, environment: Mapping[str, str], say: Callable[[str], object]) -> None:
        """Do what the page says. Raises `BadPage` or `NotAsPrinted`."""
        text = self._ports.rewrite(page.read_text())
        if f"localhost:{self._ports.of[REDIS_PORT]}" in text:
            old_enough(self._server, 12)  # longer than the default lock_expiry + 1 s
            with self._server.client() as client:
                client.flushall()
        directory = self._directory / page.stem
        directory.mkdir()
        with Session(directory, environment, say) as session:
            session.follow(steps(text))
