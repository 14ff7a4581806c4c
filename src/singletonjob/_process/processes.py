"""Running apps and their process: what happens to them in a forked or spawned child, and when the main thread ends.

A forked child inherits the objects, but neither threads nor leases. Without this, a child that goes on with its
parent's event loop would run the parent's jobs for as long as the lease that it inherited seems to last, and a child
could not start the app anew. Only memory is touched: the descriptors of a loop are shared with the parent (fork(2)), so
to close or unregister one here would disturb it there.

When the main thread ends, every running app stops, and the interpreter waits until their leases are released.
`atexit` alone comes too late for that. Python first shuts its thread pools and waits for their calls to end, then waits
for the other threads, and only then calls what `atexit` has (`threading._shutdown`, the same from 3.11 to 3.13). Up to
then an app would go on leading, and each run that needs a pool would fail. To join the main thread is no help either:
the join returns after the pools were shut.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakMethod

from .._core.errors import SingletonJobError
from .._reporting.log_writer import warn_if_disabled
from .._system.clock import SystemClock
from .green_threads import refuse_green_threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._runtime.service import Service

__all__ = ["enter_process"]

_taking_part: WeakKeyDictionary[Service, WeakMethod[Callable[[], None]]] = WeakKeyDictionary()


def enter_process(service: Service, forget: Callable[[], None]) -> None:
    """From now on, end the terms of `service` in each forked child, before the child's own code goes on, and stop
    `service` when the main thread ends.

    `forget`, a method, is called in the child then: it makes its owner what it was before the start. Raises
    `ConfigError` if the process cannot run jobs because its threads are not real, and `SingletonJobError` if the main
    thread has ended, or if `multiprocessing` is still importing the program.
    """
    refuse_green_threads()
    _refuse_import_by_multiprocessing()
    warn_if_disabled()  # before anything has begun: a program may have made warnings errors
    try:
        _watch_the_main_thread()
    except RuntimeError as error:
        raise SingletonJobError(
            "the main thread has ended, and the app would stop at once; start it while that runs"
        ) from error
    _taking_part[service] = WeakMethod(forget)


def _refuse_import_by_multiprocessing() -> None:
    """Raise `SingletonJobError` if this is a new child of `multiprocessing` that imports the program of its parent.

    With the start methods `spawn` and `forkserver` a child does that before its own work. An app that started there
    would run in place of that work, and outlive the parent. `_inheriting` is set meanwhile: CPython itself refuses to
    start a process while it is (`spawn._check_not_importing_main`).
    """
    process: Any = sys.modules.get("multiprocessing.process")
    if process is not None and getattr(process.current_process(), "_inheriting", False):
        raise SingletonJobError(
            "the app is started while multiprocessing imports the program into a child process; write"
            ' `if __name__ == "__main__":` above the line that starts it, or start it in the function of the child'
        )


@cache
def _watch_the_main_thread() -> None:
    """Have `_main_thread_ended` called. Raises `RuntimeError` if it is too late for that."""
    # `_register_atexit` is the one hook that is called before the pools are shut, private by name only. The hook
    # registered last is called first, so the pools must have registered theirs before.
    import concurrent.futures.thread  # noqa: F401  # pyright: ignore[reportUnusedImport]

    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        register(_main_thread_ended)
    # The last resort, and for programs that embed Python and call only what `atexit` has.
    atexit.register(_main_thread_ended)


def _main_thread_ended() -> None:
    """Stop all apps, and return when they have stopped, or after the longest time that a stop may take."""
    _watch_the_main_thread.cache_clear()  # so that a start after this finds out that it is too late
    # A loop of this very thread does not turn any more, so nothing that it runs could be stopped in good order.
    elsewhere = [service for service in list(_taking_part) if service.loop_thread not in (0, threading.get_ident())]
    services = [service for service in elsewhere if not (service.stopped.is_set() or service.closed)]
    for service in services:
        service.main_thread_ended()
    boot = SystemClock.boot
    latest = boot() + max((service.longest_stop for service in services), default=0.0) + 1.0
    for service in services:
        service.stopped.wait(max(latest - boot(), 0.0))
        service.stopped.set()  # nobody waits for it a second time


def _end_here() -> None:
    for service, forget in list(_taking_part.items()):
        service.abandon()
        if (call := forget()) is not None:
            call()
    _taking_part.clear()


if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(after_in_child=_end_here)
