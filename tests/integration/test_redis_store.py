"""The Redis store in trouble: lost connections, silent servers, restarts, rights, passwords; and whole apps on it.

Over 300 lines: one section per kind of trouble, and all lean on the same few servers.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import shutil
import ssl
import subprocess
import sys
import threading
import time
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
import redis as client_library

import singletonjob
from contract.test_redis_store import ORIGINAL_ACQUIRE, ORIGINAL_RELEASE
from proxy import Proxy
from servers import KINDS, Server
from singletonjob import ConfigError, Run, SingletonJobs
from singletonjob._core.errors import StoreError, StoreUnavailable
from singletonjob.stores import from_url
from singletonjob.stores.protocol import (
    Acquire,
    Claimed,
    ClaimSlot,
    Granted,
    Progress,
    Refused,
    Released,
    Renew,
    Renewed,
)
from singletonjob.stores.redis.address import address_from_url
from singletonjob.stores.redis.store import RedisStore
from store_calls import acquire, ask, fails, opened, read, release, renew, token_of
from waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis


SOURCE = str(Path(singletonjob.__file__).parents[1])

SECOND = 1_000_000
LOCK = "p:j:lock"

RIGHTS = (
    "~p:*",
    "~{p:*",
    "&p:*",
    *("+evalsha", "+eval", "+get", "+set", "+del", "+pexpire", "+pttl", "+sadd", "+time"),
    *("+hmget", "+hset"),
    *("+publish", "+subscribe", "+ping", "+info", "+select"),
)
"""What a user of project `p` needs. INFO may be missing: then there is no amnesia guard. SELECT: not for database 0."""

FAST: dict[str, Any] = {
    "lock_expiry": "1s",
    "heartbeat_interval": "300ms",
    "max_backoff_delay": "500ms",
    "amnesia_guard": False,
}
"""A tenth of the default durations. The guard would hold all back for two seconds of each server's life."""


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(request.param, tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def look(newest: Server) -> Iterator[redis.Redis]:
    with newest.client(decode_responses=True) as client:
        client.flushall()
        yield client


def proxied(proxy: Proxy) -> str:
    return f"redis://127.0.0.1:{proxy.port}/0"


# -- connections ----------------------------------------------------------------------------------------------------


async def test_requests_need_a_connection_on_which_a_reading_was_made(server: Server) -> None:
    store = RedisStore(address_from_url(server.url))
    with pytest.raises(StoreUnavailable, match="a reading comes first"):
        await ask(store, acquire())
    await read(store)
    assert isinstance(await ask(store, acquire()), Granted)
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await read(store)


async def test_c87_a_killed_connection_costs_one_call_and_no_lease(server: Server, client: redis.Redis) -> None:
    async with opened(server.url) as store:
        token = await token_of(store)
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")  # type: ignore[no-untyped-call]  # has no types
        assert isinstance(await fails(store, renew(token)), StoreUnavailable)
        # Nothing goes out on a new connection before the server's clock and up-time were read on it.
        assert "a reading comes first" in str(await fails(store, renew(token)))
        await read(store)
        assert await ask(store, renew(token)) == Renewed()


async def test_a_server_that_says_nothing_costs_no_more_than_the_bound(server: Server, proxy: Proxy) -> None:
    async with opened(proxied(proxy)) as store:
        token = await token_of(store)
        proxy.hold()
        began = time.monotonic()
        error = await fails(store, renew(token), bound=0.2)
        with pytest.raises(StoreUnavailable):  # a new connection, which is accepted and then left alone
            await read(store, bound=0.2)
        assert time.monotonic() - began < 2.0
        assert str(error).endswith("no answer to EVALSHA in time")
        proxy.let_through()
        await read(store)
        assert await ask(store, renew(token)) == Renewed()


async def test_a_call_that_runs_after_its_time_changes_nothing(
    server: Server, proxy: Proxy, client: redis.Redis
) -> None:
    async with opened(proxied(proxy)) as store:
        clock = (await read(store)).clock
        proxy.hold("up")
        with pytest.raises(StoreUnavailable):
            await ask(store, acquire(), bound=0.1, void_at=clock + 100_000)
        await asyncio.sleep(0.1)
        client.config_resetstat()
        proxy.let_through()
        await until(lambda: "cmdstat_time" in client.info("commandstats"))
        assert client.exists(LOCK) == 0


async def test_a_call_given_up_that_runs_in_time_is_released_by_its_number(
    server: Server, proxy: Proxy, client: redis.Redis
) -> None:
    async with opened(proxied(proxy)) as store:
        proxy.hold("down")
        with pytest.raises(StoreUnavailable):
            await ask(store, acquire(number=4), bound=0.1)
        assert client.get(LOCK) == "me"
        proxy.let_through()
        await read(store)
        assert await ask(store, release(number=4)) == Released(mine=True)


async def test_c85_calls_cancelled_at_any_moment_leave_no_trace(server: Server, client: redis.Redis) -> None:
    async with opened(server.url) as store:
        before = len(client.client_list())
        for number in range(100):
            task = asyncio.create_task(read(store) if number % 2 else ask(store, acquire(number + 1)))
            for _ in range(number % 12):
                await asyncio.sleep(0)
            await asyncio.sleep(number % 5 / 5000)
            task.cancel()
            with suppress(asyncio.CancelledError, StoreUnavailable):
                await task
        assert (await read(store)).verdicts == ()
        token = await token_of(store, number=200)
        assert await ask(store, renew(token)) == Renewed()
        await until(lambda: len(client.client_list()) <= before)


async def test_a_call_that_is_still_being_given_up_does_not_disturb_the_next_one(
    server: Server, proxy: Proxy, client: redis.Redis
) -> None:
    async with opened(proxied(proxy)) as store:
        token = await token_of(store)
        for rounds in range(8):
            proxy.hold("down")
            given_up = asyncio.create_task(ask(store, renew(token)))
            for _ in range(rounds):
                await asyncio.sleep(0)
            given_up.cancel()
            proxy.let_through()
            clock = (await read(store)).clock  # begins before the other one has unwound
            assert abs(clock - (await read(store)).clock) < SECOND
            with pytest.raises(asyncio.CancelledError):
                await given_up
            assert await ask(store, renew(token)) == Renewed()
        await until(lambda: len(client.client_list()) <= 2)


async def test_a_restarted_server_is_empty_and_says_how_young_it_is(server: Server, tmp_path: Path) -> None:
    with Server(server.kind, tmp_path) as own:
        async with opened(own.url) as store:
            token = await token_of(store)
            own.kill()
            assert isinstance(await fails(store, renew(token)), StoreUnavailable)
            with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{own.port}, database 0: Connection refused"):
                await read(store)
            own.start()
            up_for = (await read(store)).up_for
            assert up_for is not None
            assert up_for <= 2
            assert await ask(store, renew(token)) == Refused(holder=None, expires_in=None)


async def test_a_unix_socket_and_another_database(server: Server, tmp_path: Path) -> None:
    socket = tmp_path / "s#1.sock"
    with Server(server.kind, tmp_path, options={"unixsocket": str(socket), "requirepass": "secret"}) as own:
        url = f"unix://:secret@{quote(str(socket))}?db=3"
        async with opened(url) as store:
            await token_of(store)
        with client_library.Redis(port=own.port, db=3, password="secret", protocol=2) as client:  # noqa: S106 - of our own server
            assert client.get(LOCK) == b"me"
        wrong = RedisStore(address_from_url(url.replace("secret", "hidden")))
        with pytest.raises(StoreError, match="does not take the password") as raised:
            await read(wrong)
        assert "hidden" not in str(raised.value)
        await wrong.close()


# -- a server that refuses ------------------------------------------------------------------------------------------


async def test_a_replica_is_named_as_such(server: Server, client: redis.Redis, tmp_path: Path) -> None:
    with Server(server.kind, tmp_path, options={"replicaof": f"127.0.0.1 {server.port}"}) as replica:
        async with opened(replica.url) as store:
            with replica.client() as inside:
                await until(lambda: inside.info("replication")["master_link_status"] == "up")
            error = await fails(store, acquire())
            assert isinstance(error, StoreUnavailable)
            assert "is a read-only replica; name the primary in the URL" in str(error)


async def test_c41_a_promoted_replica_that_missed_the_lease_does_not_renew_it(
    server: Server, client: redis.Redis, tmp_path: Path
) -> None:
    with Server(server.kind, tmp_path, options={"replicaof": f"127.0.0.1 {server.port}"}) as replica:
        with replica.client() as inside:
            await until(lambda: inside.info("replication")["master_link_status"] == "up")
            inside.replicaof("NO", "ONE")
        async with opened(server.url) as old, opened(replica.url) as new:
            token = await token_of(old)
            assert await ask(old, renew(token)) == Renewed()
            assert await ask(new, renew(token)) == Refused(holder=None, expires_in=None)


async def test_a_node_of_a_cluster_is_named_as_such(server: Server, tmp_path: Path) -> None:
    with Server(server.kind, tmp_path, options={"cluster-enabled": "yes"}) as node:
        with node.client() as inside:
            inside.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
            await until(lambda: inside.execute_command("CLUSTER INFO")["cluster_state"] == "ok")
        async with opened(node.url) as store:
            error = await fails(store, acquire())
            assert not isinstance(error, StoreUnavailable)
            assert "is a node of a Cluster" in str(error)


async def test_a_full_server_grants_nothing_and_still_renews_and_releases(server: Server, client: redis.Redis) -> None:
    async with opened(server.url) as store:
        token = await token_of(store)
        client.config_set("maxmemory", 1)
        try:
            other = Acquire(job="other", number=2, lock_expiry=60, above=0)
            error = await fails(store, other)
            assert isinstance(error, StoreUnavailable)
            assert "out of memory" in str(error)
            await read(store)
            progress = Progress(done=token, ended_ago=0.0)
            assert await ask(store, Renew(job="j", token=token, lock_expiry=60, progress=progress)) == Renewed()
            assert await ask(store, release()) == Released(mine=True)
        finally:
            client.config_set("maxmemory", 0)


async def test_a_server_that_evicts_any_key_is_warned_of_once(
    server: Server, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        async with opened(server.url) as store:
            client.client_kill_filter(_type="normal", skipme=True)
            with suppress(StoreError):
                await ask(store, acquire())
            await read(store)
    finally:
        client.config_set("maxmemory-policy", "noeviction")
    (record,) = caplog.records
    assert (record.levelno, record.__dict__["event"]) == (logging.WARNING, "eviction-policy")
    assert "allkeys-lru" in record.getMessage()


async def test_a_server_that_evicts_what_has_an_expiry_is_warned_of_where_there_is_a_limit_to_reach(
    server: Server, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    client.config_set("maxmemory-policy", "volatile-ttl")
    try:
        async with opened(server.url) as store:
            await read(store)
        assert not caplog.records
        client.config_set("maxmemory", 10**8)
        async with opened(server.url) as store:
            await read(store)
    finally:
        client.config_set("maxmemory", 0)
        client.config_set("maxmemory-policy", "noeviction")
    (record,) = caplog.records
    assert "volatile-ttl" in record.getMessage()
    assert "set maxmemory-policy noeviction" in record.getMessage()


async def test_a_server_busy_with_somebodys_script_is_unavailable(server: Server, client: redis.Redis) -> None:
    def loop_for_ever() -> None:
        with server.client() as other, suppress(client_library.RedisError):
            other.eval("while true do end", 0)

    async with opened(server.url) as store:
        token = await token_of(store)
        client.config_set("lua-time-limit", 20)
        thread = threading.Thread(target=loop_for_ever)
        thread.start()
        await asyncio.sleep(0.1)
        try:
            error = await fails(store, renew(token))
        finally:
            client.script_kill()
            thread.join()
        assert isinstance(error, StoreUnavailable)
        assert "runs a script that does not end" in str(error)
        await read(store)
        assert await ask(store, renew(token)) == Renewed()


# -- passwords and rights -------------------------------------------------------------------------------------------

PASSWORD = "p#w/d@1%2B:x"  # noqa: S105 - of our own server


async def test_c91_a_password_is_decoded_once_and_shows_up_nowhere(
    server: Server, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    client.execute_command("ACL", "SETUSER", "me@x", "reset", "on", f">{PASSWORD}", "resetchannels", *RIGHTS)  # type: ignore[no-untyped-call]  # has no types
    url = f"redis://{quote('me@x')}:{quote(PASSWORD, safe='')}@127.0.0.1:{server.port}/0"
    said: list[str] = []
    app = SingletonJobs("p", store=url, **FAST)

    @app.fixed_rate("20ms")
    async def tick() -> None: ...

    async with app:
        await until(lambda: app.is_leader("tick"))
    async with opened(url) as store:
        await token_of(store)
        said += [repr(store), str(store)]
        client.execute_command("ACL", "SETUSER", "me@x", "off")  # type: ignore[no-untyped-call]  # has no types
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")  # type: ignore[no-untyped-call]  # has no types
        with pytest.raises(StoreError):
            await ask(store, acquire(2))
        with pytest.raises(StoreError, match="does not take the password of user 'me@x'") as raised:
            await read(store)
        said += [str(raised.value), repr(raised.value), repr(raised.value.__cause__)]
    said += [record.getMessage() for record in caplog.records]
    for form in (PASSWORD, quote(PASSWORD, safe=""), "p#w", "w/d"):
        assert [text for text in said if form in text] == []


async def test_a_server_that_wants_a_password_gets_one_named(server: Server, tmp_path: Path) -> None:
    with Server(server.kind, tmp_path, options={"requirepass": "secret"}) as own:
        with pytest.raises(StoreError, match="wants a password; write redis://user:password@host") as raised:
            async with opened(own.url):
                pass
        assert not isinstance(raised.value, StoreUnavailable)
        async with opened(f"redis://:secret@127.0.0.1:{own.port}") as store:
            assert isinstance(await ask(store, acquire()), Granted)


async def test_c88_the_documented_rights_are_enough_for_everything(server: Server, client: redis.Redis) -> None:
    url = server.user(*RIGHTS)
    async with opened(url, ping_interval=0.1) as store, aclosing(store.notices("p")) as notices:
        assert await anext(notices) == frozenset()
        token = await token_of(store)
        assert (await read(store)).up_for is not None
        assert await ask(store, ClaimSlot(job="j", token=token, slot=token, mark="m")) == Claimed()
        client.script_flush()
        progress = Progress(done=token, ended_ago=0.1)
        assert await ask(store, Renew(job="j", token=token, lock_expiry=60, progress=progress)) == Renewed()
        assert isinstance(await ask(store, acquire()), Refused)
        await asyncio.sleep(0.25)  # a PING goes out
        assert await ask(store, release()) == Released(mine=True)
        async with asyncio.timeout(5):
            assert await anext(notices) == {"j"}


NICETIES = {"+info", "+select", "+ping"}


@pytest.mark.parametrize("right", [right for right in RIGHTS if right not in NICETIES])
async def test_c88_without_any_one_of_the_rights_something_is_refused(
    server: Server, client: redis.Redis, right: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = RedisStore(address_from_url(server.user(*(one for one in RIGHTS if one != right))))
    client.script_flush()
    refused: list[str] = []
    try:
        await _use_all(store)
    except StoreError as error:
        refused.append(str(error))
    finally:
        await store.close()
    if right in {"+publish", "+sadd"}:
        assert refused == []
        (record,) = caplog.records
        assert record.__dict__["event"] == {"+publish": "publish-failed", "+sadd": "names-failed"}[right]
    else:
        (text,) = refused
        assert client.exists(LOCK) == 0 or right in {"+del", "+pexpire", "+pttl"}
        assert "has not the right for" in text
        assert right.removeprefix("+") in text.lower() or right[0] in "~&"


async def _use_all(store: RedisStore) -> None:
    await read(store)
    token = await token_of(store)
    progress = Progress(done=token, ended_ago=0.0)
    assert await ask(store, Renew(job="j", token=token, lock_expiry=60, progress=progress)) == Renewed()
    assert isinstance(await ask(store, acquire()), Refused)
    assert await ask(store, release()) == Released(mine=True)
    async with aclosing(store.notices("p")) as notices:
        await anext(notices)


async def test_c88_without_the_channel_a_release_is_none_the_less_one_and_a_warning(
    server: Server, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(server.user(*(right for right in RIGHTS if right != "&p:*"))) as store:
        await token_of(store)
        assert await ask(store, release()) == Released(mine=True)
        (record,) = caplog.records
        assert (record.levelno, record.__dict__["event"]) == (logging.WARNING, "publish-failed")
        assert "by ACL SETUSER" in record.getMessage()
        with pytest.raises(StoreError, match="has not the right for SUBSCRIBE"):
            async for _ in store.notices("p"):
                pass


async def test_without_the_right_to_info_the_up_time_is_not_known(server: Server, client: redis.Redis) -> None:
    async with opened(server.user(*(right for right in RIGHTS if right != "+info"))) as store:
        assert (await read(store)).up_for is None
        assert isinstance(await ask(store, acquire()), Granted)


# -- notices --------------------------------------------------------------------------------------------------------


async def test_a_silent_subscription_is_given_up_and_a_new_one_says_so(server: Server, proxy: Proxy) -> None:
    async with opened(proxied(proxy), ping_interval=0.1) as store:
        async with aclosing(store.notices("p")) as notices:
            assert await anext(notices) == frozenset()
            waiting = asyncio.ensure_future(anext(notices))
            await asyncio.sleep(0.35)
            assert not waiting.done()  # its pings are answered
            proxy.hold()
            with pytest.raises(StoreUnavailable, match=r"the subscription is not answered within 0\.1 s"):
                await asyncio.wait_for(waiting, 2)
        proxy.let_through()
        async with aclosing(store.notices("p")) as notices:
            assert await anext(notices) == frozenset()


async def test_a_cut_subscription_is_told_at_once(server: Server, proxy: Proxy) -> None:
    async with opened(proxied(proxy)) as store, aclosing(store.notices("p")) as notices:
        await anext(notices)
        waiting = asyncio.ensure_future(anext(notices))
        await asyncio.sleep(0.05)
        proxy.hang_up()
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(waiting, 2)


async def test_a_subscription_ends_with_its_store_and_leaves_no_connection(server: Server, client: redis.Redis) -> None:
    before = len(client.client_list())
    async with opened(server.url) as store:
        notices = store.notices("p")
        await anext(notices)
        waiting = asyncio.ensure_future(anext(notices))
        await asyncio.sleep(0)
        await store.close()
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(waiting, 2)
    await until(lambda: len(client.client_list()) == before)


# -- URLs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("redis://h:port/0", "host or port cannot be read"),
        ("redis://h:70000/0", "host or port cannot be read"),
        ("redis:h", "no // after redis:"),
        ("redis://h/zero", "'zero' is no database number"),
        ("redis://h/-1", "'-1' is no database number"),
        ("redis://h/0/1", "'0/1' is no database number"),
        ("redis://h?db=x", "'x' is no database number"),
        ("redis://h?timeout=3", "'timeout' in the query of a Redis URL is not known; known are db, ssl_ca_certs"),
        ("redis://h?ssl_ca_certs=/ca", "only for TLS; write rediss://"),
        ("rediss://h?ssl_cert_reqs=maybe", "write one of required, optional, none"),
        ("rediss://h?ssl_check_hostname=perhaps", "write true or false"),
        ("rediss://h?ssl_ca_certs=", "write the path of a file"),
        ("unix://relative/path", "needs an absolute path"),
        ("unix://", "needs an absolute path"),
        ("rediz://:secret@h", "'rediz:...' is not a store that this version knows"),
        ("redis://:sec#ret@h", "host or port cannot be read"),
        ("redis://:12#ret@h", "must be percent-encoded"),
        ("redis://:sec/ret@h", "host or port cannot be read"),
        ("redis://:12/ret@h", "must be percent-encoded"),
        ("redis://:12?secret@h", "must be percent-encoded"),
        ("redis://:sec[ret@h", "host or port cannot be read"),
    ],
)
def test_a_bad_url_is_told_without_its_password(url: str, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        from_url(url)
    assert text in str(raised.value)
    assert not any(part in str(raised.value) for part in ("secret", "ret@", "sec"))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://", "localhost:6379, database 0"),
        ("valkey://cache", "cache:6379, database 0"),
        ("REDIS://cache:7000/12", "cache:7000, database 12"),
        ("redis://user@[::1]:7000?db=3", "::1:7000, database 3"),
        ("unix:///run/redis%23.sock?db=2", "/run/redis#.sock, database 2"),
    ],
)
def test_a_good_url_names_a_server(url: str, expected: str) -> None:
    assert str(address_from_url(url)) == expected


def test_tls_settings_are_handed_to_the_client() -> None:
    address = address_from_url("valkeys://h?ssl_ca_certs=/etc/ca.pem&ssl_check_hostname=false")
    assert address.tls == {"ssl_ca_certs": "/etc/ca.pem", "ssl_check_hostname": False}
    assert address_from_url("rediss://h").tls == {}


def test_naming_a_redis_store_does_not_import_the_client() -> None:
    code = "import sys; from singletonjob.stores import from_url; from_url('redis://h'); print('redis' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": SOURCE},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "False"


# -- TLS ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a certificate for 127.0.0.1 that nobody vouches for, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    subject = ("-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2")
    files = ("-keyout", str(path), "-out", f"{path}.crt")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject, *files], check=True, capture_output=True
    )
    with path.open("a") as file:
        file.write(Path(f"{path}.crt").read_text())
    return path


