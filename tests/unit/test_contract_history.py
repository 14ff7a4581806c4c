"""The model of a lease that the store contract compares with what was seen: it finds what must not be."""

from __future__ import annotations

import pytest

from singletonjob.stores.protocol import (
    Acquire,
    Granted,
    JobState,
    Progress,
    Refused,
    Release,
    Released,
    Renew,
    Renewed,
    Request,
    Verdict,
)
from singletonjob.testing.contract.history import Operation, terms, violations

NOTHING = Progress()


def op(node: str, request: Request, verdict: Verdict, begin: float, end: float | None = None) -> Operation:
    return Operation(node, request, verdict, begin, begin + 0.1 if end is None else end)


def grant(node: str, token: int, begin: float, end: float | None = None, number: int = 1) -> Operation:
    return op(node, Acquire("j", number, 10, 0), Granted(token, JobState(0)), begin, end)


def renewal(node: str, token: int, begin: float) -> Operation:
    return op(node, Renew("j", token, 10, NOTHING), Renewed(), begin)


def release(node: str, begin: float, number: int = 1, mine: bool = True) -> Operation:
    return op(node, Release("j", number, NOTHING), Released(mine=mine), begin)


def refusal(node: str, holder: str, begin: float) -> Operation:
    return op(node, Acquire("j", 9, 10, 0), Refused(holder, 1.0), begin)


def lost(node: str, token: int, begin: float) -> Operation:
    return op(node, Renew("j", token, 10, NOTHING), Refused(None, None), begin)


@pytest.mark.parametrize(
    "history",
    [
        [],
        [grant("a", 1, 0), renewal("a", 1, 5), release("a", 7), grant("b", 2, 7.2), refusal("a", "b", 8)],
        [grant("a", 1, 0), grant("b", 2, 10.2), lost("a", 1, 10.5)],
        # Two calls at once may take effect in either order.
        [grant("a", 1, 0), release("a", 5), grant("b", 2, 4.9, 5.05), refusal("c", "a", 5.05)],
        [grant("a", 1, 0, number=1), grant("a", 2, 3, number=2), release("a", 4, number=1, mine=False)],
        [grant("a", 1, 0), renewal("a", 1, 9.5), refusal("b", "a", 19)],
        # Of different jobs.
        [grant("a", 1, 0), grant("b", 1, 1)._replace(request=Acquire("k", 1, 10, 0))],
    ],
)
def test_a_history_that_a_lease_can_have_is_accepted(history: list[Operation]) -> None:
    assert violations(history) == []


@pytest.mark.parametrize(
    ("history", "text"),
    [
        ([grant("a", 1, 0), grant("b", 2, 5)], "b was given token 2 while a held 1 for 4.7"),
        ([grant("a", 1, 0), renewal("a", 1, 5), grant("b", 2, 11)], "b was given token 2 while a held 1 for 3.7"),
        ([grant("a", 1, 0), grant("b", 1, 20)], "token 1 was given twice, to a and b"),
        ([grant("a", 2, 0), release("a", 1), grant("b", 1, 2)], "token 2 was given before token 1, which is lower"),
        ([grant("a", 1, 0), release("a", 1), grant("b", 2, 2), renewal("a", 1, 3)], "a renewed token 1 after 2"),
        ([grant("a", 1, 0), lost("a", 1, 5)], "a lost token 1 before its lease was over"),
        ([grant("a", 1, 0), renewal("b", 1, 5)], "b renewed token 1, which it was never given"),
        ([renewal("b", 1, 5)], "b renewed token 1, which it was never given"),
        ([grant("a", 1, 0), release("a", 1), refusal("b", "a", 2)], "b was told that a holds the lease"),
        ([refusal("b", "a", 2)], "b was told that a holds the lease"),
        # A release that gave nothing back ends nothing.
        ([grant("a", 1, 0), release("a", 1, mine=False), grant("b", 2, 2)], "while a held 1"),
        # It is not the term before it that it collides with, but an earlier one.
        (
            [grant("a", 1, 0), grant("b", 2, 0.5, 12)._replace(request=Acquire("j", 1, 0.01, 0)), grant("c", 3, 0.6)],
            "c was given token 3 while a held 1",
        ),
    ],
)
def test_what_no_lease_can_do_is_found(history: list[Operation], text: str) -> None:
    found = violations(history)
    assert any(text in one for one in found), found


def test_terms_come_in_the_order_of_their_tokens() -> None:
    assert terms([grant("b", 2, 20), refusal("c", "b", 21), grant("a", 1, 0)]) == [("j", 1), ("j", 2)]
