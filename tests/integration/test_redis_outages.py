"""Every kind of outage that a Redis server or the way to it can have, and what it may cost: whole apps, a real server.

`lock_expiry` is 2 s, a fifth of the default, and the other durations likewise.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import redis

from integration.test_redis_apps import One, started
from proxy import Proxy
from redis_replicas import lock
from replicas import boot
from servers import OLDEST, Server, free_port
from virtual_loop import Capture
from waiting import until

if TYPE_CHECKING:
    from pathlib import Path

SCALED: dict[str, Any] = {"lock_expiry": "2s", "heartbeat_interval": "600ms", "max_backoff_delay": "1s"}

HEARTBEAT, CALL_TIMEOUT, MAX_BACK_OFF = 0.6, 0.4, 1.0
"""Of SCALED, in seconds."""

USABLE = 2.0 - 0.2

SHORT = 0.4
"""Shorter than what a leader must outlive: USABLE less one heartbeat and one call, 0.8 s."""

LONG = 2.5
"""No lease outlives it."""

BACK = 1.2 * HEARTBEAT + CALL_TIMEOUT
"""Somebody leads so soon after the server answers again (L3)."""

BACK_AFTER_REFUSALS = 1.2 * MAX_BACK_OFF + CALL_TIMEOUT
"""The same where it answered all along."""

PERIOD = 0.02


@dataclass(kw_only=True)
class Scene:
    """What a trouble can meddle with. Apps go through the proxy, `look` does not."""

    server: Server
    look: Any  # the client's own annotations are incomplete
    proxy: Proxy
    directory: Path
    hanging: dict[int, Scene]
    """By port, where the look-up of the server's name hangs until `resolver_answers`."""
    hung: int = 0
    resolver_answers: threading.Event = field(default_factory=threading.Event)


