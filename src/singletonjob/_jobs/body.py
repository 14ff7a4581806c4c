"""A job's body: how it takes the `Run`, and whether it is async. Decided once, when the job is registered."""

from __future__ import annotations

import inspect
import re
import types
import typing
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ForwardRef, Union

from .._core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .handles import Run

__all__ = ["bind_run", "identity", "is_async"]

MARKERS = frozenset({"Depends", "Security", "Provide", "TaskiqDepends"})
"""Types by which FastAPI, FastStream, dependency-injector and TaskIQ mark a parameter that they fill in."""


def bind_run(body: object, *, prefix: str) -> Callable[[Run], object]:
    """`body` as a function of the `Run`, which it passes on if the body wants it.

    The `Run` goes to the parameter that is annotated `Run`, else to the one named `run`. Raises `ConfigError` for
    what is not a body: no callable, a class, a generator, or any other parameter without a default.
    """
    if isinstance(body, classmethod):
        raise ConfigError(
            f"{prefix}{body!r} belongs to a class that does not exist yet; call the decorator on it below the class,"
            " app.interval('1m')(Worker.tick) for example"
        )
    if not callable(body):
        raise ConfigError(f"{prefix}{body!r} cannot be called; write a function, sync or async")
    named = identity(body)[1]
    if inspect.isclass(body):
        raise ConfigError(
            f"{prefix}{named} is a class; derive it from IntervalJob, FixedRateJob or CronJob and add an instance"
        )
    inner = _plain(body)
    if _is_generator(inner):
        raise ConfigError(f"{prefix}{named} is a generator, so a call would run nothing; write a body without yield")
    if _is_context_manager(inner):
        raise ConfigError(
            f"{prefix}{named} makes a context manager, so a call would run nothing of it; write a body that enters it"
            f" with `{'async with' if inspect.isasyncgenfunction(inspect.unwrap(inner)) else 'with'}`"
        )
    try:
        parameters = list(inspect.signature(body).parameters.values())
        namespace = getattr(_plain(inspect.unwrap(inner)), "__globals__", {})
    except (TypeError, ValueError):  # compiled code may carry no signature: it cannot ask for the Run
        return lambda _run: body()
    parameters = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    wanted = next((p for p in parameters if _is_run(p.annotation, namespace)), None)
    wanted = wanted or next((p for p in parameters if p.name == "run"), None)
    for p in parameters:
        if inspect.unwrap(inner) is inner and (marker := _marker(p)):  # a decorator, `inject` say, may fill it in
            raise ConfigError(
                f"{prefix}parameter {p.name!r} of {named} is a {marker}, which a web framework fills in and nobody does"
                " here; write a body without it, and open in the body what the job needs"
            )
        if p is not wanted and p.default is p.empty and p is parameters[0] and _is_in_class_body(inner, p.name):
            raise ConfigError(
                f"{prefix}{named} is a method and the class has no instance yet; write the decorator as a call on a"
                f" bound method, app.interval('1m')({'Worker' if p.name == 'cls' else 'worker'}.{inner.__name__}) for"
                " example, or derive the class from IntervalJob, FixedRateJob or CronJob"
            )
        if p is not wanted and p.default is p.empty:
            raise ConfigError(
                f"{prefix}parameter {p.name!r} of {named} is not the Run and has no default; write a body that takes"
                " at most the Run (annotated Run, or named run), and bind the rest with functools.partial"
            )
    if wanted is None:
        return lambda _run: body()
    if wanted is parameters[0] and wanted.kind is not wanted.KEYWORD_ONLY:
        # By position, not by name: a wrapper may call it something else.
        return body
    if wanted.kind is wanted.POSITIONAL_ONLY:
        raise ConfigError(f"{prefix}parameter {wanted.name!r} of {named} is positional-only; write it first")
    name = wanted.name
    return lambda run: body(**{name: run})


def is_async(body: object) -> bool:
    """Whether a call makes a coroutine for certain; so the call itself is cheap and belongs on the loop.

    `__wrapped__` is not followed: a sync wrapper of an async function may be one that blocks (`async_to_sync`). Such
    a body starts in a thread, and what it returns is awaited if it can be.
    """
    return inspect.iscoroutinefunction(body) or inspect.iscoroutinefunction(_plain(body))


def identity(body: object) -> tuple[str, str]:
    """Module and qualified name of what was written for this body."""
    inner: Any = _whole(body)
    if callable(inner):
        inner = inspect.unwrap(inner)
    if not hasattr(inner, "__qualname__"):
        inner = inner.__class__
    return str(getattr(inner, "__module__", None) or "builtins"), str(inner.__qualname__)


def _whole(body: Any) -> Any:
    """What a partial is a part of."""
    while isinstance(body, partial):
        body = body.func  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]  # a partial of anything
    return body  # pyright: ignore[reportUnknownVariableType]  # as above


def _plain(body: Any) -> Any:
    """What is called in the end: through partials, bound methods and objects with `__call__`."""
    while True:
        body = _whole(body)
        if isinstance(body, (types.MethodType, staticmethod)):
            body = body.__func__
        elif inspect.isroutine(body) or inspect.isclass(body):
            return body
        else:
            body = type(body).__call__


def _is_generator(function: object) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def _is_context_manager(function: object) -> bool:
    """Return True if `contextlib` has made the function from a generator."""
    made_by = getattr(function, "__globals__", {}).get("__name__")
    return made_by == "contextlib" and callable(function) and _is_generator(inspect.unwrap(function))


def _marker(parameter: inspect.Parameter) -> str | None:
    """The name of the marker by which a parameter asks a web framework for its value; None if it has none."""
    marked = [parameter.default, *getattr(parameter.annotation, "__metadata__", ())]
    names = [type(one).__name__ for one in marked]
    if isinstance(parameter.annotation, str):  # `Annotated[Session, Depends(open_session)]`, not evaluated
        names += re.findall(r"\b(\w+)\(", parameter.annotation)
    return next((name for name in names if name in MARKERS), None)


def _is_in_class_body(function: Any, first: str) -> bool:
    owner = str(getattr(function, "__qualname__", "")).rpartition(".")[0]
    return first in {"self", "cls"} and owner != "" and not owner.endswith("<locals>")


def _is_run(annotation: Any, namespace: Mapping[str, object]) -> bool:
    """Whether an annotation says `Run`, or `Run | None`; as text it is looked up, never evaluated.

    Text that cannot be looked up (imported for type checkers only, say) is taken by its last word.
    """
    from .handles import Run

    if isinstance(annotation, ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        match = re.fullmatch(
            r"(?:(?:\w+\.)?Optional\[|None *\| *)?['\"]?([\w.]+)['\"]?(?:\]| *\| *None)?", annotation.strip("'\" ")
        )
        if match is None:
            return False
        words: list[str] = match[1].split(".")
        if words[0] not in namespace:
            return words[-1] == "Run"
        found = namespace[words[0]]
        for attribute in words[1:]:
            found = getattr(found, attribute, None)
        return found is Run
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return _is_run(typing.get_args(annotation)[0], namespace)
    if origin in (Union, types.UnionType):
        return any(_is_run(member, namespace) for member in typing.get_args(annotation))
    return annotation is Run
