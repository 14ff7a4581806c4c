"""Find the app that `MODULE:APP` names, or say in one line why that does not work."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from singletonjob._errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from types import TracebackType

    from singletonjob import SingletonJobs

__all__ = ["app_arguments", "load_app", "store_arguments"]

OWN_DIRECTORY = str(Path(__file__).parents[1])
IMPORTLIB_DIRECTORY = str(Path(importlib.__file__).parent)


def app_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what says how an app is found."""
    parser.add_argument("--app-dir", metavar="DIR", default=".", help="where to import from (the working directory)")
    parser.add_argument("--factory", action="store_true", help="APP is a function without arguments that makes the app")


def store_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what says where the leases are."""
    parser.add_argument("--store", metavar="URL", help="the store, over what app, environment and file say")
    parser.add_argument("--project", metavar="NAME", help="the project, over what app, environment and file say")


def load_app(target: str, *, app_dir: str = ".", factory: bool = False) -> SingletonJobs:
    """The app named by `target`, such as `jobs:app` or `package.jobs:holder.app`, as uvicorn reads it.

    `app_dir` goes first on the import path. With `factory` the name is a function without arguments that makes the
    app. Raises `ConfigError` with one line that names the real cause, and the place of an error inside the module.
    """
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        raise ConfigError(f"{target!r} does not name an app; write MODULE:APP, for example jobs:app")
    if "/" in module_name or module_name.endswith(".py"):
        dotted = module_name.removesuffix(".py").strip("./").replace("/", ".")
        raise ConfigError(f"{module_name!r} is a file, not a module; write {dotted}:{attribute}")
    directory = Path(app_dir).resolve()
    if not directory.is_dir():
        raise ConfigError(f"--app-dir: {app_dir} is not a directory")
    sys.path.insert(0, str(directory))

    found = _attribute(_module(module_name, directory), module_name, attribute)
    if factory:
        found = _made(found, target)
    return _checked(found, target, factory=factory)


def _module(name: str, directory: Path) -> object:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and _place(error) is None:
            raise ConfigError(
                f"there is no module {name!r} in {directory} or on the import path ({error});"
                " start in its directory or give --app-dir"
            ) from error
        raise ConfigError(f"cannot import {name!r}: {_described(error)}") from error


def _attribute(module: object, module_name: str, path: str) -> object:
    found, seen = module, module_name
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as error:
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
    return "it holds no SingletonJobs at all"


def _made(factory: object, target: str) -> object:
    if not callable(factory):
        raise ConfigError(f"--factory: {target} is {_what(factory)}, which cannot be called")
    try:
        return factory()
    except (Exception, SystemExit) as error:
        raise ConfigError(f"--factory: {target}() failed: {_described(error)}") from error


def _checked(found: object, target: str, *, factory: bool) -> SingletonJobs:
    from singletonjob import SingletonJobs

    if isinstance(found, SingletonJobs):
        return found
    name = f"{target}()" if factory else target
    hint = "; if it makes one, add --factory" if callable(found) and not factory else ""
    raise ConfigError(f"{name} is {_what(found)}, not a SingletonJobs{hint}")


def _what(value: object) -> str:
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__qualname__}"
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _described(error: BaseException) -> str:
    """Kind, text and place of an error in the user's code."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg} ({_shown(error.filename or '?')}:{error.lineno})"
    text = str(error) if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
    place = _place(error)
    return text if place is None else f"{text} ({place})"


def _place(error: BaseException) -> str | None:
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
