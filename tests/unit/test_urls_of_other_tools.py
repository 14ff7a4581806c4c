"""Store URLs of other tools: the error names the URL of ours that means the same, and that one is accepted."""

from __future__ import annotations

import re

import pytest

from singletonjob import ConfigError
from singletonjob.stores import from_url


@pytest.mark.parametrize(
    ("url", "ours"),
    [
        ("redis+socket:///run/redis.sock?virtual_host=0", "unix:///path/to/socket?db=0"),
        ("sentinel://:secret@a:26379;sentinel://b:26379", "redis+sentinel://host1:26379,host2:26379/service/0"),
        ("rediscluster://:secret@h:6379", "redis+cluster://host1:6379,host2:6379"),
        ("redis+tls://:secret@h", "rediss://host:6379/0"),
        ("aioredis://h", "redis://host:6379/0"),
        ("https://:secret@eu1.example.org", "rediss://host:6379/0"),
        ("localhost:6379", "redis://localhost:6379"),
        ("cache.internal", "redis://cache.internal"),
        ("db+sqlite:///results.db", "sqlite:////absolute/path/leases.db"),
        ("leases.db", "sqlite:///leases.db"),
        ("locmem://", "memory"),
        ("MEMORY", "memory"),
    ],
)
def test_a_store_as_another_tool_names_it_is_refused_with_ours(url: str, ours: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_url(url)
    written = re.search(r"; write (\S+)$|, (rediss://\S+)$|; a \w+ needs its scheme; write (\S+)$", str(caught.value))
    assert written is not None
    assert ours in written.groups()
    assert "secret" not in str(caught.value)
    from_url(ours)


@pytest.mark.parametrize("url", ["postgresql://u:secret@h/db", "amqp://guest:secret@h//", "carrier-pigeon://loft"])
def test_a_store_that_has_no_like_here_is_refused_with_what_there_is(url: str) -> None:
    with pytest.raises(
        ConfigError, match=r"write redis://host:6379/0, sqlite, sqlite:///path/to/file\.db or memory"
    ) as caught:
        from_url(url)
    assert "secret" not in str(caught.value)
