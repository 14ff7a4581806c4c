"""Static registration: a module that adds one job of each job class of a package to an app, by plain imports.

A program that finds its jobs by importing whatever lies in a directory finds none once it is frozen, and nobody sees
in a diff which jobs there are. This module is written once, read by reviewers, type checkers and freezers alike.
"""

from __future__ import annotations

from itertools import count, groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .job_scan import JobClass

__all__ = ["registration"]

# The remarks are for tools that would change the text, which must stay as it was written: `--check` compares it.
TOP = '''\
"""Adds one job of each job class in `{package}` to an app. Made by `singletonjob generate {package}`; do not edit."""
# fmt: off
# isort: skip_file
# flake8: noqa
'''

TAKEN = ("Callable", "Job", "SingletonJobs", "add_singleton_jobs", "app", "make")


def registration(package: str, jobs: Iterable[JobClass]) -> str:
    """The text of the module: always the same for the same classes.

    Its `add_singleton_jobs(app, make)` calls `make(cls)` for each class whose constructor needs arguments; where there
    is none of these, `make` may be left out.
    """
    ordered = sorted(jobs)
    names = _names(ordered)
    lines = [TOP.format(package=package)]
    if any(part.startswith("_") for job in ordered for part in f"{job.module}.{job.qualname}".split(".")):
        lines[0] += "# pyright: reportPrivateUsage=false\n"
    lines += ["from collections.abc import Callable", "", "from singletonjob import Job, SingletonJobs", ""]
    for module, of_module in groupby(ordered, key=lambda job: job.module):
        lines += [f"from {module} import {name}" for name in _imported(of_module, names)]
    needy = [job for job in ordered if job.needs_arguments]
    made = "Callable[[type[Job]], Job]"
    make = f"make: {made}" if needy else f"make: {made} | None = None"
    lines += [
        *([""] if ordered else []),
        '__all__ = ["add_singleton_jobs"]',
        "",
        "",
        f"def add_singleton_jobs(app: SingletonJobs, {make}) -> None:",
    ]
    if needy:
        lines.append('    """Add them; `make(cls)` builds those whose constructors need arguments."""')
    else:
        lines.append('    """Add them; no constructor needs arguments, so `make` is not called."""')
    for job in ordered:
        first, *inner = job.qualname.split(".")
        cls = ".".join([names[job.module, first], *inner])
        lines.append(f"    app.add(make({cls}))" if job.needs_arguments else f"    app.add({cls}())")
    return "\n".join([*lines, ""])


def _names(jobs: Iterable[JobClass]) -> dict[tuple[str, str], str]:
    """What each imported class is called in the module: two of one name are told apart by a number."""
    wanted = list(dict.fromkeys((job.module, job.qualname.partition(".")[0]) for job in jobs))
    taken = {*TAKEN, *(name for _, name in wanted)}
    names: dict[tuple[str, str], str] = {}
    for module, name in wanted:
        free = name
        if name in TAKEN or name in names.values():
            free = next(other for number in count(2) if (other := f"{name}{number}") not in taken)
            taken.add(free)
        names[module, name] = free
    return names


def _imported(jobs: Iterable[JobClass], names: dict[tuple[str, str], str]) -> list[str]:
    found = dict.fromkeys((job.module, job.qualname.partition(".")[0]) for job in jobs)
    return [key[1] if names[key] == key[1] else f"{key[1]} as {names[key]}" for key in found]
