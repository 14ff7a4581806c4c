"""The source of a package and of the modules to which the bases of its classes lead, parsed and not imported."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from warnings import catch_warnings

from .._core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["OUR_JOBS", "Class", "Module", "Source"]

OUR_JOBS = {
    "singletonjob.IntervalJob": "every",
    "singletonjob.FixedRateJob": "every",
    "singletonjob.CronJob": "expression",
}
"""The bases of all job classes, each with the class keyword that a job needs."""

OUR_SOURCE = "from abc import abstractmethod\n" + "".join(
    f"class {path.rpartition('.')[2]}:\n    @abstractmethod\n    def execute(self): ...\n" for path in OUR_JOBS
)
"""What a job class inherits, as far as it matters here."""


class Class:
    """A class statement. `members`: the names that its body binds, and to what. `missing`: the bases not found."""

    def __init__(self, node: ast.ClassDef, module: Module, outer: str = "") -> None:
        self.node = node
        self.module = module
        self.qualname = f"{outer}{node.name}"
        self.path = f"{module.name}.{self.qualname}"
        self.members = module.bound(node.body, f"{self.qualname}.")
        self.missing: list[str] = []


Bound: TypeAlias = "Class | ast.AST | str"
"""A class, a function or an assigned expression, or the dotted path of an import."""


class Module:
    """A parsed module; a directory without `__init__.py` is an empty one. `places`: where its submodules are."""

    def __init__(self, name: str, text: str, places: Sequence[Path], *, is_package: bool) -> None:
        self.name = name
        self.places = places
        self._package = name if is_package else name.rpartition(".")[0]
        with catch_warnings(action="ignore"):  # of the compiler
            self.tree = ast.parse(text)
        self.stars: list[str] = []
        self.members = self.bound(self.tree.body)

    def bound(self, body: Sequence[ast.stmt], outer: str = "") -> dict[str, Bound]:
        """Return what the statements bind. The blocks of `if`, `try` and the like belong to them; functions do not."""
        members: dict[str, Bound] = {}
        for node in body:
            if isinstance(node, ast.ClassDef):
                members[node.name] = Class(node, self, outer)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                members[node.name] = node
            elif isinstance(node, ast.Import):
                for one in node.names:
                    top = one.name.partition(".")[0]
                    members[one.asname or top] = one.name if one.asname else top
            elif isinstance(node, ast.ImportFrom):
                origin = self._origin(node)
                self.stars += [origin for one in node.names if one.name == "*"]
                members.update((one.asname or one.name, f"{origin}.{one.name}") for one in node.names)
            elif isinstance(node, ast.Assign):
                members.update((one.id, node.value) for one in node.targets if isinstance(one, ast.Name))
            elif isinstance(node, ast.AnnAssign):
                if isinstance(node.target, ast.Name) and node.value is not None:
                    members[node.target.id] = node.value
            else:
                for block in ("body", "orelse", "finalbody", "handlers"):
                    inner = getattr(node, block, [])
                    inner = [line for handler in inner for line in handler.body] if block == "handlers" else inner
                    members |= self.bound(inner, outer)
        return members

    def _origin(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parents = self._package.split(".")
        return ".".join([*parents[: len(parents) + 1 - node.level], *([node.module] if node.module else [])])


class Source:
    """Finds modules and classes by their dotted paths; a module is read when something leads to it."""

    def __init__(self, package: str, search_paths: Sequence[str]) -> None:
        self._package = package
        self._searched = [Path(path) for path in search_paths]
        self._modules: dict[str, Module | None] = {}
        self._ours = Module("singletonjob", OUR_SOURCE, [], is_package=True)
        self._kinds: dict[Class, type] = {}

    def classes(self) -> list[Class]:
        """Return all classes of the package. Raises `ConfigError` if it is not there or is not Python."""
        found = self.at(self._package)
        if found is not None and not isinstance(found, Module):
            module = self._package.rpartition(".")[0]
            raise ConfigError(f"{self._package!r} is no package and no module; write {module}")
        if found is None:
            raise ConfigError(
                f"there is no package {self._package!r} in {self._searched[0].resolve()} or on the import path;"
                " start in its directory or give --app-dir"
            )
        return [cls for module in self._walk(found, set()) for cls in _classes(module.members)]

    def lineage(self, cls: Class) -> list[Class]:
        """Return the class and its bases in Python's order; empty if Python refuses the class statement."""
        try:
            return [one.__dict__["source"] for one in self._kind(cls).__mro__ if "source" in one.__dict__]
        except TypeError:
            return []

    def at(self, path: str, asked: tuple[str, ...] = ()) -> Module | Bound | None:
        """Return what is at a dotted path, behind imports and aliases; None if no source shows it."""
        head, *rest = path.split(".")
        if head == "singletonjob":
            return self._ours.members.get(rest[-1]) if rest else self._ours
        here: Module | Bound | None = None if path in asked else self._module(head)
        asked = (*asked, path)
        for number, name in enumerate(rest, 2):
            if not isinstance(here, (Module, Class)):
                return None
            module = here if isinstance(here, Module) else here.module
            found: Module | Bound | None = here.members.get(name)
            if found is None and here is module:
                found = self._module(".".join([head, *rest][:number])) or self._starred(module, name, asked)
            if isinstance(found, (ast.Name, ast.Attribute)):
                found = self.path(found, module)
            here = self.at(found, asked) if isinstance(found, str) else found
        return here

    def path(self, node: ast.expr, module: Module) -> str:
        """Return the dotted path that an expression names in a module; a name that is not bound there as it is."""
        if isinstance(node, (ast.Subscript, ast.Attribute)):
            outer = self.path(node.value, module)
            return f"{outer}.{node.attr}" if isinstance(node, ast.Attribute) else outer
        if isinstance(node, ast.Call):
            return self.path(node.func, module)
        name = node.id if isinstance(node, ast.Name) else ""
        bound = module.members.get(name)
        if isinstance(bound, str):
            return bound
        return f"{module.name}.{name}" if bound or self._starred(module, name, ()) else name

    def _starred(self, module: Module, name: str, asked: tuple[str, ...]) -> Module | Bound | None:
        return next((found for star in module.stars if (found := self.at(f"{star}.{name}", asked))), None)

    def _kind(self, cls: Class) -> type:
        """Return a stand-in for a class, made only so that Python orders its bases."""
        if cls not in self._kinds:
            self._kinds[cls] = object  # for a class that leads to itself
            bases: list[type] = []
            for node in cls.node.bases:
                path = self.path(node, cls.module)
                found = self.at(path)
                if isinstance(found, Class):
                    bases.append(self._kind(found))
                elif "." in path and path.partition(".")[0] not in sys.stdlib_module_names:
                    cls.missing.append(path)
            self._kinds[cls] = type(cls.node.name, tuple(bases), {"source": cls})
        return self._kinds[cls]

    def _walk(self, module: Module, walked: set[Path]) -> Iterator[Module]:
        places = {place.resolve() for place in module.places}
        if places and places <= walked:
            return  # a symbolic link to a directory above
        walked |= places
        yield module
        files = [file for place in places for file in place.iterdir() if file.suffix == ".py" or file.is_dir()]
        names = {file.stem if file.suffix == ".py" else file.name for file in files} - {"__init__", "__pycache__"}
        for name in sorted(name for name in names if "." not in name):
            inner = self._module(f"{module.name}.{name}")
            if inner is not None:
                yield from self._walk(inner, walked)

    def _module(self, name: str) -> Module | None:
        """Return a module by its dotted name; None if there is no source of it."""
        if name not in self._modules:
            self._modules[name] = None
            self._modules[name] = self._read(name)
        return self._modules[name]

    def _read(self, name: str) -> Module | None:
        outer, _, last = name.rpartition(".")
        if not outer and last in sys.stdlib_module_names:
            return None
        parent = self._module(outer) if outer else None
        searched = self._searched if not outer else [] if parent is None else parent.places
        for made in (
            "/__init__.py",
            ".py",
            "",
        ):  # a directory without `__init__.py` counts only if nothing else is there
            for file in [place / f"{last}{made}" for place in searched]:
                if not made and file.is_dir():
                    return Module(name, "", [file], is_package=True)
                if made and file.is_file():
                    places = [file.parent] if made == "/__init__.py" else []
                    try:
                        return Module(name, file.read_text(encoding="utf-8-sig"), places, is_package=bool(places))
                    except (OSError, SyntaxError, ValueError) as error:
                        # A directory without `__init__.py` may hold templates and the like.
                        bare = parent is not None and not any((place / "__init__.py").exists() for place in searched)
                        own = f"{name}.".startswith(f"{self._package}.") or self._package.startswith(f"{name}.")
                        if own and not bare and last.isidentifier():
                            place = f"{file}:{error.lineno}" if isinstance(error, SyntaxError) else str(file)
                            text = f"SyntaxError: {error.msg}" if isinstance(error, SyntaxError) else str(error)
                            raise ConfigError(f"cannot read {place}: {text}") from error
                        return None
        return None


def _classes(members: dict[str, Bound]) -> Iterator[Class]:
    for member in members.values():
        if isinstance(member, Class):
            yield member
            yield from _classes(member.members)
