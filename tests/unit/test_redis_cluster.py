"""The pure parts of a Cluster: how keys are named, which node keeps a slot, what a URL says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import singletonjob
from singletonjob import ConfigError
from singletonjob.stores import from_url
from singletonjob.stores.redis.cluster import cluster_from_url, master_of, slot_of
from singletonjob.stores.redis.wire import channel, lock_key, names_key, prefix, state_key

# -- keys and slots ------------------------------------------------------------------------------------------------


def test_on_a_cluster_all_keys_of_a_project_and_its_channel_begin_with_its_hash_tag() -> None:
    project = prefix("pricing", cluster=True)
    names = lock_key(project, "tick"), state_key(project, "tick"), names_key(project), channel(project)
    assert names == ("{pricing}:tick:lock", "{pricing}:tick:lock:state", "{pricing}:jobs", "{pricing}:notice")
    assert {slot_of(name) for name in names} == {slot_of("pricing")}


def test_outside_of_a_cluster_the_keys_are_named_as_ever() -> None:
    project = prefix("pricing", cluster=False)
    names = lock_key(project, "tick"), state_key(project, "tick"), names_key(project), channel(project)
    assert names == ("pricing:tick:lock", "{pricing:tick:lock}:state", "pricing:jobs", "pricing:notice")


def test_the_slot_is_that_of_the_specification() -> None:
    assert slot_of("123456789") == 0x31C3  # the specification's own example


def test_the_master_of_a_slot_is_read_from_cluster_slots() -> None:
    reply = [
        [0, 5460, [b"10.0.0.1", 7000, b"id", [b"hostname", b"x"]], [b"10.0.0.9", 7001, b"replica"]],
        [5461, 16000, [b"", 7002, b"id"]],
        [16001, 16381, [None, 7003, b"id", []]],
        [16382, 16382, [b"?", 7004, b"id"]],
    ]
    slots = (0, 5460, 5461, 16000, 16001, 16381, 16382)
    first, second, third, fourth = ("10.0.0.1", 7000), ("asked", 7002), ("asked", 7003), ("asked", 7004)
    assert [master_of(slot, reply, "asked") for slot in slots] == [first] * 2 + [second] * 2 + [third] * 2 + [fourth]
    assert master_of(16383, reply, "asked") is None


# -- URLs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["redis+cluster", "valkey+cluster", "rediss+cluster", "VALKEYS+CLUSTER"])
def test_a_url_names_some_nodes_and_one_user(scheme: str) -> None:
    first, second = cluster_from_url(f"{scheme}://me:se%40cret@a,[::1]:7000").seeds
    assert [str(node) for node in (first, second)] == ["a:6379", "::1:7000"]
    assert (first.username, second.password) == ("me", "se@cret")
    assert (first.tls is None) == (not scheme.lower().startswith(("rediss", "valkeys")))
    assert "cret" not in repr(from_url(f"{scheme}://me:se%40cret@a,[::1]:7000"))


def test_a_url_with_tls_says_whom_to_trust() -> None:
    (node,) = cluster_from_url("rediss+cluster://a/0?ssl_ca_certs=/ca.pem").seeds
    assert node.tls == {"ssl_ca_certs": "/ca.pem"}


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
