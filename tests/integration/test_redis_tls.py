"""TLS to a Redis server: whom it trusts, whom it refuses, and what it says of that.

`proxy` is a TLS end in front of a server that has none, so these tests run everywhere; `server` is the system's own
redis-server, where there is one that was built with TLS.

Over 300 lines: all of them lean on the same authorities and ends.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

import pytest

from certificates import Authority
from clusters import Cluster
from integration.test_redis_store import FAST, PASSWORD, RIGHTS
from proxy import Proxy
from sentinels import SERVICE, SentinelService
from servers import ALL_KINDS, OLDEST, Server, free_port
from singletonjob import SingletonJobs
from singletonjob._core.errors import StoreUnavailable
from singletonjob.stores import from_url
from singletonjob.stores.protocol import Batch, Inspectable, Released, Renewed
from singletonjob.stores.redis.address import address_from_url
from singletonjob.stores.redis.store import RedisStore
from store_calls import acquire, ask, fails, opened, release, renew, token_of, unread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

SYSTEM = "redis-system"


class Ends(NamedTuple):
    """The ports of two TLS servers: `strict` wants a certificate of the client, `other` is one for another host."""

    open: int
    strict: int
    other: int


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("good"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Another one, which nobody trusts."""
    return Authority(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(OLDEST, tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="module")
def system(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ends]:
    """The system's servers; without them the tests that need them are skipped."""
    if SYSTEM not in ALL_KINDS:
        pytest.skip("there is no redis-server of the system")
    started: list[Server] = []
    try:
        for name, strict, names in (
            ("open", "no", "IP:127.0.0.1"),
            ("strict", "yes", "IP:127.0.0.1"),
            ("other", "no", "DNS:elsewhere.example"),
        ):
            options = tls_options(authority, f"system-{name}", strict, names)
            server = Server(SYSTEM, tmp_path_factory.mktemp(name), options)
            try:
                server.start()
            except AssertionError as error:
                if "tls-" in str(error) and "Bad directive" in str(error):
                    pytest.skip("the system's redis-server was built without TLS")
                raise
            started.append(server)
        yield Ends(*(int(server.options["tls-port"]) for server in started))
    finally:
        for server in started:
            server.kill()


def tls_options(authority: Authority, name: str, strict: str, names: str) -> dict[str, str]:
    certificate, key = authority.issue(name, names)
    return {
        "tls-port": str(free_port()),
        "tls-cert-file": str(certificate),
        "tls-key-file": str(key),
        "tls-ca-cert-file": str(authority.ca),
        "tls-auth-clients": strict,
    }


@pytest.fixture(params=["proxy", "server"])
async def ends(request: pytest.FixtureRequest, authority: Authority, plain: Server) -> AsyncIterator[Ends]:
    if request.param == "server":
        yield request.getfixturevalue("system")
        return
    contexts: list[ssl.SSLContext] = []
    for name, names in (("open", "IP:127.0.0.1"), ("strict", "IP:127.0.0.1"), ("other", "DNS:elsewhere.example")):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*authority.issue(f"proxy-{name}", names))
        if name == "strict":
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(authority.ca)
        contexts.append(context)
    first, second, third = contexts
    async with (
        Proxy(plain.port, tls=first) as one,
        Proxy(plain.port, tls=second) as two,
        Proxy(plain.port, tls=third) as three,
    ):
        yield Ends(one.port, two.port, three.port)


def url(port: int, **query: object) -> str:
    return f"rediss://127.0.0.1:{port}/0?{'&'.join(f'{key}={value}' for key, value in query.items())}"


async def test_with_the_right_authority_leases_and_notices_work(ends: Ends, authority: Authority) -> None:
    async with opened(url(ends.open, ssl_ca_certs=authority.ca)) as store, aclosing(store.notices("p")) as notices:
        assert await anext(notices) == frozenset()
        token = await token_of(store)
        assert await ask(store, renew(token)) == Renewed()
        assert [view.holder for view in await store.peek("p")] == ["me"]
        assert {finding.level for finding in await store.inspect("p")} == {"ok"}
        assert await ask(store, release()) == Released(mine=True)
        heard = await anext(notices)
        while heard != {"j"}:  # the inspection published something, too
            heard = await anext(notices)


