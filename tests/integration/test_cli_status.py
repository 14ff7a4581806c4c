"""`singletonjob status`: who leads, from the store alone; real stores, and real processes where signals matter."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from servers import KINDS, Server
from singletonjob import RunFinished, SingletonJobs
from singletonjob.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FIELDS = [
    *("job", "leader", "token", "since", "expires_in", "last_end", "last_outcome", "last_good_end"),
    *("runs", "failures", "standby", "paused"),
]


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(params=["sqlite", *KINDS])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'leases.db'}"
        return
    with Server(request.param, tmp_path) as server:
        yield server.url


def leading(url: str) -> SingletonJobs:
    """An app with a job that leads within a moment, and one that is off."""
    app = SingletonJobs("pricing", url, node_id="rack-7", amnesia_guard=False)  # the servers here have just started

    @app.interval("20ms")
    def tick() -> None: ...

    @app.interval("1s", enabled=False)
    def resting() -> None: ...

    return app


def ask(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["status", *words]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    return output.out


def wait_until_ended_once(app: SingletonJobs) -> None:
    seen = threading.Event()
    unsubscribe = app.subscribe(lambda event: seen.set() if isinstance(event, RunFinished) else None)
    assert seen.wait(20)
    unsubscribe()


def test_json_has_all_of_a_leader_and_null_where_there_is_none(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--store", url, "--project", "pricing", "--json")
    app = leading(url)
    with app.in_thread():
        wait_until_ended_once(app)
        (job,) = json.loads(ask(capsys, *words))
    assert list(job) == FIELDS
    assert job["job"] == "tick"
    assert re.fullmatch("rack-7-[0-9a-f]{8}", job["leader"])
    assert isinstance(job["token"], int)
    assert job["since"].endswith("Z")
    assert abs((datetime.now(UTC) - datetime.fromisoformat(job["since"])).total_seconds()) < 60
    assert 0 < job["expires_in"] <= 10
    assert job["paused"] is None

    assert job["standby"] == 0

    (job,) = json.loads(ask(capsys, *words))  # released at the end of the block
    assert datetime.fromisoformat(job["last_end"]).tzinfo is not None
    assert job["last_good_end"] == job["last_end"]
    assert (job["job"], job["last_outcome"], job["failures"]) == ("tick", "ok", 0)
    assert job["runs"] > 0
    assert [job[name] for name in ("leader", "token", "since", "expires_in", "paused")] == [None] * 5


def test_the_table_names_the_leader_and_says_nobody_where_there_is_none(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--store", url, "--project", "pricing")
    app = leading(url)
    with app.in_thread():
        wait_until_ended_once(app)
        head, row = ask(capsys, *words).splitlines()
    assert head.split("  ")[0] == "JOB"
    assert re.fullmatch(r"tick +rack-7-[0-9a-f]{8}  \d+ s( +ok \d+ s ago +\d+)? +0 +\d+\.\d s +\d{16}", row), row
    _, row = ask(capsys, *words).splitlines()
    assert re.fullmatch(r"tick  nobody +ok \d+ s ago +\d+ +0", row), row


def test_in_a_terminal_the_table_is_as_wide_as_that_and_a_pipe_gets_everything(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--store", f"sqlite:///{directory / 'leases.db'}", "--project", "pricing")
    app = leading(words[1])
    with app.in_thread():
        wait_until_ended_once(app)
        monkeypatch.setenv("COLUMNS", "80")
        assert "TOKEN" in ask(capsys, *words)
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        output = ask(capsys, *words)
    assert "TOKEN" not in output
    assert max(map(len, output.splitlines())) <= 80
    assert re.search(r"^tick  rack-7-[0-9a-f]{8}  ", output, re.MULTILINE)


def test_project_and_store_come_from_the_environment_and_the_file_and_flags_override(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unseen(*words: str) -> str:
        assert main(["status", *words]) == 1
        return capsys.readouterr().err

    (directory / "singletonjob.toml").write_text(
        'project = "from-file"\nstore = "sqlite:///leases.db"\n[jobs.any]\ntimeout = 3\n'
    )
    app = leading(f"sqlite:///{directory / 'leases.db'}")
    with app.in_thread():
        wait_until_ended_once(app)
    assert "project from-file " in unseen()
    monkeypatch.setenv("SINGLETONJOB_PROJECT", "from-env")
    assert "project from-env " in unseen()
    assert "project from-flag " in unseen("--project", "from-flag")
    assert main(["status", "--json"]) == 1
    assert capsys.readouterr().out == "[]\n"


def test_a_store_in_memory_shows_this_process_alone_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--store", "memory", "--project", "p"]) == 1
    assert "a store in memory shows this command's own process alone" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--project", "p"], "store: missing or blank"),
        (["--store", "memory"], "project: missing or blank"),
        (["--store", "memory", "--project", "a:b"], "project: 'a:b' cannot be a name"),
        (["--store", "carrier-pigeon://loft", "--project", "p"], "'carrier-pigeon:...' is not a store"),
        (["--store", "redis://h:x/0", "--project", "p"], "store: host or port cannot be read"),
        (["--store", "redis://h/0?retries=9", "--project", "p"], "'retries' in the query of a Redis URL is not known"),
    ],
)
def test_a_store_or_project_that_cannot_be_one_is_exit_code_2(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", *words]) == 2
    output = capsys.readouterr()
    assert expected in output.err
    assert output.err.count("\n") == 1
    assert output.out == ""


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_does_not_serve_us_is_one_line_and_exit_code_1(
    kind: str, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(url: str) -> str:
        assert main(["status", "--store", url, "--project", "p"]) == 1
        output = capsys.readouterr()
        assert output.err.count("\n") == 1
        assert output.err.startswith("singletonjob status: redis store: ")
        assert "secret" not in output.err + output.out
        return output.err

    with Server(kind, directory, {"requirepass": "right"}) as server:
        url = server.url
        assert "wants a password; write redis://user:password@host:6379/0" in refused(url)
        assert "does not take the password of user 'default'" in refused(url.replace("//", "//:secret@"))
    assert "refused" in refused(url).lower()


def test_a_store_that_nobody_used_yet_is_exit_code_1_and_nothing_is_made(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "--store", "sqlite:///leases.db", "--project", "p", "--json"]) == 1
    output = capsys.readouterr()
    assert "there is no file" in output.err
    assert output.out == ""
    assert list(directory.iterdir()) == []


def watch(url: str) -> subprocess.Popen[str]:
    words = [
        sys.executable,
        "-m",
        "singletonjob",
        "status",
        "--watch",
        "--json",
        "--store",
        url,
        "--project",
        "pricing",
    ]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_watch_shows_what_changes_until_ctrl_c(directory: Path) -> None:
    url = f"sqlite:///{directory / 'leases.db'}"
    app = leading(url)
    with app.in_thread():
        wait_until_ended_once(app)
        process = watch(url)
        assert process.stdout is not None
        try:
            first = json.loads(process.stdout.readline())
            app.stop()
            later = first
            while later[0]["leader"] is not None:
                later = json.loads(process.stdout.readline())
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
        finally:
            process.kill()
            _, errors = process.communicate()
    assert first[0]["leader"].startswith("rack-7-")
    assert errors == ""


def test_watch_goes_on_while_the_store_does_not_answer(directory: Path) -> None:
    url = f"sqlite:///{directory / 'leases.db'}"
    process = watch(url)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert "there is no file" in process.stderr.readline()
        with leading(url).in_thread():
            assert json.loads(process.stdout.readline())[0]["job"] == "tick"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.communicate()
