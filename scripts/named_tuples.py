"""Used by the documentation's build: the fields of a named tuple as parameters of its constructor.

griffe, which reads the sources for the site, does the same for dataclasses by itself.
"""

from __future__ import annotations

from typing import Any

from griffe import Class, Extension, Function, Parameter, ParameterKind, Parameters

__all__ = ["NamedTuples"]


class NamedTuples(Extension):
    """Adds an `__init__` to each class that is written as a `typing.NamedTuple`."""

    def on_class(self, *, cls: Class, **_more: Any) -> None:
        """Called by griffe when a class and what is in it has been read."""
        if [str(base) for base in cls.bases] != ["NamedTuple"]:
            return
        fields = [Parameter("self", kind=ParameterKind.positional_or_keyword)]
        for name, field in cls.attributes.items():
            kind, default = ParameterKind.positional_or_keyword, field.value
            fields.append(Parameter(name, annotation=field.annotation, kind=kind, default=default))
        cls.set_member("__init__", Function("__init__", parameters=Parameters(*fields), returns="None"))
