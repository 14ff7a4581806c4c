"""The orders of operators and the store's answers. This is the public path of these names."""

from __future__ import annotations

from .._core.orders import (
    RAN,
    FollowTrigger,
    Forget,
    Look,
    Order,
    Ordered,
    OrderOutcome,
    Pause,
    Paused,
    Resume,
    StepDown,
    Trigger,
    pause_in_force,
    resignation_in_force,
    trigger_in_force,
)

__all__ = [
    "RAN",
    "FollowTrigger",
    "Forget",
    "Look",
    "Order",
    "OrderOutcome",
    "Ordered",
    "Pause",
    "Paused",
    "Resume",
    "StepDown",
    "Trigger",
    "pause_in_force",
    "resignation_in_force",
    "trigger_in_force",
]
