"""The store of a round, and what can be done to it and to the ways to it."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from redis.exceptions import RedisError

from chaos.observed import DELETED, FLUSHED, STALE
from proxy import Proxy
from redis_replicas import RedisFleet, lock, state
from replicas import Fleet, boot
from servers import OLDEST, Server
from singletonjob._system.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path
    from random import Random

    from chaos.observed import Recorder
    from chaos.plan import Plan

    Deed = Callable[[], Awaitable[None]]

__all__ = ["RedisSide", "Side", "SqliteSide", "make_side"]


OLDEST_STATE = 3.0
"""The greatest age of a state that a running server goes back to, in lock_expiries."""


class Side(Protocol):
    """A store. `faults` and `path_faults` are weights and deeds by kind; a deed ends when all is well again."""

    fleet: Fleet

    @property
    def faults(self) -> Mapping[str, tuple[float, Deed]]:
        """Of the store, or of all ways to it."""
        ...

    def path_faults(self, machine: int) -> Mapping[str, tuple[float, Deed]]:
        """Of the way of one worker to it."""
        ...

    def url(self, machine: int) -> str: ...

    async def open(self, stack: AsyncExitStack) -> None: ...


class SqliteSide:
    """One file. Its deletion is not done: what comes of that is not promised."""

    def __init__(self, plan: Plan, directory: Path, random: Random, recorder: Recorder) -> None:
        self._plan = plan
        self._random = random
        self.fleet = Fleet(directory, **plan.app_options, plan=plan.told)
        self.faults = {"locked": (1.0, self._lock)}

    def path_faults(self, machine: int) -> Mapping[str, tuple[float, Deed]]:
        return {}

    def url(self, machine: int) -> str:
        return self.fleet.store

    async def open(self, stack: AsyncExitStack) -> None:
        stack.enter_context(self.fleet)

    async def _lock(self) -> None:
        """A foreign process holds the write lock; where somebody else holds it for long, it does not get it."""
        seconds = self._plan.lock_expiry * self._random.uniform(0.1, 1.5)

        def hold() -> None:
            with suppress(sqlite3.OperationalError), self.fleet.locked():
                time.sleep(seconds)

        await asyncio.to_thread(hold)


class _Snapshot(NamedTuple):
    """The keys at a moment on the boot clock: for each the reply of DUMP, and its expiry in milliseconds (0: none)."""

    taken: float
    keys: Mapping[str, tuple[bytes, int]]


class RedisSide:
    """One server that keeps its data in a file, and a proxy in front of it for each worker."""

    def __init__(self, plan: Plan, directory: Path, random: Random, recorder: Recorder) -> None:
        self._plan = plan
        self._random = random
        self._recorder = recorder
        self._home = directory / "server"
        self._home.mkdir()
        # Each write is with the kernel before it is acknowledged, so a killed server forgets nothing. Not `everysec`:
        # with that a write waits while the last one is on its way to the disk.
        options = {"appendonly": "yes", "appendfsync": "no", "auto-aof-rewrite-percentage": "0"}
        self._server = Server(OLDEST, self._home, options)
        self._proxies: list[Proxy] = []
        self._sizes: list[tuple[float, int]] = []
        self._snapshots: list[_Snapshot] = []
        self.fleet: Fleet = RedisFleet(directory, self._server, **plan.app_options, plan=plan.told)
        self.faults: Mapping[str, tuple[float, Deed]] = {
            "restarted": (0.7, lambda: self._restart("kept")),
            "restarted empty": (0.6, lambda: self._restart("nothing")),
            "restarted with an old state": (0.6, lambda: self._restart("old")),
            "server frozen": (1.5, self._freeze),
            "clients killed": (1.0, self._kill_clients),
            "all cut": (1.0, lambda: self._cut(self._proxies)),
            "all held": (1.5, lambda: self._hold(self._proxies)),
            "all slow": (1.0, lambda: self._slow(self._proxies)),
            FLUSHED: (2.0, self._flush),
            DELETED: (2.0, self._delete),
            STALE: (2.0, self._go_back),
        }

    def path_faults(self, machine: int) -> Mapping[str, tuple[float, Deed]]:
        mine = self._proxies[machine : machine + 1]
        return {
            "cut": (1.0, lambda: self._cut(mine)),
            "held": (2.5, lambda: self._hold(mine)),
            "held, and leases lost": (2.5, lambda: self._hold(mine, then_lose=True)),
            "slow": (1.0, lambda: self._slow(mine)),
        }

    def url(self, machine: int) -> str:
        return f"redis://127.0.0.1:{self._proxies[machine].port}/0"

    async def open(self, stack: AsyncExitStack) -> None:
        stack.callback(self._server.kill)
        await self._start(forgot=False)
        for _ in range(self._plan.machines):
            self._proxies.append(await stack.enter_async_context(Proxy(self._server.port)))
        stack.enter_context(self.fleet)
        for watch in (self._watch_size(), self._watch_keys()):
            stack.callback(asyncio.create_task(watch).cancel)

    async def _start(self, *, forgot: bool) -> None:
        self._recorder.server_started(SystemClock().now(), forgot=forgot)
        await asyncio.to_thread(self._server.start)

    async def _watch_size(self) -> None:
        """So that an old state is at hand: what the file began with, up to that size, at that moment."""
        while True:
            files = self._files
            self._sizes.append((boot(), files[-1].stat().st_size if files else 0))
            await asyncio.sleep(0.2)

    async def _watch_keys(self) -> None:
        """Take snapshots of all keys, so that a running server can go back to an old state, as in a stale fail-over."""
        keys = [key for job in self._plan.jobs for key in (lock(job, "chaos"), state(job, "chaos"))]
        while True:
            with suppress(RedisError):
                self._snapshots.append(await asyncio.to_thread(self._snapshot, keys))
            oldest = boot() - OLDEST_STATE * self._plan.lock_expiry
            self._snapshots = [one for one in self._snapshots if one.taken > oldest]
            await asyncio.sleep(0.1)

    def _snapshot(self, keys: list[str]) -> _Snapshot:
        with self._server.client() as client, client.pipeline() as together:
            together.time()
            for key in keys:
                together.dump(key).pttl(key)
            (seconds, micros), *found = together.execute()
        now = seconds * 1000 + micros // 1000
        pairs = zip(keys, found[::2], found[1::2], strict=True)
        return _Snapshot(
            boot(), {key: (text, now + left if left > 0 else 0) for key, text, left in pairs if text is not None}
        )

    async def _forget(self, kind: str, job: str, forget: Callable[[Any], object]) -> None:
        """Let the server lose leases. If the server does not answer, nothing was lost and nothing is recorded."""
        with suppress(RedisError), self._server.client() as client:
            before = SystemClock().now()
            await asyncio.to_thread(forget, client)
            self._recorder.store_forgot(kind, job, before, SystemClock().now(), slots=kind == FLUSHED)

    async def _flush(self) -> None:
        await self._forget(FLUSHED, "", lambda client: client.flushall())

    async def _delete(self) -> None:
        job = self._random.choice(list(self._plan.jobs))
        await self._forget(DELETED, job, lambda client: client.delete(lock(job, "chaos")))

    async def _go_back(self) -> None:
        """Restore all keys from a snapshot, each with the instant at which it was to expire then."""
        if not self._snapshots:
            return
        snapshots = self._snapshots
        if self._random.random() < 0.5:  # prefer moments at which some job had no holder, because they are rare
            locks = [lock(job, "chaos") for job in self._plan.jobs]
            snapshots = [one for one in snapshots if not one.keys.keys() >= {*locks}] or snapshots
        old = self._random.choice(snapshots)

        def restore(client: Any) -> None:
            with client.pipeline() as together:
                together.flushall()
                for key, (text, end) in old.keys.items():
                    together.restore(key, end, text, absttl=end > 0)
                together.execute()

        await self._forget(STALE, "", restore)

    @property
    def _files(self) -> list[Path]:
        """The files that the server appends to; newer servers write more than one, and to the last."""
        return sorted(path for path in self._home.rglob("appendonly*.aof") if "base" not in path.name)

    def _some(self, least: float, most: float) -> float:
        return self._plan.lock_expiry * self._random.uniform(least, most)

    async def _restart(self, state: str) -> None:
        down, age = self._some(0, 0.7), self._some(0.7, 3)
        self._server.kill()
        killed = boot()
        await asyncio.sleep(down)
        files = self._files
        if state == "nothing":
            for file in self._home.rglob("appendonly*"):
                if file.is_file():
                    file.unlink()
        elif state == "old" and files:
            size = max((size for at, size in self._sizes if at < killed - age), default=0)
            os.truncate(files[-1], min(size, files[-1].stat().st_size))
        self._sizes.clear()
        await self._start(forgot=state != "kept")

    async def _freeze(self) -> None:
        seconds = self._some(0.1, 2)
        assert self._server.process is not None
        self._server.process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            self._server.process.send_signal(signal.SIGCONT)

    async def _kill_clients(self) -> None:
        kind = self._random.choice(["normal", "pubsub"])
        with suppress(RedisError), self._server.client() as client:
            await asyncio.to_thread(client.execute_command, "CLIENT", "KILL", "TYPE", kind)

    async def _cut(self, proxies: list[Proxy]) -> None:
        for proxy in proxies:
            proxy.hang_up()

    async def _hold(self, proxies: list[Proxy], *, then_lose: bool = False) -> None:
        """Nothing passes, one way or both; then it all comes at once, or never.

        `then_lose`: the server loses leases meanwhile. So a leader behind these proxies does not hear of the loss.
        """
        ways = self._random.choice([(), (), ("up",), ("down",)])
        seconds, lost = self._some(0.2, 3), self._random.random() < 0.5
        for proxy in proxies:
            proxy.hold(*ways)
        try:
            if then_lose:
                await self._random.choice([self._flush, self._delete, self._go_back])()
            await asyncio.sleep(seconds)
        finally:
            for proxy in proxies:
                if lost:
                    proxy.hang_up()
                proxy.let_through()

    async def _slow(self, proxies: list[Proxy]) -> None:
        delay, seconds = self._random.uniform(0.05, 1.2) * self._plan.call_timeout, self._some(0.5, 2)
        for proxy in proxies:
            proxy.delay = delay
        try:
            await asyncio.sleep(seconds)
        finally:
            for proxy in proxies:
                proxy.delay = 0.0


def make_side(plan: Plan, directory: Path, random: Random, recorder: Recorder) -> Side:
    """The store of a round's plan."""
    return (RedisSide if plan.store == "redis" else SqliteSide)(plan, directory, random, recorder)
