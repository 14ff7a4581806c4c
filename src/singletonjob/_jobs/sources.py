"""Options from the environment and from a file, put together with those in code; each value knows where it stands.

A job's own value beats the app's, whatever the source. Within a level code comes first, then the environment, then the
file, then the default. The file is named by SINGLETONJOB_CONFIG, else it is `singletonjob.toml` in the working
directory, if there is one:

    lock_expiry = "20s"                 # SINGLETONJOB_LOCK_EXPIRY=20s

    [jobs.price-tick]
    enabled = false                     # SINGLETONJOB_JOBS__PRICE_TICK__ENABLED=no

What nobody knows is an error, for a misspelt option would be a silent default. A job that nobody knows is only worth a
warning: while a new version is rolled out, the old one may see its configuration.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, TypeVar

from .._core.errors import ConfigError
from .duration import shown
from .options import APP_READERS, JOB_READERS, nearest, resolve, resolve_app
from .sheets import JOBS, OptionNote, Setting, environment_sheet, file_sheet
from .timing import TIMING_READERS, WHEN, make_schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .definition import JobDefinition
    from .options import AppOptions, JobOptions, Reader

__all__ = ["Resolved", "resolve_sources", "told"]

FLAGS = frozenset({"amnesia_guard", "cancel_on_lost_leadership", "enabled", "warn_on_long_run"})
BOOLEANS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
OPTIONAL = frozenset({"late_limit", "timeout"})
DURATION_RULES = ("heartbeat_interval", "lock_expiry", "margin", "max_backoff_delay")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """What holds for an app and for each of its jobs.

    `app` has what is set at all, `of_jobs` likewise for each job, including what it has from the app; `jobs` are the
    definitions with the schedules and own options that hold.
    """

    app: Mapping[str, Setting]
    jobs: tuple[JobDefinition, ...]
    of_jobs: Mapping[str, Mapping[str, Setting]]
    notes: tuple[OptionNote, ...]

    def options(self) -> AppOptions:
        """The app's options, to start with.

        Raises `ConfigError` where project or store is missing, and for values of app or job that do not go together. An
        app that has jobs, all of them off, needs no store.
        """
        values = _values(self.app)
        if self.jobs and all(self.of_job(job.name).enabled is False for job in self.jobs):
            values.setdefault("store", "memory")  # which nobody asks for anything
        return _explained(self.app, partial(resolve_app, values, notes=self.notes))

    def of_job(self, name: str) -> JobOptions:
        """The job's options. Raises `ConfigError` for values that do not go together."""
        settings = self.of_jobs[name]
        return _explained(settings, partial(resolve, _values(settings), prefix=f"[Job: {name}] "))


def resolve_sources(code: Mapping[str, object], jobs: Iterable[JobDefinition], environ: Mapping[str, str]) -> Resolved:
    """Put the options of an app together; `code` is what `read` made of those given there.

    Raises `ConfigError` for an unknown option or a bad value, naming variable or file, key and job, for a file that
    cannot be read, and for two jobs whose names give one environment name.
    """
    jobs = tuple(jobs)
    by_variable = _by_variable(jobs)
    by_name = {job.name: job for job in jobs}
    sheets = ((environment_sheet(environ), by_variable), (file_sheet(environ), by_name))
    notes: list[OptionNote] = []
    layers = [_set(code)]
    own = {job.name: [_set({**job.timing, **job.overrides})] for job in jobs}
    for sheet, known in sheets:
        layers.append(_set_by(sheet.app, APP_READERS))
        for word, entries in sheet.jobs.items():
            job = known.get(word)
            if job is None:
                source = next((entry.source for entry in entries.values()), f"the file's jobs.{word}")
                text = f"{source}: there is no job {word!r}; {nearest(word, known) if known else 'the app has none'}"
                notes.append(OptionNote("unknown-job", text))
            else:
                own[job.name].append(_set_by(entries, _readers(job), job))
    app = _merged(layers, None, notes)
    inherited = {name: setting for name, setting in app.items() if name in JOB_READERS}
    merged = {name: _merged(job_layers, name, notes) for name, job_layers in own.items()}
    return Resolved(
        app=app,
        jobs=tuple(_adapted(job, merged[job.name]) for job in jobs),
        of_jobs={name: _merged([settings, inherited], name, notes) for name, settings in merged.items()},
        notes=tuple(notes),
    )


def told(name: str, value: object) -> str:
    """A value for people to read; without the password that a store's URL may hold."""
    if name == "store" and isinstance(value, str):
        scheme, (address, _, query) = value.partition(":")[0], value.partition("?")
        if "@" in query:
            return f"{scheme}://***"  # a password with a question mark in it: where it begins cannot be told
        _, at, place = address.rpartition("@")
        return f"{scheme}://***@{place}" if at else place
    if isinstance(value, float) and isfinite(value):
        return f"{value:g} s"
    if value == inf:
        return "none"
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int)):
        return str(value)
    return f"{getattr(value, '__qualname__', type(value).__qualname__)}, from code"


