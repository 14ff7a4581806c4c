"""The store on a real Sentinel service, and whole apps through its fail-overs.

Over 300 lines: URLs, what sentinels may say, and fail-overs, on the same six processes.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest
import redis as client_library

from integration.test_redis_apps import FORGOTTEN, HEARTBEAT, LONG, One, started
from integration.test_redis_rights import LISTED
from proxy import Proxy
from redis_replicas import lock, state
from replicas import boot
from sentinels import SERVICE, Sentinel, SentinelService
from servers import KINDS, Server, free_port
from singletonjob import ConfigError
from singletonjob._core.errors import StoreUnavailable
from singletonjob.stores import from_url
from singletonjob.stores.protocol import Granted, Released, Renewed
from singletonjob.stores.redis.address import address_from_url
from singletonjob.stores.redis.sentinel import service_from_url
from singletonjob.stores.redis.store import RedisStore
from store_calls import acquire, ask, fails, opened, read, release, renew, token_of, unread
from waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import redis

    from virtual_loop import Capture

KIND = "valkey-9"

AGAIN = 1.2 * 0.5 + FORGOTTEN
"""L3, of FAST | LONG, in seconds: so soon somebody leads after a server answers again."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SentinelService]:
    with SentinelService(KIND, tmp_path_factory.mktemp("service")) as service:
        yield service


@pytest.fixture
def look(service: SentinelService) -> Iterator[redis.Redis]:
    """A client of the primary, emptied."""
    with service.primary().client(decode_responses=True) as client:
        client.flushall()
        yield client


def url_of(*ports: int, name: str = SERVICE, login: str = "", query: str = "") -> str:
    return f"redis+sentinel://{login}{','.join(f'127.0.0.1:{port}' for port in ports)}/{name}/0{query}"


# -- URLs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis+sentinel://a/cache", "service cache (sentinels a:26379), database 0"),
        ("valkey+sentinel://a:1,b,[::1]:3/cache/7", "service cache (sentinels a:1, b:26379, ::1:3), database 7"),
        ("RedisS+Sentinel://u:p@a,b/my%2Fcache/", "service my/cache (sentinels a:26379, b:26379), database 0"),
    ],
)
def test_a_good_url_names_sentinels_and_service(url: str, expected: str) -> None:
    assert str(service_from_url(url)) == expected


