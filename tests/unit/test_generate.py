"""Which classes `singletonjob generate` finds in a package that it does not import, and what it writes."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from singletonjob import ConfigError, Job, SingletonJobs
from singletonjob._generate.job_scan import JobClass, Scan, scan
from singletonjob._generate.registration import registration
from singletonjob.cli import main

ROOT = Path(__file__).parents[2]


def write(directory: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def scanned(directory: Path, files: dict[str, str], package: str = "acme") -> Scan:
    write(directory, {"acme/__init__.py": "", **files})
    return scan(package, [str(directory)])


def found(directory: Path, files: dict[str, str]) -> list[str]:
    """The classes, `!` after those whose constructor needs arguments; of a package that warns of nothing."""
    result = scanned(directory, files)
    assert result.warnings == ()
    return [f"{job.qualname}{'!' * job.needs_arguments}" for job in result.jobs]


JOBS = "from singletonjob import CronJob, FixedRateJob, IntervalJob\n"
BODY = "    def execute(self): ...\n"


# -- what is found -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "from singletonjob import IntervalJob\nclass Poll(IntervalJob, every=1):\n" + BODY,
        "from singletonjob import IntervalJob as IJ\nclass Poll(IJ, every=1):\n" + BODY,
        "import singletonjob\nclass Poll(singletonjob.FixedRateJob, every=1):\n" + BODY,
        "import singletonjob as s\nclass Poll(s.CronJob, expression='* * * * *'):\n" + BODY,
        "from singletonjob._jobs.definition import IntervalJob\nclass Poll(IntervalJob, every=1):\n" + BODY,
        "from singletonjob import *\nclass Poll(IntervalJob, every=1):\n" + BODY,
        "import singletonjob\nBase = singletonjob.IntervalJob\nclass Poll(Base, every=1):\n" + BODY,
        "from singletonjob import IntervalJob\ntry:\n  class Poll(IntervalJob, every=1):\n"
        "  " + BODY + "finally: pass\n",
        "from singletonjob import IntervalJob\nraise RuntimeError\nclass Poll(IntervalJob, every=1):\n" + BODY,
        "import no_such_module\nfrom singletonjob import IntervalJob\nclass Poll(IntervalJob, every=1):\n" + BODY,
        "from singletonjob import IntervalJob\nclass Poll(IntervalJob, **OPTIONS):\n" + BODY,
    ],
)
def test_a_job_class_is_found_however_its_base_was_imported_and_nothing_is_imported(text: str, tmp_path: Path) -> None:
    assert found(tmp_path, {"acme/jobs.py": text, "acme/__init__.py": "raise RuntimeError('imported')"}) == ["Poll"]
    assert "acme" not in sys.modules


def test_bases_are_followed_through_modules_re_exports_star_imports_and_other_packages(tmp_path: Path) -> None:
    files = {
        "acme/base.py": JOBS + "class Base(IntervalJob):\n    retries = 3\n",
        "acme/api/__init__.py": "from ..base import Base as Exported\nfrom .more import *\n",
        "acme/api/more.py": "from acme.base import Base\nclass More(Base): ...\n",
        "acme/deep/er/__init__.py": "",
        "acme/deep/__init__.py": "",
        "acme/deep/er/jobs.py": "from ...api import Exported, More\nimport acme.api as a\n"
        "class One(Exported, every=1):\n"
        + BODY
        + "class Two(More, every=1):\n"
        + BODY
        # A body from a mixin, and options that come with a base.
        + "class Mixin:\n"
        + BODY
        + "class Three(Mixin, a.More, every=1): ...\nclass Four(One): ...\n",
        "acme/outer.py": "from library import Job\nfrom shared.jobs import *\nclass Five(Job, every=1):\n"
        + BODY
        + "class Six(Shared, every=1):\n"
        + BODY,
        "library/__init__.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .lazy import Job\n",
        "library/lazy.py": "from further import Job\n",
        "further.py": JOBS + "Job = FixedRateJob\n",
        "shared/jobs.py": JOBS + "class Shared(CronJob, expression='* * * * *'): ...\n",
    }
    assert found(tmp_path, files) == ["Four", "One", "Three", "Two", "Five", "Six"]


def test_classes_of_other_packages_are_not_the_packages_own(tmp_path: Path) -> None:
    files = {
        "acme/jobs.py": "from library import Poll\nAlias = Poll\nclass Mine(Poll): ...\n",
        "library.py": JOBS + "class Poll(IntervalJob, every=1):\n" + BODY,
    }
    assert found(tmp_path, files) == ["Mine"]


def test_an_abstract_class_is_a_base_and_nothing_is_said_of_it(tmp_path: Path) -> None:
    text = (
        JOBS
        + "import abc\nfrom abc import abstractmethod as am\n"
        + "class NoBody(IntervalJob, every=1): ...\n"
        + "class Method(IntervalJob, every=1):\n    @abc.abstractmethod\n    def fetch(self): ...\n"
        + BODY
        + "class Property(Method):\n    @property\n    @am\n    def url(self): ...\n    def fetch(self): ...\n"
        + "class Again(Method):\n    def fetch(self): ...\n    @am\n    def execute(self): ...\n"
        + "class WrongOrder(IntervalJob, object, every=1):\n    execute: object\n"
        + "class Concrete(Property):\n    url = 'here'\n"
        + "class Assigned(IntervalJob, every=1):\n    execute = print\n"
    )
    assert found(tmp_path, {"acme/jobs.py": text}) == ["Assigned", "Concrete"]


def test_a_concrete_base_without_a_schedule_is_passed_over_in_silence(tmp_path: Path) -> None:
    text = (
        JOBS
        + "class Base(IntervalJob):\n"
        + BODY
        + "class Poll(Base, every=1): ...\n"
        + "class Own(IntervalJob):\n    def __init_subclass__(cls): super().__init_subclass__(every=1)\n"
        + BODY
        + "class Easy(Own): ...\n"
    )
    assert found(tmp_path, {"acme/jobs.py": text}) == ["Easy", "Own", "Poll"]


def test_constructors_that_need_arguments_are_told_from_those_that_do_not(tmp_path: Path) -> None:
    text = JOBS + "import attrs, dataclasses\nfrom dataclasses import dataclass, field\n"
    cases = {
        "Plain": "pass",
        "Needs": "def __init__(self, feed): ...",
        "KeywordOnly": "def __init__(self, *, feed): ...",
        "Defaults": "def __init__(self, feed=None, *args, limit=3, **more): ...",
        "ByNew": "def __new__(cls, feed): ...",
        "Unknown": "__init__ = made",
    }
    for name, line in cases.items():
        text += f"class {name}(IntervalJob, every=1):\n    {line}\n{BODY}"
    text += "class Heir(Needs): ...\nclass Eased(Needs):\n    def __init__(self): super().__init__(3)\n"
    for decorator, field, name in (
        ("dataclass", "feed: str", "Data"),
        ("dataclasses.dataclass(kw_only=True)", "feed: str", "DataByKeyword"),
        ("dataclass", "feed: str = 'x'", "DataDefault"),
        ("dataclass", "feeds: list[str] = field(default_factory=list)", "DataFactory"),
        ("dataclass", "feed: str = field(repr=False)", "DataField"),
        ("dataclass", "feed: str = field(init=False)", "DataLater"),
        ("attrs.define", "feed: str", "ByAttrs"),
    ):
        text += f"@{decorator}\nclass {name}(IntervalJob, every=1):\n    {field}\n{BODY}"
    text += "@dataclass\nclass DataHeir(Data):\n    more: int = 3\n"
    assert found(tmp_path, {"acme/jobs.py": text}) == [
        *("ByAttrs!", "ByNew!", "Data!", "DataByKeyword!", "DataDefault", "DataFactory", "DataField!", "DataHeir!"),
        *("DataLater", "Defaults", "Eased", "Heir!", "KeywordOnly!", "Needs!", "Plain", "Unknown!"),
    ]


def test_nested_classes_single_modules_and_subpackages_can_be_named(tmp_path: Path) -> None:
    text = JOBS + "class Outer:\n    class Inner(IntervalJob, every=1):\n        def execute(self): ...\n"
    write(tmp_path, {"alone.py": text, "acme/__init__.py": "", "acme/sub/__init__.py": text, "acme/other.py": text})
    assert scan("alone", [str(tmp_path)]).jobs == (JobClass("alone", "Outer.Inner", False),)
    assert scan("acme.sub", [str(tmp_path)]).jobs == (JobClass("acme.sub", "Outer.Inner", False),)
    write(tmp_path, {"space/part/jobs.py": text})
    assert scan("space", [str(tmp_path)]).jobs == (JobClass("space.part.jobs", "Outer.Inner", False),)


# -- what is left out, and said ------------------------------------------------------------------------------------

GENERIC = "from typing import Generic, TypeVar\nT = TypeVar('T')\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GENERIC + "class X(IntervalJob, Generic[T], every=1):\n" + BODY, "acme.jobs.X is generic"),
        ("class X(IntervalJob):\n" + BODY, "acme.jobs.X has no schedule; write every="),
        ("class X(CronJob):\n" + BODY, "acme.jobs.X has no schedule; write expression="),
        (
            "import typing as t\nif t.TYPE_CHECKING:\n  class X(IntervalJob, every=1):\n  " + BODY,
            "acme.jobs.X stands under `if t.TYPE_CHECKING:`",
        ),
        (
            "if __name__ == '__main__':\n  class X(IntervalJob, every=1):\n  " + BODY,
            "acme.jobs.X stands under `if __name__ == '__main__':`",
        ),
        (
            "class A:\n  class __X(IntervalJob, every=1):\n  " + BODY,
            "acme.jobs.A.__X has a name that is private to the class around it",
        ),
        (
            "from nowhere import Base\nclass X(Base, every=1):\n" + BODY,
            "acme.jobs.X may be a job, but nowhere.Base was not found",
        ),
    ],
)
def test_a_class_that_cannot_be_registered_is_skipped_with_a_warning_that_names_it(
    text: str, said: str, tmp_path: Path
) -> None:
    result = scanned(tmp_path, {"acme/jobs.py": JOBS + text})
    assert result.jobs == ()
    (warning,) = result.warnings
    assert warning.startswith(said)
    assert warning.endswith("; skipped")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type parameters of classes came with Python 3.12")
def test_a_class_with_type_parameters_is_generic(tmp_path: Path) -> None:
    text = JOBS + "class X[T](IntervalJob, every=1):\n" + BODY + "class Y(X[int]): ...\n"
    result = scanned(tmp_path, {"acme/jobs.py": text})
    assert result.jobs == (JobClass("acme.jobs", "Y", False),)
    assert [warning.split()[0] for warning in result.warnings] == ["acme.jobs.X"]


def test_a_class_that_says_which_types_is_not_generic(tmp_path: Path) -> None:
    text = JOBS + GENERIC + "class X(IntervalJob, Generic[T], every=1): ...\nclass Y(X[dict[str, int]]):\n" + BODY
    assert found(tmp_path, {"acme/jobs.py": text}) == ["Y"]


def test_modules_that_cannot_be_imported_are_named(tmp_path: Path) -> None:
    text = JOBS + "class X(IntervalJob, every=1):\n" + BODY
    result = scanned(tmp_path, {"acme/__main__.py": text, "acme/class.py": text, "acme/my-jobs.py": text})
    assert result.jobs == ()
    assert [warning.partition(" ")[0] for warning in result.warnings] == [
        *("acme.__main__.X", "acme.class.X", "acme.my-jobs.X")
    ]


def test_a_directory_without_init_counts_and_may_hold_what_is_not_python(tmp_path: Path) -> None:
    text = JOBS + "class X(IntervalJob, every=1):\n" + BODY
    files = {
        "acme/bare/jobs.py": text,
        "acme/bare/template.py": "{{ x }} y",
        "acme/a-b.py": "class (",
        "acme/no.txt": "(",
    }
    assert found(tmp_path, files) == ["X"]


def test_stubs_say_nothing_of_what_is_there_at_run_time(tmp_path: Path) -> None:
    text = JOBS + "from ._core import shift\nclass X(IntervalJob, every=1):\n" + BODY
    stub = "from typing import overload\n" + "@overload\ndef shift(a: int) -> int: ...\n" * 2
    assert found(tmp_path, {"acme/__init__.py": text, "acme/__init__.pyi": stub, "acme/jobs.pyi": text}) == ["X"]


def test_a_module_with_a_syntax_error_is_an_error_with_its_place(tmp_path: Path) -> None:
    for number, name in enumerate(("acme/bad.py", "acme/__init__.py", "bad.py")):
        directory = tmp_path / str(number)
        write(directory, {"acme/__init__.py": "", name: "x = 1\nclass (:\n"})
        with pytest.raises(ConfigError, match=rf"cannot read .*{re.escape(name)}:2: SyntaxError: invalid syntax"):
            scan("bad" if name == "bad.py" else "acme", [str(directory)])
    with pytest.raises(ConfigError, match=r"acme/bad\.py:2"):
        scan("acme.bad", [str(tmp_path / "0")])


# -- what is written -----------------------------------------------------------------------------------------------


def functions(text: str) -> dict[str, object]:
    namespace: dict[str, object] = {}
    exec(compile(text, "registration.py", "exec"), namespace)  # noqa: S102 - it is what is tested
    return namespace


def test_the_module_is_sorted_and_tells_classes_of_one_name_apart() -> None:
    jobs = [
        JobClass("acme.b", "Poll", False),
        JobClass("acme.a", "app", True),
        JobClass("acme.a", "Poll", False),
        JobClass("acme.a", "Outer.Two", False),
        JobClass("acme.a", "Outer.One", True),
        JobClass("acme.c", "Poll2", False),
    ]
    text = registration("acme", jobs)
    assert text == registration("acme", reversed(jobs))
    assert text[text.index("from acme") :] == (
        "from acme.a import Outer\n"
        "from acme.a import Poll\n"
        "from acme.a import app as app2\n"
        "from acme.b import Poll as Poll3\n"
        "from acme.c import Poll2\n"
        "\n"
        '__all__ = ["add_singleton_jobs"]\n'
        "\n"
        "\n"
        "def add_singleton_jobs(app: SingletonJobs, make: Callable[[type[Job]], Job]) -> None:\n"
        '    """Add them; `make(cls)` builds those whose constructors need arguments."""\n'
        "    app.add(make(Outer.One))\n"
        "    app.add(Outer.Two())\n"
        "    app.add(Poll())\n"
        "    app.add(make(app2))\n"
        "    app.add(Poll3())\n"
        "    app.add(Poll2())\n"
    )


def test_a_module_without_needs_is_called_with_make_and_without() -> None:
    text = registration("acme", [])
    ast.parse(text)
    add = functions(text)["add_singleton_jobs"]
    assert callable(add)
    add(SingletonJobs("acme"))
    add(SingletonJobs("acme"), make=lambda cls: cls())


@pytest.fixture
def project(workplace: Path) -> Path:
    """A package with two jobs, one of which needs an argument."""
    text = JOBS + "class _Poll(IntervalJob, every=1):\n" + BODY
    text += "class Tick(FixedRateJob, every=1):\n    def __init__(self, feed): self.feed = feed\n" + BODY
    write(workplace, {"src/pricing_c108/__init__.py": "", "src/pricing_c108/jobs.py": text})
    sys.path.insert(0, str(workplace / "src"))
    return workplace


COMMAND = ("generate", "pricing_c108", "-o", "src/pricing_c108/registration.py", "--app-dir", "src")


def test_the_module_registers_every_job_and_make_builds_those_that_need_arguments(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(COMMAND) == 0
    assert capsys.readouterr().out == "src/pricing_c108/registration.py is written: 2 jobs\n"
    made: list[type[Job]] = []

    def make(cls: type[Job]) -> Job:
        made.append(cls)
        return cls("a feed")  # type: ignore[call-arg]  # those of the page take one

    app = SingletonJobs("pricing")
    add = functions((project / "src/pricing_c108/registration.py").read_text())["add_singleton_jobs"]
    assert callable(add)
    add(app, make)
    assert [job.name for job in app.resolved().jobs] == ["tick", "poll"]
    assert [cls.__name__ for cls in made] == ["Tick"]


def test_check_tells_a_stale_file_by_exit_code_1_and_writes_nothing(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = project / "src/pricing_c108/registration.py"
    assert main([*COMMAND, "--check"]) == 1
    assert capsys.readouterr().err.endswith("registration.py is not there; write it anew without --check\n")
    assert not file.exists()
    assert main(COMMAND) == 0
    written = file.stat().st_mtime_ns
    assert main([*COMMAND, "--check"]) == 0
    assert main(COMMAND) == 0
    assert file.stat().st_mtime_ns == written
    jobs = project / "src/pricing_c108/jobs.py"
    jobs.write_text(jobs.read_text() + "class More(Tick): ...\n")
    capsys.readouterr()
    assert main([*COMMAND, "--check"]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.endswith("registration.py is stale; write it anew without --check\n")
    assert output.err.count("\n") == 1
    assert main(COMMAND) == 0
    assert main([*COMMAND, "--check"]) == 0


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["generate", "nowhere", "-o", "r.py"], "there is no package 'nowhere' in "),
        (
            ["generate", "pricing_c108.nothing", "-o", "r.py", "--app-dir", "src"],
            "there is no package 'pricing_c108.no",
        ),
        (["generate", "src/pricing_c108", "-o", "r.py"], "is a path, not a package; write its dotted name"),
        (["generate", "pricing_c108.jobs.Tick", "-o", "r.py"], "is no package and no module; write pricing_c108.jobs"),
        (["generate", "pricing_c108", "-o", "no/r.py"], "--output: cannot write no/r.py: No such file"),
        (["generate", "pricing_c108", "-o", "src"], "--output: cannot read src: Is a directory"),
        (["generate", "pricing_c108", "-o", "r.py", "--app-dir", "no"], "--app-dir: no is not a directory"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_exit_code_2(
    argv: list[str], expected: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    output = capsys.readouterr()
    assert expected in output.err
    assert output.err.startswith("singletonjob generate: ")
    assert output.err.count("\n") == 1


def test_the_formatter_and_the_linter_leave_the_module_as_it_is(project: Path) -> None:
    assert main(COMMAND) == 0
    file = project / "src/pricing_c108/registration.py"
    before = file.read_text()
    for words in (("check", "--fix", "--select", "ALL", "--ignore", "PGH004"), ("format",)):
        subprocess.run([sys.executable, "-m", "ruff", *words, "--isolated", str(file)], check=True, capture_output=True)
    assert file.read_text() == before


def test_the_registration_of_the_sample_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    sample = ROOT / "samples" / "frozen"
    file = sample / "pricing" / "registration.py"
    assert main(["generate", "pricing", "-o", str(file), "--app-dir", str(sample), "--check"]) == 0, capsys.readouterr()


def test_the_pre_commit_hooks_call_the_command(project: Path) -> None:
    text = (ROOT / ".pre-commit-hooks.yaml").read_text()
    entries = re.findall(r"^  entry: singletonjob (.+)$", text, re.MULTILINE)
    assert len(entries) == len(re.findall(r"^- id: ", text, re.MULTILINE)) == 2
    write_, check = (shlex.split(entry) for entry in entries)
    assert main([*check, *COMMAND[1:]]) == 1
    assert main([*write_, *COMMAND[1:]]) == 0
    assert main([*check, *COMMAND[1:]]) == 0