Trouble = Callable[[Scene], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def repeated(action: Callable[[], object], seconds: float) -> AsyncIterator[None]:
    """Do it again and again, so many seconds apart."""

    async def repeat() -> None:
        while True:
            with suppress(redis.RedisError):
                action()
            await asyncio.sleep(seconds)

    task = asyncio.create_task(repeat())
    try:
        yield
    finally:
        task.cancel()


# -- the way to the server ------------------------------------------------------------------------------------------


@asynccontextmanager
async def refused(scene: Scene) -> AsyncIterator[None]:
    scene.proxy.refuse()
    yield
    await scene.proxy.listen()


@asynccontextmanager
async def reset(scene: Scene) -> AsyncIterator[None]:
    scene.proxy.resets = True
    scene.proxy.hang_up()
    yield
    scene.proxy.resets = False


@asynccontextmanager
async def a_black_hole(scene: Scene) -> AsyncIterator[None]:
    scene.proxy.hold()
    yield
    scene.proxy.hang_up()  # what was swallowed is gone
    scene.proxy.let_through()


@asynccontextmanager
async def dripping(scene: Scene) -> AsyncIterator[None]:
    scene.proxy.drip = 0.05
    yield
    scene.proxy.drip = 0.0


@asynccontextmanager
async def slow(scene: Scene) -> AsyncIterator[None]:
    scene.proxy.delay = 0.75 * CALL_TIMEOUT  # each way
    yield
    scene.proxy.delay = 0.0


@asynccontextmanager
async def late_replies(scene: Scene) -> AsyncIterator[None]:
    """What was asked is carried out, and answered when the call was given up: to whom?"""

    moments = itertools.cycle([True] * 4 + [False])
    async with repeated(
        lambda: scene.proxy.hold("down") if next(moments) else scene.proxy.let_through(), CALL_TIMEOUT / 2
    ):
        yield
    scene.proxy.let_through()


@asynccontextmanager
async def a_hanging_look_up(scene: Scene) -> AsyncIterator[None]:
    scene.resolver_answers.clear()
    scene.hanging[scene.proxy.port] = scene
    scene.proxy.hang_up()
    yield
    scene.resolver_answers.set()


@asynccontextmanager
async def killed_clients(scene: Scene) -> AsyncIterator[None]:
    async with repeated(lambda: scene.look.client_kill_filter(_type="normal", skipme=True), 0.7):
        yield


# -- the server -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def forgotten_scripts(scene: Scene) -> AsyncIterator[None]:
    async with repeated(scene.look.script_flush, 0.1):
        yield


@asynccontextmanager
async def loading(scene: Scene) -> AsyncIterator[None]:
    with scene.look.pipeline() as together:
        for number in range(2500):
            together.set(f"ballast:{number}", "x" * 100)
        together.execute()
    scene.look.save()
    scene.server.kill()
    scene.server.options |= {"key-load-delay": "1600", "loading-process-events-interval-bytes": "1024"}
    await asyncio.to_thread(scene.server.start)
    yield
    assert scene.look.info("persistence")["loading"] == 1
    await until(lambda: scene.look.info("persistence")["loading"] == 0)


@asynccontextmanager
async def demoted(scene: Scene) -> AsyncIterator[None]:
    scene.look.replicaof("127.0.0.1", free_port())
    yield
    scene.look.replicaof("NO", "ONE")


@asynccontextmanager
async def out_of_memory(scene: Scene) -> AsyncIterator[None]:
    scene.look.config_set("maxmemory", 1)  # renewals go on, so
    scene.look.delete(lock())
    yield
    scene.look.config_set("maxmemory", 0)


@asynccontextmanager
async def cannot_save(scene: Scene) -> AsyncIterator[None]:
    (scene.directory / "dump.rdb").mkdir()  # in the way of the file
    scene.look.config_set("save", "3600 1000000")
    scene.look.bgsave()
    await until(lambda: scene.look.info("persistence")["rdb_last_bgsave_status"] == "err")
    yield
    scene.look.config_set("save", "")


@asynccontextmanager
async def busy(scene: Scene) -> AsyncIterator[None]:
    scene.look.config_set("lua-time-limit", 20)

    def loop_for_ever() -> None:
        with scene.server.client() as other, suppress(redis.RedisError):
            other.eval("while true do end", 0)

    thread = threading.Thread(target=loop_for_ever)
    thread.start()
    yield
    scene.look.script_kill()
    thread.join()


@asynccontextmanager
async def restarted(scene: Scene) -> AsyncIterator[None]:
    scene.server.kill()
    yield
    await asyncio.to_thread(scene.server.start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """`says`: what is complained of, as a pattern; '' where it costs no leadership, however long. `brief`: it can be
    over within a moment, and costs no leadership then. `back`: the bound of L3 after a long one."""

    trouble: Trouble
    says: str
    options: dict[str, str] = field(default_factory=dict)
    brief: bool = False
    server: str = OLDEST
    back: float = BACK

    @property
    def name(self) -> str:
        return self.trouble.__name__ + "_with_data" * bool(self.options)


CUT = "closed by server|Connection reset by peer"
"""What comes next, such as a refused connection, is not said again within the minute."""

SILENCE = "no answer to"

REFUSED = "Connection refused|" + CUT

AOF = {"appendonly": "yes", "appendfsync": "always"}

TOGETHER = [
    [
        Kind(trouble=refused, says=REFUSED, brief=True),
        Kind(trouble=reset, says=CUT, brief=True),
        Kind(trouble=a_black_hole, says=CUT, brief=True),
        Kind(trouble=killed_clients, says=""),
    ],
    [
        Kind(trouble=dripping, says=SILENCE, brief=True),
        Kind(trouble=slow, says=SILENCE, brief=True),
        Kind(trouble=a_hanging_look_up, says=f"{CUT}|looking up the name localhost", brief=True),
        Kind(trouble=late_replies, says=SILENCE),
    ],
    [
        Kind(trouble=loading, says="is loading its data|" + CUT, server="valkey-9", back=BACK_AFTER_REFUSALS),
        Kind(trouble=demoted, says="is a read-only replica", brief=True, back=BACK_AFTER_REFUSALS),
        Kind(trouble=out_of_memory, says="is out of memory", back=BACK_AFTER_REFUSALS),
        Kind(trouble=restarted, says=CUT),
    ],
    [
        Kind(trouble=cannot_save, says="cannot save to its disk", back=BACK_AFTER_REFUSALS),
        Kind(trouble=busy, says="runs a script that does not end", brief=True, back=BACK_AFTER_REFUSALS),
        Kind(trouble=restarted, says=CUT, options=AOF, brief=True),
        Kind(trouble=forgotten_scripts, says=""),
    ],
]
"""They hardly need the processor."""


@pytest.mark.parametrize("kinds", TOGETHER, ids=["-".join(kind.name for kind in kinds) for kinds in TOGETHER])
async def test_an_outage_costs_no_more_than_promised(
    kinds: list[Kind], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging: dict[int, Scene] = {}
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *arguments: Any, **more: Any) -> Any:
        if port in hanging:
            hanging[port].hung += 1
            hanging[port].resolver_answers.wait()
        return real("127.0.0.1" if host == "localhost" else host, port, *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with Capture() as logs:
        async with asyncio.TaskGroup() as group:
            for kind in kinds:
                (tmp_path / kind.name).mkdir()
                group.create_task(suffered(kind, tmp_path / kind.name, hanging, logs))


async def suffered(kind: Kind, directory: Path, hanging: dict[int, Scene], logs: Capture) -> None:
    names = [f"{kind.name}.{who}" for who in "abc"]
    with (
        Server(kind.server, directory, options=dict(kind.options)) as server,
        server.client(decode_responses=True) as look,
    ):
        async with Proxy(server.port) as proxy:
            scene = Scene(server=server, look=look, proxy=proxy, directory=directory, hanging=hanging)
            url = f"redis://localhost:{proxy.port}/0"
            a, b = (One(name, url, **SCALED) for name in names[:2])
            leaving = One(names[2], url, project="other", **SCALED)
            async with leaving.app, started(a, b):
                await until(lambda: leaving.runs)
                if kind.brief:
                    async with kind.trouble(scene):
                        await asyncio.sleep(SHORT)
                    await asyncio.sleep(HEARTBEAT)
                    assert a.leads, kind
                    assert a.app.stats()["tick"].terms == 1, kind
                async with kind.trouble(scene):
                    begun = boot()
                    await asyncio.sleep(LONG)
                    await stopped_in_time(leaving)
                    kept, ending = a.leads, boot()
                over = boot()  # a server that was started anew has answered before that
                await until(lambda: a.starts(over) or b.starts(over))
                resumed = min(a.starts(over) + b.starts(over))
                await asyncio.sleep(0.3)
                assert a.leads != b.leads, kind
                terms = a.app.stats()["tick"].terms
    mine = [record for record in logs.records if str(record.node).rpartition("-")[0] in names]
    complaints = [record.getMessage() for record in mine if record.event == "heartbeat-error"]

    assert resumed - over < 3 * (kind.back + PERIOD), kind
    assert [run for run in a.runs for other in b.runs if run[0] < other[1] and other[0] < run[1]] == [], kind
    if kind.says:
        assert complaints, kind
        # A busy machine may be late before the trouble comes.
        assert [text for text in complaints if not re.search(f"{kind.says}|{SILENCE}", text)] == [], kind
        assert kind.trouble is not a_hanging_look_up or scene.hung
    else:
        assert kept, kind
        assert (terms, b.runs) == (1, []), kind
    if kind.says and kind.trouble is not late_replies:
        assert not kept, kind
        assert [start for start in a.starts(begun + USABLE) if start < ending] == [], kind
    for name in names:
        lines = [record.getMessage() for record in mine if record.node.startswith(f"{name}-") and record.levelno >= 20]
        assert len(lines) <= 20 + 2, lines


async def stopped_in_time(one: One) -> None:
    """Its job is idle, so its stop takes no longer than what it waits for the server."""
    began = boot()
    await one.app.__aexit__(None, None, None)
    # A release is tried for two calls, and the thread is joined for one.
    assert boot() - began < 3 * CALL_TIMEOUT + 1.0
