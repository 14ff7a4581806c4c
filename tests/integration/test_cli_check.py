"""`singletonjob check`: what holds and where it is written, and whether the store will do; on real stores."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from servers import KINDS, Server
from singletonjob.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JOBS = """
from singletonjob import SingletonJobs
app = SingletonJobs("pricing", lock_expiry="20s")

@app.fixed_rate("500ms", offset="100ms", lock_expiry="30s")
def price_tick(): ...

@app.interval("1m")
def sync(): ...

@app.cron("0 3 * * *", tz="Asia/Singapore")
def report(): ...

def make_app():
    return app
"""


@pytest.fixture(autouse=True)
def project(workplace: Path) -> Path:
    """A directory with an app."""
    (workplace / "check_jobs.py").write_text(JOBS)
    return workplace


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    with Server(request.param, tmp_path) as server:
        yield server


def report(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    assert main(["check", "check_jobs:app", "--json", *words]) == code
    output = capsys.readouterr()
    assert output.err == ""
    return json.loads(output.out)


def test_each_value_is_there_with_its_source(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "singletonjob.toml").write_text('stall_limit = "90s"\n[jobs.sync]\ntimeout = "5s"\n')
    monkeypatch.setenv("SINGLETONJOB_SHUTDOWN_GRACE", "5s")
    monkeypatch.setenv("SINGLETONJOB_JOBS__REPORT__MISFIRE", "fire_once")
    found = report(capsys, "--store", "memory")

    def both(entry: Any) -> tuple[object, str]:
        return entry["value"], entry["source"]

    assert {name: both(entry) for name, entry in found["options"].items()} == {
        "project": ("pricing", "code"),
        "store": ("memory", "command line --store"),
        "node_id": (None, "default"),
        "stall_limit": (90, "file singletonjob.toml: stall_limit"),
        "amnesia_guard": (True, "default"),
        "lock_expiry": (20, "code"),
        "margin": (2, "default"),
        "heartbeat_interval": (3, "default"),
        "max_backoff_delay": (10, "default"),
        "enabled": (True, "default"),
        "cancel_on_lost_leadership": (True, "default"),
        "timeout": (None, "default"),
        "shutdown_grace": (5, "environment SINGLETONJOB_SHUTDOWN_GRACE"),
        "warn_on_long_run": (True, "default"),
    }
    jobs = {name: {key: both(entry) for key, entry in job["options"].items()} for name, job in found["jobs"].items()}
    assert jobs["price-tick"]["lock_expiry"] == (30, "code")
    assert jobs["price-tick"]["margin"] == (3, "default")
    assert jobs["price-tick"]["offset"] == (0.1, "code")
    assert jobs["sync"]["timeout"] == (5, "file singletonjob.toml: jobs.sync.timeout")
    assert jobs["sync"]["shutdown_grace"] == (5, "environment SINGLETONJOB_SHUTDOWN_GRACE")
    assert jobs["report"]["misfire"] == ("fire_once", "environment SINGLETONJOB_JOBS__REPORT__MISFIRE")
    assert jobs["report"]["tz"] == ("Asia/Singapore", "code")
    assert jobs["report"]["catch_up_limit"] == (10, "default")


def test_each_job_has_its_schedule_and_its_next_time(capsys: pytest.CaptureFixture[str]) -> None:
    jobs = report(capsys, "--store", "memory")["jobs"]
    assert {name: job["schedule"] for name, job in jobs.items()} == {
        "price-tick": "at each multiple of 0.5 s plus 0.1 s",
        "sync": "60 s after the end of each run",
        "report": "cron '0 3 * * *' in Asia/Singapore",
    }
    assert jobs["sync"]["next"] is None
    assert jobs["report"]["next"].endswith("T19:00:00Z")
    assert [bool(job["zone_data"]) for job in jobs.values()] == [False, False, True]
    assert jobs["price-tick"]["next"].endswith(("00Z", ".100000Z", ".600000Z"))


def test_the_text_lists_for_a_job_only_what_is_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "check_jobs:app", "--store", "sqlite:///leases.db"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "options"
    assert ["lock_expiry", "20", "s", "code"] in [line.split() for line in lines[: lines.index("")]]
    at = lines.index("job sync: 60 s after the end of each run")
    assert lines[at + 1] == ""
    at = next(number for number, line in enumerate(lines) if line.startswith("job price-tick: "))
    assert [line.split() for line in lines[at + 1 : at + 4]] == [
        ["offset", "0.1", "s", "code"],
        ["lock_expiry", "30", "s", "code"],
        ["margin", "3", "s", "default"],
    ]
    assert lines[-2] == "ok: the store answers"
    assert lines[-1].endswith("leases.db, which can be written")


def test_what_is_overridden_or_unknown_or_unwise_is_a_warning_and_exit_code_0(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "singletonjob.toml").write_text(
        'lock_expiry = "25s"\nheartbeat_interval = "8s"\n[jobs.snyc]\ntimeout = 1\n'
    )
    found = report(capsys, "--store", "memory")
    assert found["ok"] is True
    assert found["warnings"][:2] == [
        "file singletonjob.toml: jobs.snyc.timeout: there is no job 'snyc'; did you mean sync?",
        "lock_expiry is 20 s by code; file singletonjob.toml: lock_expiry says 25 s and is weaker",
    ]
    assert any(text.startswith("sync: lock_expiry (20 s) is below 3 x") for text in found["warnings"])


def test_no_lease_is_asked_for(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report(capsys, "--store", "sqlite:///leases.db")
    assert main(["status", "--store", "sqlite:///leases.db", "--project", "pricing", "--json"]) == 1
    assert capsys.readouterr().out == "[]\n"
    assert list(project.glob("leases.db-holder-*")) == []


def test_a_server_that_will_do_is_told_with_version_policy_and_rights(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    found = report(capsys, "--store", server.url)
    assert {finding["level"] for finding in found["store"]} == {"ok"}
    texts = " ".join(finding["text"] for finding in found["store"])
    assert "the store answers" in texts
    assert "Redis " in texts or "Valkey " in texts
    assert "maxmemory-policy is noeviction" in texts
    assert "all rights" in texts


def test_a_password_is_never_printed(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    with server.client() as client:
        client.config_set("requirepass", "hush-hush")
    words = ("check", "check_jobs:app", "--store", server.url.replace("//", "//:hush-hush@"))
    assert main([*words]) == 0
    assert main([*words, "--json"]) == 0
    output = capsys.readouterr()
    assert "redis://***@127.0.0.1:" in output.out
    assert "hush" not in output.out + output.err


def test_missing_rights_are_exit_code_1_and_named(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    with server.client() as client:
        client.acl_setuser(
            "bob", enabled=True, passwords=["+pw"], keys=["*"], categories=["+@all"], commands=["-publish"]
        )
    found = report(capsys, "--store", server.url.replace("//", "//bob:pw@"), code=1)
    assert found["ok"] is False
    texts = [finding["text"] for finding in found["store"] if finding["level"] == "error"]
    assert any("user 'bob'" in text and "PUBLISH" in text for text in texts)


@pytest.mark.parametrize(
    ("rights", "pattern"),
    [
        ({"keys": ["*"], "reset_channels": True}, "&pricing:notice"),
        ({"keys": ["other:*"], "channels": ["*"]}, "~pricing:* and ~{pricing:*"),
        ({"keys": ["pricing:*"], "channels": ["*"]}, "~pricing:* and ~{pricing:*"),
    ],
)
def test_the_pattern_of_keys_or_channels_that_a_user_lacks_is_named(
    server: Server, rights: dict[str, Any], pattern: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with server.client() as client:
        client.acl_setuser("bob", enabled=True, passwords=["+pw"], categories=["+@all"], **rights)
    found = report(capsys, "--store", server.url.replace("//", "//bob:pw@"), code=1)
    texts = [finding["text"] for finding in found["store"] if finding["level"] == "error"]
    assert texts
    assert all("user 'bob'" in text and pattern in text for text in texts), texts


@pytest.mark.parametrize("command", ["EVAL", "EVALSHA", "SUBSCRIBE", "PING", "INFO"])
def test_a_command_that_the_server_does_not_know_is_named_and_no_replica_could_lead_without_it(
    project: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Server(KINDS[0], project, {"rename-command": f'{command} ""'}) as server:
        found = report(capsys, "--store", server.url, code=0 if command == "INFO" else 1)
        with server.client() as client:
            assert client.keys("*") == []
    texts = [finding["text"] for finding in found["store"] if finding["level"] in {"error", "warning"}]
    assert any(command in text and "unknown command" in text for text in texts), texts
    assert not any("redis.pcall" in text or "args beginning" in text for text in texts), "the text of a script"


def test_an_eviction_policy_that_may_throw_leases_away_is_a_warning(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    with server.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    found = report(capsys, "--store", server.url)
    assert [finding["text"] for finding in found["store"] if finding["level"] == "warning"] == [
        "maxmemory-policy is allkeys-lru: a lease may be thrown away while it is held; write noeviction"
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_replica_a_cluster_node_a_wrong_password_and_no_answer_are_exit_code_1(
    kind: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def error(url: str) -> str:
        (finding,) = [one for one in report(capsys, "--store", url, code=1)["store"] if one["level"] == "error"]
        return str(finding["text"])

    with Server(kind, project, {"replicaof": "127.0.0.1 1"}) as replica:
        assert "read-only replica; name the primary in the URL" in error(replica.url)
    assert "redis store: 127.0.0.1" in error(replica.url)
    with Server(kind, project, {"cluster-enabled": "yes"}) as node:
        assert "node of a Cluster" in error(node.url)
    with Server(kind, project, {"requirepass": "right"}) as guarded:
        assert "does not take the password" in error(guarded.url.replace("//", "//:wrong@"))


def test_a_directory_that_is_not_there_is_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "check_jobs:app", "--store", "sqlite:///absent/leases.db"]) == 1
    assert "error: sqlite store: the directory " in capsys.readouterr().out


def test_c107_the_app_is_found_by_app_dir_and_factory(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project.parent)
    words = ["check", "check_jobs:make_app", "--factory", "--app-dir", project.name, "--store", "memory"]
    assert main(words) == 0
    assert "job price-tick: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "variables", "expected"),
    [
        (["check_jobs:app"], {}, "store: missing or blank"),
        (["check_jobs:ap"], {}, "did you mean 'app'?"),
        (["check_jobs:app", "--store", "carrier-pigeon://loft"], {}, "is not a store"),
        (["check_jobs:app", "--store", "memory"], {"LOCK_EXPIRI": "3s"}, "SINGLETONJOB_LOCK_EXPIRI: there is no such"),
        (
            ["check_jobs:app", "--store", "memory"],
            {"JOBS__SYNC__LOCK_EXPIRY": "3s"},
            "[Job: sync] lock_expiry: 3 s is too short",
        ),
    ],
)
def test_c103_c107_a_configuration_that_is_wrong_is_one_line_and_exit_code_2(
    words: list[str],
    variables: dict[str, str],
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, text in variables.items():
        monkeypatch.setenv(f"SINGLETONJOB_{name}", text)
    assert main(["check", *words]) == 2
    output = capsys.readouterr()
    assert output.err.startswith("singletonjob check: ")
    assert expected in output.err
    assert output.err.count("\n") == 1
    assert output.out == ""


def test_the_late_limit_in_force_is_printed_for_each_policy(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = ["from singletonjob import SingletonJobs", 'app = SingletonJobs("pricing", "memory")']
    wanted: dict[str, float | None] = {}
    for number, (slots, words, limit) in enumerate(
        [
            ("0 3 * * *", "", 60.0),
            ("* * * * *", "", 30.0),
            ("* * * * *", "late_limit=None", None),
            ("* * * * *", "late_limit='2h'", 7200.0),
            ("* * * * *", "misfire='fire_once'", None),
            ("* * * * *", "misfire='fire_once', late_limit='1h'", 3600.0),
            ("* * * * *", "misfire='catch_up', late_limit=None", None),
        ]
    ):
        wanted[f"job-{number}"] = limit
        jobs.append(f"app.cron({slots!r}, name='job-{number}', {words})(lambda: None)")
    (workplace / "limits.py").write_text("\n".join(jobs))
    assert main(["check", "limits:app", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {name: job["options"]["late_limit"]["value"] for name, job in report["jobs"].items()} == wanted


def test_an_app_without_jobs_and_a_fixed_rate_of_days_are_warned_of(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = 'from singletonjob import SingletonJobs\napp = SingletonJobs("pricing", "memory")\n'
    (workplace / "none.py").write_text(head)
    (workplace / "weekly.py").write_text(f"{head}app.fixed_rate('7d', name='weekly')(lambda: None)")
    assert main(["check", "none:app"]) == 0
    assert "warning: the app has no jobs; write them in a module" in capsys.readouterr().out
    assert main(["next", "none:app"]) == 0
    assert "the app has no jobs" in capsys.readouterr().err
    assert main(["check", "weekly:app"]) == 0
    text = (
        "warning: weekly: a tick that comes while nobody leads is lost, and the next one comes 7 d later; write @app."
    )
    assert text in capsys.readouterr().out


def test_a_decorator_without_a_function_is_an_error_of_check_and_next(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = 'from singletonjob import SingletonJobs\napp = SingletonJobs("pricing", "memory")\n'
    (workplace / "bare.py").write_text(f"{head}@app.interval\ndef tick(): ...\n")
    for command in ("check", "next"):
        assert main([command, "bare:app"]) == 2
        assert "is no job yet: write @app.interval('1m'), with parentheses" in capsys.readouterr().err
