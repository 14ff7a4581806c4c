"""The pure parts of the Cluster store: whose clock a call is void on, which node keeps a key, what a URL says."""

from __future__ import annotations

import os
import subprocess
import sys
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import AskError, MovedError, ResponseError

import singletonjob
from elector_driver import Driver
from singletonjob import ConfigError
from singletonjob.stores import from_url
from singletonjob.stores.protocol import Reply
from singletonjob.stores.redis.cluster_address import cluster_from_url
from singletonjob.stores.redis.cluster_clock import NodeClock
from singletonjob.stores.redis.cluster_slots import SLOTS, Redirect, owners, redirect, slot_of_job

HOUR = 3_600_000_000

# -- whose clock ---------------------------------------------------------------------------------------------------

offsets = st.integers(-100 * HOUR, 100 * HOUR)
rates = st.floats(0.99, 1.01)
waits = st.floats(0.0, 100.0)


class World:
    """One node's clock against ours: set apart by `offset` microseconds, and `rate` times as fast."""

    def __init__(self, offset: int, rate: float) -> None:
        self.offset = offset
        self.rate = rate

    def wall(self, here: float) -> float:
        """What the node's clock shows when it is `here` on ours."""
        return self.offset + self.rate * here * 1e6


@given(offsets, rates, waits, waits, waits)
def test_a_moment_here_is_put_on_a_node_s_clock_no_later_than_it_comes_there(
    offset: int, rate: float, read_at: float, on_its_way: float, wait: float
) -> None:
    node = World(offset, rate)
    arrived = read_at + on_its_way
    clock = NodeClock(int(node.wall(read_at)), arrived)
    assert clock.at(arrived + wait) <= node.wall(arrived + wait) + 1


@given(rates, st.floats(0.0, 2.0))
def test_a_call_sent_soon_after_a_reading_is_not_void_before_most_of_its_time_is_used(rate: float, age: float) -> None:
    node = World(HOUR, rate)
    clock = NodeClock(int(node.wall(100.0)), 100.0)
    assert clock.at(100.0 + age + 2.0) >= node.wall(100.0 + age + 1.9)


@given(st.lists(st.tuples(offsets, rates, waits), min_size=2, max_size=4), st.floats(0.0, 30.0))
def test_when_the_elector_gives_a_call_up_it_is_void_on_every_node_whatever_their_clocks_show(
    nodes: list[tuple[int, float, float]], idle: float
) -> None:
    # The elector's own arithmetic, on a store whose clock is this machine's: what reaches the nodes is the moment L.
    driver = Driver(read=False)
    driver.poll(50.0)
    driver.elector.receive(50.0, Reply(clock=50_000_000, up_for=inf))
    sent = 50.0 + idle
    batch = driver.poll(sent)
    assert batch is not None
    assert batch.void_at is not None
    given_up = sent + batch.bound
    assert batch.void_at / 1e6 <= given_up + 1e-6
    for offset, rate, age in nodes:
        node = World(offset, rate)
        read_at = sent - min(age, sent)
        clock = NodeClock(int(node.wall(read_at)), read_at)
        assert clock.at(batch.void_at / 1e6) <= node.wall(given_up) + 2


def test_an_old_reading_makes_a_call_void_early_and_never_late() -> None:
    clock = NodeClock(wall=HOUR, arrived=0.0)
    assert clock.at(1000.0) == HOUR + 990_000_000  # ten seconds early after a thousand


def test_a_node_may_have_forgotten_a_lease_while_it_is_up_for_less_than_the_lease_and_a_second() -> None:
    clock = NodeClock(wall=0, arrived=100.0, up_since=97.0)
    assert clock.may_have_forgotten(107.9, lock_expiry=10)
    assert not clock.may_have_forgotten(108.0, lock_expiry=10)
    assert not clock.may_have_forgotten(100.0, lock_expiry=2)
    assert not NodeClock(wall=0, arrived=100.0).may_have_forgotten(0.0, lock_expiry=10)  # it does not tell