async def test_a_server_that_no_known_authority_vouches_for_is_refused(ends: Ends, stranger: Authority) -> None:
    for query in ({}, {"ssl_ca_certs": stranger.ca}):
        error = await unread(url(ends.open, **query))
        assert isinstance(error, StoreUnavailable)
        assert f"127.0.0.1:{ends.open}" in str(error)
        assert "certificate verify failed" in str(error)
        assert "name the file of its authority by ssl_ca_certs in the URL" in str(error)
    async with opened(url(ends.open, ssl_cert_reqs="none", ssl_check_hostname="false")):
        pass


async def test_a_certificate_for_another_host_is_refused_unless_host_names_do_not_matter(
    ends: Ends, authority: Authority
) -> None:
    error = await unread(url(ends.other, ssl_ca_certs=authority.ca))
    assert isinstance(error, StoreUnavailable)
    assert "IP address mismatch, certificate is not valid for '127.0.0.1'" in str(error)
    assert "write the host as its certificate has it" in str(error)
    async with opened(url(ends.other, ssl_ca_certs=authority.ca, ssl_check_hostname="false")):
        pass


async def test_a_server_that_wants_a_certificate_gets_the_clients(
    ends: Ends, authority: Authority, stranger: Authority
) -> None:
    certificate, key = authority.issue("client")
    own = {"ssl_certfile": certificate, "ssl_keyfile": key}
    async with opened(url(ends.strict, ssl_ca_certs=authority.ca, **own)) as store:
        assert await ask(store, release()) == Released(mine=False)
    error = await unread(url(ends.strict, ssl_ca_certs=authority.ca))
    assert isinstance(error, StoreUnavailable)
    assert f"127.0.0.1:{ends.strict}" in str(error)
    certificate, key = stranger.issue("client")
    error = await unread(url(ends.strict, ssl_ca_certs=authority.ca, ssl_certfile=certificate, ssl_keyfile=key))
    assert isinstance(error, StoreUnavailable)


async def test_c91_a_password_of_any_signs_is_decoded_once_over_tls_too_and_logged_nowhere(
    plain: Server, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with plain.client() as client:
        client.execute_command("ACL", "SETUSER", "me@x", "reset", "on", f">{PASSWORD}", "resetchannels", *RIGHTS)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("password"))
    async with Proxy(plain.port, tls=context) as proxy:
        login = f"{quote('me@x')}:{quote(PASSWORD, safe='')}"
        good = url(proxy.port, ssl_ca_certs=authority.ca).replace("://", f"://{login}@")
        async with opened(good) as store:
            await token_of(store)
        error = await unread(good.replace(quote("#", safe=""), quote("?", safe="")))
    assert "does not take the password of user 'me@x'" in str(error)
    said = [str(error), *(record.getMessage() for record in caplog.records)]
    assert [text for form in (PASSWORD, quote(PASSWORD, safe=""), "p#w", "w/d") for text in said if form in text] == []


@pytest.mark.parametrize("option", ["ssl_ca_certs", "ssl_certfile", "ssl_keyfile"])
async def test_a_file_that_is_not_there_is_named(
    option: str, plain: Server, authority: Authority, tmp_path: Path
) -> None:
    certificate, key = authority.issue("named")
    files = {"ssl_ca_certs": authority.ca, "ssl_certfile": certificate, "ssl_keyfile": key}
    error = await unread(url(plain.port, **(files | {option: tmp_path / "absent.pem"})))
    assert not isinstance(error, StoreUnavailable)
    assert f"{option}: {tmp_path / 'absent.pem'} cannot be read" in str(error)
    (tmp_path / "rubbish.pem").write_text("what is this\n")
    error = await unread(url(plain.port, **(files | {option: tmp_path / "rubbish.pem"})))
    assert f"127.0.0.1:{plain.port}" in str(error)


