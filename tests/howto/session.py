"""One page's reader: a directory, a terminal whose directory and variables last, and terminals that stay busy."""

from __future__ import annotations

import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from howto.likeness import missing
from howto.page import Commands, Ending, File, Output, Wait
from howto.terminal import MOMENT, Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from howto.page import Step

__all__ = ["PATIENCE", "NotAsPrinted", "Session"]

PATIENCE = 240.0
"""How long, in seconds, one block of commands may take. Most of it is for what is installed over the network."""

PROMPT = 30.0
"""How long a program in the background may take to say or do what the page says that it does."""


class NotAsPrinted(Exception):
    """A command does not do what its page says; the text names the line, and shows what it did."""


class Session:
    """Carries out the steps of one page in `directory`, which is new and empty.

    `environment` is all that the commands find. What still runs at the end is killed. `say` is told of each step.
    """

    def __init__(self, directory: Path, environment: Mapping[str, str], say: Callable[[str], object]) -> None:
        self._state = directory / ".terminal"
        self._state.mkdir()
        self._place = directory / "here"
        self._place.mkdir()
        self._environment = dict(environment)
        self._say = say
        self._busy: dict[str, Terminal] = {}
        self._printed = ""
        self._skipped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for busy in self._busy.values():
            busy.kill()

    def follow(self, steps: Sequence[Step]) -> None:
        """Do all of it. Raises `NotAsPrinted`."""
        for step in steps:
            match step:
                case File():
                    self._write(step)
                case Commands(name=None):
                    self._run(step)
                case Commands():
                    self._start(step)
                case Output():
                    self._compare(step)
                case Wait():
                    self._busy[step.alias] = self._first(step.line, step.names, step.text)
                case Ending():
                    self._end(step)

    def _write(self, step: File) -> None:
        path = self._place / step.name
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_text() + "\n\n" if path.exists() else ""
        path.write_text(before + step.text)

    def _run(self, step: Commands) -> None:
        if self._is_skipped(step):
            return
        begun = time.monotonic()
        # What a terminal keeps from one command to the next: where it is, and its variables.
        keep = 'env -0 >"$HOWTO_STATE/variables"; pwd >"$HOWTO_STATE/place"'
        terminal = self._terminal(f"{step.text}\n{keep}", str(step.line))
        code = terminal.code(PATIENCE)
        if code is None:
            terminal.kill()
            raise self._wrong(step.line, f"did not end within {PATIENCE:.0f} s", terminal.printed())
        self._printed = terminal.printed()
        if code != step.code:
            raise self._wrong(step.line, f"exit code {code}, and not {step.code}", self._printed)
        if code == 0:
            variables = (self._state / "variables").read_text().split("\0")
            self._environment = dict(pair.split("=", 1) for pair in variables if "=" in pair)
            self._place = Path((self._state / "place").read_text().rstrip("\n"))
        for text in step.expected:
            if text not in self._printed:
                raise self._wrong(step.line, f"does not print {text!r}", self._printed)
        self._say(f"  line {step.line}: {step.text.splitlines()[0]} ... {time.monotonic() - begun:.1f} s")

    def _start(self, step: Commands) -> None:
        assert step.name is not None
        assert step.until is not None
        if self._is_skipped(step):
            return
        if (before := self._busy.get(step.name)) is not None:
            if before.goes_on():
                raise NotAsPrinted(f"line {step.line}: {step.name} runs already; stop it before, or give another name")
            before.kill()
        # Ctrl-C goes to all that run in a terminal. The shell waits for its program then, and ends with its exit code.
        self._busy[step.name] = self._terminal(f"trap : INT TERM\n{step.text}", step.name)
        self._first(step.line, (step.name,), step.until)
        self._say(f"  line {step.line}: {step.text.splitlines()[-1]} ... goes on as {step.name}")

    def _terminal(self, text: str, name: str) -> Terminal:
        environment = {**self._environment, "HOWTO_STATE": str(self._state)}
        return Terminal(text, self._place, environment, self._state / f"{name}.log")

    def _is_skipped(self, step: Commands) -> bool:
        lacking = [name for name in step.needs if shutil.which(name, path=self._environment["PATH"]) is None]
        reason = step.skip or (lacking and f"there is no {' or '.join(lacking)} here") or None
        self._skipped = reason is not None
        if reason is not None:
            self._say(f"  line {step.line}: skipped because {reason}")
        return self._skipped

    def _compare(self, step: Output) -> None:
        if step.name is None and self._skipped:
            return
        if step.name is None:
            if (line := missing(step.text, self._printed)) is not None:
                raise self._wrong(step.line, f"{line.strip()!r} is shown and not printed", self._printed)
            return
        busy = self._named(step.line, step.name)
        until = time.monotonic() + PROMPT
        while (line := missing(step.text, busy.news())) is not None:
            if time.monotonic() > until:
                raise self._wrong(
                    step.line, f"{line.strip()!r} is shown and {step.name} did not print it", busy.printed()
                )
            time.sleep(MOMENT)

    def _first(self, line: int, names: Sequence[str], text: str) -> Terminal:
        """Whoever prints it first."""
        found = {name: self._named(line, name) for name in names}
        until = time.monotonic() + PROMPT
        while True:
            for busy in found.values():
                if text in busy.news():
                    return busy
            printed = "\n".join(busy.printed() for busy in found.values())
            if not any(busy.goes_on() for busy in found.values()):
                raise self._wrong(line, f"{' and '.join(found)} ended without printing {text!r}", printed)
            if time.monotonic() > until:
                raise self._wrong(line, f"{' or '.join(found)} did not print {text!r}", printed)
            time.sleep(MOMENT)

    def _end(self, step: Ending) -> None:
        if step.name == "all":
            for name, busy in self._busy.items():
                if busy.goes_on():  # it may have been known by two names
                    self._end(replace(step, name=name))
            return
        busy = self._named(step.line, step.name)
        for each in self._busy.values():
            each.mark()
        busy.send(signal.SIGINT if step.code is not None else signal.SIGQUIT)
        code = busy.code(PROMPT)
        if code is None:
            raise self._wrong(step.line, f"{step.name} does not stop", busy.printed())
        if step.code not in (None, code):
            raise self._wrong(step.line, f"{step.name} ended with {code}, and not {step.code}", busy.printed())
        self._say(f"  line {step.line}: {step.name} is {'gone' if step.code is None else 'stopped'}")

    def _named(self, line: int, name: str) -> Terminal:
        if name not in self._busy:
            raise NotAsPrinted(f"line {line}: nothing was started in the background as {name}")
        return self._busy[name]

    def _wrong(self, line: int, what: str, printed: str) -> NotAsPrinted:
        last = "\n".join(f"    {text}" for text in printed.splitlines()[-40:])
        return NotAsPrinted(f"line {line}: {what}; it printed\n{last or '    nothing'}")
