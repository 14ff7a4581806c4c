"""Options: how a value is written, what can be set, and which values go together.

A value is read where it is given (`read`), so that a bad one fails there; the layers are put together and the rules
between options are checked when the app starts (`resolve`, `resolve_app`). A layer is a mapping of option names to
values as `read` returns them; the strongest comes first. `sources` reads those that are not written in code.

A little over 300 lines, since what each option means is written where editors show it.
"""

from __future__ import annotations

import inspect
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from .._core.errors import ConfigError
from .duration import duration, positive, shown
from .other_tools import advice_on_option

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from .._core.protocol import LeaseStore
    from .duration import Duration
    from .sheets import OptionNote

    Reader: TypeAlias = Callable[[object, str], Any]

__all__ = [
    "APP_READERS",
    "JOB_READERS",
    "AppOptionValues",
    "AppOptions",
    "JobOptionValues",
    "JobOptions",
    "Switch",
    "nearest",
    "node_id",
    "read",
    "read_name",
    "read_optional",
    "resolve",
    "resolve_app",
    "takes",
]

Switch: TypeAlias = "bool | Callable[[], bool | Awaitable[bool]]"
"""On or off; or a function without parameters, sync or async, asked once per heartbeat."""


class JobOptionValues(TypedDict, total=False):
    """The options that an app sets for all its jobs and a job for itself, as they may be written.

    A value that cannot work raises `ConfigError` where it is written; values that do not go together, at the start.
    """

    heartbeat_interval: Duration
    """How often a lease is renewed; default 3 s."""

    lock_expiry: Duration
    """How long a lease lives without a renewal; default 10 s. At least 2 x `heartbeat_interval` + `margin`."""

    margin: Duration
    """How much earlier than the store a leader stops; default `lock_expiry` / 10, below `lock_expiry` / 2."""

    max_backoff_delay: Duration
    """The longest wait between two questions to a store that does not answer; default 10 s."""

    enabled: Switch
    """Whether the job takes part; default True. A function, sync or async, is asked once per heartbeat."""

    cancel_on_lost_leadership: bool
    """Whether an async run is cancelled when the lease is lost; default True."""

    timeout: Duration | None
    """After how long a run is cancelled, or told to stop if it is sync; default None: never."""

    shutdown_grace: Duration
    """How long a run in flight may go on after a stop, a pause or a step-down; default 20 s, 0: not at all."""

    warn_on_long_run: bool
    """Whether a run longer than 80 % of `lock_expiry` is warned of; default True."""


class AppOptionValues(JobOptionValues, total=False):
    """The options of an app besides its project and store, as they may be written."""

    node_id: str | None
    """What the id of this replica begins with; default POD_NAME, else the host name. 8 random digits follow it."""

    stall_limit: Duration
    """For how long the job loop may be silent before its leases are given up; default 60 s, at least 3 s."""

    amnesia_guard: bool
    """Whether nothing is acquired from a store that restarted less than `lock_expiry` + 1 s ago; default True."""


_ROUNDING = 1e-9  # 2 * 0.1 + 0.1 is not above 0.3

