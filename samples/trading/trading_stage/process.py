"""A replica as the show sees it: a process, and the tape that it writes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, TypeAlias

from .ledger import Entry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["Replica", "SignalName"]

SignalName: TypeAlias = Literal["SIGTERM", "SIGKILL"]


class Replica:
    """One process of the pricing service. A process that ended is not started again: another replica is."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.signal: SignalName | None = None
        self.signalled_at = 0.0
        self.started_at = time.monotonic()
        self.gone_at: float | None = None
        self._heard = False
        self._process = process
        self._log = log

    @classmethod
    async def start(cls, name: str, *, store: str, feed_url: str, directory: Path) -> Replica:
        """Start it. `directory` has the sink, and gets the replica's log."""
        log = directory / f"{name}.log"
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "trading_desk.replica"),
                *(name, store, feed_url, str(directory / "desk.db")),
                stdin=asyncio.subprocess.PIPE,  # its end tells the replica that we are gone
                stdout=asyncio.subprocess.PIPE,  # the tape
                stderr=errors,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,  # Ctrl-C in the terminal is for the show, which then stops its replicas
            )
        return cls(name, process, log)

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    async def read(self, take: Callable[[Entry], None]) -> None:
        """Hand over each entry of the tape; returns when the process has ended."""
        assert self._process.stdout is not None  # noqa: S101 - a pipe was asked for
        async for line in self._process.stdout:
            self._heard = True
            if line.endswith(b"\n"):  # a kill may cut the last one
                take(Entry(*json.loads(line)))
        await self._process.wait()
        self.gone_at = time.monotonic()

    def send(self, name: SignalName) -> None:
        """Send it a signal."""
        self.signal = name
        self.signalled_at = time.monotonic()
        with suppress(ProcessLookupError):  # it ended a moment ago
            self._process.send_signal(signal.Signals[name])

    def kill(self) -> None:
        """Make sure that it ends."""
        with suppress(ProcessLookupError):
            self._process.kill()

    @property
    def trouble(self) -> str | None:
        """How it ended, if it was not told to or not well."""
        code = self._process.returncode
        # One that is told to stop while it still starts has no handler yet, and dies of the signal.
        stopped = self.signal == "SIGTERM" and (code == 0 or (code == -signal.SIGTERM and not self._heard))
        if code is None or stopped or self.signal == "SIGKILL":
            return None
        return f"{self.name} ended with exit code {code}: {self.last_words()}"

    def last_words(self) -> str:
        """The last line of its log."""
        lines = self._log.read_text(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "nothing")
