"""For tests of what is built on this library, and of the library itself.

`run_once` runs a job's body once; `virtual_time` drives an app through hours in milliseconds; `FlakyStore` fails on
command; `LeaseStoreContract` checks a store of your own; `Simulation` is a fleet in virtual time, with faults. The
names load on first use, since pytest imports this package in every project that has it installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .contract import LeaseStoreContract
    from .flaky import FlakyStore
    from .one_run import OneRun, run_once
    from .sim_checker import Violation
    from .sim_faults import PROFILES, Profile
    from .sim_history import History
    from .simulation import Simulation
    from .world import VirtualRun, virtual_time

__all__ = [
    "PROFILES",
    "FlakyStore",
    "History",
    "LeaseStoreContract",
    "OneRun",
    "Profile",
    "Simulation",
    "Violation",
    "VirtualRun",
    "run_once",
    "virtual_time",
]


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
    elif name in {"VirtualRun", "virtual_time"}:
        from . import world as home
    elif name in {"PROFILES", "Profile"}:
        from . import sim_faults as home
    elif name == "History":
        from . import sim_history as home
    else:  # it imports Violation too
        from . import simulation as home
    return globals().setdefault(name, getattr(home, name))
