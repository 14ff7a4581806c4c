"""What every lease store must do, as a pytest class: subclass it, say how your store is made, and run it.

    class TestMyStore(LeaseStoreContract):
        @pytest.fixture
        def make_store(self, tmp_path):
            return partial(MyStore, tmp_path / "leases")

Two hooks: the fixture `make_store`, and the method `later(seconds)` where time need not really pass. The contract is
a stack of parts; a store that cannot do one of them stacks the others: `class TestMine(Base, Batches, Expiry): ...`.
Needs pytest, and no plugin.
"""

from __future__ import annotations

import pytest

# Before they are imported: only then does a failed assert in them show its values.
pytest.register_assert_rewrite(
    *(
        f"{__package__}.contract_{part}"
        for part in ("base", "calls", "time", "notices", "orders", "triggers", "slots", "views", "concurrency")
    )
)

from .base import StoreTests  # noqa: E402 - as said
from .calls import Base, Batches, LateCalls  # noqa: E402 - as said
from .concurrency import Processes, Threads  # noqa: E402 - as said
from .notices import Notices  # noqa: E402 - as said
from .orders import NoticesOfOrders, Orders  # noqa: E402 - as said
from .slots import Slots  # noqa: E402 - as said
from .time import Expiry  # noqa: E402 - as said
from .triggers import Triggers  # noqa: E402 - as said
from .views import Views  # noqa: E402 - as said

__all__ = [
    "Base",
    "Batches",
    "Expiry",
    "LateCalls",
    "LeaseStoreContract",
    "LocalStoreContract",
    "Notices",
    "NoticesOfOrders",
    "Orders",
    "Processes",
    "Slots",
    "StoreTests",
    "Threads",
    "Triggers",
    "Views",
]


class LocalStoreContract(
    Base, Batches, LateCalls, Expiry, Notices, Orders, NoticesOfOrders, Triggers, Slots, Views, Threads
):
    """All that a store must do which lives inside one process."""


class LeaseStoreContract(LocalStoreContract, Processes):
    """All that a store must do."""
