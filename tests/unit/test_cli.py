"""The command line: usage, finding the app, log lines. What takes real processes is in tests/integration."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from singletonjob import ConfigError, SingletonJobs
from singletonjob.cli import COMMANDS, main
from singletonjob.cli.loading import load_app
from singletonjob.cli.logs import JsonFormatter, TextFormatter

if TYPE_CHECKING:
    from collections.abc import Generator

SRC = Path(__file__).parents[2] / "src"


# -- usage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], "a command is missing; write one of: run, demo"),
        (["rum"], "there is no command 'rum'; did you mean 'run'?"),
        (["frobnicate"], "there is no command 'frobnicate'; write one of: run, demo"),
        (["run"], "the following arguments are required: MODULE:APP"),
        (["run", "jobs:app", "--log-format", "xml"], "invalid choice: 'xml'"),
        (["run", "jobs:app", "--fast"], "unrecognized arguments: --fast"),
        (["demo", "--workers", "1"], "'1' is not a number of workers; write 2 to 20"),
        (["demo", "--workers", "many"], "'many' is not a number of workers"),
        (["demo", "--seconds", "5"], "write 6 or more"),
        (["demo", "--seconds", "inf"], "write 6 or more"),
        (["demo", "--seconds", "soon"], "'soon' is too short or no number"),
    ],
)
def test_wrong_usage_is_one_line_on_stderr_and_exit_code_2(
    argv: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exited:
        main(argv)
    output = capsys.readouterr()
    assert exited.value.code == 2
    assert expected in output.err
    assert output.err.count("\n") == 1
    assert output.out == ""


def test_a_store_that_the_demo_cannot_use_is_exit_code_2_before_any_worker_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["demo", "--store", "carrier-pigeon://loft"]) == 2
    output = capsys.readouterr()
    assert output.err.startswith("singletonjob demo: --store: ")
    assert "carrier-pigeon" in output.err
    assert output.err.count("\n") == 1
    assert output.out == ""


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_a_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main([command, "--help"])
    output = capsys.readouterr()
    assert exited.value.code == 0
    assert f"singletonjob {command} " in output.out.partition("examples:")[2]


def test_the_overview_names_all_commands_and_imports_none_of_them() -> None:
    script = (
        "import sys, singletonjob.cli\n"
        "try: singletonjob.cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "print([name for name in sys.modules if name.startswith(('singletonjob.cli.', 'asyncio'))])\n"
    )
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert all(f"\n    {name} " in output for name in COMMANDS)
    assert output.splitlines()[-1] == "[]"


def test_the_package_itself_can_be_run() -> None:
    done = subprocess.run([sys.executable, "-m", "singletonjob", "rum"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("singletonjob: there is no command 'rum'")


# -- finding the app -----------------------------------------------------------------------------------------------

JOBS = """
from singletonjob import SingletonJobs
app = SingletonJobs("pricing", store="memory")
class Holder:
    inner = app
class Empty:
    pass
def make_app():
    return app
def make_nothing():
    return None
def make_trouble():
    raise OSError("no disk")
def make_with(argument):
    return app
number = 7
"""

LAZY = """
def __getattr__(name): import c107_none
class Config:
    @property
    def app(self):
        return self.absent
