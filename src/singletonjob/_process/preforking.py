"""gunicorn and uWSGI: an app that is started in their master takes part in each worker instead.

Their masters import the application (gunicorn with `--preload`, uWSGI unless `lazy-apps`), then fork. A thread or a
connection made there would be missing or shared in the workers (fork(2)), and a master must not lead. Who is the
master is told by the server's own objects, on the stack of the main thread or in its module; a fork by itself tells
nothing: programs fork for many reasons.

gunicorn forks in `Arbiter.spawn_worker`, and calls the hook `post_worker_init` when the worker has its user, its
signal handlers and its application. uWSGI calls `uwsgi.post_fork_hook` in each worker; Python's own hooks only
with `py-call-osafterfork`.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

from .._core.errors import ConfigError
from .green_threads import refuse_green_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

__all__ = ["call_off", "joins_after_fork"]


class Startable(Protocol):
    """An app, as far as it is needed here."""

    def start(self) -> None: ...


_waiting: list[Startable] = []


def joins_after_fork(app: Startable) -> bool:
    """Whether this is a server's master; `app.start()` is then called in each of its workers, after their fork.

    Raises `ConfigError` where the server's options would keep the workers' threads from running.
    """
    if not (_is_gunicorn_master() or _is_uwsgi_master()):
        return False
    refuse_green_threads()
    if app not in _waiting:
        _waiting.append(app)
    return True


def call_off(app: Startable) -> None:
    """Forget a start that waits for the fork."""
    if app in _waiting:
        _waiting.remove(app)


def _start_waiting() -> None:
    apps = list(_waiting)
    _waiting.clear()  # what a worker forks in turn is no worker
    for app in apps:
        app.start()


# -- gunicorn ------------------------------------------------------------------------------------------------------


def _is_gunicorn_master() -> bool:
    base: Any = sys.modules.get("gunicorn.app.base")
    if base is None:
        return False
    arbiter = None
    for frame in _main_stack():
        if _gunicorn_worker(frame) is not None:
            return False
        owner = frame.f_locals.get("self")
        if _is_a(owner, "gunicorn.arbiter", "Arbiter"):
            arbiter = arbiter or owner
        elif isinstance(owner, base.BaseApplication) and arbiter is None:
            arbiter = owner  # its settings are being read: a file of settings may import the application
    # The arbiter learns its process id when it has loaded the application; forked by it, one is not the master.
    return arbiter is not None and getattr(arbiter, "pid", None) in (None, os.getpid())


def _gunicorn_worker(frame: FrameType) -> Any:
    """The worker of which this frame is the birth."""
    if frame.f_code.co_name != "spawn_worker" or frame.f_globals.get("__name__") != "gunicorn.arbiter":
        return None
    worker = frame.f_locals.get("worker")
    # In the master it is there too, without a number, while the hook `pre_fork` runs.
    return worker if getattr(worker, "pid", None) == os.getpid() else None


def _join_gunicorn_worker() -> None:
    """In a new child: have the apps started once the worker is ready, if the child is a worker."""
    if not _waiting or "gunicorn.arbiter" not in sys.modules:
        return
    frame = next((one for one in _main_stack() if one.f_code.co_name == "spawn_worker"), None)
    worker = None if frame is None else frame.f_locals.get("worker")
    if not _is_a(worker, "gunicorn.workers.base", "Worker") or isinstance(worker.pid, int):
        return  # a worker just born has no number yet; what else was forked has nothing to wait for
    before: Callable[[Any], object] = worker.cfg.post_worker_init

    def post_worker_init(worker: Any) -> None:
        before(worker)
        _start_waiting()

    worker.cfg.set("post_worker_init", post_worker_init)


def _is_a(value: Any, module: str, name: str) -> TypeGuard[Any]:
    found = getattr(sys.modules.get(module), name, None)
    return isinstance(found, type) and isinstance(value, found)


def _main_stack() -> Iterator[FrameType]:
    """The frames of the main thread, innermost first: servers live there, wherever they import an application."""
    # The one way to see another thread's stack, private by name only.
    frames = sys._current_frames()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    frame = frames.get(threading.main_thread().ident or 0)
    while frame is not None:
        yield frame
        frame = frame.f_back


# -- uWSGI ---------------------------------------------------------------------------------------------------------


def _is_uwsgi_master() -> bool:
    uwsgi: Any = sys.modules.get("uwsgi")  # it is there from the start, and inside of uWSGI only
    if uwsgi is None:
        return False
    if not (uwsgi.opt.get("enable-threads") or uwsgi.opt.get("threads")):
        raise ConfigError(
            "uWSGI keeps the application's threads from running; write enable-threads = true into its options"
        )
    if uwsgi.worker_id() or uwsgi.mule_id():
        return False
    if not _waiting:
        _hook_into(uwsgi)
    return True


def _hook_into(uwsgi: Any) -> None:
    """Have the apps started in each worker, beside what else is to be called there."""

    def post_fork() -> None:
        if uwsgi.worker_id():  # a mule or a spooler has none
            _start_waiting()

    before: Callable[[], object] | None = getattr(uwsgi, "post_fork_hook", None)
    decorators: Any = sys.modules.get("uwsgidecorators")
    if decorators is None and uwsgi.masterpid():
        try:
            # If the application imported it later, it would put its own chain in the place of our hook.
            decorators = importlib.import_module("uwsgidecorators")
        except ImportError:
            pass  # not every uWSGI brings it
        else:
            decorators.postfork_chain.extend([] if before is None else [before])
    if decorators is not None:
        decorators.postfork_chain.append(post_fork)
        return

    def hook() -> None:
        if before is not None:
            before()
        post_fork()

    uwsgi.post_fork_hook = hook


if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(after_in_child=_join_gunicorn_worker)
