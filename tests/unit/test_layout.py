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

CORE = {f"singletonjob.{name}" for name in ("_errors", "_model", "_election", "_schedule", "_cron", "stores.protocol")}

NOT_IN_CORE = {
    *("asyncio", "concurrent", "contextvars", "multiprocessing", "queue", "sched", "signal", "subprocess", "threading"),
    *("http", "select", "selectors", "socket", "socketserver", "sqlite3", "ssl", "redis"),
    *("random", "secrets", "time"),
}

STORES = {"memory", "sqlite", "redis"}

OPEN_TO_STORES = {f"singletonjob.{name}" for name in ("_errors", "_model", "_clock", "log_writer", "threads")}

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


def imported(tree: ast.AST, file: Path) -> list[tuple[str, str]]:
    """Each local name that a run-time import binds, at any depth of the file, with its dotted origin.

    Imports under `if TYPE_CHECKING:` are left out: they never run.
    """
    package = module_name(file).split(".")
    if file.name != "__init__.py":
        package.pop()
    names: list[tuple[str, str]] = []
    todo = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and is_type_checking(node.test):
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


def imports(file: Path, text: str) -> set[str]:
    """The modules that a file imports at run time: of this package the module itself, of others the dotted origin."""
    ours = {module_name(path) for path in source_files()}
    origins = {origin for _, origin in imported(ast.parse(text), file)}
    return {
        origin if origin in ours or not origin.startswith("singletonjob.") else origin.rpartition(".")[0]
        for origin in origins
    }


def breaks_the_core_rule(file: Path, text: str) -> set[str]:
    return {
        module
        for module in imports(file, text)
        if module.partition(".")[0] in NOT_IN_CORE
        or (module.partition(".")[0] == "singletonjob" and module not in CORE)
    }


def store_of(module: str) -> str | None:
    """Which store a module under `stores` belongs to, by its name; None for what all stores share."""
    return next((store for store in STORES if store in module.rpartition(".")[2]), None)


def breaks_the_store_rule(file: Path, text: str) -> set[str]:
    own = store_of(module_name(file))
    broken = set[str]()
    for module in imports(file, text):
        if module.startswith("singletonjob.stores"):
            if store_of(module) not in (None, own):
                broken.add(module)
        elif module.partition(".")[0] == "singletonjob" and module not in OPEN_TO_STORES:
            broken.add(module)
    return broken


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


@pytest.mark.parametrize("module", sorted(CORE))
def test_the_pure_core_imports_no_clock_no_socket_no_asyncio_and_no_thread(module: str) -> None:
    file = SRC / f"{module.replace('.', '/')}.py"
    assert breaks_the_core_rule(file, file.read_text()) == set()


def test_a_store_imports_the_protocol_and_no_other_store() -> None:
    # The package's __init__ is the one place that knows all stores: it turns a URL into one of them.
    files = [file for file in (PACKAGE / "stores").glob("*.py") if file.name != "__init__.py"]
    assert files
    assert {name_of(file): broken for file in files if (broken := breaks_the_store_rule(file, file.read_text()))} == {}


def test_only_the_clock_and_the_timer_read_the_operating_systems_clocks() -> None:
    allowed = {PACKAGE / "_clock.py", PACKAGE / "_timer.py", *(PACKAGE / "cli").rglob("*.py")}
    files = [file for file in source_files() if file not in allowed]
    assert {name_of(file): read for file in files if (read := clocks_read(file, file.read_text()))} == {}


def test_the_core_can_be_read_in_one_sitting() -> None:
    # The core is what bears a leading underscore. Text that explains it does not count against it.
    lines = {file.name: lines_of_code(file.read_text()) for file in PACKAGE.glob("_*.py")}
    assert sum(lines.values()) <= 2700, lines


def test_a_file_over_300_lines_says_why_on_its_top() -> None:
    assert [name_of(file) for file in source_files() if lacks_a_reason_for_its_length(file.read_text())] == []


def test_nothing_is_imported_by_a_name_made_at_run_time() -> None:
    # A freezer follows import statements alone (C108). What a user named, on the command line or in Django's settings,
    # is that user's to include; uWSGI's modules are made by uWSGI; `hidden_packages` looks and imports nothing.
    named = {PACKAGE / "cli" / "loading.py", *(PACKAGE / "integrations").rglob("*.py")}
    allowed = {*named, PACKAGE / "preforking.py", PACKAGE / "hidden_packages.py"}
    dynamic = re.compile(r"\b(import_module|__import__|entry_points|find_spec|iter_modules)\b")
    files = [file for file in source_files() if file not in allowed]
    assert {name_of(file): found for file in files if (found := dynamic.findall(file.read_text()))} == {}


def test_importing_the_root_loads_nothing_heavy() -> None:
    # Without site, so that no .pth file of the environment loads a module first and hides that we load it too.
    used = "import singletonjob; singletonjob.SingletonJobs, singletonjob.Run; print(*sys.modules)"
    code = f"import sys; sys.path.insert(0, {str(SRC)!r}); {used}"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert "singletonjob._errors" in loaded  # the root is ours, and not an empty namespace
    assert {name for name in NOT_LOADED_BY_THE_ROOT if name in loaded} == set()


# -- the rules see what they are for --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("import time", {"time"}),
        ("from asyncio import sleep", {"asyncio.sleep"}),
        ("def f():\n    from random import x\ndef g():\n    from ._model import x", {"random.x"}),
        ("def f():\n    import socket", {"socket"}),
        ("import concurrent.futures as cf", {"concurrent.futures"}),
        ("from . import _clock", {"singletonjob._clock"}),
        ("from ._clock import SystemClock", {"singletonjob._clock"}),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    import threading", {"threading"}),
        (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import asyncio\n    from ._clock import Clock",
            set(),
        ),
        ("from ._model import Now\nfrom datetime import UTC", set()),
    ],
)
def test_the_core_rule_finds_a_forbidden_import(text: str, broken: set[str]) -> None:
    assert breaks_the_core_rule(PACKAGE / "_cron.py", text) == broken


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("from .memory import shared", {"singletonjob.stores.memory"}),
        ("from . import memory", {"singletonjob.stores.memory"}),
        ("from .._election import Elector", {"singletonjob._election"}),
        ("from .. import _election", {"singletonjob._election"}),
        ("from . import LeaseStore, rules\nfrom .._model import Batch\nfrom ._sqlite_files import lock", set()),
    ],
)
def test_the_store_rule_finds_a_forbidden_import(text: str, broken: set[str]) -> None:
    assert breaks_the_store_rule(PACKAGE / "stores" / "sqlite.py", text) == broken


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
    assert clocks_read(PACKAGE / "_runner.py", text) == read


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
