"""Find the job classes of a package in its source, by `ast`. Nothing is imported."""

from __future__ import annotations

import ast
from keyword import iskeyword
from typing import TYPE_CHECKING, NamedTuple

from .job_source import OUR_JOBS, Class, Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["JobClass", "Scan", "scan"]

UNREACHABLE = {"TYPE_CHECKING", "__name__ == '__main__'"}
"""Definitions under these conditions do not exist when somebody imports the module."""

SCHEDULES = {"every", "expression"}


class JobClass(NamedTuple):
    """A class that can be added to an app. `needs_arguments`: its constructor cannot be called without any."""

    module: str
    qualname: str
    needs_arguments: bool


class Scan(NamedTuple):
    """The job classes, sorted, and a warning for each class that was left out, with the reason."""

    jobs: tuple[JobClass, ...]
    warnings: tuple[str, ...]


def scan(package: str, search_paths: Sequence[str]) -> Scan:
    """Return the concrete job classes that `package` defines, a package or a module by its dotted name.

    The package is searched for in `search_paths`, in order. Raises `ConfigError` if it is not there, or if one of its
    modules is not valid Python.
    """
    source = Source(package, search_paths)
    lineages = [lineage for cls in source.classes() if (lineage := source.lineage(cls))]
    jobs = [lineage for lineage in lineages if _schedule(lineage)]
    bases = {base for lineage in jobs for base in lineage[1:]}
    found: list[JobClass] = []
    warnings: set[str] = set()
    for lineage in lineages:
        cls = lineage[0]
        if not _schedule(lineage):
            missing = sorted({path for one in lineage for path in one.missing})
            if missing and _looks_like_a_job(cls):
                warnings.add(f"{cls.path} may be a job, but {' and '.join(missing)} was not found; skipped")
        elif not _is_abstract(lineage, source):
            why = _why_not(lineage, source, is_base=cls in bases)
            if why is None:
                found.append(JobClass(cls.module.name, cls.qualname, _needs_arguments(lineage, source)))
            elif why:
                warnings.add(f"{cls.path} {why}; skipped")
    return Scan(tuple(sorted(found)), tuple(sorted(warnings)))


def _schedule(lineage: Sequence[Class]) -> str:
    """Return the class keyword that a job of this kind needs; empty if the class is no job."""
    return next((OUR_JOBS[base.path] for base in lineage if base.path in OUR_JOBS), "")


def _looks_like_a_job(cls: Class) -> bool:
    """Return True if it has a schedule, or an `execute` that could be a body; a database's cursor has one as well."""
    body = cls.members.get("execute")
    is_body = isinstance(body, (ast.FunctionDef, ast.AsyncFunctionDef)) and len(_parameters(body)) <= 2
    return is_body or not SCHEDULES.isdisjoint(word.arg for word in cls.node.keywords)


def _is_abstract(lineage: Sequence[Class], source: Source) -> bool:
    decided = set[str]()
    for cls in lineage:
        for name, member in cls.members.items():
            if name not in decided and isinstance(member, (ast.FunctionDef, ast.AsyncFunctionDef)):
                marks = [source.path(mark, cls.module).rpartition(".")[2] for mark in member.decorator_list]
                if "abstractmethod" in marks:
                    return True
            decided.add(name)
    return False


def _why_not(lineage: Sequence[Class], source: Source, *, is_base: bool) -> str | None:
    """Return why a concrete class cannot be added to an app; empty: no reason to warn; None: it can be added."""
    cls = lineage[0]
    parts = cls.path.split(".")
    if "__main__" in parts:
        return "is in a __main__ module, which runs a program when it is imported"
    if any(not part.isidentifier() or iskeyword(part) for part in parts):
        return "is in a module that no import statement can name"
    if any(part.startswith("__") and not part.endswith("__") for part in cls.qualname.split(".")[1:]):
        return "has a name that is private to the class around it"
    for condition in _conditions(cls):
        if condition.rpartition(".")[2] in UNREACHABLE:
            return f"stands under `if {condition}:`, so it is not there when its module is imported"
    generic = [base for base in cls.node.bases if source.path(base, cls.module).rpartition(".")[2] == "Generic"]
    if generic or getattr(cls.node, "type_params", None):  # the second from Python 3.12 on
        return "is generic; derive a class that says which types"
    wanted = _schedule(lineage)
    # `None` is the name of `**keywords`, which may hold the schedule, and so may an `__init_subclass__` of the user's.
    own = [one for one in lineage if one.path not in OUR_JOBS]
    if any(
        {wanted, None} & {word.arg for word in one.node.keywords} or "__init_subclass__" in one.members for one in own
    ):
        return None
    return "" if is_base else f"has no schedule; write {wanted}= in its class statement"


def _conditions(cls: Class) -> Iterator[str]:
    for node in ast.walk(cls.module.tree):
        if isinstance(node, ast.If) and node.body[0].lineno <= cls.node.lineno <= (node.body[-1].end_lineno or 0):
            yield ast.unparse(node.test)


def _needs_arguments(lineage: Sequence[Class], source: Source) -> bool:
    """Return True if a call of the class without arguments may fail, as far as the source shows."""
    for name in ("__new__", "__init__"):
        for cls in lineage:
            makers = {source.path(mark, cls.module).partition(".")[0] for mark in cls.node.decorator_list}
            if makers & {"attr", "attrs"}:
                return True  # its constructor is not in the source
            member = cls.members.get(name)
            if isinstance(member, ast.FunctionDef):
                if any(required for _, required in _parameters(member)[1:]):
                    return True
                break
            if member is not None:
                return True  # made by an expression
            if name == "__init__" and "dataclasses" in makers:
                fields = {key: value for one in reversed(lineage) for key, value in _fields(one, source).items()}
                if any(fields.values()):
                    return True
                break
    return False


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[tuple[str, bool]]:
    """Return the names of the parameters, each with True if a call must give it."""
    spec = function.args
    places = [*spec.posonlyargs, *spec.args]
    required = len(places) - len(spec.defaults)
    found = [(place.arg, number < required) for number, place in enumerate(places)]
    return found + [(one.arg, default is None) for one, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]


def _fields(cls: Class, source: Source) -> dict[str, bool]:
    """Return the constructor's parameters that a dataclass adds, each with True if a call must give it."""
    if not any(source.path(mark, cls.module).startswith("dataclasses.") for mark in cls.node.decorator_list):
        return {}
    fields: dict[str, bool] = {}
    for node in cls.node.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            kind = ast.unparse(node.annotation)
            given: dict[str | None, ast.expr] = {}
            if isinstance(node.value, ast.Call) and source.path(node.value, cls.module) == "dataclasses.field":
                given = {word.arg: word.value for word in node.value.keywords}
            elif node.value is not None:
                given = {"default": node.value}
            unset = "init" in given and ast.unparse(given["init"]) == "False"
            if not unset and "ClassVar" not in kind and "KW_ONLY" not in kind:
                fields[node.target.id] = given.keys().isdisjoint({"default", "default_factory"})
    return fields