def test_the_login_before_the_hosts_is_the_servers_and_that_of_the_sentinels_is_in_the_query() -> None:
    query = "ssl_ca_certs=/c+a.pem&sentinel_username=watch&sentinel_password=s+%40%2F"
    service = service_from_url(f"valkeys+sentinel://app:p%2C%2B@a,b/cache?{query}")
    assert (service.username, service.password, service.server.tls) == ("app", "p,+", {"ssl_ca_certs": "/c+a.pem"})
    for sentinel in service.sentinels:
        assert (sentinel.username, sentinel.password, sentinel.tls) == ("watch", "s+@/", {"ssl_ca_certs": "/c+a.pem"})
    assert service_from_url("redis+sentinel://:secret@a/cache").sentinels[0].password is None
    assert "s+@" not in repr(service)
    assert "p,+" not in repr(service)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("redis+sentinel://a", "a Sentinel URL names at least one sentinel, and the service"),
        ("redis+sentinel:///cache", "a Sentinel URL names at least one sentinel, and the service"),
        ("redis+sentinel://a,,b/cache", "a host between two commas is empty"),
        ("redis+sentinel://a:x,b/cache", "host or port cannot be read"),
        ("redis+sentinel://a:1,b:70000/cache", "host or port cannot be read"),
        ("redis+sentinel://a/cache/zero", "'zero' is no database number; write redis+sentinel://"),
        ("redis+sentinel://a/cache?db=1", "'db' in the query of a Redis URL is not known; known are sentinel_password"),
        ("redis+sentinel://a/cache?ssl_ca_certs=/ca", "only for TLS; write rediss+sentinel:// in front"),
        ("redis+sentinel://a/cache?sentinel_username=x", "sentinel_username without a sentinel_password"),
        ("redis+sentinel://u:sec#ret@a/cache", "cannot be read"),
        ("redis+sentinel://u:12/ret@a/cache", "must be percent-encoded"),
        ("redis+sentinel:a,b/cache", "no // after redis+sentinel:"),
        ("redis://a,b/0", "a plain Redis URL names one server; write redis+sentinel://"),
    ],
)
def test_a_bad_url_is_told_without_its_password(url: str, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        from_url(url)
    assert text in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not any(part in str(raised.value) for part in ("secret", "ret@", "sec#"))


# -- what sentinels say ---------------------------------------------------------------------------------------------


async def test_leases_and_notices_are_those_of_the_server_that_the_sentinels_name(
    service: SentinelService, look: redis.Redis
) -> None:
    async with opened(service.url) as store, aclosing(store.notices("p")) as notices:
        assert await anext(notices) == frozenset()
        token = await token_of(store)
        assert look.get("p:j:lock") == "me"
        assert await ask(store, renew(token)) == Renewed()
        assert [view.holder for view in await store.peek("p")] == ["me"]
        assert await ask(store, release()) == Released(mine=True)
        assert await anext(notices) == {"j"}


async def test_an_inspection_warns_of_a_primary_that_minds_no_replicas(
    service: SentinelService, look: redis.Redis
) -> None:
    async with opened(service.url) as store:
        (warning,) = [finding.text for finding in await store.inspect("p") if finding.level != "ok"]
        assert warning.startswith("min-replicas-to-write is 0")
        look.config_set("min-replicas-to-write", 1)
        try:
            assert {finding.level for finding in await store.inspect("p")} == {"ok"}
            look.config_set("min-replicas-to-write", 3)  # more than there are
            error = await fails(store, acquire())
            assert isinstance(error, StoreUnavailable)
            assert "has too few replicas and refuses writes (min-replicas-to-write)" in str(error)
        finally:
            look.config_set("min-replicas-to-write", 0)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_primary_that_minds_its_replicas_renews_no_lease_when_it_is_cut_off_from_them(
    kind: str, tmp_path: Path
) -> None:
    (tmp_path / "replica").mkdir()
    minding = {"min-replicas-to-write": "1", "min-replicas-max-lag": "1"}
    with (
        Server(kind, tmp_path, minding) as primary,
        primary.client() as look,
        Server(kind, tmp_path / "replica", {"replicaof": f"127.0.0.1 {primary.port}"}) as replica,
    ):
        await until(lambda: look.info("replication").get("min_slaves_good_slaves") == 1)
        store = RedisStore(address_from_url(primary.url))
        await read(store)
        token = await token_of(store)
        assert await ask(store, renew(token)) == Renewed()
        assert replica.process is not None
        replica.process.send_signal(signal.SIGSTOP)  # the primary hears no more of it, as if it were cut off
        cut = boot()
        await until(lambda: look.info("replication").get("min_slaves_good_slaves") == 0)
        assert boot() - cut < 1 + 5 * 1.0  # it looks once a second
        if look.info("server")["redis_version"].startswith("6."):
            assert await ask(store, renew(token)) == Renewed()  # as the docs say
            texts = [finding.text for finding in await store.inspect("p") if finding.level == "warning"]
            assert any("Redis before 7.0 does not apply min-replicas-to-write to scripts" in text for text in texts)
        else:
            error = await fails(store, renew(token))
            assert isinstance(error, StoreUnavailable)
            assert "has too few replicas and refuses writes (min-replicas-to-write)" in str(error)
        await store.close()


async def test_c88_the_documented_rights_do_on_a_service_too(service: SentinelService, look: redis.Redis) -> None:
    look.execute_command("ACL", "SETUSER", "app", "reset", "on", ">pw", "resetchannels", *LISTED)  # type: ignore[no-untyped-call]  # has no types
    url = service.url.replace("//", "//app:pw@")
    async with opened(url) as store, aclosing(store.notices("p")) as notices:
        assert await anext(notices) == frozenset()
        assert isinstance(await ask(store, acquire()), Granted)
    error = await unread(url.replace(":pw@", ":wrong@"))
    assert "does not take the password of user 'app'" in str(error)
    assert "wrong" not in str(error)
    look.acl_deluser("app")


async def test_sentinels_that_refuse_or_say_nothing_are_passed_over_within_the_bound(
    service: SentinelService, look: redis.Redis
) -> None:
    real = service.sentinels[0].port
    async with Proxy(real) as silent:
        silent.hold()
        store = RedisStore(service_from_url(url_of(free_port(), silent.port, real)))
        began = time.monotonic()
        await read(store, bound=4.0)
        assert 0.9 < time.monotonic() - began < 3.5  # its share, a fourth of the time
        look.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")  # type: ignore[no-untyped-call]  # has no types
        with pytest.raises(StoreUnavailable):
            await ask(store, acquire())
        began = time.monotonic()
        await read(store, bound=4.0)
        assert time.monotonic() - began < 0.9  # the one that answered is asked first
        await store.close()


async def test_where_no_sentinel_is_reached_one_line_tells_of_all(service: SentinelService) -> None:
    async with Proxy(service.sentinels[0].port) as silent:
        silent.hold()
        nobody = free_port()
        error = await unread(url_of(nobody, silent.port), bound=0.6)
        assert isinstance(error, StoreUnavailable)
        assert str(error) == (
            "redis store: no sentinel names the primary of cache:"
            f" sentinel 127.0.0.1:{nobody}: Connection refused;"
            f" sentinel 127.0.0.1:{silent.port}: no answer to SENTINEL in time"
        )


async def test_a_service_that_is_not_known_and_a_server_that_is_no_sentinel_are_told(service: SentinelService) -> None:
    error = await unread(url_of(service.sentinels[0].port, name="cash"))
    assert not isinstance(error, StoreUnavailable)
    assert "knows no service 'cash'; correct the name in the URL" in str(error)
    error = await unread(url_of(service.servers[0].port))
    assert not isinstance(error, StoreUnavailable)
    assert "is none; name sentinels, whose port mostly is 26379" in str(error)


async def test_a_server_that_cannot_be_reached_is_named_with_who_named_it(tmp_path: Path) -> None:
    gone = free_port()
    with Sentinel(KIND, tmp_path, gone, service="lonely") as sentinel:
        error = await unread(url_of(sentinel.port, name="lonely"))
    assert str(error) == (
        f"redis store: 127.0.0.1:{gone}, database 0 (named by a sentinel of lonely): Connection refused"
    )


async def test_a_sentinel_that_names_a_replica_is_not_believed_and_another_one_is_asked_next(
    service: SentinelService, look: redis.Redis, tmp_path: Path
) -> None:
    primary = service.primary()
    replica = next(server for server in service.servers if server is not primary)
    for name in ("right", "wrong"):
        (tmp_path / name).mkdir()
    with (
        Sentinel(KIND, tmp_path / "wrong", replica.port, service="other") as wrong,
        Sentinel(KIND, tmp_path / "right", primary.port, service="other") as right,
    ):
        url = url_of(wrong.port, right.port, name="other")
        text = f"127.0.0.1:{replica.port}, database 0 (named by a sentinel of other) is a replica"
        store = RedisStore(service_from_url(url))
        with pytest.raises(StoreUnavailable) as raised:
            await read(store)
        assert text in str(raised.value)
        assert isinstance((await read(store)).up_for, int)
        assert isinstance(await ask(store, acquire()), Granted)
        assert look.get("p:j:lock") == "me"
        with pytest.raises(StoreUnavailable, match="is a replica"):
            await RedisStore(service_from_url(url)).peek("p")
        await store.close()


async def test_the_password_of_a_sentinel_is_its_own(service: SentinelService, tmp_path: Path) -> None:
    port = service.primary().port
    with Sentinel(KIND, tmp_path, port, service="guarded", sentinel_password="hush+hush") as sentinel:  # noqa: S106 - of our own server
        good = url_of(sentinel.port, name="guarded", query="?sentinel_password=hush+hush")
        async with opened(good):
            pass
        error = await unread(good.replace("hush+", "hash+"))
        assert "does not take the password of user 'default'" in str(error)
        assert "hash" not in str(error)
        error = await unread(url_of(sentinel.port, name="guarded", login=":hush@"))
        assert "wants a password; write ?sentinel_password=... at the end of the URL" in str(error)
        with client_library.Redis(port=sentinel.port, password="hush+hush", protocol=2) as client:  # noqa: S106 - of our own server
            client.execute_command("ACL", "SETUSER", "watch", "on", ">pw", "+sentinel|get-master-addr-by-name")
            client.execute_command("ACL", "SETUSER", "blind", "on", ">pw")
        query = "?sentinel_username=watch&sentinel_password=pw"  # with the rights that the docs name
        async with opened(url_of(sentinel.port, name="guarded", query=query)):
            pass
        error = await unread(url_of(sentinel.port, name="guarded", query=query.replace("watch", "blind")))
        assert f"user 'blind' at sentinel 127.0.0.1:{sentinel.port} has not the right for SENTINEL" in str(error)


async def test_a_primary_that_was_made_a_replica_is_left(service: SentinelService, look: redis.Redis) -> None:
    async with opened(service.url) as store:
        token = await token_of(store)
        look.replicaof("127.0.0.1", str(free_port()))
        try:
            error = await fails(store, renew(token))
            assert isinstance(error, StoreUnavailable)
            assert "is a read-only replica; the sentinels are asked again for each new connection" in str(error)
            assert "a reading comes first" in str(await fails(store, renew(token)))
            with pytest.raises(StoreUnavailable, match="is a replica"):
                await read(store)
        finally:
            look.replicaof("NO", "ONE")
        await read(store)
        assert await ask(store, renew(token)) == Renewed()
    await asyncio.to_thread(service.wait_for_replicas)


async def test_while_no_sentinel_answers_jobs_go_on_with_the_server_that_they_have(
    service: SentinelService, look: redis.Redis, logs: Capture
) -> None:
    async with Proxy(service.sentinels[0].port) as first, Proxy(service.sentinels[1].port) as second:
        one = One("a", url_of(first.port, second.port), **LONG)
        async with started(one):
            first.hold()
            second.hang_up()
            second.target = free_port()
            token = str(look.hget(state(), "token"))
            await asyncio.sleep(6 * HEARTBEAT)
            assert one.leads
            assert look.hget(state(), "token") == token
            assert int(str(look.pttl(lock()))) > 5_000 - 4 * 1000 * HEARTBEAT  # renewed meanwhile
            assert logs.of("heartbeat-error") == []


# -- whole apps through a fail-over ---------------------------------------------------------------------------------


def overlap(after: float, *ones: One) -> float:
    """For how long, in seconds, two led at once since then, by their runs: at most from the first to the last of them.

    At most one of them led when it began, and one when it ended.
    """
    spans = sorted((starts[0], max(ended for _, ended in one.runs)) for one in ones if (starts := one.starts(after)))
    return max(0.0, spans[0][1] - spans[1][0]) if len(spans) > 1 else 0.0


async def leads_again(promoted: float, *ones: One) -> None:
    """Somebody does, soon after that, alone, and goes on."""
    await until(lambda: any(one.starts(promoted) for one in ones))
    assert min(one.starts(promoted)[0] for one in ones if one.starts(promoted)) - promoted < 5 * AGAIN
    await asyncio.sleep(2 * HEARTBEAT)
    await until(lambda: any(one.leads for one in ones))  # after a lost lease not before the lost term must be over
    (leader,) = [one for one in ones if one.leads]
    count = len(leader.runs)
    await until(lambda: len(leader.runs) > count + 5)


async def test_c42_when_the_primary_dies_the_term_goes_on_or_another_one_leads_soon(
    service: SentinelService, look: redis.Redis, logs: Capture
) -> None:
    a, b = (One(who, service.url, **LONG) for who in "ab")
    async with started(a, b):
        killed = boot()
        old, new, promoted = await asyncio.to_thread(service.kill_primary)
        await leads_again(promoted, a, b)
        with new.client(decode_responses=True) as inside:
            (leader,) = [one for one in (a, b) if one.leads]
            assert str(inside.get(lock())).startswith("a-" if leader is a else "b-")
        assert overlap(killed, a, b) <= FORGOTTEN
        (said,) = logs.of("heartbeat-error")[:1]
        assert said.levelno == logging.ERROR
        assert len(logs.of("heartbeat-error")) <= 2  # one for each process
    await asyncio.to_thread(service.bring_back, old)


async def test_c41_a_lease_that_the_promoted_server_never_got_is_lost_within_a_heartbeat_and_a_call(
    service: SentinelService, look: redis.Redis, logs: Capture
) -> None:
    a, b = (One(who, service.url, **LONG) for who in "ab")
    async with started(a, b):
        token = int(str(look.hget(state(), "token")))
        killed = boot()

        def lose() -> tuple[Server, Server]:
            """As if the grant had not been replicated when the primary died."""
            old, new, _ = service.kill_primary()
            with new.client() as inside:
                inside.flushall()
            return old, new

        old, new = await asyncio.to_thread(lose)
        lost = boot()
        with new.client(decode_responses=True) as inside:
            await until(lambda: inside.exists(lock()))
            await leads_again(lost, a, b)
            assert int(str(inside.hget(state(), "token"))) > token
        assert overlap(killed, a, b) <= FORGOTTEN
        assert logs.of("lost") or a.app.stats()["tick"].terms > 1
    await asyncio.to_thread(service.bring_back, old)


async def test_c42_after_a_fail_over_by_hand_nobody_stays_with_the_old_primary(
    service: SentinelService, look: redis.Redis, logs: Capture
) -> None:
    a, b, c = (One(who, service.url, **LONG) for who in "abc")
    async with started(a, b):
        began = boot()
        new, promoted = await asyncio.to_thread(service.fail_over)
        async with c.app:  # it never knew another primary
            # The old primary takes itself for one for many seconds; nobody is disconnected.
            await leads_again(promoted, a, b, c)
            with new.client(decode_responses=True) as inside:
                (leader,) = [one for one in (a, b, c) if one.leads]
                assert str(inside.get(lock())).startswith(next(who for who, one in names(a, b, c) if one is leader))
                await until(lambda: inside.pubsub_numsub("pricing:notice")[0][1] == 3)
                assert boot() - promoted < 5.0  # a follower looks after its subscription each 3 s
            assert look.info("replication")["role"] == "master"
            assert any("is the server no more" in record.getMessage() for record in logs.of("heartbeat-error"))
            await leader.app.__aexit__(None, None, None)
            await until(lambda: any(one.starts(leader.last) for one in (a, b, c)))
            next_run = min(one.starts(leader.last)[0] for one in (a, b, c) if one.starts(leader.last))
            assert next_run - leader.last < HEARTBEAT
            assert overlap(began, a, b, c) <= FORGOTTEN


def names(*ones: One) -> Iterator[tuple[str, One]]:
    return zip(("a-", "b-", "c-"), ones, strict=False)


async def test_c42_a_primary_that_wakes_up_after_its_demotion_is_not_gone_back_to(
    service: SentinelService, look: redis.Redis
) -> None:
    a, b = (One(who, service.url, **LONG) for who in "ab")
    async with started(a, b):
        old = service.primary()
        token = str(look.hget(state(), "token"))
        assert old.process is not None
        frozen = boot()
        old.process.send_signal(signal.SIGSTOP)
        try:
            new, promoted = await asyncio.to_thread(service.promoted, old)
            await leads_again(promoted, a, b)
        finally:
            old.process.send_signal(signal.SIGCONT)
        assert overlap(frozen, a, b) <= FORGOTTEN
        end = boot() + 1.0
        while boot() < end:  # it takes itself for the primary, until the sentinels have told it
            assert sum(one.leads for one in (a, b)) == 1
            if look.info("replication")["role"] == "master":
                assert look.hget(state(), "token") in {None, token}
            await asyncio.sleep(0.02)
        with new.client(decode_responses=True) as inside:
            assert inside.exists(lock())
