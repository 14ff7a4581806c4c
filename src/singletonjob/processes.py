"""What an app that starts asks of its process, and what becomes of it in a process that is forked from there.

A forked child inherits the objects, but neither threads nor leases. Without this, a child that goes on with its
parent's event loop would run the parent's jobs for as long as the lease that it inherited seems to last, and a child
could not start the app anew. Only memory is touched: the descriptors of a loop are shared with the parent (fork(2)), so
to close or unregister one here would disturb it there.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakMethod

from .green_threads import refuse_green_threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._service import Service

__all__ = ["enter_process"]

_taking_part: WeakKeyDictionary[Service, WeakMethod[Callable[[], None]]] = WeakKeyDictionary()


def enter_process(service: Service, forget: Callable[[], None]) -> None:
    """From now on, end the terms of `service` in each forked child, before the child's own code goes on.

    `forget`, a method, is called in the child then: it makes its owner what it was before the start. Raises
    `ConfigError` where the process cannot run jobs, since its threads are not real.
    """
    refuse_green_threads()
    _taking_part[service] = WeakMethod(forget)


def _end_here() -> None:
    for service, forget in list(_taking_part.items()):
        service.abandon()
        if (call := forget()) is not None:
            call()
    _taking_part.clear()


if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(after_in_child=_end_here)
