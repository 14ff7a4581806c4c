"""Which job classes a package has, read from its source: nothing is imported. Needs griffelib."""

from __future__ import annotations

import ast
from keyword import iskeyword
from typing import TYPE_CHECKING, NamedTuple
from warnings import catch_warnings

from griffe import Attribute, Class, Expr, ExprCall, ExprName, ExprSubscript, Function, Module, ParameterKind

from .job_source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from griffe import Object

__all__ = ["JobClass", "Scan", "scan"]

HOME = "singletonjob._jobs.definition"
WHEN = {f"{HOME}.IntervalJob": "every", f"{HOME}.FixedRateJob": "every", f"{HOME}.CronJob": "expression"}
"""The bases of all job classes, with the class keyword that a job cannot do without."""

TYPE_VARIABLES = {
    f"{module}.{name}"
    for module in ("typing", "typing_extensions")
    for name in ("TypeVar", "ParamSpec", "TypeVarTuple")
}
UNREACHABLE = {"TYPE_CHECKING", "__name__ == '__main__'"}
"""What is defined under these is not there when somebody imports the module."""


class JobClass(NamedTuple):
    """A class that an app can be given. `needs_arguments`: its constructor cannot do without."""

    module: str
    qualname: str
    needs_arguments: bool


class Scan(NamedTuple):
    """What was found, sorted, and what was left out and why, each in a line that names the class."""

    jobs: tuple[JobClass, ...]
    warnings: tuple[str, ...]


def scan(package: str, search_paths: Sequence[str]) -> Scan:
    """The concrete job classes that are defined in `package`, a package or a module by its dotted name.

    It is looked for in `search_paths`, in order. Raises `ConfigError` where it is not there, or where a module of it is
    not Python.
    """
    source = Source(package, search_paths)
    classes = [cls for module in source.modules() for cls in _classes(module)]
    missing = [source.follow(cls) for cls in classes]
    source.complete_dataclasses()

    warnings: list[str] = []
    lineages: list[list[Class]] = []
    for cls, unknown in zip(classes, missing, strict=True):
        lineage = _lineage(cls)
        if any(base.path in WHEN for base in lineage):
            lineages.append(lineage)
        elif unknown and _looks_like_a_job(cls):
            warnings.append(f"{cls.path} may be a job, but {' and '.join(sorted(unknown))} was not found; skipped")
    bases = {base.path for lineage in lineages for base in lineage[1:]}
    jobs: list[JobClass] = []
    for lineage in lineages:
        cls = lineage[0]
        if _is_abstract(lineage):
            continue
        why = _why_not(lineage, source, is_base=cls.path in bases)
        if why is None:
            jobs.append(JobClass(cls.module.path, _qualname(cls), _needs_arguments(lineage)))
        elif why:
            warnings.append(f"{cls.path} {why}; skipped")
    return Scan(tuple(sorted(jobs)), tuple(sorted(set(warnings))))


def _classes(holder: Module | Class) -> Iterator[Class]:
    for member in holder.members.values():
        if isinstance(member, Class):
            yield member
            yield from _classes(member)


def _looks_like_a_job(cls: Class) -> bool:
    """Whether it has a schedule, or an `execute` that could be a body: a database's cursor has one too."""
    body = cls.members.get("execute")
    is_body = isinstance(body, Function) and len(list(body.parameters)) <= 2
    return is_body or not {"every", "expression"}.isdisjoint(cls.keywords)


def _lineage(cls: Class) -> list[Class]:
    """The class and its bases, as Python orders them; empty where it cannot: the class statement would raise."""
    try:
        return [cls, *cls.mro()]
    except ValueError:
        return []


def _qualname(cls: Class) -> str:
    return cls.path.removeprefix(f"{cls.module.path}.")


def _is_abstract(lineage: Sequence[Class]) -> bool:
    decided = set[str]()
    for cls in lineage:
        for name, member in cls.members.items():
            if isinstance(member, Attribute) and not {"property", "class-attribute"} & member.labels:
                continue  # made by a method for itself
            if isinstance(member, Attribute) and member.value is None and "property" not in member.labels:
                continue  # an annotation
            if name not in decided and "abstractmethod" in member.labels:
                return True
            decided.add(name)
    return False


