"""docs/logs.md is the whole truth: its table against the source, and against what an app says in a hard life."""

from __future__ import annotations

import ast
import asyncio
import re
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from singletonjob import SingletonJobs, StoreUnavailable
from virtual_loop import Capture, Gate, Replica, memory, run_virtually, the_loop

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "singletonjob"
TABLE = (ROOT / "docs" / "logs.md").read_text()


def documented() -> set[tuple[str, str]]:
    """Level and event of each line of the table."""
    found: set[tuple[str, str]] = set()
    for level, events, text in re.findall(r"^\| ([A-Z]+) \| (.+?) \| (.+) \|$", TABLE, re.MULTILINE):
        levels = {level, *re.findall(r"as ([A-Z]+) after", text)}
        found |= {(one, event) for one in levels for event in re.findall(r"`(.+?)`", events)}
    return found


# -- the source ----------------------------------------------------------------------------------------------------


def noted(file: str) -> set[str]:
    """The events of the notes that a module makes."""
    calls = [node for node in ast.walk(ast.parse((SOURCE / file).read_text())) if isinstance(node, ast.Call)]
    notes = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id in {"LogEvent", "OptionNote"}]
    return {str(event.value) for event in (call.args[0] for call in notes) if isinstance(event, ast.Constant)}


class Lines:
    """The log lines that the functions of a module write."""

    WRAPPERS = ("say", "warn", "failed", "_warn", "write")
    """They hand on the event that they are given."""

    LOGGERS = ("debug", "info", "warning", "error", "exception", "critical", "log")

    def __init__(self, tree: ast.AST) -> None:
        self.found: set[tuple[str, str]] = set()
        self.unread: list[str] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in self.WRAPPERS:
                self._read(node)

    def _read(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        assigned = [node for node in ast.walk(function) if isinstance(node, ast.Assign)]
        names = {node.targets[0].id: node.value for node in assigned if isinstance(node.targets[0], ast.Name)}
        cases = {
            call: [value.value for value in ast.walk(case.pattern) if isinstance(value, ast.Constant)]
            for case in ast.walk(function)
            if isinstance(case, ast.match_case)
            for statement in case.body
            for call in ast.walk(statement)
        }
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and (line := self._line(call, names)):
                level, event = line
                levels = list(self._values(level, names, []))
                events = list(self._values(event, names, cases.get(call, [])))
                if not levels or not events:
                    self.unread.append(ast.unparse(call))
                self.found |= {(one, two) for when, one in levels for then, two in events if together(when, then)}

    def _line(self, call: ast.Call, names: dict[str, ast.expr]) -> tuple[ast.expr, ast.expr] | None:
        """The expressions for level and event."""
        owner, _, name = ast.unparse(call.func).rpartition(".")
        ours = owner == "self" or owner.endswith(("journal", "_failed"))
        if (name == "say" and ours) or (name == "write" and not owner):
            return call.args[0], call.args[1]
        if name in self.WRAPPERS and (ours or name == "_warn"):
            usual: ast.expr = ast.Constant("ERROR" if name == "failed" else "WARNING")
            return next((word.value for word in call.keywords if word.arg == "level"), usual), call.args[0]
        if name in self.LOGGERS and "logg" in owner:
            return ast.Constant(name.upper()), ast.Name("unknown")  # `write` is the only way to the logger
        return None

    def _values(self, node: ast.expr, names: dict[str, ast.expr], case: list[Any]) -> Iterator[tuple[str, str]]:
        """What an expression may be, each with the condition for it, if any."""
        match node:
            case ast.Constant(value=str(value)):
                yield "", value
            case ast.Attribute(value=ast.Name(id="logging"), attr=level):
                yield "", level
            case ast.IfExp(test=test, body=body, orelse=orelse):
                for condition, one in ((ast.unparse(test), body), (f"not {ast.unparse(test)}", orelse)):
                    yield from ((condition, value) for _, value in self._values(one, names, case))
            case ast.Name(id=name) if name in names:
                yield from self._values(names[name], names, case)
            case ast.Name(id="event"):
                yield from (("", value) for value in case)
            case ast.Attribute(attr="event"):  # of what was noted while the options were read
                yield from ((f"{ast.unparse(node)} == {event!r}", event) for event in noted("_jobs/sources.py"))
            case _:
                return


def together(one: str, other: str) -> bool:
    """Whether two conditions may hold at once: none, the same, or that two values of one thing are excluded."""
    negated = one.startswith("not "), other.startswith("not ")
    return (
        not one
        or not other
        or one == other
        or (negated[0] != negated[1] and one.removeprefix("not ") != other.removeprefix("not "))
    )


def test_each_line_that_the_source_writes_is_in_the_table_with_its_level_and_the_other_way_round() -> None:
    modules = [path for path in SOURCE.rglob("*.py") if path.parent.name != "testing"]
    lines = [Lines(ast.parse(path.read_text())) for path in modules]
    assert [text for one in lines for text in one.unread] == []
    found = set[tuple[str, str]]().union(*(one.found for one in lines))
    assert sorted(found - documented()) == []
    assert sorted(documented() - found) == []


def test_whatever_the_elector_and_the_heartbeat_note_is_a_line_but_that_the_store_is_down() -> None:
    # `heartbeat-error` says that one; the note is for those who subscribe to events.
    notes = noted("_core/elector.py") | noted("_runtime/heartbeat.py")
    assert notes - {event for _, event in documented()} == {"store-down"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("journal.warn('a', 'text')", {("WARNING", "a")}),
        ("self._journal.failed('a', 'text')", {("ERROR", "a")}),
        ("counts.failed('a')", set()),
        ("write(logging.INFO, 'a', 'text')", {("INFO", "a")}),
        ("file.write('text')", set()),
        ("self.say(logging.INFO if x else logging.ERROR, 'a' if x else 'b')", {("INFO", "a"), ("ERROR", "b")}),
        ("match event:\n  case 'a' if x:\n    self.say(logging.INFO, event)", {("INFO", "a")}),
    ],
)
def test_the_reader_of_the_source_sees_what_it_is_for(text: str, found: set[tuple[str, str]]) -> None:
    body = "\n".join(f"  {line}" for line in text.splitlines())
    lines = Lines(ast.parse(f"def f(event):\n{body}"))
    assert (lines.found, lines.unread) == (found, [])