async def test_tls_is_spoken_where_the_url_says_so(server: Server, client: redis.Redis, certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    async with Proxy(server.port, tls=context) as proxy:
        url = f"rediss://127.0.0.1:{proxy.port}/0"
        async with opened(f"{url}?ssl_ca_certs={certificate}") as store, aclosing(store.notices("p")) as notices:
            assert await anext(notices) == frozenset()
            token = await token_of(store)
            assert await ask(store, renew(token)) == Renewed()
            assert await ask(store, release()) == Released(mine=True)
            assert await anext(notices) == {"j"}
            proxy.hold()
            began = time.monotonic()
            await fails(store, acquire(2), bound=0.2)
            assert time.monotonic() - began < 1
            proxy.let_through()
        with pytest.raises(StoreUnavailable, match="certificate verify failed"):
            async with opened(url):
                pass


async def test_tls_to_a_server_without_it_fails_within_the_bound(server: Server) -> None:
    store = RedisStore(address_from_url(f"rediss://127.0.0.1:{server.port}?ssl_cert_reqs=none"))
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{server.port}"):
        await read(store, bound=0.5)
    assert time.monotonic() - began < 2
    await store.close()


# -- whole apps -----------------------------------------------------------------------------------------------------


class Log:
    """When runs began and ended, on the clock of this process, and who ran them."""

    def __init__(self) -> None:
        self.runs: list[tuple[str, float, float]] = []
        self.most_at_once = 0
        self._running = 0

    def app(self, who: str, url: str, **options: Any) -> SingletonJobs:
        app = SingletonJobs("pricing", store=url, node_id=who, **(FAST | options))

        @app.fixed_rate("20ms")
        async def tick(run: Run) -> None:
            self._running += 1
            self.most_at_once = max(self.most_at_once, self._running)
            began = time.monotonic()
            try:
                await asyncio.sleep(0.002)
            finally:
                self._running -= 1
                self.runs.append((who, began, time.monotonic()))

        return app

    def gap(self, old: str, new: str) -> float:
        """From the end of the last run of one to the start of the first run of another."""
        ended = max(end for who, _, end in self.runs if who == old)
        return min(start for who, start, _ in self.runs if who == new and start > ended) - ended


async def test_of_three_apps_one_leads_and_its_stop_hands_over_within_milliseconds(
    server: Server, client: redis.Redis
) -> None:
    log = Log()
    apps = {who: log.app(who, server.url) for who in "abc"}
    for app in apps.values():
        await app.__aenter__()
    key = "pricing:tick:lock"
    leaders: list[str] = []
    for left in (3, 2, 1):
        await until(lambda: [app for app in apps.values() if app.is_leader("tick")])
        await asyncio.sleep(0.5)  # the others hear notices by now
        (leader,) = [who for who, app in apps.items() if app.is_leader("tick")]
        assert len(apps) == left
        assert str(client.get(key)).startswith(f"{leader}-")
        leaders.append(leader)
        await apps.pop(leader).__aexit__(None, None, None)
    assert client.exists(key) == 0
    assert log.most_at_once == 1
    assert [log.gap(old, new) < 5 * 0.05 for old, new in zip(leaders, leaders[1:], strict=False)] == [True, True]


async def test_an_app_that_is_cut_off_stops_before_the_next_one_leads(newest: Server, look: redis.Redis) -> None:
    log = Log()
    async with Proxy(newest.port) as proxy, log.app("a", proxied(proxy)) as a:
        b = log.app("b", newest.url)
        await until(lambda: a.is_leader("tick"))
        async with b:
            await asyncio.sleep(0.7)
            assert a.is_leader("tick")
            proxy.hold()
            held = time.monotonic()
            await until(lambda: b.is_leader("tick"))
            assert time.monotonic() - held < 1.01 * 1.0 + 5 * 0.1
            assert not a.is_leader("tick")
            proxy.let_through()
            await asyncio.sleep(0.7)
            assert b.is_leader("tick")
            assert not a.is_leader("tick")
            assert log.gap("a", "b") > 0  # here: when b has left, a may lead once more
    assert log.most_at_once == 1


HOLDER = """
import asyncio, sys
from singletonjob import SingletonJobs
app = SingletonJobs("pricing", store=sys.argv[1], lock_expiry="1s", heartbeat_interval="300ms",
                    max_backoff_delay="500ms", amnesia_guard=False)
@app.fixed_rate("20ms")
async def tick() -> None:
    print("run", flush=True)
app.run()
"""


async def test_a_killed_process_is_followed_when_its_lease_ends(newest: Server, look: redis.Redis) -> None:
    log = Log()
    process = subprocess.Popen(  # noqa: ASYNC220 - it takes no time that matters here
        [sys.executable, "-c", HOLDER, newest.url], env=os.environ | {"PYTHONPATH": SOURCE}, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == b"run\n"
        b = log.app("b", newest.url)
        async with b:
            await asyncio.sleep(0.7)
            process.kill()
            left = int(look.pttl("pricing:tick:lock")) / 1000
            began = time.monotonic()
            await until(lambda: b.is_leader("tick"))
            assert left - 0.1 < time.monotonic() - began < left + 5 * 0.1
    finally:
        process.kill()
        process.communicate()


async def test_c84_scripts_flushed_all_the_time_cost_no_beat(
    newest: Server, look: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log()
    app = log.app("a", newest.url)
    async with app:
        await until(lambda: app.is_leader("tick"))
        token = look.hget("{pricing:tick:lock}:state", "token")
        for _ in range(12):
            look.script_flush()
            await asyncio.sleep(0.1)
        assert look.hget("{pricing:tick:lock}:state", "token") == token
    assert "heartbeat-error" not in {record.__dict__.get("event") for record in caplog.records}


async def test_c40_an_outage_shorter_than_the_lease_allows_costs_no_leadership(
    newest: Server, look: redis.Redis
) -> None:
    log = Log()
    async with Proxy(newest.port) as proxy, log.app("a", proxied(proxy), lock_expiry="2s") as a:
        await until(lambda: a.is_leader("tick"))
        leader = look.get("pricing:tick:lock")
        token = look.hget("{pricing:tick:lock}:state", "token")
        for seconds in (0.3, 0.6):  # one renewal is missed, then two
            proxy.hold()
            proxy.hang_up()
            await asyncio.sleep(seconds)
            proxy.let_through()
            await asyncio.sleep(0.7)
            assert (look.get("pricing:tick:lock"), look.hget("{pricing:tick:lock}:state", "token")) == (leader, token)
    starts = [start for _, start, _ in log.runs]
    assert max(later - earlier for earlier, later in itertools.pairwise(starts)) < 0.3


async def test_c31_an_app_started_before_its_server_leads_when_that_comes(newest: Server, tmp_path: Path) -> None:
    own = Server(newest.kind, tmp_path)
    log = Log()
    app = log.app("a", own.url)
    began = time.monotonic()
    async with app.lifespan():  # as FastAPI does
        assert time.monotonic() - began < 2
        await asyncio.sleep(1)
        assert not app.is_leader("tick")
        with own:
            await until(lambda: app.is_leader("tick"))
            await until(lambda: log.runs)


async def test_c21_a_server_that_restarts_empty_makes_no_second_leader(server: Server, tmp_path: Path) -> None:
    log = Log()
    with Server(server.kind, tmp_path) as own:
        await until(lambda: _up_for(own) > 2)
        a, b = (log.app(who, own.url, amnesia_guard=True) for who in "ab")
        async with a, b:
            await until(lambda: a.is_leader("tick") or b.is_leader("tick"))
            await asyncio.sleep(0.5)
            own.kill()
            own.start()
            restarted = time.monotonic()
            await asyncio.sleep(0.5)
            assert not a.is_leader("tick")  # the key that named its leader is gone
            assert not b.is_leader("tick")
            await until(lambda: a.is_leader("tick") or b.is_leader("tick"))
            # The guard's two seconds count from a time that the server tells in whole ones.
            assert 0.9 < time.monotonic() - restarted < 2 + 5 * 0.5
    assert log.most_at_once == 1


def _up_for(server: Server) -> int:
    with server.client() as client:
        info: dict[str, int] = client.info("server")
        return info["uptime_in_seconds"]


async def test_c20_c87_a_lock_that_somebody_else_took_is_lost_within_a_heartbeat(
    newest: Server, look: redis.Redis
) -> None:
    log = Log()
    app = log.app("a", newest.url)
    async with app:
        await until(lambda: app.is_leader("tick"))
        token = look.hget("{pricing:tick:lock}:state", "token")
        look.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")  # type: ignore[no-untyped-call]  # has no types
        await asyncio.sleep(1.2)
        assert look.hget("{pricing:tick:lock}:state", "token") == token  # its connection alone is no loss
        look.set("pricing:tick:lock", "stranger", px=2000)
        taken = time.monotonic()
        await until(lambda: not app.is_leader("tick"))
        lost = time.monotonic()
        assert lost - taken < 5 * 0.3
        await until(lambda: app.is_leader("tick"))  # a foreign holder tells nothing, its end is noticed all the same
        assert time.monotonic() - taken < 2 + 5 * 0.3
    assert [start for _, start, _ in log.runs if lost < start < taken + 1.9] == []


async def test_the_original_and_an_app_take_over_from_each_other_and_never_overlap(
    newest: Server, look: redis.Redis
) -> None:
    log = Log()
    on = True
    app = log.app("a", newest.url, enabled=lambda: on)
    acquire, release = look.register_script(ORIGINAL_ACQUIRE), look.register_script(ORIGINAL_RELEASE)
    theirs: list[tuple[float, float]] = []
    async with app:
        for _ in range(4):
            on = True
            await until(lambda: app.is_leader("tick"))
            assert acquire(keys=["pricing:tick:lock"], args=["net", 5000]) == 0
            await asyncio.sleep(0.1)
            on = False
            await until(lambda: acquire(keys=["pricing:tick:lock"], args=["net", 5000]) == 1)
            began = time.monotonic()
            on = True
            await asyncio.sleep(0.4)
            theirs.append((began, time.monotonic()))
            assert release(keys=["pricing:tick:lock"], args=["net"]) == 1
    assert len(theirs) == 4
    assert log.runs
    assert [run for run in log.runs for began, ended in theirs if run[1] < ended and began < run[2]] == []


async def test_p42_c25_a_job_that_is_off_leaves_no_key(newest: Server, look: redis.Redis) -> None:
    app = SingletonJobs("pricing", store=newest.url, enabled=False, **FAST)

    @app.fixed_rate("20ms")
    async def tick() -> None:
        raise AssertionError

    look.config_resetstat()
    async with app:
        await asyncio.sleep(0.7)
    assert look.dbsize() == 0


async def test_a_key_of_a_wrong_type_harms_no_other_job_of_the_app(newest: Server, look: redis.Redis) -> None:
    look.hset("pricing:bad:lock", "field", "1")
    log = Log()
    app = log.app("a", newest.url)

    @app.fixed_rate("20ms", name="bad")
    async def bad() -> None:
        raise AssertionError

    async with app:
        await until(lambda: app.is_leader("tick"))
        await asyncio.sleep(0.5)
        assert app.is_leader("tick")
        look.delete("pricing:bad:lock")
    assert log.runs
