"""The layout of the source tree: what may import what, who may read a clock, how much there is to read."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
PACKAGE = SRC / "singletonjob"

ROOMS: tuple[frozenset[str], ...] = (
    frozenset({"__main__", "cli", "probes", "integrations", "testing", "_generate"}),
    frozenset({"", "_app", "control", "telemetry", "prometheus"}),
    frozenset({"_telemetry"}),
    frozenset({"_process"}),
    frozenset({"_runtime"}),
    frozenset({"stores"}),
    frozenset({"_reporting"}),
    frozenset({"_jobs"}),
    frozenset({"_system"}),
    frozenset({"_core"}),
)
"""The rooms, from the top down: a module imports from its own room and from lower ones, type imports included. Rooms in
one line may import each other. "" is the package's own `__init__`."""

SITTING = ("_core", "_runtime", "_system")
"""What one reads to trust the library."""

NOT_IN_CORE = {
    *("asyncio", "concurrent", "contextvars", "multiprocessing", "queue", "sched", "signal", "subprocess", "threading"),
    *("http", "select", "selectors", "socket", "socketserver", "sqlite3", "ssl", "redis"),
    *("random", "secrets", "time"),
}

CLOCKS = {
    *(f"time.{name}" for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time")),
    *(f"time.{name}_ns" for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time")),
    *("time.clock_gettime", "time.clock_gettime_ns", "time.localtime", "time.gmtime", "time.ctime", "os.times"),
    *("datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today", "datetime.date.today"),
}

NOT_LOADED_BY_THE_ROOT = {
    *("argparse", "cronsim", "ctypes", "logging.handlers", "msgspec", "opentelemetry", "prometheus_client"),
    *("redis", "rich", "sqlite3", "tomllib", "zoneinfo"),
}


def source_files() -> list[Path]:
    files = sorted(PACKAGE.rglob("*.py"))
    assert files, f"no source under {PACKAGE}"
    return files


def module_name(file: Path) -> str:
    parts = file.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def name_of(file: Path) -> str:
    return file.relative_to(SRC).as_posix()


def is_type_checking(test: ast.expr) -> bool:
    return ast.unparse(test).rpartition(".")[2] == "TYPE_CHECKING"


def imported(tree: ast.AST, file: Path, *, types: bool = False) -> list[tuple[str, str]]:
    """Each local name that an import binds, at any depth of the file, with its dotted origin.

    Imports under `if TYPE_CHECKING:` never run; `types`: these as well.
    """
    package = module_name(file).split(".")
    if file.name != "__init__.py":
        package.pop()
    names: list[tuple[str, str]] = []
    todo = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and is_type_checking(node.test) and not types:
            todo.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                names.append((alias.asname or alias.name, alias.name))
                if alias.asname is None:
                    top = alias.name.partition(".")[0]
                    names.append((top, top))
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            names.extend((alias.asname or alias.name, f"{origin}.{alias.name}") for alias in node.names)
        todo.extend(ast.iter_child_nodes(node))
    return names


def imports(file: Path, text: str, *, types: bool = False) -> set[str]:
    """The modules that a file imports: of this package the module itself, of others the dotted origin."""
    ours = {module_name(path) for path in source_files()}
    origins = {origin for _, origin in imported(ast.parse(text), file, types=types)}
    return {
        origin if origin in ours or not origin.startswith("singletonjob.") else origin.rpartition(".")[0]
        for origin in origins
    }


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def floor_of(room: str) -> int:
    return next(number for number, rooms in enumerate(ROOMS) if room in rooms)


def imports_upwards(file: Path, text: str) -> set[str]:
    own = floor_of(room_of(module_name(file)))
    ours = {name for name in imports(file, text, types=True) if name.partition(".")[0] == "singletonjob"}
    return {name for name in ours if floor_of(room_of(name)) < own}


def breaks_the_core_rule(file: Path, text: str) -> set[str]:
    return {module for module in imports(file, text) if module.partition(".")[0] in NOT_IN_CORE}


def store_of(module: str) -> str | None:
    """The store whose folder a module lies in; None for what all stores share."""
    parts = module.split(".")
    return parts[2] if parts[1:2] == ["stores"] and parts[2:3] in (["redis"], ["sqlite"]) else None


def breaks_the_store_rule(file: Path, text: str) -> set[str]:
    own = store_of(module_name(file))
    return {module for module in imports(file, text, types=True) if store_of(module) not in (None, own)}


def circles(edges: dict[str, set[str]]) -> list[set[str]]:
    """The sets of modules that import each other, in whatever number of steps."""
    reach = {name: set(nexts) for name, nexts in edges.items()}
    changed = True
    while changed:
        changed = False
        for nexts in reach.values():
            more = set().union(*(reach.get(name, set()) for name in nexts)) - nexts
            changed = changed or bool(more)
            nexts |= more
    found = [{other for other in reach if name in reach[other] and other in reach[name]} for name in sorted(reach)]
    return [one for number, one in enumerate(found) if one and one not in found[:number]]


def clocks_read(file: Path, text: str) -> set[str]:
    tree = ast.parse(text)
    names = dict(imported(tree, file))
    read = {origin for _, origin in imported(tree, file)} & CLOCKS
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            head, _, rest = ast.unparse(node).partition(".")
            if (dotted := f"{names.get(head, '')}.{rest}") in CLOCKS:
                read.add(dotted)
    return read


def lines_of_code(text: str) -> int:
    """The lines of a file without blank ones, comments and strings that stand alone (docstrings)."""
    layout = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    code = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in layout:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            code.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(code)


def lead(text: str) -> str:
    """What stands above the first statement of a file: its docstring and comments."""
    module = ast.parse(text)
    statements = module.body[1:] if ast.get_docstring(module) is not None else module.body
    return "\n".join(text.splitlines()[: statements[0].lineno - 1 if statements else None])


def lacks_a_reason_for_its_length(text: str) -> bool:
    return len(text.splitlines()) > 300 and re.search(r"\blines\b", lead(text)) is None


# -- the rules ------------------------------------------------------------------------------------------------------


def test_a_module_imports_from_its_own_room_and_from_lower_ones_alone() -> None:
    assert {name_of(file): up for file in source_files() if (up := imports_upwards(file, file.read_text()))} == {}


def test_no_modules_import_each_other_in_a_circle() -> None:
    edges = {
        module_name(file): {
            name for name in imports(file, file.read_text(), types=True) if name.partition(".")[0] == "singletonjob"
        }
        - {module_name(file)}
        for file in source_files()
    }
    assert circles(edges) == []


def test_the_pure_core_imports_no_clock_no_socket_no_asyncio_and_no_thread() -> None:
    files = list((PACKAGE / "_core").glob("*.py"))
    assert files
    assert {name_of(file): bad for file in files if (bad := breaks_the_core_rule(file, file.read_text()))} == {}


def test_no_store_imports_another_store() -> None:
    # The package's __init__ is the one place that knows all stores: it turns a URL into one of them.
    files = [file for file in (PACKAGE / "stores").rglob("*.py") if file != PACKAGE / "stores" / "__init__.py"]
    assert files
    assert {name_of(file): broken for file in files if (broken := breaks_the_store_rule(file, file.read_text()))} == {}


def test_only_the_system_and_the_command_line_read_the_operating_systems_clocks() -> None:
    allowed = {*(PACKAGE / "_system").glob("*.py"), *(PACKAGE / "cli").rglob("*.py")}
    files = [file for file in source_files() if file not in allowed]
    assert {name_of(file): read for file in files if (read := clocks_read(file, file.read_text()))} == {}


BUDGETS = {
    "(root)": 605,
    "_core": 1445,
    "_generate": 360,
    "_jobs": 1370,
    "_process": 415,
    "_reporting": 915,
    "_runtime": 1255,
    "_system": 300,
    "_telemetry": 290,
    "cli": 2120,
    "integrations": 220,
    "probes": 265,
    "stores": 2675,
    "testing": 2090,
}
"""Lines of code of each room; text that explains it does not count."""


def room_sizes() -> dict[str, int]:
    sizes: dict[str, int] = {}
    for file in source_files():
        room = room_of(module_name(file))
        room = room if (PACKAGE / room).is_dir() and room else "(root)"
        sizes[room] = sizes.get(room, 0) + lines_of_code(file.read_text())
    return sizes


def test_each_room_keeps_to_its_budget() -> None:
    sizes = room_sizes()
    assert sizes.keys() == BUDGETS.keys()
    assert {room: size for room, size in sizes.items() if size > BUDGETS[room]} == {}


def test_the_core_the_runtime_and_the_system_can_be_read_in_one_sitting() -> None:
    assert sum(room_sizes()[room] for room in SITTING) <= 2995


def test_a_file_over_300_lines_says_why_on_its_top() -> None:
    assert [name_of(file) for file in source_files() if lacks_a_reason_for_its_length(file.read_text())] == []


def test_nothing_is_imported_by_a_name_made_at_run_time() -> None:
    # A freezer follows import statements alone (C108). What a user named, on the command line or in Django's settings,
    # is that user's to include; uWSGI's modules are made by uWSGI; `hidden_packages` looks and imports nothing.
    named = {PACKAGE / "cli" / "loading.py", *(PACKAGE / "integrations").rglob("*.py")}
    allowed = {*named, PACKAGE / "_jobs" / "hidden_packages.py", PACKAGE / "_process" / "preforking.py"}
    dynamic = re.compile(r"\b(import_module|__import__|entry_points|find_spec|iter_modules)\b")
    files = [file for file in source_files() if file not in allowed]
    assert {name_of(file): found for file in files if (found := dynamic.findall(file.read_text()))} == {}


def test_importing_the_root_loads_nothing_heavy() -> None:
    # Without site, so that no .pth file of the environment loads a module first and hides that we load it too.
    used = "import singletonjob; singletonjob.SingletonJobs, singletonjob.Run; print(*sys.modules)"
    code = f"import sys; sys.path.insert(0, {str(SRC)!r}); {used}"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert "singletonjob._core.errors" in loaded  # the root is ours, and not an empty namespace
    assert {name for name in NOT_LOADED_BY_THE_ROOT if name in loaded} == set()


# -- the rules see what they are for --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("import time", {"time"}),
        ("from asyncio import sleep", {"asyncio.sleep"}),
        ("def f():\n    from random import x\ndef g():\n    from .values import x", {"random.x"}),
        ("def f():\n    import socket", {"socket"}),
        ("import concurrent.futures as cf", {"concurrent.futures"}),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    import threading", {"threading"}),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import asyncio", set()),
        ("from .values import Now\nfrom datetime import UTC", set()),
    ],
)
def test_the_core_rule_finds_a_forbidden_import(text: str, broken: set[str]) -> None:
    assert breaks_the_core_rule(PACKAGE / "_core" / "cron.py", text) == broken


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("from ..redis.wire import pack", {"singletonjob.stores.redis.wire"}),
        ("if TYPE_CHECKING:\n    from ..redis.store import RedisStore", {"singletonjob.stores.redis.store"}),
        ("from .. import LeaseStore, rules\nfrom ..._core.protocol import Batch\nfrom .file import lock", set()),
    ],
)
def test_the_store_rule_finds_a_forbidden_import(text: str, broken: set[str]) -> None:
    assert breaks_the_store_rule(PACKAGE / "stores" / "sqlite" / "store.py", text) == broken