config = Config()
"""


@pytest.fixture
def project(workplace: Path) -> Path:
    """A directory with the jobs, as a module and in a package."""
    (workplace / "c107_jobs.py").write_text(JOBS)
    (workplace / "c107_bare").mkdir()
    (workplace / "c107_package").mkdir()
    (workplace / "c107_package" / "__init__.py").touch()
    (workplace / "c107_package" / "jobs.py").write_text(JOBS)
    (workplace / "c107_lazy.py").write_text(LAZY)
    return workplace


@pytest.mark.parametrize("target", ["c107_jobs:app", "c107_jobs:Holder.inner", "c107_package.jobs:app"])
def test_c107_the_app_is_found_in_the_working_directory(
    target: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    assert isinstance(load_app(target), SingletonJobs)


def test_c107_the_app_is_found_from_the_parent_with_app_dir(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.parent)
    assert isinstance(load_app("c107_jobs:app", app_dir=project.name), SingletonJobs)


def test_c107_a_factory_makes_the_app(project: Path) -> None:
    assert isinstance(load_app("c107_jobs:make_app", app_dir=str(project), factory=True), SingletonJobs)


@pytest.mark.parametrize(
    ("target", "factory", "expected"),
    [
        ("c107_jobs", False, "'c107_jobs' does not name an app; write MODULE:APP"),
        (":app", False, "':app' does not name an app"),
        ("c107_jobs.py:app", False, "'c107_jobs.py' is a file, not a module; write c107_jobs:app"),
        ("./c107_package/jobs.py:app", False, "write c107_package.jobs:app"),
        ("c107_absent:app", False, "there is no module 'c107_absent' in "),
        ("c107_package.absent:app", False, "there is no module 'c107_package.absent' in "),
        ("c107_jobs:ap", False, "c107_jobs has no 'ap'; did you mean 'app'?"),
        ("c107_jobs:scheduler", False, "c107_jobs has no 'scheduler'; did you mean 'app'?"),
        ("c107_jobs:Holder.innner", False, "c107_jobs.Holder has no 'innner'; did you mean 'inner'?"),
        (
            "c107_package:app",
            False,
            "c107_package has no 'app'; it is c107_package/__init__.py, which holds no SingletonJobs",
        ),
        ("c107_jbos:app", False, "did you mean 'c107_jobs'?"),
        ("C107_package.jobs:app", False, "did you mean 'c107_package.jobs'?"),
        ("c107_package.job:app", False, "did you mean 'c107_package.jobs'?"),
        (".c107_jobs:app", False, "'.c107_jobs' begins with a dot; write c107_jobs:app"),
        ("json:app", False, f"json has no 'app'; it is {json.__file__}, which holds no SingletonJobs"),
        ("time:app", False, "time has no 'app'; it is a module built into Python"),
        (
            "c107_lazy:app",
            False,
            "cannot read c107_lazy.app: ModuleNotFoundError: No module named 'c107_none' (c107_lazy.py:2)",
        ),
        (
            "c107_lazy:config.app",
            False,
            "cannot read c107_lazy.config.app: AttributeError: 'Config' object has no attribute 'absent' (",
        ),
        (
            "c107_jobs:Empty.app",
            False,
            "c107_jobs.Empty has no 'app'; it is the class Empty, which holds no SingletonJobs",
        ),
        ("c107_bare:app", False, "c107_bare has no 'app'; it is the directory c107_bare without __init__.py, which"),
        ("c107_jobs:number", False, "c107_jobs:number is an int, not a SingletonJobs"),
        ("c107_jobs:Holder", False, "c107_jobs:Holder is the class Holder, not a SingletonJobs"),
        ("c107_jobs:make_app", False, "c107_jobs:make_app is a function, not a SingletonJobs; if it makes one, add "),
        ("c107_jobs:make_nothing", True, "c107_jobs:make_nothing() is None, not a SingletonJobs"),
        ("c107_jobs:number", True, "--factory: c107_jobs:number is an int, which cannot be called"),
        ("c107_jobs:make_trouble", True, "c107_jobs:make_trouble() failed: OSError: no disk (c107_jobs.py:13)"),
        ("c107_jobs:make_with", True, "missing 1 required positional argument: 'argument'"),
    ],
)
def test_c107_a_wrong_name_is_told_in_one_line_with_what_to_write(
    target: str, factory: bool, expected: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    with pytest.raises(ConfigError) as raised:
        load_app(target, factory=factory)
    assert expected in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("\nimport c107_missing_library\n", "ModuleNotFoundError: No module named 'c107_missing_library' (X.py:2)"),
        ("\n\nfrom json import nothing\n", "(X.py:3)"),
        ("x = 1\ny = x +\n", "SyntaxError: invalid syntax (X.py:2)"),
        ("x = {}['key']\n", "KeyError: 'key' (X.py:1)"),
        ("import sys\nsys.exit('no licence')\n", "SystemExit: no licence (X.py:2)"),
        ("from singletonjob import SingletonJobs\napp = SingletonJobs('bad name')\n", "bad name"),
        ("from singletonjob import SingletonJobs\napp = SingletonJobs('bad name')\n", "(X.py:2)"),
    ],
)
def test_c107_an_error_inside_the_module_is_told_with_its_cause_and_place(
    code: str, expected: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    (project / "c107_broken.py").write_text(code)
    with pytest.raises(ConfigError) as raised:
        load_app("c107_broken:app")
    assert str(raised.value).startswith("cannot import 'c107_broken': ")
    assert expected.replace("X.py", "c107_broken.py") in str(raised.value)


def test_a_module_of_a_package_that_is_started_from_inside_the_package_is_told_how_to_start(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project / "c107_package")
    (project / "c107_package" / "c107_inside.py").write_text("from .jobs import app\n")
    with pytest.raises(ConfigError) as raised:
        load_app("c107_inside:app")
    assert "(c107_inside.py:1)" in str(raised.value)
    assert str(raised.value).endswith("; it is part of a package: write c107_package.c107_inside:app and --app-dir ..")


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="rights are another matter on this system")
@pytest.mark.usefixtures("workplace")
def test_a_directory_that_this_user_may_not_read_is_told_from_a_module_that_is_not_there() -> None:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)  # not `tmp_path`, whose parents are closed to others
        place.chmod(0o755)
        package = place / "c107_closed"
        package.mkdir()
        (package / "jobs.py").write_text(JOBS)
        package.chmod(0)
        with as_nobody(), pytest.raises(ConfigError) as raised:
            load_app("c107_closed.jobs:app", app_dir=name)
        assert str(raised.value) == f"cannot import 'c107_closed.jobs': this user may not read {package}"
        with as_nobody(), pytest.raises(ConfigError) as raised:
            load_app("jobs:app", app_dir=str(package))
        assert str(raised.value) == f"--app-dir: this user may not read {package}"


@contextmanager
def as_nobody() -> Generator[None]:
    """Root may read everything, so root is somebody else inside the block."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_an_app_dir_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--app-dir: .*absent is not a directory"):
        load_app("jobs:app", app_dir=str(tmp_path / "absent"))


