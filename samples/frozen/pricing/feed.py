"""What a job depends on."""

from __future__ import annotations

__all__ = ["Feed"]


class Feed:
    """Prints what is published."""

    def publish(self, line: str) -> None:
        print(line, flush=True)  # noqa: T201 - it is a program