SHORTEST_EXPIRY = 0.1
"""Seconds. A margin may be a twentieth of the lease, and must be longer than timers are late: up to 5 ms on a busy
machine. A call may then take 20 ms, which is some round trips in one data centre."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """What holds for one job, checked. Durations in seconds; made by `resolve`."""

    lock_expiry: float
    margin: float
    heartbeat_interval: float = 3.0
    max_backoff_delay: float = 10.0
    enabled: Switch = True
    cancel_on_lost_leadership: bool = True
    timeout: float | None = None
    shutdown_grace: float = 20.0
    warn_on_long_run: bool = True

    @property
    def call_timeout(self) -> float:
        """What one call to the store may take, in seconds: a beat that fails can be tried three times in all."""
        return (self.lock_expiry - self.margin - self.heartbeat_interval) / 3

    @property
    def warning(self) -> str | None:
        """What is allowed but unwise, in one sentence."""
        if self.lock_expiry >= 3 * self.heartbeat_interval - _ROUNDING:
            return None
        return (
            f"lock_expiry ({self.lock_expiry:g} s) is below 3 x heartbeat_interval"
            f" ({self.heartbeat_interval:g} s): one lost call may cost the lease"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AppOptions:
    """What holds for one app, checked.

    `layers` holds what it sets for its jobs, strongest first; `notes` is to be told when it starts.
    """

    project: str
    store: str | LeaseStore
    node_id: str | None = None
    stall_limit: float = 60.0
    amnesia_guard: bool = True
    layers: tuple[Mapping[str, object], ...] = ()
    notes: tuple[OptionNote, ...] = ()

    def of_job(self, name: str, own: Mapping[str, object]) -> JobOptions:
        """The options of a job that sets `own` itself. Raises `ConfigError` naming the job."""
        return resolve(own, *self.layers, prefix=f"[Job: {name}] ")


# -- one value -----------------------------------------------------------------------------------------------------


def read_name(value: object, what: str) -> str:
    """A name of a project or a job: it becomes part of the keys in the store. Raises `ConfigError`."""
    if not isinstance(value, str) or re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", value) is None:
        raise ConfigError(
            f"{what}: {shown(value)} cannot be a name; write 1 to 100 of A-Z a-z 0-9 . _ - beginning with a letter"
            " or digit"
        )
    return value


def read_optional(value: object, what: str) -> float | None:
    """A duration above zero, or None. Raises `ConfigError`."""
    return None if value is None else positive(value, what)


def _read_stall_limit(value: object, what: str) -> float:
    seconds = duration(value, what)
    if seconds < 3:  # the job loop gives its word once a second: less would find a healthy one dead
        raise ConfigError(f"{what}: {seconds:g} s is too short; write at least 3 s")
    return seconds


def _read_flag(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{what}: {shown(value)} is neither on nor off; write True or False")
    return value


def _read_switch(value: object, what: str) -> Switch:
    if not isinstance(value, bool) and not (callable(value) and takes(value, 0)):
        raise ConfigError(
            f"{what}: {shown(value)} is no switch; write True, False or a function without parameters that tells"
        )
    switch: Any = value
    return switch  # type: ignore[no-any-return]  # what a function returns shows when it is asked


def _read_project(value: object, what: str) -> str | None:
    if isinstance(value, str) and not value.strip():
        raise _missing("project")
    return None if value is None else read_name(value, what)


def _read_store(value: object, what: str) -> str | LeaseStore | None:
    if isinstance(value, str) and not value.strip():
        raise _missing("store")
    if value is not None and not isinstance(value, str) and not hasattr(value, "exchange"):
        raise ConfigError(f"{what}: {shown(value)} is no store; write a URL such as 'sqlite' or a LeaseStore")
    store: Any = value.strip() if isinstance(value, str) else value
    return store  # type: ignore[no-any-return]  # a protocol with async methods is not checked at run time


def _read_node_id(value: object, what: str) -> str | None:
    if value is not None and not (isinstance(value, str) and value.strip() and value.isprintable()):
        raise ConfigError(f"{what}: {shown(value)} cannot be a node id; write printable text such as 'rack-7', or None")
    return value


JOB_READERS: Mapping[str, Reader] = {
    "heartbeat_interval": positive,
    "lock_expiry": positive,
    "margin": positive,
    "max_backoff_delay": positive,
    "enabled": _read_switch,
    "cancel_on_lost_leadership": _read_flag,
    "timeout": read_optional,
    "shutdown_grace": duration,
    "warn_on_long_run": _read_flag,
}
APP_READERS: Mapping[str, Reader] = {
    "project": _read_project,
    "store": _read_store,
    "node_id": _read_node_id,
    "stall_limit": _read_stall_limit,
    "amnesia_guard": _read_flag,
    **JOB_READERS,
}


class UnknownOption(ConfigError, TypeError):
    """The option does not exist. Python raises a `TypeError` for an unknown keyword, so this error is one, too."""


def read(given: Mapping[str, object], readers: Mapping[str, Reader], *, prefix: str = "") -> dict[str, Any]:
    """The values of `given`, each checked on its own; durations in seconds.

    Raises `ConfigError`, its text beginning with `prefix`, for a bad value, and one that is a `TypeError`, too, for a
    name that `readers` lacks.
    """
    for name, value in given.items():
        if name not in readers:
            advice = advice_on_option(name, value) or nearest(name, readers)
            raise UnknownOption(f"{prefix}{name}: there is no such option; {advice}")
    return {name: readers[name](value, prefix + name) for name, value in given.items()}


def nearest(word: object, known: Iterable[str]) -> str:
    """What to write instead of `word`, for an error's text."""
    import difflib

    near = difflib.get_close_matches(str(word), known, n=1)
    return f"did you mean {near[0]}?" if near else f"write one of {', '.join(known)}"


