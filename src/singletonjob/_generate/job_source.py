"""The source of packages, read as far as somebody asks for it, and nothing imported. Needs griffelib.

One package is read whole. Of others only what a class's bases lead to is read, module by module: the way from
`class Poll(acme.Job)` to `IntervalJob` may go through re-exports, star imports and packages in between.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING
from warnings import catch_warnings

from griffe import (
    Alias,
    Attribute,
    Class,
    DataclassesExtension,
    ExprAttribute,
    ExprName,
    Extensions,
    Module,
    ModuleFinder,
    ModulesCollection,
    visit,
)

from .._core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from griffe import Object

__all__ = ["Source"]


class Source:
    """The source of all packages, read as far as it is asked for.

    griffelib's own loader is left out: it reads stubs into the modules, and passes over what is broken.
    """

    def __init__(self, package: str, search_paths: Sequence[str]) -> None:
        self._package = package
        self._searched = search_paths
        self._finder = ModuleFinder([*search_paths, str(Path(__file__).parents[2])])
        self._collection = ModulesCollection()
        self._walked = set[Path]()
        self._followed: dict[str, set[str]] = {}

    def modules(self) -> list[Module]:
        """All modules of the package; itself, if it is a module.

        Raises `ConfigError` where it is not there, or where a module of it is not Python.
        """
        found = self.at(self._package)
        if isinstance(found, Module):
            return list(self._walk(found))
        if found is not None:
            raise ConfigError(f"{self._package!r} is no package and no module; write {found.module.path}")
        raise ConfigError(
            f"there is no package {self._package!r} in {Path(self._searched[0]).resolve()} or on the import path;"
            " start in its directory or give --app-dir"
        )

    def _walk(self, module: Module) -> Iterator[Module]:
        places = [place.resolve() for place in _directories(module)]
        if self._walked.issuperset(places) and places:
            return  # a symbolic link to a directory above
        self._walked.update(places)
        yield module
        names = {
            path.stem if path.suffix == ".py" else path.name
            for place in places
            for path in place.iterdir()
            if path.suffix == ".py" or path.is_dir()
        }
        for name in sorted(names - {"__init__", "__pycache__"}):
            if "." in name:
                continue  # nothing that could be imported
            known = module.members.get(name)
            inner = known if isinstance(known, Module) else self._submodule(module, name)
            if inner is not None:
                yield from self._walk(inner)

    def follow(self, cls: Class) -> set[str]:
        """Read what the bases of a class lead to; returns those, of it and of its bases, that were not found."""
        missing = self._followed.get(cls.path)
        if missing is None:
            missing = self._followed[cls.path] = set()
            for base in cls.bases:
                path = base if isinstance(base, str) else base.canonical_path
                found = self._find(path, cls)
                if isinstance(found, Class):
                    missing |= self.follow(found)
                elif "." in path and path.partition(".")[0] not in sys.stdlib_module_names:
                    missing.add(path)
        return missing

    def complete_dataclasses(self) -> None:
        """Give every dataclass its constructor, once the bases are there."""
        for module in self._collection.members.values():
            DataclassesExtension().on_package(pkg=module)

    def _find(self, path: str, cls: Class) -> Object | None:
        """What stands at a dotted path; a bare name comes from a star import of the class's module, or is built in."""
        if "." in path:
            return self.at(path)
        return self._starred(cls.module, path)

    def at(self, path: str, asked: tuple[str, ...] = ()) -> Object | None:
        """What stands at a dotted path, behind all imports; None: nothing that can be read."""
        if path in asked:
            return None  # a circle of imports
        head, *rest = path.split(".")
        here: Object | None = self._top(head)
        for name in rest:
            if here is None:
                return None
            here = self._member(here, name, (*asked, path))
        return here

    def _member(self, holder: Object, name: str, asked: tuple[str, ...]) -> Object | None:
        """A module's or a class's member, through imports and through assignments of a name to another."""
        member = holder.members.get(name)
        if isinstance(member, Attribute) and isinstance(member.value, (ExprName, ExprAttribute)):
            found = self.at(member.value.canonical_path, asked)
            if found is not None:
                holder.set_member(name, Alias(name, found, parent=member.parent))
            return found
        if isinstance(member, Alias):
            return self.at(member.target_path, asked)
        if member is None and isinstance(holder, Module):
            return self._submodule(holder, name) or self._starred(holder, name, asked)
        return member

    def _starred(self, module: Module, name: str, asked: tuple[str, ...] = ()) -> Object | None:
        """What a star import of a module brings under a name; it is written down as an import of its own."""
        for member in list(module.members.values()):
            if isinstance(member, Alias) and member.wildcard:
                path = f"{member.wildcard}.{name}"
                found = self.at(path, asked)
                if found is not None:
                    module.set_member(name, Alias(name, found, parent=module))
                    return found
        return None

    def _top(self, name: str) -> Module | None:
        """A package or module that is not inside another one."""
        if name not in self._collection.members:
            try:
                found = self._finder.find_package(name)
            except ModuleNotFoundError:
                return None
            module = self._visited(name, found.path, None)
            if module is None:
                return None
            self._collection.set_member(name, module)
        return self._collection.members[name]

    def _submodule(self, parent: Module, name: str) -> Module | None:
        """A module of a package, from its file."""
        for place in _directories(parent):
            paths = (place / name / "__init__.py", place / f"{name}.py", place / name)
            path = next((path for path in paths if path.exists()), None)
            if path is not None:
                module = self._visited(name, [path] if path.is_dir() else path, parent)
                if module is not None:
                    parent.set_member(name, module)
                return module
        return None

    def _visited(self, name: str, path: Path | list[Path], parent: Module | None) -> Module | None:
        """A module from its file, or a package without `__init__.py`; None: it is not Python."""
        if isinstance(path, list):
            return Module(name, filepath=path, parent=parent, modules_collection=self._collection)
        if path.suffix != ".py":
            return None
        try:
            with catch_warnings(action="ignore"):  # of what the compiler would have written otherwise
                return visit(
                    name,
                    filepath=path,
                    code=path.read_text(encoding="utf-8-sig"),
                    extensions=Extensions(),
                    parent=parent,
                    modules_collection=self._collection,
                )
        except (OSError, SyntaxError, ValueError) as error:
            self._tell(error, path, name, parent)
            return None

    def _tell(self, error: OSError | SyntaxError | ValueError, path: Path, name: str, parent: Module | None) -> None:
        """Raise for a module of the package itself.

        Not for what no import statement names, and not for what lies in a directory without `__init__.py`: these hold
        templates and the like as well.
        """
        dotted = name if parent is None else f"{parent.path}.{name}"
        own = f"{dotted}.".startswith(f"{self._package}.") or f"{self._package}.".startswith(f"{dotted}.")
        bare = parent is not None and isinstance(parent.filepath, list)
        if own and not bare and name.isidentifier():
            line = f":{error.lineno}: SyntaxError" if isinstance(error, SyntaxError) else ""
            text = error.msg if isinstance(error, SyntaxError) else str(error)
            raise ConfigError(f"cannot read {path}{line}: {text}") from error


def _directories(module: Module) -> list[Path]:
    """Where a package's modules are; of a module that is no package, nowhere."""
    if isinstance(module.filepath, list):
        return module.filepath
    return [module.filepath.parent] if module.filepath.stem == "__init__" else []
