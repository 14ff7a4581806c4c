"""Which processes of a Django project serve: only they start the app by themselves.

A server asks Django for an application, by `get_wsgi_application` or `get_asgi_application`, and that is what sets
Django up there. Whatever else does (`migrate`, `check`, `shell`, `test`, a script with `django.setup()`) must not lead.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

__all__ = ["is_command", "is_serving"]

ENTRANCES = {("django.core.wsgi", "get_wsgi_application"), ("django.core.asgi", "get_asgi_application")}
PROGRAMS = {"manage.py", "django-admin", "django-admin.exe"}


def is_command() -> bool:
    """Whether a command of this library sets Django up: `run` starts the app itself, and no other command may."""
    if sys.argv[1:2] == ["singletonjobs"]:
        return True
    return any(str(frame.f_globals.get("__name__")).startswith("singletonjob.cli") for frame in _stack())


def is_serving() -> bool:
    """Whether the code that sets Django up now is a server's. Of `runserver` with its reloader, the child's alone."""
    program = Path(sys.argv[0] if sys.argv else "")
    if program.name in PROGRAMS or program.parts[-2:] == ("django", "__main__.py"):
        serves = sys.argv[1:2] == ["runserver"]
        return serves and ("--noreload" in sys.argv or os.environ.get("RUN_MAIN") == "true")
    return any((frame.f_globals.get("__name__"), frame.f_code.co_name) in ENTRANCES for frame in _stack())


def _stack() -> Iterator[FrameType]:
    # The one way to see one's callers without their source being read, private by name only.
    frame: FrameType | None = sys._getframe()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        yield frame
        frame = frame.f_back