@pytest.mark.parametrize(
    ("text", "up"),
    [
        ("from ..cli import main", {"singletonjob.cli"}),
        ("if TYPE_CHECKING:\n    from .._runtime.service import Service", {"singletonjob._runtime.service"}),
        ("def late():\n    from ..stores.rules import apply", {"singletonjob.stores.rules"}),
        ("from .options import JobOptions\nfrom .._core.errors import ConfigError", set()),
    ],
)
def test_the_room_rule_finds_an_import_from_above(text: str, up: set[str]) -> None:
    assert imports_upwards(PACKAGE / "_jobs" / "definition.py", text) == up


def test_the_circle_rule_finds_circles_of_two_and_of_three() -> None:
    assert circles({"a": {"b"}, "b": {"a"}, "c": {"d"}, "d": {"e"}, "e": {"c"}, "f": {"a"}}) == [
        {"a", "b"},
        {"c", "d", "e"},
    ]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("import time\ntime.time()", {"time.time"}),
        ("import os.path\nos.times()", {"os.times"}),
        ("import time as t\nclock = t.monotonic", {"time.monotonic"}),
        ("from time import perf_counter", {"time.perf_counter"}),
        ("from datetime import datetime, UTC\ndatetime.now(UTC)", {"datetime.datetime.now"}),
        ("import datetime as dt\ndt.date.today()", {"datetime.date.today"}),
        ("from datetime import datetime, UTC\ndatetime.fromtimestamp(0, UTC)\nclock.now()\nloop.time()", set()),
    ],
)
def test_the_clock_rule_finds_a_reading(text: str, read: set[str]) -> None:
    assert clocks_read(PACKAGE / "_runtime" / "runner.py", text) == read


@pytest.mark.parametrize(
    ("top", "length", "lacking"),
    [
        ('"""Does a thing."""', 301, True),
        ('"""Does a thing."""', 300, False),
        ('"""Does a thing.\n\nOver 300 lines, because it is one machine."""', 301, False),
        ("# 400 lines: one machine", 301, False),
        ("x = 1\n# lines", 301, True),
    ],
)
def test_the_length_rule_wants_its_reason_above_the_first_statement(top: str, length: int, lacking: bool) -> None:
    text = top + "\n" + "x = 1\n" * (length - len(top.splitlines()))
    assert lacks_a_reason_for_its_length(text) is lacking
