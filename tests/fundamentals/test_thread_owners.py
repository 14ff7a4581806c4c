"""Each shared object is called and written by the thread that owns it; `_runtime/__init__.py` draws the threads."""

from __future__ import annotations

import asyncio
import threading
from functools import wraps
from typing import TYPE_CHECKING, Any

from singletonjob import Run, SingletonJobs
from singletonjob._core.elector import Elector
from singletonjob._runtime.lease import HEARTBEAT_WRITES, Lease
from singletonjob._runtime.runner import Runner
from singletonjob.stores.memory import MemoryStore

if TYPE_CHECKING:
    import pytest

HEARTBEAT, JOB_LOOP = "singletonjob-heartbeat", "MainThread"
BY_HEARTBEAT = ("poll", "receive", "take_effects", "set_enabled", "stop", "drained", "claim")
BY_JOB_LOOP = ("begin", "drain", "end", "answer", "refresh")
BY_EITHER = ("reason", "over_at", "_draining", "_over")
"""`Lease.drain` and `Lease.end` write these."""

OWNERS = {
    **{f"Elector.{name}": {HEARTBEAT} for name in BY_HEARTBEAT},
    **{f"Runner.{name}": {JOB_LOOP} for name in BY_JOB_LOOP},
    **{f"Lease.{name}": {HEARTBEAT} for name in HEARTBEAT_WRITES},
    **{f"Lease.{name}": {HEARTBEAT, JOB_LOOP} for name in BY_EITHER},
}
"""By what is called or written; the job loop writes each attribute of a `Lease` that is not here."""


class Watch:
    """Records the names of the threads that call the methods, or write an attribute of a lease."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: dict[str, set[str]] = {}
        for kind, methods in ((Elector, BY_HEARTBEAT), (Runner, BY_JOB_LOOP)):
            for name in methods:
                monkeypatch.setattr(kind, name, self._recorded(f"{kind.__name__}.{name}", getattr(kind, name)))

        def write(lease: Lease, name: str, value: object) -> None:
            if "threads" in vars(lease):  # which `__init__` sets last
                self._record(f"Lease.{name}")
            object.__setattr__(lease, name, value)

        monkeypatch.setattr(Lease, "__setattr__", write, raising=False)

    def _record(self, what: str) -> None:
        self.threads.setdefault(what, set()).add(threading.current_thread().name)

    def _recorded(self, what: str, call: Any) -> Any:
        @wraps(call)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            self._record(what)
            return call(*args, **kwargs)

        return recorded


async def test_only_the_thread_that_owns_an_object_calls_or_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    app = SingletonJobs("pricing", store=MemoryStore(), heartbeat_interval="50ms", lock_expiry="1s")
    ran = {"on-loop": 0, "in-thread": 0, "slots": 0}
    enabled = True

    @app.interval("10ms", enabled=lambda: enabled)
    async def on_loop(run: Run) -> None:
        ran["on-loop"] += 1
        await run.to_thread(int)

    @app.fixed_rate("10ms")
    def in_thread(run: Run) -> None:
        run.check()
        ran["in-thread"] += 1

    @app.cron("* * * * * *")
    async def slots() -> None:
        ran["slots"] += 1

    async with asyncio.timeout(20), app:
        while min(ran.values()) < 2:
            await asyncio.sleep(0.02)
        enabled = False
        while app.is_leader("on-loop"):
            await asyncio.sleep(0.02)
        assert (await asyncio.to_thread(app.health)).ready
    strangers = {what: threads - OWNERS.get(what, {JOB_LOOP}) for what, threads in watch.threads.items()}
    assert {what: threads for what, threads in strangers.items() if threads} == {}
    unused = (OWNERS.keys() | {"Lease.tick", "Lease.done", "Lease.runs"}) - watch.threads.keys()
    assert unused <= {"Lease.warned_at"}, "nothing was seen of these"
