"""Find the app that `MODULE:APP` names, or say in one line why that does not work."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from singletonjob._errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from types import TracebackType

    from singletonjob import SingletonJobs

__all__ = ["app_arguments", "attribute_of", "described", "load_app", "store_arguments"]

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
    if module_name.startswith("."):
        raise ConfigError(f"{module_name!r} begins with a dot; write {module_name.lstrip('.')}:{attribute}")
    directory = Path(app_dir).resolve()
    try:
        next(directory.iterdir(), None)
    except PermissionError as error:
        raise ConfigError(f"--app-dir: this user may not read {directory}") from error
    except OSError as error:
        raise ConfigError(f"--app-dir: {app_dir} is not a directory") from error
    sys.path.insert(0, str(directory))
    _set_up_django()
    found = attribute_of(_module(module_name, directory, attribute), module_name, attribute)
    if factory:
        found = _made(found, target)
    return _checked(found, target, factory=factory)


def _set_up_django() -> None:
    """Set up the Django project that DJANGO_SETTINGS_MODULE names, because its jobs may import its models."""
    settings_module = os.environ.get("DJANGO_SETTINGS_MODULE")
    if not settings_module or importlib.util.find_spec("django") is None:
        return
    from ..integrations.django.plain import set_up

    try:
        set_up()
    except Exception as error:
        raise ConfigError(f"Django cannot be set up with {settings_module}: {described(error)}") from error


def _module(name: str, directory: Path, attribute: str) -> object:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and _place(error) is None:
            raise ConfigError(_not_found(name, directory, error)) from error
        hint = ""
        if isinstance(error, ImportError) and "no known parent package" in str(error):
            above = os.path.relpath(directory.parent)
            hint = f"; it is part of a package: write {directory.name}.{name}:{attribute} and --app-dir {above}"
        raise ConfigError(f"cannot import {name!r}: {described(error)}{hint}") from error


def _not_found(name: str, directory: Path, error: ModuleNotFoundError) -> str:
    """Say why there is no such module: a directory that cannot be read, or a name that is not there."""
    import difflib

    place, nearest = directory, list[str]()
    for part in name.split("."):
        try:
            known = [entry.stem for entry in place.iterdir() if entry.suffix == ".py" or entry.is_dir()]
        except PermissionError:  # the import system takes it for empty
            return f"cannot import {name!r}: this user may not read {place}"
        except OSError:
            break  # a module, which holds no other ones
        nearest += difflib.get_close_matches(part, known, n=1)
        place = place.joinpath(*nearest[-1:])
    hint = f"did you mean {'.'.join(nearest)!r}?" if len(nearest) == name.count(".") + 1 else ""
    if not hint or nearest == name.split("."):
        hint = "start in its directory or give --app-dir"
    return f"there is no module {name!r} in {directory} or on the import path ({error}); {hint}"


def attribute_of(module: object, module_name: str, path: str) -> object:
    """The attribute of a module at a dotted `path`. Raises `ConfigError` with the names that are near, or the cause."""
    found, seen = module, module_name
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except Exception as error:
            if not isinstance(error, AttributeError) or _place(error) is not None:  # of a property, say
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
        return _what(holder)
    file: str | None = getattr(holder, "__file__", None)
    if file is not None:
        return _shown(file)
    places = list(getattr(holder, "__path__", ()))
    return f"the directory {_shown(places[0])} without __init__.py" if places else "a module built into Python"


def _made(factory: object, target: str) -> object:
    if not callable(factory):
        raise ConfigError(f"--factory: {target} is {_what(factory)}, which cannot be called")
    try:
        return factory()
    except (Exception, SystemExit) as error:
        raise ConfigError(f"--factory: {target}() failed: {described(error)}") from error


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


def described(error: BaseException) -> str:
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