# -- log lines -----------------------------------------------------------------------------------------------------


def record(message: str = "became LEADER", *, name: str = "singletonjob", **fields: object) -> logging.LogRecord:
    made = logging.LogRecord(name, logging.INFO, "file.py", 1, message, (), None)
    made.created = 1_767_225_600.125
    made.__dict__.update(fields)
    return made


def test_a_text_line_has_time_level_and_message() -> None:
    assert TextFormatter().format(record()) == "2026-01-01 00:00:00.125Z INFO    became LEADER"


def test_a_text_line_of_another_logger_names_it() -> None:
    assert TextFormatter().format(record("hello", name="billing")).endswith(" INFO    billing: hello")


def test_a_json_line_carries_the_fields_that_are_set() -> None:
    line = JsonFormatter().format(record(event="elected", job="price-tick", node="pod-1", token=7, reason=None))
    assert json.loads(line) == {
        "ts": "2026-01-01T00:00:00.125Z",
        "level": "INFO",
        "logger": "singletonjob",
        "message": "became LEADER",
        "event": "elected",
        "job": "price-tick",
        "node": "pod-1",
        "token": 7,
    }


def test_a_json_line_stays_one_line_with_a_traceback_and_odd_values() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        failed = record("run failed\nbadly", reason=object())
        failed.exc_info = sys.exc_info()
    line = JsonFormatter().format(failed)
    assert "\n" not in line
    assert "ValueError: two\nlines" in json.loads(line)["exc"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has it")
@pytest.mark.parametrize(
    "words", [("next", "0 3 * * *"), ("check", "full:app"), ("status", "--project", "p", "--json"), ("--version",)]
)
def test_an_output_that_cannot_be_written_is_one_line(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "full.py").write_text("from singletonjob import SingletonJobs\napp = SingletonJobs('p', 'memory')\n")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "singletonjob", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(SRC), "SINGLETONJOB_STORE": "memory"},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("the output cannot be written: No space left on device")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("package", "words"), [("redis", ("check", "hidden:app")), ("cronsim", ("next", "hidden:app"))]
)
def test_a_file_that_hides_a_package_is_named(package: str, words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / f"{package}.py").write_text("")
    (tmp_path / "hidden.py").write_text(
        "from singletonjob import SingletonJobs\napp = SingletonJobs('p', 'redis://127.0.0.1:1/0')\n"
        "app.cron('0 3 * * *', name='job')(lambda: None)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "singletonjob", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SRC)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"{package}.py hides the package {package}, which is needed here; rename the file" in line