def _why_not(lineage: Sequence[Class], source: Source, *, is_base: bool) -> str | None:
    """Why a concrete class cannot be given to an app, in words; empty if there is nothing to say; None: it can."""
    cls = lineage[0]
    parts = cls.path.split(".")
    if "__main__" in parts:
        return "is in a __main__ module, which runs a program when it is imported"
    if any(not part.isidentifier() or iskeyword(part) for part in parts):
        return "is in a module that no import statement can name"
    if any(part.startswith("__") and not part.endswith("__") for part in _qualname(cls).split(".")[1:]):
        return "has a name that is private to the class around it"
    for first, last, condition in _unreachable(cls.module):
        if first <= (cls.lineno or 0) <= last:
            return f"stands under `if {condition}:`, so it is not there when its module is imported"
    if _is_generic(cls, source):
        return "is generic; derive a class that says which types"
    returned = getattr(_member(lineage, "__init__"), "returns", None)
    if str(returned).rpartition(".")[2] in {"NoReturn", "Never"}:
        return "cannot be constructed"
    wanted = next(WHEN[base.path] for base in lineage if base.path in WHEN)
    if not _has_keyword(lineage, wanted):
        return "" if is_base else f"has no schedule; write {wanted}= in its class statement"
    return None


def _unreachable(module: Module) -> list[tuple[int, int, str]]:
    """First and last line of what no import defines, and the condition above it."""
    found: list[tuple[int, int, str]] = []
    for node in _statements(module):
        if isinstance(node, ast.If):
            condition = ast.unparse(node.test)
            if condition.rpartition(".")[2] in UNREACHABLE:
                found.append((node.body[0].lineno, node.body[-1].end_lineno or 0, condition))
    return found


def _statements(module: Module) -> Iterator[ast.AST]:
    """All syntax of a module, for what griffelib does not keep."""
    if not isinstance(module.filepath, list):
        with catch_warnings(action="ignore"):
            yield from ast.walk(ast.parse(module.filepath.read_bytes()))


def _is_generic(cls: Class, source: Source) -> bool:
    """Whether it has type parameters, by PEP 695 or by a type variable in a base."""
    if len(list(cls.type_parameters)):
        return True
    for base in cls.bases:
        if isinstance(base, ExprSubscript):
            words = base.slice.iterate(flat=True) if isinstance(base.slice, Expr) else ()
            if any(isinstance(word, ExprName) and _is_type_variable(source.at(word.canonical_path)) for word in words):
                return True
    return False


def _is_type_variable(found: Object | None) -> bool:
    made = found.value if isinstance(found, Attribute) else None
    return isinstance(made, ExprCall) and made.canonical_path in TYPE_VARIABLES


def _has_keyword(lineage: Sequence[Class], wanted: str) -> bool:
    """Whether a class statement gives it, or may: by `**keywords`, or by an `__init_subclass__` of the user's."""
    own = [cls for cls in lineage if cls.module.package.path not in {"singletonjob", "typing"}]
    return any(wanted in cls.keywords or "__init_subclass__" in cls.members or _unpacks(cls) for cls in own)


def _unpacks(cls: Class) -> bool:
    return any(
        isinstance(node, ast.ClassDef)
        and (node.name, node.end_lineno) == (cls.name, cls.endlineno)
        and any(keyword.arg is None for keyword in node.keywords)
        for node in _statements(cls.module)
    )


def _needs_arguments(lineage: Sequence[Class]) -> bool:
    """Whether calling the class without any may fail, as far as the source tells."""
    for cls in lineage:
        if any(decorator.callable_path.partition(".")[0] in {"attr", "attrs"} for decorator in cls.decorators):
            return True  # its constructor is nowhere written
    for name in ("__new__", "__init__"):
        made = _member(lineage, name)
        if isinstance(made, Function):
            parameters = list(made.parameters)[1:]
            variadic = {ParameterKind.var_positional, ParameterKind.var_keyword}
            if any(parameter.default is None and parameter.kind not in variadic for parameter in parameters):
                return True
        elif made is not None:
            return True
    return False


def _member(lineage: Sequence[Class], name: str) -> object:
    return next((cls.members[name] for cls in lineage if name in cls.members), None)
