"""A process that is forked while an app runs takes part in nothing, and leaves its parent alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

PRELUDE = """
import asyncio, json, logging, multiprocessing, os, signal, sys, threading, time, warnings
from singletonjob import IntervalJob, LeadershipLost, Run, SingletonJobs
warnings.simplefilter("ignore")
app = SingletonJobs("shop", store="sqlite:///leases.db", lock_expiry=2.0, heartbeat_interval=0.5)
told = {}

def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)

def ran():
    try:
        return [line.split() for line in open("runs").read().splitlines()]
    except FileNotFoundError:
        return []

def more_runs():
    before = len(ran())
    until(lambda: len(ran()) > before + 3)

def tell_runs():
    # In how many processes and nodes the runs were, and whether each was the only one of its tick.
    told["pids"] = len({pid for pid, *_ in ran()})
    told["nodes"] = len({node for *_, node in ran()})
    told["ticks"] = len({tick for _, tick, _ in ran()}) == len(ran())

def in_child(function):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = function()
        except BaseException as error:
            answer = repr(error)
        os.write(write, json.dumps(answer).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        answer = json.loads(file.read())
    os.waitpid(pid, 0)
    return answer
"""

TICK = """
@app.fixed_rate("50ms")
async def tick(run: Run) -> None:
    with open("runs", "a") as file:
        file.write(f"{os.getpid()} {run.tick} {run.node_id}\\n")
"""


def play(directory: Path, *parts: str) -> dict[str, Any]:
    """What a program told at its end, as a JSON object on its last line."""
    (directory / "program.py").write_text("\n".join([PRELUDE, *parts, "print(json.dumps(told))"]))
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told | {"stderr": done.stderr, "stdout": done.stdout}


def test_a_forked_child_leads_nothing_runs_nothing_and_its_stop_neither_waits_nor_releases(tmp_path: Path) -> None:
    told = play(
        tmp_path,
        TICK,
        """
app.start()
more_runs()

def child():
    begun = time.monotonic()
    was = [app.is_leader("tick"), app.health().ready, app.health().jobs["tick"], len(app.stats())]
    app.stop()
    stopped = time.monotonic() - begun
    time.sleep(0.5)
    return [*was, stopped < 1, threading.active_count()]

told["child"] = in_child(child)
told["still"] = app.is_leader("tick")
more_runs()
app.stop()
tell_runs()
""",
    )
    assert told["child"] == [False, False, "disabled", 0, True, 1]
    assert told["still"]
    assert (told["pids"], told["nodes"], told["ticks"]) == (1, 1, True)


def test_a_child_that_starts_the_app_anew_is_a_node_of_its_own(tmp_path: Path) -> None:
    told = play(
        tmp_path,
        TICK,
        """
app.start()
more_runs()
def child():
    app.start()
    until(lambda: app.health().ready)
    follows = not app.is_leader("tick")
    os.kill(os.getppid(), signal.SIGUSR1)
    until(lambda: app.is_leader("tick"))
    more_runs()
    app.stop()
    return follows
signal.signal(signal.SIGUSR1, lambda *_: app.stop())
told["followed"] = in_child(child)
app.start()
more_runs()
app.stop()
tell_runs()
""",
    )
    assert told["followed"] is True
    # three starts, two of them in one process
    assert (told["pids"], told["nodes"], told["ticks"]) == (2, 3, True)


def test_a_child_that_goes_on_with_its_parents_loop_runs_none_of_its_jobs(tmp_path: Path) -> None:
    told = play(
        tmp_path,
        TICK,
        """
pid = 0
async def main():
    global pid
    async with app:
        while len(ran()) < 4:
            await asyncio.sleep(0.01)
        pid = os.fork()
        if pid == 0:
            # No use of the loop's own descriptors, which are the parent's as well: only its callbacks and timers.
            loop = asyncio.events._get_running_loop()
            end = time.monotonic() + 1
            asyncio.events._set_running_loop(loop)
            while time.monotonic() < end:
                await asyncio.sleep(0)
            os._exit(0)
        os.waitpid(pid, 0)
        before = len(ran())
        while len(ran()) < before + 4:
            await asyncio.sleep(0.01)
asyncio.run(main())
tell_runs()
""",
    )
    assert (told["pids"], told["ticks"]) == (1, True)


def test_processes_that_a_body_forks_are_harmless_and_can_be_terminated(tmp_path: Path) -> None:
    told = play(
        tmp_path,
        """
context = multiprocessing.get_context("fork")

def work(number):
    return [number * number, app.is_leader("pool"), app.is_leader("sync")]

def check_in_child(run, queue):
    try:
        run.check()
        queue.put("valid")
    except LeadershipLost:
        queue.put("lost")

@app.fixed_rate("100ms")
async def pool(run: Run) -> None:
    if "pool" not in told:
        with context.Pool(2) as workers:  # its end terminates them
            told["pool"] = workers.map(work, range(3))
        told["pool-valid"] = run.remaining > 0

@app.fixed_rate("100ms")
def sync(run: Run) -> None:
    if "pool-valid" in told and "sync" not in told:  # not while another thread forks: Python itself may hang then
        queue = context.SimpleQueue()
        process = context.Process(target=check_in_child, args=(run, queue))
        process.start()
        process.join()
        told["sync"] = [queue.get(), process.exitcode]
        sleeper = context.Process(target=time.sleep, args=(100,))
        begun = time.monotonic()
        sleeper.start()
        sleeper.terminate()
        sleeper.join()
        told["terminated"] = [sleeper.exitcode, time.monotonic() - begun < 5]
        told["sync-valid"] = run.remaining > 0

def end():
    until(lambda: "sync-valid" in told and "pool-valid" in told)
    time.sleep(0.5)
    told["leads"] = [app.is_leader("pool"), app.is_leader("sync")]
    os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=end, daemon=True).start()
