"""Messages to systemd (sd_notify(3)): READY=1, STOPPING=1 and, while nothing is stuck, WATCHDOG=1.

A thread of its own sends them. The heartbeat must not wait for systemd, and the job loop may be blocked by a body for
longer than the watchdog allows although nothing is wrong.
"""

from __future__ import annotations

import logging
import os
import queue
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .._reporting.log_writer import in_background, write

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from .._reporting.health import Health

__all__ = ["notifying", "watchdog_interval"]

VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")

PATIENCE = 5.0
"""Seconds that a message may wait until systemd takes it."""

LEAVE = 0.5
"""Seconds that the end of the block waits for the last message."""


@contextmanager
def notifying(health: Callable[[], Health], *, wanted: bool) -> Generator[Callable[[str], None]]:
    """Give the block a function that sends a message to systemd, and send WATCHDOG=1 while `health().live`.

    Without NOTIFY_SOCKET, unless `wanted`, and outside the main thread, the function does nothing. Inside the block the
    variables are not in the environment, so that a program started by a body does not speak for this one. Nothing that
    fails here is raised: one line is logged.
    """
    if not wanted or not os.environ.get("NOTIFY_SOCKET") or threading.current_thread() is not threading.main_thread():
        yield _ignore
        return
    process = os.getpid()
    taken = {name: os.environ.pop(name) for name in VARIABLES if name in os.environ}
    messages: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    thread = threading.Thread(
        target=_send_all, args=(taken, messages, health), name="singletonjob-systemd", daemon=True
    )
    try:
        thread.start()
    except RuntimeError as error:
        write(logging.WARNING, "systemd-failed", f"nothing is reported to systemd: no thread can be started ({error})")

    try:
        yield messages.put
    finally:
        if os.getpid() == process:  # a forked child does not have the thread, and must not have the variables
            messages.put(None)
            if thread.ident is not None:
                thread.join(LEAVE)
            os.environ.update(taken)


def watchdog_interval(environ: Mapping[str, str]) -> float | None:
    """Seconds between two signs of life: half of what systemd allows. None if it expects none from this process.

    Raises `ValueError` for a limit that is not a positive number.
    """
    limit = environ.get("WATCHDOG_USEC")
    if limit is None or environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    if not (limit.isdecimal() and int(limit)):
        raise ValueError(f"WATCHDOG_USEC: {limit!r} is not a number of microseconds; set WatchdogSec= in the unit")
    return min(int(limit) / 2e6, threading.TIMEOUT_MAX)


def _ignore(_message: str) -> None:
    pass


def _send_all(
    environ: Mapping[str, str], messages: queue.SimpleQueue[str | None], health: Callable[[], Health]
) -> None:
    """Send the messages up to None, and a sign of life when none came for the interval."""
    with in_background():  # a log handler that blocks must not cost a sign of life
        try:
            interval = watchdog_interval(environ)
        except ValueError as error:
            write(logging.WARNING, "systemd-failed", f"systemd gets no sign of life: {error}")
            interval = None
        address, failed, wait = environ["NOTIFY_SOCKET"], False, interval
        while True:
            try:
                message = messages.get(timeout=wait)
            except queue.Empty:
                message = "WATCHDOG=1" if health().live else ""
            if message is None:
                return
            # After a suspend a job may look stuck for a moment, so look again soon: the limit is near.
            wait = interval if message or interval is None else interval / 10
            try:
                if message:
                    _send(address, message)
            except OSError as error:
                if not failed:
                    failed = True
                    text = f"NOTIFY_SOCKET: {address!r} does not take {message} ({error.strerror or error})"
                    write(logging.WARNING, "systemd-failed", f"{text}; unset it if systemd did not start this program")


def _send(address: str, message: str) -> None:
    if not address.startswith(("/", "@")):
        raise OSError("write the path of a socket, or @ and the name of an abstract one")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.settimeout(PATIENCE)
        channel.sendto(message.encode(), f"\0{address[1:]}" if address.startswith("@") else address)
