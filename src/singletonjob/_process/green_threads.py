"""gevent and eventlet put their own in place of threads and sockets; what this library promises needs the real ones.

A heartbeat that is a green thread stands still with the first body that blocks in C code, and the lease with it.
"""

from __future__ import annotations

import sys
from typing import Any

from .._core.errors import ConfigError

__all__ = ["refuse_green_threads"]

GEVENT = ("threading", "thread", "socket", "select", "time", "queue")
EVENTLET = ("thread", "socket", "select", "time")


def refuse_green_threads() -> None:
    """Raise `ConfigError` where gevent or eventlet have patched this process."""
    for library, where, question, names in (
        ("gevent", "gevent.monkey", "is_module_patched", GEVENT),
        ("eventlet", "eventlet.patcher", "is_monkey_patched", EVENTLET),
    ):
        module: Any = sys.modules.get(where)
        patched = [] if module is None else [name for name in names if getattr(module, question)(name)]
        if patched:
            raise ConfigError(
                f"{library} has monkey-patched {', '.join(patched)} in this process, and jobs need real threads; run"
                " them in a process of their own (singletonjob run MODULE:APP), or choose another kind of worker"
                " (gunicorn --worker-class gthread)"
            )
