"""samples/compose without a container engine: the recipe of its image, read, and what that makes, in a directory.

A container is an environment, a working directory and a command; all three are taken from the Dockerfile, so what runs
here is what runs there. What the index of packages would bring is copied from where this runs.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from packaging.requirements import Requirement

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from singletonjob import SingletonJobs

__all__ = ["ROOT", "Image", "Instruction", "build", "instructions", "longest_stop", "stages", "worker_app"]

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "samples" / "compose"
APP = "/opt/app"
"""Where the recipe puts everything."""


class Instruction(NamedTuple):
    """One of a Dockerfile: `RUN`, and what is to be run."""

    word: str
    rest: str

    @property
    def exec_form(self) -> list[str]:
        """The words of `ENTRYPOINT ["a", "b"]`, also after options and a second keyword (HEALTHCHECK). Else raises."""
        words: list[str] = json.loads(self.rest[self.rest.index("[") :])
        return words


def instructions() -> list[Instruction]:
    """All of the Dockerfile, continued lines joined, comments left out."""
    text = re.sub(r"^\s*#.*\n", "", (SAMPLE / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [Instruction(*re.split(r"\s+", line, maxsplit=1)) for line in lines if line.strip()]


def stages(found: Iterable[Instruction]) -> list[list[Instruction]]:
    """Cut before each FROM."""
    cut: list[list[Instruction]] = []
    for instruction in found:
        if instruction.word == "FROM":
            cut.append([])
        cut[-1].append(instruction)
    return cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A built one: where the recipe's /opt/app is, and what it says of a container."""

    app: Path
    environment: dict[str, str]
    working_directory: Path
    entrypoint: list[str]
    command: list[str]
    health_check: list[str]

    def run(self, *arguments: str) -> list[str]:
        """The words of `docker run IMAGE ARGUMENT ...`; without any, those of CMD."""
        return [self._program(self.entrypoint[0]), *self.entrypoint[1:], *(arguments or self.command)]

    def checked(self, port: int) -> list[str]:
        """The health check's words, for a worker whose port is another than 8081."""
        program, *words = self.health_check
        return [self._program(program), *(word.replace("8081", str(port)) for word in words)]

    def _program(self, name: str) -> str:
        """As exec would find it on the container's PATH, and in the image itself."""
        found = shutil.which(name, path=self.environment["PATH"])
        assert found is not None
        assert Path(found).is_relative_to(self.app), f"{name} is not of the image"
        return found


def build(directory: Path) -> Image:
    """Carry the recipe out under `directory`, about 3 s: each RUN that needs no network as it is written."""
    app = directory / "app"
    first, last = stages(instructions())
    for word, rest in first[1:]:
        here = rest.replace(APP, str(app))
        match word:
            case "COPY":
                *sources, target = here.split()
                if target.startswith(str(app)):
                    for source in sources:
                        Path(target).mkdir(parents=True, exist_ok=True)
                        shutil.copy(ROOT / source, target)
            case "RUN" if here.startswith("pip "):
                _install(app, here.split())
            case "RUN":
                subprocess.run([sys.executable, *here.split()[1:]], check=True, capture_output=True)
                assert here.startswith("python ")
            case _:
                raise AssertionError(f"{word}: teach this file what it does")
    said = {word: (rest, instruction) for instruction in last for word, rest in [instruction]}
    pairs = [pair.partition("=") for pair in said["ENV"][0].replace(APP, str(app)).replace("$PATH", os.defpath).split()]
    return Image(
        app=app,
        environment={name: value for name, _, value in pairs},
        working_directory=Path(said["WORKDIR"][0].replace(APP, str(app))),
        entrypoint=said["ENTRYPOINT"][1].exec_form,
        command=said["CMD"][1].exec_form,
        health_check=said["HEALTHCHECK"][1].exec_form,
    )


def _install(app: Path, words: Sequence[str]) -> None:
    """What `pip --python PYTHON install --no-compile /source` would do: the package, what it needs, and its command."""
    python, source = Path(words[words.index("--python") + 1]), words[-1]
    assert source == "/source"
    assert "--no-compile" in words
    (target,) = (app / "lib").glob("python*/site-packages")
    shutil.copytree(ROOT / "src", target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    for name in _needed("singletonjob"):
        found = distribution(name)
        for file in found.files or ():
            if ".." not in file.parts and file.suffix not in {".pyc", ".pth"}:
                (target / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(found.locate_file(file)), target / file)
    for script in distribution("singletonjob").entry_points.select(group="console_scripts"):
        module, function = script.value.split(":")
        path = python.parent / script.name
        path.write_text(f"#!{python}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n")
        path.chmod(0o755)


def _needed(name: str) -> set[str]:
    """A distribution and all that it requires, without extras."""
    found = {name}
    for line in distribution(name).requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            found |= _needed(requirement.name)
    return found


def worker_app() -> SingletonJobs:
    """The app that the image runs, made anew."""
    spec = importlib.util.spec_from_file_location("worker_jobs", SAMPLE / "worker_jobs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    app: SingletonJobs = module.app
    return app


def longest_stop(app: SingletonJobs) -> float:
    """What a stop may take at most, in seconds, with the options that hold in this process; docs/processes.md."""
    found = app.resolved()
    jobs = [found.of_job(job.name) for job in found.jobs]
    return max(job.shutdown_grace + job.margin for job in jobs) + 1 + 2 * max(job.call_timeout for job in jobs)
