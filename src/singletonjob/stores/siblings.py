"""Detect that this process may be one of several equal processes of a server or a program."""

from __future__ import annotations

import os
import sys
from typing import Any

__all__ = ["may_have_siblings"]

SERVERS = ("gunicorn.arbiter", "uwsgi")
"""Modules that each worker of these servers has loaded."""

_forked: list[int] = []


def may_have_siblings() -> bool:
    """True in a worker of gunicorn or uWSGI, in a child of `multiprocessing` (uvicorn and hypercorn start their workers
    so), and in a forked child."""
    process: Any = sys.modules.get("multiprocessing.process")
    spawned = process is not None and process.parent_process() is not None
    return spawned or os.getpid() in _forked or any(name in sys.modules for name in SERVERS)


if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(after_in_child=lambda: _forked.append(os.getpid()))
