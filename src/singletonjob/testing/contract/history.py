"""A record of what replicas asked one store, and the model that it must agree with: one register per job.

The register holds a term (holder and token) or nothing; an acquisition fills it, a renewal keeps it, a release or the
passing of `lock_expiry` empties it. An operation takes effect at one instant between its begin and its end (Herlihy and
Wing, "Linearizability", 1990). The tokens give the order of the terms, so no search is needed: it is enough to compare
what each term *certainly* held with what came after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple

from ..._core.protocol import Acquire, Granted, Refused, Release, Released, Renew, Renewed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..._core.protocol import Request, Verdict

__all__ = ["Operation", "terms", "violations"]

SLACK = 0.01
"""Seconds by which a lease may end early: stores count in milliseconds, and clocks differ a little."""


class Operation(NamedTuple):
    """What one replica asked and was told. `begin` and `end` are seconds on one clock that all replicas share."""

    node: str
    request: Request
    verdict: Verdict
    begin: float
    end: float


@dataclass(slots=True)
class _Term:
    """One term as its holder knows it: held at least from `granted.end` until `held`, at most until `gone`."""

    granted: Operation
    token: int
    number: int
    held: float
    gone: float


def terms(history: Iterable[Operation]) -> list[tuple[str, int]]:
    """Each term's job and token, in the order of the tokens."""
    return sorted((one.request.job, one.verdict.token) for one in history if isinstance(one.verdict, Granted))


def violations(history: Iterable[Operation]) -> list[str]:
    """What in the history no register could have answered, one line each.

    Each replica must have asked for one job after the other, never for two things at once.
    """
    found: list[str] = []
    by_job = sorted(history, key=lambda one: (one.request.job, one.begin))
    for job, operations in groupby(by_job, key=lambda one: one.request.job):
        found += [f"{job}: {text}" for text in _of_one_job(list(operations))]
    return found


def _of_one_job(operations: list[Operation]) -> list[str]:
    found: list[str] = []
    known: dict[int, _Term] = {}
    newest: dict[str, _Term] = {}  # by node
    for one in operations:
        match one.request, one.verdict:
            case Acquire(), Granted(token=token):
                if token in known:
                    found.append(f"token {token} was given twice, to {known[token].granted.node} and {one.node}")
                    continue
                if one.node in newest:  # asked again while it held: that ends the earlier term
                    newest[one.node].held = min(newest[one.node].held, one.begin)
                term = _Term(one, token, one.request.number, 0.0, 0.0)
                _extend(term, one, one.request.lock_expiry)
                known[token] = newest[one.node] = term
            case Renew(), Renewed():
                if one.request.token not in known or known[one.request.token].granted.node != one.node:
                    found.append(f"{one.node} renewed token {one.request.token}, which it was never given")
                else:
                    _extend(known[one.request.token], one, one.request.lock_expiry)
            case Renew(), Refused() if one.request.token in known and one.end < known[one.request.token].held:
                found.append(f"{one.node} lost token {one.request.token} before its lease was over")
            case Release(), Released(mine=True) if one.node in newest and newest[one.node].number <= one.request.number:
                newest[one.node].held = min(newest[one.node].held, one.begin)
                newest[one.node].gone = one.end
            case _:
                pass
    return found + _order(list(known.values()), operations) + _holders(list(known.values()), operations)


def _extend(term: _Term, one: Operation, lock_expiry: float) -> None:
    term.held = one.begin + lock_expiry * 0.99 - SLACK
    term.gone = one.end + lock_expiry * 1.01 + SLACK


def _order(known: list[_Term], operations: list[Operation]) -> list[str]:
    """In the order of the tokens, each term must begin after those before it began, and after they were over."""
    found: list[str] = []
    known.sort(key=lambda term: term.token)
    if not known:
        return found
    began = held = known[0]
    for later in known[1:]:
        granted = later.granted
        if granted.end < began.granted.begin:
            found.append(f"token {later.token} was given before token {began.token}, which is lower")
        elif granted.end < held.held:
            found.append(
                f"{granted.node} was given token {later.token} while {held.granted.node} held {held.token}"
                f" for {held.held - granted.end:.3f} s more"
            )
        began = max(began, later, key=lambda term: term.granted.begin)
        held = max(held, later, key=lambda term: term.held)
    return found + _renewed_too_late(known, operations)


def _renewed_too_late(known: list[_Term], operations: list[Operation]) -> list[str]:
    """Nobody may renew a term when a later one has been given."""
    successors: dict[int, _Term] = {}  # by token: of all later terms, the one whose grant was known first
    for earlier, later in reversed(list(pairwise(known))):
        first = successors.get(later.token, later)
        successors[earlier.token] = min(first, later, key=lambda term: term.granted.end)
    found: list[str] = []
    for one in operations:
        if isinstance(one.request, Renew) and isinstance(one.verdict, Renewed):
            successor = successors.get(one.request.token)
            if successor is not None and successor.granted.end < one.begin:
                found.append(f"{one.node} renewed token {one.request.token} after {successor.token} had been given")
    return found


def _holders(known: list[_Term], operations: list[Operation]) -> list[str]:
    """Who is named as the holder must have been able to hold the lease at some instant of the call."""
    found: list[str] = []
    for one in operations:
        if not isinstance(one.verdict, Refused) or one.verdict.holder is None:
            continue
        holder = one.verdict.holder
        if not any(
            term.granted.node == holder and term.granted.begin <= one.end and term.gone >= one.begin for term in known
        ):
            found.append(f"{one.node} was told that {holder} holds the lease, and it did not")
    return found