def takes(function: Callable[..., object], count: int) -> bool:
    """Whether `function` can be called with `count` positional arguments; yes where that cannot be known."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # compiled code may carry no signature
        return True
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


# -- all together --------------------------------------------------------------------------------------------------


def resolve(*layers: Mapping[str, object], prefix: str = "") -> JobOptions:
    """The options that hold, from layers of values as `read` returns them, the strongest first.

    Raises `ConfigError` for values that do not go together, its text beginning with `prefix`.
    """
    values: dict[str, Any] = {"lock_expiry": 10.0}
    for layer in reversed(layers):
        values.update((name, value) for name, value in layer.items() if name in JOB_READERS)
    options = JobOptions(**{"margin": values["lock_expiry"] / 10, **values})
    beat, expiry, margin = options.heartbeat_interval, options.lock_expiry, options.margin
    if expiry < SHORTEST_EXPIRY:
        raise ConfigError(
            f"{prefix}lock_expiry: {expiry:g} s is too short, because a timer or a call that is a few milliseconds late"
            f" would cost the lease; write at least {SHORTEST_EXPIRY:g} s"
        )
    if not expiry / 20 <= margin + _ROUNDING or margin >= expiry / 2:
        raise ConfigError(
            f"{prefix}margin: {margin:g} s does not suit a lock_expiry of {expiry:g} s; write from lock_expiry / 20"
            f" ({expiry / 20:g} s) to less than lock_expiry / 2 ({expiry / 2:g} s), or leave it out for"
            f" {expiry / 10:g} s"
        )
    if expiry + _ROUNDING < 2 * beat + margin:
        raise ConfigError(
            f"{prefix}lock_expiry: {expiry:g} s is too short for a heartbeat_interval of {beat:g} s and a margin of"
            f" {margin:g} s; write at least 2 * heartbeat_interval + margin, better"
            f" {max(3 * beat, 2 * beat + margin):g} s, or a shorter heartbeat_interval"
        )
    if options.max_backoff_delay < beat:
        raise ConfigError(
            f"{prefix}max_backoff_delay: {options.max_backoff_delay:g} s is below the heartbeat_interval of {beat:g} s;"
            f" write at least {beat:g} s, or a shorter heartbeat_interval"
        )
    return options


def resolve_app(values: Mapping[str, object], *, notes: tuple[OptionNote, ...] = ()) -> AppOptions:
    """The options of an app that starts, from the values that hold for it and what is to be told at its start.

    Raises `ConfigError` where project or store is missing, and for job options that do not go together even if no
    job uses them.
    """
    own: dict[str, Any] = {name: value for name, value in values.items() if name not in JOB_READERS}
    for name in ("project", "store"):
        if own.get(name) is None:
            raise _missing(name)
    resolve(values)
    return AppOptions(**own, layers=(values,), notes=notes)


def _missing(name: str) -> ConfigError:
    value = {"project": "my-project", "store": "sqlite"}[name]
    code = {"project": 'SingletonJobs("my-project")', "store": 'SingletonJobs(..., store="sqlite")'}[name]
    return ConfigError(
        f"{name}: missing or blank; write {code} in code, SINGLETONJOB_{name.upper()}={value} in the environment,"
        f' --{name} {value} on the command line, or {name} = "{value}" in the file singletonjob.toml'
    )


def node_id(option: str | None) -> str:
    """A node id that no other start of any app has: `option`, else POD_NAME, else the host name, and 8 random hex."""
    import secrets
    import socket

    return f"{option or os.environ.get('POD_NAME', '').strip() or socket.gethostname()}-{secrets.token_hex(4)}"
