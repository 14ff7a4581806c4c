"""Names of the user's code: the object at a dotted path, and errors of that code in one line with their place."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from .._core.errors import ConfigError

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["attribute_of", "described", "kind_of", "place_of"]

OWN_DIRECTORY = str(Path(__file__).parents[1])
IMPORTLIB_DIRECTORY = str(Path(importlib.__file__).parent)


def attribute_of(module: object, module_name: str, path: str) -> object:
    """The attribute of a module at a dotted `path`. Raises `ConfigError` with the names that are near, or the cause."""
    found, seen = module, module_name
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except Exception as error:
            if not isinstance(error, AttributeError) or place_of(error) is not None:  # of a property, say
                raise ConfigError(f"cannot read {seen}.{name}: {described(error)}") from error
            raise ConfigError(f"{seen} has no {name!r}; {_suggestion(found, name)}") from error
        seen = f"{seen}.{name}"
    return found


def _suggestion(holder: object, name: str) -> str:
    import difflib

    from singletonjob import SingletonJobs

    public = [known for known in vars(holder) if not known.startswith("_")] if hasattr(holder, "__dict__") else []
    apps = [known for known in public if isinstance(getattr(holder, known, None), SingletonJobs)]
    near = difflib.get_close_matches(name, public, n=3) or apps
    if near:
        return f"did you mean {' or '.join(repr(one) for one in near)}?"
    return f"it is {_origin(holder)}, which holds no SingletonJobs at all"


def _origin(holder: object) -> str:
    """Where a module comes from: another module of the same name may be imported instead of the one that is meant."""
    if not isinstance(holder, ModuleType):
        return kind_of(holder)
    file: str | None = getattr(holder, "__file__", None)
    if file is not None:
        return _shown(file)
    places = list(getattr(holder, "__path__", ()))
    return f"the directory {_shown(places[0])} without __init__.py" if places else "a module built into Python"


def kind_of(value: object) -> str:
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__qualname__}"
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def described(error: BaseException) -> str:
    """Kind, text and place of an error in the user's code."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg} ({_shown(error.filename or '?')}:{error.lineno})"
    text = str(error) if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
    place = place_of(error)
    return text if place is None else f"{text} ({place})"


def place_of(error: BaseException) -> str | None:
    """`file:line` of the last frame that is neither the import machinery's nor this library's; None: there is none."""
    place = None
    step: TracebackType | None = error.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        if not file.startswith(("<frozen", OWN_DIRECTORY, IMPORTLIB_DIRECTORY)):
            place = f"{_shown(file)}:{step.tb_lineno}"
        step = step.tb_next
    return place


def _shown(file: str) -> str:
    """The path as short as it stays clear: relative where it lies below the working directory."""
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file