async def test_a_handshake_that_hangs_costs_no_more_than_the_bound(authority: Authority) -> None:
    async with silence() as port:
        error = await unread(url(port, ssl_ca_certs=authority.ca), bound=0.4)
        assert isinstance(error, StoreUnavailable)
        store = RedisStore(address_from_url(url(port, ssl_ca_certs=authority.ca)), ping_interval=0.4)
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await anext(store.notices("p"))
        assert time.monotonic() - began < 2.4
        await store.close()


@asynccontextmanager
async def silence() -> AsyncIterator[int]:
    """A port that takes connections, and reads, and never says a word."""
    connected: list[asyncio.StreamWriter] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.append(writer)
        while await reader.read(4096):
            pass

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in connected:
            writer.transport.abort()


async def test_a_connection_that_goes_silent_behind_tls_costs_no_more_than_the_bound(
    plain: Server, authority: Authority
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("silent"))
    async with Proxy(plain.port, tls=context) as proxy, opened(url(proxy.port, ssl_ca_certs=authority.ca)) as store:
        proxy.hold()
        began = time.monotonic()
        error = await fails(store, acquire(), bound=0.2)
        assert str(error).endswith("no answer to EVALSHA in time")
        assert time.monotonic() - began < 2
        proxy.let_through()


async def test_sentinels_and_their_servers_are_all_spoken_to_with_tls(
    system: Ends, authority: Authority, tmp_path: Path
) -> None:
    certificate, key = authority.issue("service")
    options = {
        "tls-cert-file": str(certificate),
        "tls-key-file": str(key),
        "tls-ca-cert-file": str(authority.ca),
        "tls-auth-clients": "no",
        "tls-replication": "yes",
    }
    with SentinelService(SYSTEM, tmp_path, tls=options) as service:
        hosts = ",".join(f"127.0.0.1:{sentinel.tls_port}" for sentinel in service.sentinels)
        good = f"rediss+sentinel://{hosts}/{SERVICE}/0?ssl_ca_certs={authority.ca}"
        store = from_url(good)
        assert isinstance(store, Inspectable)
        batch = Batch(project="p", node="me", bound=5.0)
        await store.exchange(batch)
        assert (await store.exchange(batch._replace(requests=(release(),)))).verdicts == (Released(mine=False),)
        assert {finding.level for finding in await store.inspect("p")} == {"ok", "warning"}
        await store.close()
        store = from_url(good.partition("?")[0])
        with pytest.raises(StoreUnavailable, match="certificate verify failed"):
            await store.exchange(batch)
        await store.close()


async def test_all_nodes_of_a_cluster_are_spoken_to_with_tls(
    system: Ends, authority: Authority, tmp_path: Path
) -> None:
    tls = tls_options(authority, "cluster", "no", "IP:127.0.0.1")
    del tls["tls-port"]
    with Cluster(tmp_path, SYSTEM, tls=tls) as cluster:
        good = f"{cluster.tls_url}?ssl_ca_certs={authority.ca}"
        for project in [cluster.project_on(node) for node in cluster.nodes]:
            ran = asyncio.Event()
            app = SingletonJobs(project, store=good, **FAST)

            @app.fixed_rate("20ms")
            async def tick(ran: asyncio.Event = ran) -> None:
                ran.set()

            async with app:
                await asyncio.wait_for(ran.wait(), 10)
                assert tls_clients(cluster, cluster.owner(f"{{{project}}}:jobs"))
            store = from_url(good)
            assert isinstance(store, Inspectable)
            assert [view.holder for view in await store.peek(project)] == [None]
            assert {finding.level for finding in await store.inspect(project)} == {"ok"}
            await store.close()
        store = from_url(cluster.tls_url)
        with pytest.raises(StoreUnavailable, match="certificate verify failed"):
            await store.exchange(Batch(project="p", node="me", bound=5.0))
        await store.close()


def tls_clients(cluster: Cluster, node: Server) -> int:
    """How many connections there are to the node's port for TLS."""
    clients: str = cluster.run(node, "CLIENT", "LIST", "TYPE", "normal")
    return clients.count(f" laddr=127.0.0.1:{node.options['tls-port']} ")