# -- one value ----------------------------------------------------------------------------------------------------


def _by_variable(jobs: tuple[JobDefinition, ...]) -> dict[str, JobDefinition]:
    """The jobs by their names in the environment: `PRICE_TICK` for `price-tick`."""
    found: dict[str, JobDefinition] = {}
    for job in jobs:
        variable = re.sub("[^A-Z0-9]", "_", job.name.upper())
        other = found.setdefault(variable, job)
        if other is not job:
            raise ConfigError(
                f"[Job: {job.name}] {JOBS}{variable}__... would mean this job and {other.name}:"
                f" {other.place} and {job.place}; rename one of them"
            )
    return found


def _readers(job: JobDefinition) -> dict[str, Reader]:
    timing = TIMING_READERS[job.shape]
    return {**JOB_READERS, **{name: timing[name] for name in timing if name != WHEN[job.shape]}}


def _set(values: Mapping[str, object]) -> dict[str, Setting]:
    return {name: Setting(value, "code") for name, value in values.items()}


def _set_by(
    entries: Mapping[str, Setting], readers: Mapping[str, Reader], job: JobDefinition | None = None
) -> dict[str, Setting]:
    return {name: Setting(_read(name, entry, readers, job), entry.source) for name, entry in entries.items()}


def _read(name: str, entry: Setting, readers: Mapping[str, Reader], job: JobDefinition | None) -> object:
    value, source = entry
    if name not in readers:
        raise ConfigError(f"{source}: {_misplaced(name, job) or f'there is no such option; {nearest(name, readers)}'}")
    try:
        value = readers[name](_from_text(name, value, source), source)
        if job is not None and name not in JOB_READERS:
            make_schedule(job.shape, {**job.timing, name: value}, prefix=f"{source}: ")
    except ConfigError as error:
        if str(error).startswith(source):
            raise
        raise type(error)(f"{source}: {error}") from error
    return value


def _misplaced(name: str, job: JobDefinition | None) -> str | None:
    """What to say of an option that is one, but not here."""
    if name in {"every", "expression", "name"}:
        return "this is written in code only; change it there"
    if job is None:
        here = any(name in timing for timing in TIMING_READERS.values())
        return f"this is an option of one job; write it below [jobs.NAME] or as {JOBS}JOB__..." if here else None
    if name in APP_READERS:
        return "this is an option of the app; write it at the top of the file or without the job's name"
    if any(name in timing for timing in TIMING_READERS.values()):
        return f"{job.shape} jobs have no such option; leave it out"
    return None


def _from_text(name: str, value: Any, source: str) -> object:
    """What would be written in code for it."""
    word = value.strip().lower() if isinstance(value, str) else str(value).lower()
    if name in FLAGS:
        if isinstance(value, (str, int)) and word in BOOLEANS:
            return BOOLEANS[word]
        raise ConfigError(f"{source}: {shown(value)} is neither on nor off; write true or false")
    if name in OPTIONAL and isinstance(value, str) and word == "none":
        return None
    if name == "catch_up_limit" and isinstance(value, str) and word.isdecimal():
        return int(word)
    return value


# -- all together --------------------------------------------------------------------------------------------------


def _merged(layers: Iterable[Mapping[str, Setting]], job: str | None, notes: list[OptionNote]) -> dict[str, Setting]:
    """The strongest of each; a weaker source that says something else is noted."""
    merged: dict[str, Setting] = {}
    for layer in layers:
        for name, setting in layer.items():
            if setting.value is None and name not in JOB_READERS and job is None:
                continue  # of the app's own options, None means that it was not said
            held = merged.setdefault(name, setting)
            if held.kind != setting.kind and held.value != setting.value:
                text = (
                    f"{name} is {told(name, held.value)} by {held.source};"
                    f" {setting.source} says {told(name, setting.value)} and is weaker"
                )
                notes.append(OptionNote("option-overridden", text, job))
    return merged


def _adapted(job: JobDefinition, settings: Mapping[str, Setting]) -> JobDefinition:
    values = _values(settings)
    overrides = {name: value for name, value in values.items() if name in JOB_READERS}
    timing = {name: value for name, value in values.items() if name not in JOB_READERS}
    if timing != job.timing:
        schedule = make_schedule(job.shape, timing, prefix=f"[Job: {job.name}] ")
        job = replace(job, timing=timing, schedule=schedule)
    return replace(job, overrides=overrides)


def _values(settings: Mapping[str, Setting]) -> dict[str, Any]:
    return {name: setting.value for name, setting in settings.items()}


def _explained(settings: Mapping[str, Setting], resolved: Callable[[], T]) -> T:
    """What `resolved` returns; what it raises says where the values stand, unless that is in code."""
    try:
        return resolved()
    except ConfigError as error:
        places = [
            f"{name} is from {settings[name].source}"
            for name in DURATION_RULES
            if name in settings and settings[name].kind != "code" and name in str(error)
        ]
        if not places:
            raise
        raise ConfigError(f"{error} ({'; '.join(places)})") from error
