"""The SQLite store under real processes, a real kernel and a real file: death, freezing, forks, locks, deletion."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import singletonjob
from singletonjob._core.errors import ConfigError, StoreError, StoreUnavailable
from singletonjob._core.values import Now
from singletonjob.stores.orders import Pause
from singletonjob.stores.protocol import Barred, Batch, Granted, JobView, Progress, Refused, Released, Renew, Renewed
from singletonjob.stores.sqlite import file as sqlite_file
from singletonjob.stores.sqlite import holder as sqlite_holder
from singletonjob.stores.sqlite import place as sqlite_place
from singletonjob.stores.sqlite.store import MAX_STUCK, SqliteStore
from store_calls import acquire, ask, read, release

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator


SOURCE = str(Path(singletonjob.__file__).parents[1])

PRELUDE = """
import asyncio, os, pathlib, sys, time
from singletonjob.stores.protocol import *
from singletonjob.stores.sqlite.store import SqliteStore
path = pathlib.Path(sys.argv[1])
def batch(node, *requests, bound=5.0):
    return Batch(project="p", node=node, bound=bound, requests=requests)
def acquire(number=1):
    return Acquire(job="j", number=number, lock_expiry=60, above=0)
async def hold(node="child"):
    store = SqliteStore(path)
    await store.exchange(batch(node))
    print(*(await store.exchange(batch(node, acquire()))).verdicts, flush=True)
    return store
"""
HOLD = "asyncio.run(hold()); time.sleep(60)"
ASK = """
async def main():
    store = SqliteStore(path)
    await store.exchange(batch("child"))
    print("ready", flush=True)
    for number, _ in enumerate(sys.stdin, 1):
        print(*(await store.exchange(batch("child", acquire(number)))).verdicts, flush=True)
