"""One process of a fleet: some replicas, each an app with a heartbeat thread and connections of its own, as in a pod.

Told what to be by a JSON object in its first argument; then it takes a command a line from stdin, and answers each
with a JSON object: `report`, `stop NUMBER` (that replica leaves in good order). It ends with its stdin.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from singletonjob import Elected, SingletonJobs, SteppedDown

if TYPE_CHECKING:
    from singletonjob import Event

HEARTBEAT = "singletonjob-heartbeat"
"""What the threads are called that talk to the store."""


class Host:
    def __init__(self, wanted: dict[str, Any]) -> None:
        self.events: Counter[str] = Counter()
        self.apps = {number: self._app(f"r{number}", wanted) for number in wanted["replicas"]}

    def _app(self, node: str, wanted: dict[str, Any]) -> SingletonJobs:
        app = SingletonJobs(wanted["project"], store=wanted["store"], node_id=node, **wanted["options"])

        async def body() -> None: ...

        for job in range(wanted["jobs"]):
            if wanted["every"] is None:
                app.interval("1d", name=f"price-tick-{job}")(body)  # runs once, then idles
            else:
                app.fixed_rate(wanted["every"], name=f"price-tick-{job}")(body)
        app.subscribe(self._count)
        return app

    def _count(self, event: Event) -> None:
        if isinstance(event, Elected):
            self.events["terms"] += 1
        elif isinstance(event, SteppedDown):
            self.events[event.reason] += 1

    async def serve(self) -> None:
        commands = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
        for app in self.apps.values():
            await app.__aenter__()
        while line := await commands.readline():
            name, _, argument = line.decode().strip().partition(" ")
            if name == "stop":
                await self.apps.pop(int(argument)).__aexit__(None, None, None)
            sys.stdout.write(json.dumps(self._report()) + "\n")
            sys.stdout.flush()
        await asyncio.gather(*(app.__aexit__(None, None, None) for app in self.apps.values()))

    def _report(self) -> dict[str, Any]:
        return {
            "ready": all(app.health().ready for app in self.apps.values()),
            "replicas": len(self.apps),
            "heartbeat_cpu": sum(
                time.clock_gettime_ns(time.pthread_getcpuclockid(thread.ident))
                for thread in threading.enumerate()
                if thread.name == HEARTBEAT and thread.ident is not None
            ),
            "events": self.events,
        }


if __name__ == "__main__":
    asyncio.run(Host(json.loads(sys.argv[1])).serve())