def test_what_was_due_before_a_node_started_is_told_on_its_own_clock() -> None:
    clock = NodeClock(wall=HOUR, arrived=100.0, up_since=97.0)
    assert clock.up_from(wall=HOUR + 5_000_000, sent=104.9) == HOUR - 2_900_000
    assert NodeClock(wall=HOUR, arrived=100.0).up_from(wall=HOUR, sent=100.0) is None


# -- which node ----------------------------------------------------------------------------------------------------


def test_the_masters_of_the_slots_are_read_from_cluster_slots() -> None:
    reply = [
        [0, 5460, [b"10.0.0.1", 7000, b"id", [b"hostname", b"x"]], [b"10.0.0.9", 7001, b"replica"]],
        [5461, 16000, [b"", 7002, b"id"]],
        [16001, 16382, [None, 7003, b"id", []]],
    ]
    found = owners(reply, "seed")
    assert len(found) == SLOTS
    assert (found[0], found[5460]) == (("10.0.0.1", 7000), ("10.0.0.1", 7000))
    assert (found[5461], found[16000]) == (("seed", 7002), ("seed", 7002))
    assert (found[16001], found[16382], found[16383]) == (("seed", 7003), ("seed", 7003), None)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (MovedError("3999 10.0.0.2:6381"), Redirect(("10.0.0.2", 6381), asking=False)),
        (MovedError("3999 :6381"), Redirect(("seed", 6381), asking=False)),
        (AskError("3999 fd00::1:6381"), Redirect(("fd00::1", 6381), asking=True)),
        (ResponseError("ERR MOVED the furniture"), None),
        ([b"123", b"", b"", b"N"], None),
        (b"OK", None),
    ],
)
def test_a_node_sends_on_by_moved_and_ask_alone(reply: object, expected: Redirect | None) -> None:
    assert redirect(reply, "seed") == expected


def test_the_slot_is_that_of_the_specification() -> None:
    assert slot_of_job("p", "j") == 11163  # CLUSTER KEYSLOT p:j:lock, and of the state's braces
    assert len({slot_of_job("p", f"j{number}") for number in range(100)}) > 90


# -- URLs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["redis+cluster", "valkey+cluster", "rediss+cluster", "VALKEYS+CLUSTER"])
def test_a_url_names_some_nodes_and_one_user(scheme: str) -> None:
    first, second = cluster_from_url(f"{scheme}://me:se%40cret@a,[::1]:7000")
    assert [str(node) for node in (first, second)] == ["a:6379", "::1:7000"]
    assert (first.username, second.password) == ("me", "se@cret")
    assert (first.tls is None) == (not scheme.lower().startswith(("rediss", "valkeys")))
    assert "cret" not in repr(from_url(f"{scheme}://me:se%40cret@a,[::1]:7000"))


def test_a_url_with_tls_says_whom_to_trust() -> None:
    (node,) = cluster_from_url("rediss+cluster://a/0?ssl_ca_certs=/ca.pem")
    assert node.tls == {"ssl_ca_certs": "/ca.pem"}
    assert node.at(("b", 1)).tls == {"ssl_ca_certs": "/ca.pem"}


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("redis+cluster://h/1", "a Cluster has no database but 0, not 1; write redis+cluster://"),
        ("redis+cluster://h/x", "'x' is no database number; write redis+cluster://"),
        ("redis+cluster://h?db=1", "'db' in the query of a Redis URL is not known"),
        ("redis+cluster://h,", "a host between two commas is empty"),
        ("redis+cluster://h:port", "host or port cannot be read"),
        ("redis+cluster:h", "no // after redis+cluster:"),
        ("redis+cluster://h?ssl_ca_certs=/ca", "write rediss+cluster://"),
        ("redis+cluster://me:sec/ret@h,i", "host or port cannot be read"),
    ],
)
def test_a_bad_url_is_told_without_its_password(url: str, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        from_url(url)
    assert text in str(raised.value)
    assert "sec" not in str(raised.value).replace("user:password", "")


def test_naming_a_cluster_does_not_import_the_client() -> None:
    code = (
        "import sys; from singletonjob.stores import from_url; from_url('redis+cluster://h');"
        " print('redis' in sys.modules)"
    )
    source = str(Path(singletonjob.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": source},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "False"