app.run()
""",
    )
    assert told["pool"] == [[0, False, False], [1, False, False], [4, False, False]]
    assert told["sync"] == ["lost", 0], "a child cannot know whether its parent still leads"
    assert told["terminated"] == [-15, True]
    assert told["pool-valid"]
    assert told["sync-valid"]
    assert told["leads"] == [True, True]
    assert "heartbeat" not in told["stderr"]


USER_CODE = """
import atexit
atexit.register(lambda: open("exits", "a").write(f"{os.getpid()} "))
ways = ["exit", "text", "return", "raise"]
codes = {}
one_at_a_time = threading.Lock()  # Python itself may hang in a child that is forked while another thread forks

def fork(place):
    with one_at_a_time:
        leave(place)

def leave(place):
    # A child leaves the user's code in each way; the parent waits for it, but not for ever.
    if place in codes:
        return
    codes[place] = []
    for way in ways:
        pid = os.fork()
        if pid == 0:
            print(f"child {place} {way}")
            if way == "exit":
                sys.exit(3)
            if way == "text":
                sys.exit("told why")
            if way == "raise":
                raise ValueError("in the child")
            return
        end = time.monotonic() + 10
        while (done := os.waitpid(pid, os.WNOHANG)) == (0, 0) and time.monotonic() < end:
            time.sleep(0.005)
        if done == (0, 0):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        codes[place].append(os.waitstatus_to_exitcode(done[1]) if done != (0, 0) else "hangs")

@app.interval("50ms")
async def on_loop(run: Run) -> None:
    fork("async body")

@app.interval("50ms")
async def threaded(run: Run) -> None:
    await run.to_thread(fork, "to_thread")

@app.interval("50ms")
def sync(run: Run) -> None:
    fork("sync body")

class Hooks(IntervalJob, every=lambda: fork("interval") or 0.05, name="hooks"):
    def is_enabled(self):
        fork("switch")
        return len(codes) < 8

    async def on_elected(self, term):
        fork("on_elected")

    async def on_stepped_down(self, reason):
        fork("on_stepped_down")

    async def execute(self, run: Run) -> None: ...

class SyncHooks(IntervalJob, every="50ms", name="sync-hooks"):
    def on_elected(self, term):
        fork("sync on_elected")

    def execute(self, run: Run) -> None: ...

app.add(Hooks())
app.add(SyncHooks())
app.subscribe(lambda _event: fork("callback"))

def end():
    until(lambda: len(codes) == 9 and len(codes["on_stepped_down"]) == 4, 40)
    before = {name: one.runs for name, one in app.stats().items()}
    time.sleep(0.5)
    told["goes on"] = [app.stats()[name].runs > before[name] for name in ("on-loop", "sync")]
    told["terms"] = [one.terms for name, one in app.stats().items() if name != "hooks"]
    told["codes"] = codes
    os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=end, daemon=True).start()
app.run()
told["exits"] = open("exits").read() if os.path.exists("exits") else ""
"""


def test_a_child_that_user_code_forks_ends_where_it_leaves_that_code_and_nothing_of_ours_runs_in_it(
    tmp_path: Path,
) -> None:
    told = play(tmp_path, USER_CODE)
    assert told["codes"] == {place: [3, 1, 0, 1] for place in told["codes"]}
    assert len(told["codes"]) == 9
    assert told["goes on"] == [True, True]
    assert told["terms"] == [1, 1, 1, 1]
    assert told["exits"] == "", "the exit functions are the parent's"
    assert told["stderr"].count("told why") == 9
    assert told["stderr"].count("ValueError: in the child") == 9
    assert "singletonjob" not in told["stderr"].replace("/singletonjob/", "/"), "no log line"
    printed = [line for line in told["stdout"].splitlines() if line.startswith("child ")]
    assert len(printed) == len(set(printed)) == 36, "the children's output is flushed, once"
