"""Commands in a shell of their own, and all that they start: heard, asked to end, and killed together."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["MOMENT", "Terminal"]

MOMENT = 0.02
"""Seconds between two looks."""


class Terminal:
    """Runs `text` in `place`. What it prints, on either stream, is in `log`.

    The shell is not waited for before its whole group has been killed: until then its id, which is the group's, cannot
    be that of another process.
    """

    def __init__(self, text: str, place: Path, environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        self._seen = 0
        self._code: int | None = None
        log.unlink(missing_ok=True)
        with log.open("ab") as output:  # some open it anew by the name of the descriptor, and would write over the rest
            self._process = subprocess.Popen(
                ["sh", "-e", "-c", text],
                cwd=place,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def printed(self) -> str:
        """All of it."""
        return self._log.read_text(errors="replace")

    def news(self) -> str:
        """What was printed since `mark`."""
        return self.printed()[self._seen :]

    def mark(self) -> None:
        """From here on it is news."""
        self._seen = len(self.printed())

    def goes_on(self) -> bool:
        """Whether the shell has not ended."""
        look = os.WEXITED | os.WNOWAIT | os.WNOHANG
        return self._code is None and os.waitid(os.P_PID, self._process.pid, look) is None

    def send(self, number: signal.Signals) -> None:
        """As a key of a terminal does: to all that run in it."""
        if self._code is None:
            os.killpg(self._process.pid, number)

    def code(self, within: float) -> int | None:
        """The exit code, when all that was left behind is gone as well; None if it goes on for so many seconds."""
        until = time.monotonic() + within
        while self.goes_on():
            if time.monotonic() > until:
                return None
            time.sleep(MOMENT)
        return self.kill()

    def kill(self) -> int:
        """End all of it now; the exit code."""
        if self._code is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._code = self._process.wait()
        return self._code
