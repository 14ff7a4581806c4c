"""Find the app that `MODULE:APP` names, or say in one line why that does not work."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from singletonjob._core.errors import ConfigError

from .named_objects import attribute_of, described, kind_of, place_of

if TYPE_CHECKING:
    import argparse

    from singletonjob import SingletonJobs

__all__ = ["app_arguments", "load_app", "store_arguments"]


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
        if isinstance(error, ModuleNotFoundError) and place_of(error) is None:
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


def _made(factory: object, target: str) -> object:
    if not callable(factory):
        raise ConfigError(f"--factory: {target} is {kind_of(factory)}, which cannot be called")
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
    raise ConfigError(f"{name} is {kind_of(found)}, not a SingletonJobs{hint}")
