"""Tools for testing programs that use this library.

`run_once` runs a job's body once; `virtual_time` drives an app through hours in milliseconds; `FlakyStore` fails on
command; `LeaseStoreContract` checks a custom store. The names load on first use, because pytest imports this
package in every project that has it installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .contract import LeaseStoreContract
    from .flaky import FlakyStore
    from .one_run import OneRun, run_once
    from .virtual_world import VirtualRun, virtual_time

__all__ = ["FlakyStore", "LeaseStoreContract", "OneRun", "VirtualRun", "run_once", "virtual_time"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home: object
    if name == "LeaseStoreContract":  # needs pytest; nothing else here does
        from . import contract as home
    elif name == "FlakyStore":
        from . import flaky as home
    elif name in {"OneRun", "run_once"}:
        from . import one_run as home
    else:
        from . import virtual_world as home
    return globals().setdefault(name, getattr(home, name))
