"""What the environment and the file say of options, word for word, each with the place where it is written.

Which words are options, and what their values mean, is for `sources` to say.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from .._core.errors import ConfigError
from .duration import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["JOBS", "OptionNote", "Setting", "Sheet", "environment_sheet", "file_sheet"]

PREFIX = "SINGLETONJOB_"
JOBS = "SINGLETONJOB_JOBS__"

SERVICE_LINK = re.compile(r"SINGLETONJOB_(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT(?:_\d+_\w+)?)")
"""What Kubernetes sets for a Service whose name begins with `singletonjob` ("Accessing the Service" in its manual)."""

DEFAULT = "singletonjob.toml"

FileValue: TypeAlias = Any
"""Text, a number, a bool, a table, or whatever else the format knows: nothing is certain before it is read."""


class OptionNote(NamedTuple):
    """Something about the options that an operator should know; `job` where it is about one."""

    event: Literal["option-overridden", "unknown-job"]
    text: str
    job: str | None = None


class Setting(NamedTuple):
    """A value that holds, as `options.read` returns it, and where it was written.

    The source reads `code`, `environment SINGLETONJOB_LOCK_EXPIRY`, `file singletonjob.toml: lock_expiry` or
    `default`.
    """

    value: Any
    source: str

    @property
    def kind(self) -> str:
        """The source's first word."""
        return self.source.partition(" ")[0]


class Sheet(NamedTuple):
    """What one source says, unread: the app's values by option, the jobs' by a name of the job and option."""

    app: dict[str, Setting]
    jobs: dict[str, dict[str, Setting]]


def environment_sheet(environ: Mapping[str, str]) -> Sheet:
    """What the variables say that begin with SINGLETONJOB_. Raises `ConfigError` for half of a job's variable."""
    sheet = Sheet({}, {})
    for variable in sorted(environ):
        text = environ[variable]
        key = variable.removeprefix(PREFIX)
        if key in {variable, "CONFIG"} or SERVICE_LINK.fullmatch(variable):
            continue
        entry = Setting(text, f"environment {variable}")
        if key in {"PROJECT", "STORE"}:
            if text.strip():  # a blank one is as good as none, and the error for that tells more
                sheet.app[key.lower()] = entry
        elif not variable.startswith(JOBS):
            sheet.app[key.lower()] = entry
        else:
            job, separator, option = variable.removeprefix(JOBS).rpartition("__")
            if not (job and separator and option):
                raise ConfigError(f"{entry.source}: names no job's option; write {JOBS}JOB__OPTION")
            sheet.jobs.setdefault(job, {})[option.lower()] = entry
    return sheet


def file_sheet(environ: Mapping[str, str]) -> Sheet:
    """What the file says; nothing where there is none. Raises `ConfigError` for one that cannot be read."""
    name, values = _read_file(environ)
    jobs = _table(values.pop("jobs", {}), f"file {name}: jobs", "[jobs.NAME]")
    sheet = Sheet({key: Setting(value, f"file {name}: {key}") for key, value in values.items()}, {})
    for job, found in jobs.items():
        where = f"file {name}: jobs.{job}"
        options = _table(found, where, f"[jobs.{job}]")
        sheet.jobs[job] = {key: Setting(value, f"{where}.{key}") for key, value in options.items()}
    return sheet


def _table(value: FileValue, where: str, head: str) -> dict[str, FileValue]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: {shown(value)} is no table; write {head} and options below it")
    return value  # pyright: ignore[reportUnknownVariableType]  # as the alias says


def _read_file(environ: Mapping[str, str]) -> tuple[str, dict[str, FileValue]]:
    """The name of the file and what it says: nothing if none is named and `singletonjob.toml` is not there.

    Raises `ConfigError` for a file that cannot be read, named with what is wrong.
    """
    from pathlib import Path

    named = environ.get("SINGLETONJOB_CONFIG", "").strip()
    name = named or DEFAULT
    path = Path(name)
    if not named and not path.exists():
        return name, {}
    if path.suffix not in {".toml", ".json"}:
        raise ConfigError(f"SINGLETONJOB_CONFIG: {name!r} is neither TOML nor JSON; write a name in .toml or .json")
    try:
        text = path.read_text(encoding="utf-8")
        values = _toml(text) if path.suffix == ".toml" else _json(text)
    except FileNotFoundError as error:
        raise ConfigError(f"SINGLETONJOB_CONFIG: there is no file {name!r}; correct the path or unset it") from error
    except OSError as error:
        raise ConfigError(f"file {name}: cannot be read ({error.strerror}); see to its rights") from error
    except ValueError as error:
        raise ConfigError(f"file {name}: {error}; correct it there") from error
    return name, values


def _toml(text: str) -> dict[str, FileValue]:
    import tomllib

    return tomllib.loads(text)


def _json(text: str) -> dict[str, FileValue]:
    import json

    def table(pairs: list[tuple[str, FileValue]]) -> dict[str, FileValue]:
        found = dict(pairs)
        if len(found) < len(pairs):
            keys = [key for key, _ in pairs]
            raise ValueError(f"{next(key for key in keys if keys.count(key) > 1)!r} is there twice in one object")
        return found

    values = json.loads(text, object_pairs_hook=table)
    if not isinstance(values, dict):
        raise ValueError("its outermost value is no object; write {...}")  # noqa: TRY004 - as the parser's own errors
    return values  # pyright: ignore[reportUnknownVariableType]  # as the alias says
