"""The file of the SQLite store: where it is, who may write it, and what it keeps when power or disk fail."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import singletonjob
from singletonjob import SingletonJobs
from singletonjob._core.errors import ConfigError, StoreError
from singletonjob.stores import from_url
from singletonjob.stores.protocol import Batch, Claimed, ClaimSlot, Finding, Granted, Renewed
from singletonjob.stores.sqlite import place as sqlite_place
from singletonjob.stores.sqlite.store import SqliteStore
from store_calls import acquire, ask, read, renew, token_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from virtual_loop import Capture

SOURCE = str(Path(singletonjob.__file__).parents[1])

ROOT = os.geteuid() == 0 and subprocess.run(["unshare", "--mount", "true"], check=False).returncode == 0

root = pytest.mark.skipif(not ROOT, reason="only root may mount, and become another user")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "leases.db"


# -- one name for one file -----------------------------------------------------------------------------------------


async def test_s1_a_file_with_a_second_hard_link_is_refused(path: Path) -> None:
    await opened_once(path)
    os.link(path, path.with_name("other.db"))
    with pytest.raises(StoreError, match="has 2 hard links; delete the others"):
        await read(SqliteStore(path))


@root
async def test_s1_a_file_that_is_mounted_alone_is_refused_and_one_in_a_directory_that_is_mounted_is_not(
    path: Path, tmp_path: Path
) -> None:
    await opened_once(path)
    place = tmp_path / "with a space"
    place.mkdir()
    (place / "leases.db").touch()
    alone = opened_in_a_mount(path, place / "leases.db", place / "leases.db")
    assert "leases.db is mounted as a single file; mount the directory that it is in" in alone
    assert opened_in_a_mount(path.parent, place, place / "leases.db") == "opened"


async def opened_once(path: Path) -> None:
    store = SqliteStore(path)
    await read(store)
    await store.close()


def opened_in_a_mount(what: Path, where: Path, path: Path) -> str:
    """Mount one over the other, in a namespace of its own, and open the store there."""
    code = f"""if True:
        import asyncio, pathlib
        from singletonjob.stores.protocol import Batch
        from singletonjob.stores.sqlite.store import SqliteStore
        try:
            asyncio.run(SqliteStore(pathlib.Path({str(path)!r})).exchange(Batch("p", "me", 5.0)))
            print("opened")
        except Exception as error:
            print(error)
    """
    command = ["unshare", "--mount", "sh", "-c", 'mount --bind "$1" "$2" && exec "$3" -c "$4"', "sh"]
    done = subprocess.run(
        [*command, str(what), str(where), sys.executable, code],
        env=os.environ | {"PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_mount_points_are_read_with_their_octal_escapes() -> None:
    lines = "36 25 254:1 / /a\\040b/leases.db rw - ext4 /dev/vda1 rw\n37 25 0:5 / /dev rw - devtmpfs devtmpfs rw\n"
    assert sqlite_place.mount_points(lines) == {"/a b/leases.db", "/dev"}


# -- file systems --------------------------------------------------------------------------------------------------


def test_a_file_system_is_told_by_its_device() -> None:
    mountinfo = (
        "36 25 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        "98 36 0:51 / /mnt/share rw,relatime shared:7 master:2 - nfs4 server:/export rw\n"
    )
    assert sqlite_place.file_system(os.makedev(0, 51), mountinfo) == "nfs4"
    assert sqlite_place.file_system(os.makedev(254, 0), mountinfo) == "ext4"
    assert sqlite_place.file_system(os.makedev(0, 5), mountinfo) is None


async def test_a_network_file_system_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_place, "file_system", lambda device, mountinfo: "nfs4")
    with pytest.raises(StoreError, match="network file system \\(nfs4\\)"):
        await read(SqliteStore(path))


@pytest.mark.parametrize("kind", ["9p", "virtiofs", "vboxsf", "fuse.gcsfuse", "something-new"])
async def test_a_file_system_that_is_not_known_to_be_local_is_a_warning_once(
    path: Path, monkeypatch: pytest.MonkeyPatch, logs: Capture, kind: str
) -> None:
    monkeypatch.setattr(sqlite_place, "file_system", lambda device, mountinfo: kind)
    for _ in range(2):
        await opened_once(path)
    (record,) = logs.of("store-warning")
    assert f"{path.parent} is on a file system of the type {kind}" in record.getMessage()


async def test_a_local_file_system_is_no_warning(path: Path, logs: Capture) -> None:
    await opened_once(path)
    assert logs.of("store-warning") == []


# -- one place for each user ---------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home directory of this user, in the user database."""
    entry = pwd.struct_passwd(("me", "x", os.geteuid(), 0, "", str(tmp_path / "home"), "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: entry)
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_the_default_file_does_not_depend_on_the_session(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = home / ".local" / "state" / "singletonjob" / "leases.db"
    assert sqlite_place.path_from_url("sqlite") == expected
    for variable in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "TMPDIR", "HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    assert sqlite_place.path_from_url("sqlite") == expected


def test_a_user_without_a_home_is_told_to_name_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(ConfigError, match=r"has no home directory .*; name a file: sqlite:////path/to/leases.db"):
        from_url("sqlite")


async def test_the_default_directory_is_made_for_this_user_alone(home: Path) -> None:
    await opened_once(sqlite_place.default_path())
    directory = home / ".local" / "state" / "singletonjob"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert (directory / "leases.db").exists()


@pytest.mark.parametrize("trap", ["open to others", "a link"])
async def test_a_default_directory_that_others_can_change_is_refused(home: Path, tmp_path: Path, trap: str) -> None:
    directory = home / ".local" / "state" / "singletonjob"
    directory.parent.mkdir(parents=True)
    if trap == "a link":
        (tmp_path / "theirs").mkdir(mode=0o700)
        directory.symlink_to(tmp_path / "theirs")
    else:
        directory.mkdir()
        directory.chmod(0o777)
    with pytest.raises(StoreError, match="must be a directory of this user alone"):
        await from_url("sqlite").exchange(Batch(project="p", node="me", bound=5))


async def test_the_line_of_the_start_names_the_default_file(home: Path, logs: Capture) -> None:
    app = SingletonJobs("pricing", store="sqlite")
    app.interval(60, name="job")(lambda: None)
    async with app:
        pass
    assert logs.of("started")[0].getMessage().endswith(f" in sqlite ({home}/.local/state/singletonjob/leases.db)")


@pytest.mark.parametrize("sign", ["KUBERNETES_SERVICE_HOST", "container", "a file"])
async def test_the_default_file_is_warned_of_in_a_container_because_each_has_its_own(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logs: Capture, sign: str
) -> None:
    monkeypatch.setattr(sqlite_place, "MARKS", (tmp_path / "mark",))
    for variable in ("KUBERNETES_SERVICE_HOST", "container"):
        monkeypatch.delenv(variable, raising=False)
    assert not sqlite_place.in_container()
    if sign == "a file":
        (tmp_path / "mark").touch()
    else:
        monkeypatch.setenv(sign, "podman")
    for store in ("sqlite", f"sqlite:///{tmp_path}/named.db"):
        app = SingletonJobs("pricing", store=store)
        app.interval(60, name="job")(lambda: None)
        async with app:
            pass
    (record,) = logs.of("store-warning")
    assert record.levelname == "WARNING"
    assert "write redis://host:6379/0" in record.getMessage()


# -- rights --------------------------------------------------------------------------------------------------------


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that any user may enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def checked_by_nobody(directory: Path) -> str:
    """What an inspection of `leases.db` by another user says."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        said = "nothing"
        try:
            os.setgid(65534)
            os.setuid(65534)
            said = str(asyncio.run(SqliteStore(directory / "leases.db").inspect("p")))
        except StoreError as error:
            said = str(error)
        finally:
            os.write(writing, said.encode())
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        return answer.read()


@root
def test_a_directory_that_this_user_may_not_write_or_enter_is_told_with_the_right_that_lacks(shared: Path) -> None:
    asyncio.run(opened_once(shared / "leases.db"))
    said = checked_by_nobody(shared)
    assert said.startswith(f"sqlite store: user nobody may not write {shared} (owner root, mode 0755); ")
    assert said.endswith("; grant the right, or name another file: sqlite:////path/to/leases.db")
    (shared / "inner").mkdir()
    shared.chmod(0o700)
    assert f"user nobody may not enter {shared} (owner root, mode 0700)" in checked_by_nobody(shared / "inner")


@root
def test_a_file_that_can_be_read_only_is_told_though_its_directory_can_be_written(shared: Path) -> None:
    asyncio.run(opened_once(shared / "leases.db"))
    (shared / "leases.db").chmod(0o644)
    shared.chmod(0o777)
    said = checked_by_nobody(shared)
    assert said.startswith(f"sqlite store: user nobody may not write {shared}/leases.db (owner root, mode 0644); ")


async def test_an_inspection_writes_says_where_and_leaves_nothing_behind(path: Path) -> None:
    store = SqliteStore(path)
    assert await store.inspect("p") == (Finding("ok", f"the leases are in {path}, which can be written"),)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM lease").fetchone() == (0,)
    assert list(path.parent.glob("*-holder-*")) == []


# -- power and room ------------------------------------------------------------------------------------------------


async def test_s6_a_batch_that_claims_is_synced_and_no_other_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    connect = sqlite3.connect

    def traced(*args: object, **options: object) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)  # type: ignore[call-overload]
        connection.set_trace_callback(said.append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", traced)
    store = SqliteStore(path)
    await read(store)
    token = await token_of(store)
    for request, level in ((renew(token), "NORMAL"), (ClaimSlot("j", token, 1, "m"), "FULL"), (renew(token), "NORMAL")):
        said.clear()
        assert await ask(store, request) in (Renewed(), Claimed())
        pragmas = [text for text in said if "synchronous" in text or text in ("BEGIN IMMEDIATE", "COMMIT")]
        assert pragmas == [f"PRAGMA synchronous={level}", "BEGIN IMMEDIATE", "COMMIT"]
    await store.close()


@pytest.mark.skipif(shutil.which("strace") is None, reason="only strace(1) shows what is synced")
def test_s6_the_log_is_on_the_disk_when_a_claim_is_answered(path: Path) -> None:
    code = f"""if True:
        import asyncio, os, pathlib
        from singletonjob.stores.protocol import *
        from singletonjob.stores.sqlite.store import SqliteStore
        async def main():
            store = SqliteStore(pathlib.Path({str(path)!r}))
            async def ask(*requests):
                return (await store.exchange(Batch("p", "me", 5.0, requests=requests))).verdicts
            await ask()
            (granted,) = await ask(Acquire("j", 1, 60, 0))
            for request in (Renew("j", granted.token, 60, NO_PROGRESS), ClaimSlot("j", granted.token, 1, "m")):
                os.write(2, b"before")
                await ask(request)
                os.write(2, b"after")
        asyncio.run(main())
    """
    command = ["strace", "-f", "-y", "-e", "trace=fsync,fdatasync,write", "-o", str(path) + ".trace"]
    subprocess.run(
        [*command, sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": SOURCE}, check=True, capture_output=True
    )
    lines = Path(str(path) + ".trace").read_text().splitlines()
    marks = [at for at, line in enumerate(lines) if '"before"' in line or '"after"' in line]
    renewal, claim = (lines[marks[at] : marks[at + 1]] for at in (0, 2))
    assert [line for line in renewal if "sync(" in line and "-wal" in line] == []
    assert [line for line in claim if "sync(" in line and "-wal" in line] != []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for 400 KiB."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(tmp_path)], check=True)
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


@root
async def test_a_full_disk_does_not_end_leadership(small_disk: Path) -> None:
    store = SqliteStore(small_disk / "leases.db")
    await read(store)
    token = await token_of(store)
    for _ in range(30):  # so that the log has its length
        assert await ask(store, renew(token)) == Renewed()
    with contextlib.suppress(OSError), (small_disk / "fill").open("wb") as fill:
        fill.write(bytes(1_000_000))
    for _ in range(200):
        assert await ask(store, renew(token)) == Renewed()
    assert isinstance(await ask(store, acquire(2)), Granted)
    await store.close()
