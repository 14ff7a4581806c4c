"""What a replica and a store exchange: the vocabulary that a store of your own implements.

This is the public path of these names.
"""

from __future__ import annotations

from .._core.protocol import (
    NO_PROGRESS,
    Acquire,
    Barred,
    Batch,
    Claimed,
    ClaimSlot,
    Failed,
    Finding,
    Granted,
    Inspectable,
    JobState,
    JobView,
    LeaseStore,
    NotClaimed,
    Progress,
    Refused,
    Release,
    Released,
    Renew,
    Renewed,
    Reply,
    Request,
    TakeTrigger,
    Verdict,
)

__all__ = [
    "NO_PROGRESS",
    "Acquire",
    "Barred",
    "Batch",
    "ClaimSlot",
    "Claimed",
    "Failed",
    "Finding",
    "Granted",
    "Inspectable",
    "JobState",
    "JobView",
    "LeaseStore",
    "NotClaimed",
    "Progress",
    "Refused",
    "Release",
    "Released",
    "Renew",
    "Renewed",
    "Reply",
    "Request",
    "TakeTrigger",
    "Verdict",
]
