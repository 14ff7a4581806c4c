"""For tests of what is built on this library, and of the library itself: a fleet in virtual time, with faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .sim_checker import Violation
from .sim_faults import PROFILES, Profile
from .sim_history import History
from .simulation import Simulation

if TYPE_CHECKING:
    from .contract import LeaseStoreContract

__all__ = ["PROFILES", "History", "LeaseStoreContract", "Profile", "Simulation", "Violation"]


def __getattr__(name: str) -> object:
    if name == "LeaseStoreContract":  # on first use: it needs pytest, the simulation does not
        from .contract import LeaseStoreContract

        return LeaseStoreContract
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