@pytest.mark.parametrize("text", ["journal.warn(kind, 'text')", "logger.info('text', extra={'event': 'a'})"])
def test_the_reader_of_the_source_says_what_it_cannot_read(text: str) -> None:
    assert Lines(ast.parse(f"def f(kind):\n  {text}")).unread == [text]


# -- a hard life ---------------------------------------------------------------------------------------------------


class Diary(Capture):
    """Keeps level, event and moment of all but the beats."""

    def __init__(self) -> None:
        super().__init__()
        self.moments: list[float] = []

    def emit(self, record: logging.LogRecord) -> None:
        assert {"event", "job", "node", "token", "reason"} <= vars(record).keys()
        if record.event != "beat":  # type: ignore[attr-defined]  # each has it
            super().emit(record)
            self.moments.append(the_loop().time())

    def told(self) -> list[tuple[str, str]]:
        """What was said since the last time."""
        told = [(record.levelname, record.event) for record in self.records]
        self.last, self.records = self.records, []
        self.when, self.moments = self.moments, []
        return told


RAN = [("DEBUG", "run-started"), ("DEBUG", "run-ended")]


def without_runs(told: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [line for line in told if line not in RAN]


def test_line_by_line_a_life_with_all_its_troubles_is_told_as_the_table_says() -> None:
    async def main() -> None:
        store, lasts = Gate(memory()), [0.0]
        app = SingletonJobs("pricing", store=store)
        heard: list[tuple[str, str]] = []

        @app.fixed_rate("1s", name="job")
        async def job() -> None:
            if lasts[0] < 0:
                raise ValueError("no price for XAU")
            await asyncio.sleep(lasts[0])

        def told() -> list[tuple[str, str]]:
            heard.extend(lines := diary.told())
            return lines

        async def up_to(moment: float) -> None:
            await asyncio.sleep(moment - the_loop().time())

        with Diary() as diary:
            replica = Replica(app).start()
            await up_to(3.5)
            assert told() == [("INFO", "started"), ("INFO", "elected"), *RAN, *RAN, *RAN]

            lasts[0] = -1  # it fails
            await up_to(4.5)
            assert told() == [*RAN, ("ERROR", "run-failed")]
            assert "no price for XAU" in diary.text(diary.last[-1])
            assert [record.exc_info is None for record in diary.last] == [True, True, False]

            lasts[0] = 1.5  # every other tick is dropped, so they never come ten in a row
            await up_to(130.2)
            assert without_runs(told()) == [("WARNING", "ticks-dropped")] * 3
            first, *others = [w for w, r in zip(diary.when, diary.last, strict=True) if r.event == "ticks-dropped"]
            assert first < 7
            assert [round(later - earlier) for earlier, later in pairwise([first, *others])] == [60, 60]

            lasts[0] = 30  # it hangs, once
            await up_to(135)
            lasts[0] = 0
            await up_to(164.5)
            assert without_runs(told()) == [("WARNING", "run-long"), ("ERROR", "ticks-dropped")]

            await up_to(198.5)
            assert without_runs(told()) == []  # the rest of the drops is told with the next one that comes

            store.error = StoreUnavailable("connection refused")
            await up_to(498.5)
            assert without_runs(told()) == [("ERROR", "heartbeat-error"), ("WARNING", "lost"), *ATTEMPTS]
            attempts = [w for w, r in zip(diary.when, diary.last, strict=True) if r.event == "heartbeat-error"]
            assert all(later - earlier >= 60 for earlier, later in pairwise(attempts))
            texts = [record.getMessage() for record in diary.last if record.event == "heartbeat-error"]
            numbers = [int(re.search(r"\(attempt (\d+)\)", text)[1]) for text in texts]  # type: ignore[index]  # it is there
            assert numbers[0] == 1
            assert numbers == sorted(set(numbers))
            assert all(record.exc_info is None for record in diary.last)

            store.error = None
            lasts[0] = 100
            await up_to(515.0)
            assert told()[:3] == [("INFO", "store-up"), ("INFO", "elected"), ("DEBUG", "run-started")]

            record = store.store._records["pricing", "job"]  # type: ignore[attr-defined]  # a MemoryStore
            record.holder, record.token = "other", record.token + 1
            await up_to(520.0)
            lost = without_runs([line for line in told() if line[1] not in {"ticks-dropped", "run-long"}])
            assert sorted(lost) == [("INFO", "following"), ("INFO", "run-cancelled"), ("WARNING", "lost")]
            assert all(record.exc_info is None for record in diary.last)

            lasts[0] = 0
            await up_to(540.5)
            assert without_runs(told()) == [("INFO", "elected")]
            await replica.stop()
            assert told() == [("INFO", "released")]
        assert set(heard) <= documented()

    run_virtually(main())


ATTEMPTS = [("ERROR", "heartbeat-error")] * 4