asyncio.run(main())
"""

namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "--time", "true"], check=False).returncode != 0,
    reason="only root may make namespaces, and only with unshare(1)",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "leases.db"


@pytest.fixture
def child(path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts Python processes that run a piece of code after PRELUDE, by the command `inside` if there is one."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str, inside: list[str] | None = None) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*(inside or []), sys.executable, "-c", PRELUDE + code, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": SOURCE},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path)
    await read(store)
    yield store
    await store.close()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


async def granted_within(store: SqliteStore, seconds: float) -> float:
    """Ask until the lease is ours; how long that took."""
    began = time.monotonic()
    number = 1
    while not isinstance(await ask(store, acquire(number)), Granted):
        assert time.monotonic() - began < seconds
        number += 1
        await asyncio.sleep(0.005)
    return time.monotonic() - began


# -- death ---------------------------------------------------------------------------------------------------------


async def test_a_killed_holder_is_noticed_and_its_lease_can_be_taken_at_once(
    store: SqliteStore, child: Callable[[str], subprocess.Popen[str]]
) -> None:
    async with aclosing(store.notices("p")) as notices:
        assert await anext(notices) == frozenset()
        holder = child(HOLD)
        assert line(holder).startswith("Granted")
        assert isinstance(await ask(store, acquire()), Refused)
        holder.kill()
        async with asyncio.timeout(1):  # promised within 0.25 s
            assert await anext(notices) == {"j"}
        assert isinstance(await ask(store, acquire(2)), Granted)


async def test_a_holder_that_died_before_anybody_watched_is_found_by_the_first_ask(
    store: SqliteStore, child: Callable[[str], subprocess.Popen[str]]
) -> None:
    holder = child(HOLD)
    line(holder)
    holder.kill()
    holder.wait()
    assert isinstance(await ask(store, acquire()), Granted)


async def test_an_operator_that_dies_after_its_order_does_not_take_the_holders_lease_with_it(
    store: SqliteStore, child: Callable[[str], subprocess.Popen[str]]
) -> None:
    holder = child(HOLD)
    line(holder)
    operator = child(
        "from singletonjob.stores.orders import StepDown\n"
        "async def order():\n"
        "    store = SqliteStore(path)\n"
        "    await store.exchange(batch('operator'))\n"
        "    print(*(await store.exchange(batch('operator', StepDown('j')))).verdicts, flush=True)\n"
        "asyncio.run(order()); time.sleep(60)"
    )
    assert "outcome='asked'" in line(operator)
    operator.kill()
    operator.wait()
    assert isinstance(await ask(store, acquire()), Refused)
    holder.kill()  # whose death is noticed as ever
    holder.wait()
    assert isinstance(await ask(store, acquire(number=2)), Granted)


async def test_a_stopped_holder_is_not_dead(store: SqliteStore, child: Callable[[str], subprocess.Popen[str]]) -> None:
    holder = child(HOLD)
    line(holder)
    holder.send_signal(signal.SIGSTOP)
    for number in range(1, 40):
        assert isinstance(await ask(store, acquire(number)), Refused)
        await asyncio.sleep(0.005)


async def falls_with(store: SqliteStore, parent: subprocess.Popen[str]) -> None:
    """The lease of the parent falls with it, although the process that it told of lives on."""
    line(parent)
    grandchild = int(line(parent))
    try:
        assert isinstance(await ask(store, acquire()), Refused)
        parent.kill()
        parent.wait()
        await granted_within(store, 1)
        os.kill(grandchild, 0)
    finally:
        os.kill(grandchild, signal.SIGKILL)


async def test_a_forked_child_does_not_keep_its_dead_parents_lease(
    store: SqliteStore, child: Callable[[str], subprocess.Popen[str]]
) -> None:
    parent = child(
        "asyncio.run(hold())\n"
        "pid = os.fork()\n"
        "if pid: print(pid, flush=True)\n"
        "os.close(1) if not pid else None\n"
        "time.sleep(60)"
    )
    await falls_with(store, parent)


async def test_a_subprocess_does_not_keep_its_dead_parents_lease(
    store: SqliteStore, child: Callable[[str], subprocess.Popen[str]]
) -> None:
    parent = child(
        "asyncio.run(hold())\n"
        "import subprocess\n"
        "print(subprocess.Popen(['sleep', '60'], close_fds=False, stdout=subprocess.DEVNULL).pid, flush=True)\n"
        "time.sleep(60)"
    )
    await falls_with(store, parent)


@pytest.mark.parametrize("harm", ["delete", "replace"])
async def test_a_missing_or_replaced_holders_file_proves_nothing(
    store: SqliteStore, child: Callable[[str], subprocess.Popen[str]], path: Path, harm: str
) -> None:
    before = set(path.parent.iterdir())
    holder = child(HOLD)
    line(holder)
    (file,) = {found for found in path.parent.iterdir() if "-holder-" in found.name} - before
    file.rename(path.parent / "elsewhere")  # so that its inode stays in use
    if harm == "replace":
        file.touch()
    assert isinstance(await ask(store, acquire(1)), Refused)
    holder.kill()
    holder.wait()
    assert isinstance(await ask(store, acquire(2)), Refused)


async def test_a_store_that_gave_everything_back_takes_its_file_away(path: Path) -> None:
    store = SqliteStore(path)
    await read(store)
    await ask(store, acquire())
    assert len(list(path.parent.glob("leases.db-holder-*"))) == 1
    await ask(store, release())
    await store.close()
    assert list(path.parent.glob("leases.db-holder-*")) == []


async def test_a_lease_that_was_not_given_back_outlives_close_until_the_process_ends(
    store: SqliteStore, child: Callable[[str], subprocess.Popen[str]]
) -> None:
    holder = child(
        "async def main(): await (await hold()).close()\n"
        "asyncio.run(main()); import gc; gc.collect(); print('closed', flush=True); sys.stdin.readline()"
    )
    line(holder)
    assert line(holder) == "closed"
    assert isinstance(await ask(store, acquire(1)), Refused)
    holder.communicate("\n")
    assert isinstance(await ask(store, acquire(2)), Granted)


def test_files_of_the_dead_are_forgotten_unless_a_row_names_them(path: Path) -> None:
    now = time.time_ns() // 1000
    dead, named, young = (path.parent / f"leases.db-holder-{name}" for name in ("dead", "named", "young"))
    other = path.parent / "leases.db-else"
    for file in (dead, named, young, other):
        file.touch()
    for file in (dead, named, other):
        os.utime(file, (1, 1))
    living = sqlite_holder.HolderFile(path)
    os.utime(living.path, (1, 1))
    sqlite_holder.forget_dead(path, lambda: {named.name}, now)
    assert set(path.parent.iterdir()) == {named, young, other, living.path}
    living.remove()
    assert not living.path.exists()


def test_a_holders_file_is_not_the_childs_after_a_fork(path: Path) -> None:
    file = sqlite_holder.HolderFile(path)
    assert file.intact
    child = os.fork()
    if not child:
        intact = file.intact
        file.remove()
        os._exit(intact)
    assert os.waitpid(child, 0) == (child, 0)
    assert file.intact
    holder = sqlite_holder.Holder("this boot", file.path.name, file.inode)
    assert not sqlite_holder.is_dead(path.parent, holder, "this boot")
    file.close()
    assert sqlite_holder.is_dead(path.parent, holder, "this boot")


# -- several at once -----------------------------------------------------------------------------------------------


def test_sixteen_processes_open_a_new_file_at_once_and_one_of_them_leads(
    child: Callable[[str], subprocess.Popen[str]],
) -> None:
    children = [
        child("print('ready', flush=True); sys.stdin.readline(); asyncio.run(hold(str(os.getpid()))); time.sleep(60)")
        for _ in range(16)
    ]
    for process in children:
        assert line(process) == "ready"
    for process in children:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    words = [line(process).partition("(")[0] for process in children]
    assert sorted(words) == ["Granted"] + ["Refused"] * 15


CONTEND = """
async def main():
    store = SqliteStore(path)
    await store.exchange(batch(str(os.getpid())))
    log = os.open(path.parent / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    def note(what, token):
        os.write(log, f"{time.clock_gettime_ns(time.CLOCK_BOOTTIME)} {what} {os.getpid()} {token}\\n".encode())
    for number in range(1, 10 ** 9):
        verdict, = (await store.exchange(batch(str(os.getpid()), acquire(number)))).verdicts
        if isinstance(verdict, Granted):
            note("start", verdict.token)
            time.sleep(0.002)
            note("end", verdict.token)
            await store.exchange(batch(str(os.getpid()), Release(job="j", number=number, progress=Progress())))
        await asyncio.sleep(0.001)
asyncio.run(main())
"""


def test_terms_of_real_processes_never_overlap_though_some_are_killed(
    child: Callable[[str], subprocess.Popen[str]], path: Path
) -> None:
    children = [child(CONTEND) for _ in range(5)]
    killed: dict[str, int] = {}
    log = path.parent / "log"
    for _ in range(6):
        have = len(_lines(log))
        while len(_lines(log)) < have + 40:
            time.sleep(0.01)
        victim = children.pop(0)
        killed[str(victim.pid)] = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        victim.kill()
        children.append(child(CONTEND))
    assert all(process.poll() is None for process in children)
    running: tuple[str, str] | None = None
    tokens: list[int] = []
    for at, what, pid, token in (text.split() for text in _lines(log)):
        if what == "start":
            if running is not None:
                assert killed.get(running[0], sys.maxsize) < int(at), f"{pid} started while {running[0]} ran"
            running = (pid, token)
            tokens.append(int(token))
        else:
            assert running == (pid, token)
            running = None
    assert tokens == sorted(set(tokens))


def _lines(log: Path) -> list[str]:
    return log.read_text(encoding="ascii").splitlines() if log.exists() else []


async def test_two_stores_of_one_process_on_one_path_are_never_both_granted(path: Path) -> None:
    one, two = SqliteStore(path), SqliteStore(path)
    await read(one)
    await read(two)
    for number in range(1, 50):
        verdicts = await asyncio.gather(ask(one, acquire(number), node="1"), ask(two, acquire(number), node="2"))
        assert sum(isinstance(verdict, Granted) for verdict in verdicts) == 1
        await asyncio.gather(ask(one, release(number), node="1"), ask(two, release(number), node="2"))
    await one.close()
    await two.close()


# -- a file that others lock ---------------------------------------------------------------------------------------


@pytest.fixture
def locked(store: SqliteStore, path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    connection.close()


async def test_c113_a_locked_file_is_an_outage_within_the_bound_and_never_a_lease(
    store: SqliteStore, locked: sqlite3.Connection
) -> None:
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match=r"leases\.db: database is locked"):
        await ask(store, acquire(), bound=0.2)
    assert time.monotonic() - began < 0.2 * 5
    with pytest.raises(StoreUnavailable, match="a reading comes first"):
        await ask(store, acquire())
    await read(store, bound=0.2)  # reads go on while another writes
    locked.execute("ROLLBACK")
    assert isinstance(await ask(store, acquire(2)), Granted)


async def test_a_call_that_was_cancelled_while_it_waited_does_nothing_later(
    store: SqliteStore, locked: sqlite3.Connection, path: Path
) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await ask(store, acquire(), bound=20)
    await read(store)  # a thread of its own: it does not queue behind the one that still waits
    locked.execute("ROLLBACK")
    assert await ask(store, release(99)) == Released(mine=False)
    await asyncio.sleep(0.3)  # longer than SQLite sleeps between two tries for a lock
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM lease").fetchone() == (0,)


async def test_calls_that_hang_do_not_pile_up_without_end(store: SqliteStore, locked: sqlite3.Connection) -> None:
    for _ in range(MAX_STUCK):
        await read(store)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await ask(store, acquire(), bound=20)
    with pytest.raises(StoreUnavailable, match=f"{MAX_STUCK} calls hang"):
        await read(store)
    locked.execute("ROLLBACK")
    async with asyncio.timeout(5):
        while store._session is None:
            with contextlib.suppress(StoreUnavailable):
                await read(store)
            await asyncio.sleep(0.01)
    assert isinstance(await ask(store, acquire()), Granted)


async def test_close_does_not_wait_for_a_call_in_flight(store: SqliteStore, locked: sqlite3.Connection) -> None:
    call = asyncio.create_task(ask(store, acquire(), bound=20))
    await asyncio.sleep(0.05)
    began = time.monotonic()
    await store.close()
    assert time.monotonic() - began < 1
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    with pytest.raises(StoreUnavailable, match="is closed"):
        await read(store)


# -- a file that goes away -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("harm", ["delete", "replace", "delete the log"])
async def test_a_deleted_or_replaced_file_is_an_outage_and_then_a_fresh_one(
    store: SqliteStore, path: Path, harm: str
) -> None:
    token = await ask(store, acquire())
    assert isinstance(token, Granted)
    async with aclosing(store.notices("p")) as notices:
        await anext(notices)
        kept = path.parent / "kept"
        kept.mkdir()
        names = ["leases.db-wal", "leases.db-shm"] if harm == "delete the log" else [file.name for file in _files(path)]
        for name in names:
            (path.parent / name).rename(kept / name)
        if harm == "replace":
            other = SqliteStore(path)
            await read(other)
            await other.close()
        with pytest.raises(StoreUnavailable, match="deleted or replaced"):
            await ask(store, Renew(job="j", token=token.token, lock_expiry=60, progress=Progress()))
        with pytest.raises(StoreUnavailable, match="deleted or replaced"):
            async with asyncio.timeout(5):
                await anext(notices)
    await read(store)
    assert isinstance(await ask(store, acquire(2)), Granted)
    assert path.exists()


async def test_a_file_that_is_replaced_while_it_is_opened_is_opened_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = sqlite_file._prepare
    replaced: list[Path] = []

    def replace_meanwhile(connection: sqlite3.Connection, opened: Path) -> None:
        prepare(connection, opened)
        if not replaced:
            names = ("leases.db", "leases.db-wal", "leases.db-shm")
            replaced.extend((path.parent / name).rename(path.parent / f"old-{name}") for name in names)

    monkeypatch.setattr(sqlite_file, "_prepare", replace_meanwhile)
    store = SqliteStore(path)
    await read(store)
    assert isinstance(await ask(store, acquire()), Granted)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT holder FROM lease").fetchone() == ("me",)
    assert len(replaced) == 3
    await store.close()


def _files(path: Path) -> list[Path]:
    return [file for file in path.parent.iterdir() if file.is_file() and "-holder-" not in file.name]


async def test_a_holders_file_that_was_deleted_is_made_anew_with_the_next_connection(
    store: SqliteStore, path: Path, child: Callable[[str], subprocess.Popen[str]]
) -> None:
    granted = await ask(store, acquire())
    assert isinstance(granted, Granted)
    for file in path.parent.glob("*-holder-*"):
        file.unlink()
    with contextlib.suppress(StoreUnavailable):
        await ask(store, acquire(), bound=-1)  # an error drops the connection
    await read(store)
    assert await ask(store, Renew(job="j", token=granted.token, lock_expiry=60, progress=Progress())) == Renewed()
    (file,) = path.parent.glob("*-holder-*")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT file, inode FROM lease").fetchone() == (file.name, file.stat().st_ino)


async def test_a_store_that_holds_no_lease_since_the_job_is_paused_takes_its_file_away(
    store: SqliteStore, path: Path
) -> None:
    await ask(store, Pause(job="j", seconds=None, by="me", reason="test"))
    assert isinstance(await ask(store, acquire()), Barred)
    await store.close()
    assert list(path.parent.glob("*-holder-*")) == []


# -- boots ---------------------------------------------------------------------------------------------------------


def of_another_boot(path: Path) -> None:
    """Let each row look as if another boot had written it."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE lease SET boot = 'another one'")


