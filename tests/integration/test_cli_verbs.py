"""The verbs of the command line on an app of one's own: how they find it, and what they answer."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from singletonjob import SingletonJobs
from singletonjob.cli import main
from waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Command = Callable[..., tuple[int, str, str]]

JOBS = """
from pathlib import Path

from singletonjob import SingletonJobs
from singletonjob.stores.sqlite.store import SqliteStore

app = SingletonJobs("pricing", SqliteStore(Path("leases.db")))

@app.interval("1h")
def tidy_up() -> None: ...

@app.interval("1h")
def broken() -> None:
    raise OSError("no disk")
"""


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory, with `jobs.py`, whose app has a store object of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "jobs.py").write_text(JOBS)
    yield tmp_path
    sys.modules.pop("jobs", None)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    def command(*words: str) -> tuple[int, str, str]:
        sys.modules.pop("jobs", None)  # each command is a process of its own, elsewhere
        try:
            code = main(words)
        except SystemExit as ended:
            code = int(str(ended.code))
        output = capsys.readouterr()
        return code, output.out, output.err

    return command


def running(directory: Path) -> SingletonJobs:
    """An app of the same project and file, as it runs in another process."""
    app = SingletonJobs("pricing", f"sqlite:///{directory / 'leases.db'}", node_id="rack-7")

    @app.interval("1h")
    def tidy_up() -> None: ...

    @app.interval("1h")
    def broken() -> None:
        raise OSError("no disk")

    return app


def led(directory: Path) -> SingletonJobs:
    app = running(directory)
    app.start()
    wait_for(lambda: all(stats.runs for stats in app.stats().values()), what="the first runs")
    return app


@pytest.mark.parametrize(
    "words", [("jobs:app", "tidy-up"), ("--app", "jobs:app", "tidy-up"), ("jobs:app", "--reason", "why", "tidy-up")]
)
def test_a_verb_takes_the_app_as_run_does_and_with_it_a_store_that_has_no_url(
    command: Command, words: tuple[str, ...]
) -> None:
    code, out, err = command("pause", *words)
    assert (code, out, err) == (0, "tidy-up: paused until it is resumed; nobody led it\n", "")
    assert re.fullmatch(
        r"broken: was not paused\ntidy-up: resumed; it was paused by \S+@\S+(: why)?\n",
        command("resume", "jobs:app", "--all")[1],
    )


def test_status_of_an_app_shows_a_job_that_was_never_led(command: Command) -> None:
    command("pause", "jobs:app", "tidy-up")
    code, out, _ = command("status", "jobs:app", "--json")
    assert code == 0
    assert [(job["job"], job["leader"], job["paused"] is None) for job in json.loads(out)] == [
        ("broken", None, True),
        ("tidy-up", None, False),
    ]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("pause", "jobs:app"), "a job is missing; write its name, a pattern, or --all"),
        (("trigger", "jobs:app"), "a job is missing; write its name"),
        (("pause", "jobs:app", "a", "b"), "one job at a time: a, b are 2"),
        (("pause", "jobs:app", "a", "--all"), "--all and a exclude each other"),
        (("pause", "jobs:app", "--app", "jobs:other", "a"), "two apps are named: jobs:app, jobs:other"),
        (("pause", "jobs:nothing", "a"), "jobs has no 'nothing'"),
        (("status", "nowhere:app"), "there is no module 'nowhere'"),
        (("pause", "jobs:app", "a", "--fort", "1h"), "unrecognized arguments: --fort"),
        (("pause", "jobs:app", "tidy-up", "--for", "10"), "10 of what? Write 10s, 10m or 10h"),
        (("trigger", "jobs:app", "tidy-up", "--wait", "1.5"), "1.5 of what?"),
    ],
)
def test_what_names_no_job_no_app_or_no_time_is_one_line_and_exit_code_2(
    command: Command, words: tuple[str, ...], expected: str
) -> None:
    code, out, err = command(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert expected in err


def test_a_pause_over_a_pause_says_what_stands_there_and_replaces_it_only_on_request(command: Command) -> None:
    first = command("pause", "jobs:app", "tidy-up", "--for", "2h", "--reason", "feed is down")
    assert re.fullmatch(r"tidy-up: paused until 20\S+Z; nobody led it\n", first[1])
    code, out, _ = command("pause", "jobs:app", "tidy-up")
    assert code == 1
    assert re.fullmatch(
        r"tidy-up: not done: it is paused by \S+@\S+ until 20\S+Z: feed is down; write --replace to replace that\n", out
    )
    for verb in ("step-down", "trigger"):
        code, out, _ = command(verb, "jobs:app", "tidy-up")
        assert code == 1
        assert re.fullmatch(r"tidy-up: not done: it is paused by .*: feed is down; resume it first\n", out)
    code, out, _ = command("pause", "jobs:app", "tidy-up", "--replace", "--json")
    (result,) = json.loads(out)
    assert (code, result["outcome"], result["paused"]["until"]) == (0, "paused", None)
    assert (result["was_paused"]["reason"], result["leader"]) == ("feed is down", None)
    code, out, _ = command("resume", "jobs:app", "tidy-up")
    assert code == 0
    assert re.fullmatch(r"tidy-up: resumed; it was paused by \S+@\S+\n", out)


def test_trigger_waits_for_the_end_of_the_run_and_its_exit_code_is_the_runs(directory: Path, command: Command) -> None:
    app = led(directory)
    try:
        code, out, _ = command("trigger", "jobs:app", "tidy-up", "--wait-end")
        assert code == 0
        assert re.fullmatch(r"tidy-up: the extra run on rack-7-\w+ ended well, \d+ ms after the order\n", out)
        code, out, _ = command("trigger", "jobs:app", "broken", "--wait-end", "--json")
        assert (code, json.loads(out)[0]["outcome"]) == (1, "ran-failed")
        code, out, _ = command("status", "jobs:app", "--json")
        jobs = {job["job"]: job for job in json.loads(out)}
        assert (jobs["tidy-up"]["last_outcome"], jobs["tidy-up"]["runs"], jobs["tidy-up"]["failures"]) == ("ok", 2, 0)
        assert (jobs["broken"]["last_outcome"], jobs["broken"]["failures"]) == ("failed", 2)
        assert jobs["broken"]["last_good_end"] is None
    finally:
        app.stop()


def test_a_job_that_the_app_has_no_more_is_forgotten_and_no_other(directory: Path, command: Command) -> None:
    app = led(directory)
    try:
        with closing(sqlite3.connect("leases.db")) as file, file:
            file.execute("CREATE TEMP TABLE old AS SELECT * FROM lease WHERE job = 'tidy-up'")
            file.execute("UPDATE old SET job = 'renamed', holder = NULL, expires = NULL")
            file.execute("INSERT INTO lease SELECT * FROM old")
        code, out, err = command("forget", "jobs:app", "tidy-up")
        assert (code, out) == (2, "")
        assert "the app has the job tidy-up; remove it from the code first" in err
        where = ("--project", "pricing", "--store", f"sqlite:///{directory / 'leases.db'}")
        code, out, _ = command("forget", "tidy-up", *where)
        assert code == 1
        assert out.startswith("tidy-up: not forgotten: rack-7-")
        assert command("forget", "renamed", *where)[:2] == (
            1,
            "renamed: not forgotten: it was led or ran within the last ten minutes; try again later\n",
        )
        with closing(sqlite3.connect("leases.db")) as file, file:
            file.execute("UPDATE lease SET token = token - 601e6, ended = ended - 601e6 WHERE job = 'renamed'")
        assert command("forget", "jobs:app", "renamed")[:2] == (0, "renamed: forgotten\n")
        assert [job["job"] for job in json.loads(command("status", "jobs:app", "--json")[1])] == ["broken", "tidy-up"]
    finally:
        app.stop()
