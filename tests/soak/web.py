"""Web servers at default settings: uvicorn with four workers twice side by side, and gunicorn and uWSGI with four.

In 30 s a job of each second runs 29 to 31 times, in one process, no tick twice. That process is killed: another one
carries on within `lock_expiry` and 100 ms (Redis) or 250 ms (SQLite), and one period, and never is a tick run twice.
uWSGI's workers are killed twenty times, one after the other, without a hang.
Parts: uvicorn, hypercorn, gunicorn, restarts.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from integration.test_asgi_servers import FASTAPI, HYPERCORN, UVICORN
from integration.test_preforking_servers import FLASK, GUNICORN, UWSGI
from redis_replicas import old_enough
from servers import Server
from soak._evidence import arguments, conclude, say
from waiting import wait_for
from web_servers import WebServer

if TYPE_CHECKING:
    from web_servers import Ran

SECONDS = 30
PERIOD = 1.0
RESTARTS = 20
SLACK = 0.25
"""Seconds that a body may start late on a busy machine."""

BOUNDS = {"redis": 10.0 * 1.01 + 0.1 + PERIOD + SLACK, "sqlite": 0.25 + PERIOD + SLACK}


class Account(NamedTuple):
    """What was seen of the servers in one directory."""

    first: int
    pids: int
    gap: float
    after: float
    runs: int
    twice: int
    good: bool

    def __str__(self) -> str:
        return (
            f"{self.first} runs in {SECONDS} s, in {self.pids} process; killed: the next run {self.gap:.2f} s later,"
            f" then {self.after:.2f} runs a second in one process; {self.runs} runs, {self.twice} ticks twice"
        )


def twice(runs: list[Ran]) -> int:
    return len(runs) - len({run.tick for run in runs})


def watched(kind: str, servers: list[WebServer]) -> Account:
    """Look at a job for half a minute, kill its process, look again."""
    one = servers[0]
    wait_for(one.runs, 60, what="a first run")
    begun = time.monotonic()
    skipped = len(one.runs())
    time.sleep(SECONDS)
    first = one.runs()[skipped:]
    leader = first[-1].pid
    killed = time.monotonic()
    os.kill(leader, signal.SIGKILL)
    wait_for(lambda: one.runs()[-1].pid != leader, 60, what="another process")
    time.sleep(10)
    runs = one.runs()
    last = max(run.at for run in runs if run.pid == leader)
    later = [run for run in runs if run.at > last]
    after = (len(later) - 1) / (later[-1].at - later[0].at)
    account = Account(
        first=len(first),
        pids=len({run.pid for run in runs if run.at < last or run.pid == leader}),
        gap=later[0].at - killed,
        after=after,
        runs=len(runs),
        twice=twice(runs),
        good=SECONDS - 1 <= len(first) <= SECONDS + 1
        and later[0].at - killed <= BOUNDS[kind]
        and twice(runs) == 0
        and len({run.pid for run in later}) == 1
        and {server.process.pid for server in servers}.isdisjoint({run.pid for run in runs}),
    )
    say(f"  {account} ({time.monotonic() - begun:.0f} s)")
    return account


def restarts(directory: Path, *options: str, **environment: str) -> tuple[list[float], int]:
    """Kill the worker that leads, again and again; how long until the next run each time, and ticks run twice."""
    gaps: list[float] = []
    words = (*UWSGI[:-1], "4", "--master", "--enable-threads", *options)
    with WebServer(directory, FLASK, *words, environment={"EVERY": "100ms", **environment}) as server:
        wait_for(server.runs, 60, what="a first run")
        time.sleep(5)  # all workers are up
        for number in range(RESTARTS):
            leader = server.runs()[-1]
            killed = time.monotonic()
            os.kill(leader.pid, signal.SIGKILL)
            runs = server.until_another_ran(leader.pid)
            last = max(run.at for run in runs if run.pid == leader.pid)
            gaps.append(min(run.at for run in runs if run.at > last) - killed)
            # uWSGI rests before it replaces workers that die fast: else all of them would soon be dead at once.
            wait_for(lambda born=number + 1: server.log.count("Respawned uWSGI worker") >= born, what="its successor")  # type: ignore[misc]  # binds it
            time.sleep(1)
        time.sleep(3)  # one that is told to stop while it imports the application does not hear it
        server.stop(seconds=70)
        return gaps, twice(server.runs())


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("parts", nargs="*", default=["uvicorn", "hypercorn", "gunicorn", "restarts"], metavar="PART")
    options = parser.parse_args()
    lines: list[str] = []
    good = True
    names = {
        "uvicorn": ("uvicorn with 4 workers, twice side by side, FastAPI", FASTAPI, (*UVICORN, "--workers", "4"), 2),
        "hypercorn": ("hypercorn with 2 workers, twice", FASTAPI, (*HYPERCORN, "--workers", "2"), 2),
        "gunicorn": ("gunicorn --preload -w 4, Flask", FLASK, (*GUNICORN, "--workers", "4", "--preload"), 1),
    }
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        redis = stack.enter_context(Server("valkey-9", root))
        for kind in ("sqlite", "redis"):
            if kind == "redis":
                old_enough(redis, 12)
            for part, (name, web, words, count) in names.items():
                if part not in options.parts:
                    continue
                say(f"{name}, on {kind}")
                directory = root / f"{part}-{kind}"
                directory.mkdir()
                store = {"SINGLETONJOB_STORE": redis.url} if kind == "redis" else {}
                with ExitStack() as servers:
                    running = [
                        servers.enter_context(WebServer(directory, web, *words, environment={"EVERY": "1s", **store}))
                        for _ in range(count)
                    ]
                    account = watched(kind, running)
                    for server in running:
                        server.stop()
                if kind == "redis":
                    with redis.client() as client:
                        released = client.delete("shop:tick:lock") == 0
                else:
                    released = running[0].holder() is None
                lines.append(
                    f"{name}, on {kind}: {account}; at the end the lease was {'' if released else 'NOT '}released"
                )
                good &= account.good and released
        if "restarts" in options.parts:
            for variant in ((), ("--lazy-apps",)):
                shown = f"uWSGI with 4 workers{' and lazy-apps' if variant else ''}"
                say(f"{shown}: {RESTARTS} restarts")
                directory = root / f"restarts{len(variant)}"
                directory.mkdir()
                gaps, again = restarts(directory, *variant)
                good &= max(gaps) < 0.25 + 0.1 + SLACK and again == 0
                lines.append(
                    f"{shown}, on sqlite, a 100 ms job: the leading worker killed {len(gaps)} times, the next run after"
                    f" {min(gaps):.2f} to {max(gaps):.2f} s; {again} ticks twice, no hang"
                )
    conclude("web", lines, good=good, record=options.record)


if __name__ == "__main__":
    main()