async def test_s1_a_holder_lives_while_its_file_is_locked_whatever_boot_its_row_names(
    store: SqliteStore, child: Callable[[str], subprocess.Popen[str]], path: Path
) -> None:
    holder = child(HOLD)
    line(holder)
    of_another_boot(path)
    assert isinstance(await ask(store, acquire(1)), Refused)
    (view,) = await store.peek("p")
    assert view.holder == "child"
    async with aclosing(store.notices("p")) as notices:
        assert await anext(notices) == frozenset()
        holder.kill()
        holder.wait()
        async with asyncio.timeout(5):
            assert await anext(notices) == {"j"}
    assert isinstance(await ask(store, acquire(2)), Granted)


async def test_a_holder_of_another_boot_is_dead_if_its_file_is_gone(
    store: SqliteStore, child: Callable[[str], subprocess.Popen[str]], path: Path
) -> None:
    holder = child(HOLD)
    line(holder)
    of_another_boot(path)
    (file,) = (found for found in path.parent.glob("*-holder-*") if found.stat().st_ino != own_inode(store))
    file.unlink()
    assert isinstance(await ask(store, acquire(1)), Granted)


def own_inode(store: SqliteStore) -> int:
    return store._holders.current(store._path).inode


@namespaces
async def test_s1_two_processes_of_one_kernel_that_see_different_boot_ids_do_not_both_lead(
    store: SqliteStore, child: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    boot = tmp_path / "boot_id"
    boot.write_text("00000000-0000-4000-8000-000000000000\n")
    mount = f"mount --bind {boot} /proc/sys/kernel/random/boot_id"
    other = child(ASK, inside=["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh"])
    assert isinstance(await ask(store, acquire()), Granted)
    assert line(other) == "ready"
    assert asked(other).startswith("Refused(holder='me'")
    token = (await told(store)).token
    assert await ask(store, Renew("j", token or 0, 60, Progress())) == Renewed()


@namespaces
async def test_s1_a_process_in_a_time_namespace_ends_leases_by_the_machines_boot_clock(
    store: SqliteStore, child: Callable[..., subprocess.Popen[str]]
) -> None:
    other = child(ASK, inside=["unshare", "--time", "--boottime", "3600", "--fork", "--kill-child"])
    assert isinstance(await ask(store, acquire()), Granted)
    assert line(other) == "ready"
    assert asked(other).startswith("Refused(holder='me'")
    await ask(store, release())
    assert asked(other).startswith("Granted")
    refused = await ask(store, acquire(2))
    assert isinstance(refused, Refused)
    assert refused.expires_in is not None
    assert 50 < refused.expires_in <= 60


async def told(store: SqliteStore) -> JobView:
    (view,) = await store.peek("p")
    return view


def asked(process: subprocess.Popen[str]) -> str:
    """What the process is answered, which runs ASK."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return line(process)


async def test_a_file_of_an_older_release_gets_the_columns_that_came_later_and_keeps_its_leases(
    store: SqliteStore, path: Path
) -> None:
    granted = await ask(store, acquire())
    assert isinstance(granted, Granted)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for column in sqlite_file.ADDED:
            connection.execute(f"ALTER TABLE lease DROP COLUMN {column}")
    upgraded = SqliteStore(path)
    assert [(view.job, view.holder) for view in await upgraded.peek("p")] == [("j", "me")]
    await read(upgraded)
    assert await ask(upgraded, Renew(job="j", token=granted.token, lock_expiry=60, progress=Progress())) == Renewed()
    assert isinstance(await ask(upgraded, acquire(), node="other"), Refused)
    await upgraded.close()


# -- files that cannot be used -------------------------------------------------------------------------------------


async def test_a_missing_directory_is_named(path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"the directory .*/nowhere does not exist; create it"):
        await read(SqliteStore(path.parent / "nowhere" / "leases.db"))


async def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_text("prices, prices, prices\n" * 100, encoding="utf-8")
    with pytest.raises(StoreError, match="is not an SQLite database") as caught:
        await read(SqliteStore(path))
    assert isinstance(caught.value.__cause__, sqlite3.DatabaseError)


async def test_another_programs_database_is_refused_and_left_alone(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE prices (at INTEGER)")
    with pytest.raises(StoreError, match="belongs to another program"):
        await read(SqliteStore(path))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("prices",)]


async def test_a_file_of_a_newer_version_is_refused(store: SqliteStore, path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match=r"has format 99, this version .* upgrade"):
        await read(SqliteStore(path))


def test_urls_name_relative_and_absolute_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert sqlite_place.path_from_url("sqlite:///run/l.db") == tmp_path / "run" / "l.db"
    assert sqlite_place.path_from_url(" SQLite:////srv/l.db ") == Path("/srv/l.db")


@pytest.mark.parametrize(
    "url",
    ["sqlite:", "sqlite://", "sqlite:///", "sqlite:// /l.db", "sqlite:l.db", "sqlite://l.db", "sqlite:///dir/",
     "sqlite:///l.db?mode=ro", "sqlite:///:memory:", "sqlite3:///l.db"],
)  # fmt: skip
def test_other_urls_are_errors_that_say_what_to_write(url: str) -> None:
    with pytest.raises(ConfigError, match="write "):
        sqlite_place.path_from_url(url)


# -- watching ------------------------------------------------------------------------------------------------------


async def test_releases_and_deaths_are_heard(
    store: SqliteStore, path: Path, child: Callable[[str], subprocess.Popen[str]]
) -> None:
    other = SqliteStore(path)
    await read(other)
    async with aclosing(store.notices("p")) as notices:
        assert await anext(notices) == frozenset()
        await ask(other, acquire(), node="other")
        await ask(other, release(), node="other")
        async with asyncio.timeout(1):
            assert await anext(notices) == {"j"}
        holder = child(HOLD)
        line(holder)
        await asyncio.sleep(0.1)
        holder.kill()
        async with asyncio.timeout(1):
            assert await anext(notices) == {"j"}
    await other.close()


async def test_a_lease_taken_and_given_back_between_two_looks_is_heard(store: SqliteStore, path: Path) -> None:
    async with aclosing(store.notices("p")) as notices:
        await anext(notices)
        for number in range(1, 4):
            await ask(store, acquire(number))
            await ask(store, release(number))
            async with asyncio.timeout(1):
                assert await anext(notices) == {"j"}


async def test_watching_an_idle_file_costs_next_to_nothing(store: SqliteStore) -> None:
    await ask(store, acquire())
    async with aclosing(store.notices("p")) as notices:
        await anext(notices)
        before = time.process_time()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                await anext(notices)
        assert (time.process_time() - before) / 2 < 0.005 * 3  # promised: half a percent of a core


async def test_close_ends_a_subscription(path: Path) -> None:
    store = SqliteStore(path)
    async with aclosing(store.notices("p")) as notices:
        await anext(notices)
        await store.close()
        with pytest.raises(StoreUnavailable, match="is closed"):
            async with asyncio.timeout(5):
                await anext(notices)


async def test_a_subscription_to_a_file_that_cannot_be_opened_says_so(path: Path) -> None:
    async with aclosing(SqliteStore(path.parent / "nowhere" / "l.db").notices("p")) as notices:
        with pytest.raises(StoreUnavailable, match="does not exist"):
            await anext(notices)


# -- time ----------------------------------------------------------------------------------------------------------


class LateClock:
    """A boot clock that jumps while the store waits, as over a suspend."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def boot(self) -> float:
        return self.seconds

    def wall(self) -> int:
        return time.time_ns() // 1000

    def now(self) -> Now:
        return Now(self.wall(), self.seconds)


async def test_whether_a_batch_is_void_is_judged_when_the_lock_is_got(path: Path) -> None:
    clock = LateClock()
    store = SqliteStore(path, clock)
    await read(store)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    batch = Batch(project="p", node="me", bound=5, void_at=101_000_000, requests=(acquire(),))
    call = asyncio.create_task(store.exchange(batch))
    await asyncio.sleep(0.05)
    clock.seconds = 102.0
    connection.execute("ROLLBACK")
    connection.close()
    reply = await call
    assert reply.void
    assert reply.clock == 102_000_000
    assert isinstance(await ask(store, acquire(), node="other"), Granted)
    await store.close()
