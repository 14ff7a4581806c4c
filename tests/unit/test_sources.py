"""Options from code, environment and file: what beats what, and what is said of that which does not hold."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from singletonjob import ConfigError, ScheduleError, SingletonJobs
from singletonjob._core.schedule import CronSchedule, FixedRateSchedule
from singletonjob._jobs.options import APP_READERS, read
from singletonjob._jobs.registry import Registry
from singletonjob._jobs.sources import Resolved, resolve_sources, told

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class Jobs(Registry):
    """An app's jobs, to be resolved without an app: `price-tick`, `report` and whatever else is added."""

    def __init__(self, **price_tick: Any) -> None:
        super().__init__()
        self.fixed_rate("500ms", **price_tick)(body("price_tick"))
        self.cron("0 3 * * *", tz="Asia/Singapore")(body("report"))

    def resolved(self, code: Mapping[str, object] | None = None, /, **environ: str) -> Resolved:
        """With project and store in code, and variables without their prefix."""
        given = {"project": "pricing", "store": "memory", **(code or {})}
        variables = {f"SINGLETONJOB_{name}": text for name, text in environ.items()}
        return resolve_sources(read(given, APP_READERS), self._jobs.values(), variables)


def body(name: str) -> Any:
    def run() -> None: ...

    run.__name__ = run.__qualname__ = name
    return run


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str, name: str = "singletonjob.toml") -> None:
    from pathlib import Path

    Path(name).write_text(text)


# -- what beats what -----------------------------------------------------------------------------------------------


def test_within_the_app_code_beats_the_environment_beats_the_file_beats_the_default() -> None:
    write('lock_expiry = "40s"\nheartbeat_interval = "4s"\nmax_backoff_delay = 25')
    found = Jobs().resolved({"lock_expiry": 20}, LOCK_EXPIRY="30s", HEARTBEAT_INTERVAL="5s")
    assert found.app["lock_expiry"] == (20, "code")
    assert found.app["heartbeat_interval"] == (5, "environment SINGLETONJOB_HEARTBEAT_INTERVAL")
    assert found.app["max_backoff_delay"] == (25, "file singletonjob.toml: max_backoff_delay")
    assert "margin" not in found.app
    job = found.of_job("price-tick")
    assert (job.lock_expiry, job.heartbeat_interval, job.max_backoff_delay, job.margin) == (20, 5, 25, 2)


def test_within_a_job_code_beats_the_environment_beats_the_file() -> None:
    write('[jobs.price-tick]\ntimeout = "3s"\nshutdown_grace = "3s"\nlock_expiry = "13s"')
    found = Jobs(timeout="1s").resolved(JOBS__PRICE_TICK__TIMEOUT="2s", JOBS__PRICE_TICK__SHUTDOWN_GRACE="2s")
    settings = found.of_jobs["price-tick"]
    assert settings["timeout"] == (1, "code")
    assert settings["shutdown_grace"] == (2, "environment SINGLETONJOB_JOBS__PRICE_TICK__SHUTDOWN_GRACE")
    assert settings["lock_expiry"] == (13, "file singletonjob.toml: jobs.price-tick.lock_expiry")


def test_a_value_of_the_job_in_the_file_beats_one_of_the_app_in_code() -> None:
    write('[jobs.price-tick]\nlock_expiry = "30s"')
    found = Jobs().resolved({"lock_expiry": 20}, LOCK_EXPIRY="25s")
    assert found.of_job("price-tick").lock_expiry == 30
    assert found.of_job("report").lock_expiry == 20


def test_the_options_to_start_with_hold_the_same() -> None:
    write("stall_limit = 90\n[jobs.price-tick]\nenabled = false")
    found = Jobs().resolved(NODE_ID="rack-7", SHUTDOWN_GRACE="1s")
    options = found.options()
    assert (options.project, options.store, options.node_id, options.stall_limit) == ("pricing", "memory", "rack-7", 90)
    for job in found.jobs:
        own = options.of_job(job.name, job.overrides)
        assert own == found.of_job(job.name)
        assert (own.enabled, own.shutdown_grace) == (job.name != "price-tick", 1)


def test_project_and_store_come_from_environment_or_file_and_code_beats_them() -> None:
    write('project = "from-file"\nstore = "sqlite"')
    environ = {"SINGLETONJOB_PROJECT": "from-env", "SINGLETONJOB_STORE": "memory"}
    options = resolve_sources({}, (), {}).options()
    assert (options.project, options.store) == ("from-file", "sqlite")
    options = resolve_sources({}, (), environ).options()
    assert (options.project, options.store) == ("from-env", "memory")
    options = resolve_sources(read({"project": "from-code"}, APP_READERS), (), environ).options()
    assert (options.project, options.store) == ("from-code", "memory")


def test_p03_a_blank_project_in_the_environment_is_as_good_as_none() -> None:
    with pytest.raises(ConfigError, match=r"^project: missing or blank; .*[^)]$"):
        resolve_sources({}, (), {"SINGLETONJOB_PROJECT": "\t", "SINGLETONJOB_LOCK_EXPIRY": "20s"}).options()


def test_p16_a_job_is_named_in_the_environment_in_capitals_with_underscores() -> None:
    jobs = Jobs()
    jobs.interval("1s", name="a__b.c-")(body("x"))
    assert jobs.resolved(JOBS__A__B_C___TIMEOUT="5s").of_job("a__b.c-").timeout == 5


# -- how values are written ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["true", "1", "yes", "on", "True", "YES", " On "])
def test_what_means_on(text: str) -> None:
    assert Jobs().resolved(WARN_ON_LONG_RUN=text).app["warn_on_long_run"].value is True


@pytest.mark.parametrize("text", ["false", "0", "no", "off", "False", "NO", "oFf"])
def test_what_means_off(text: str) -> None:
    assert Jobs().resolved(JOBS__PRICE_TICK__ENABLED=text).of_job("price-tick").enabled is False


@pytest.mark.parametrize("text", ["", "2", "enabled", "y", "none"])
def test_p17_any_other_word_for_a_flag_is_refused(text: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^environment SINGLETONJOB_ENABLED: '.*' is neither on nor off; write true or false"
    ):
        Jobs().resolved(ENABLED=text)


@pytest.mark.parametrize(("text", "value"), [("true", True), ('"off"', False), ("1", True), ("0", False)])
def test_a_flag_in_the_file(text: str, value: bool) -> None:
    write(f"amnesia_guard = {text}")
    assert Jobs().resolved().app["amnesia_guard"].value is value


def test_no_timeout_is_written_as_none_in_text_and_as_null_in_json() -> None:
    write(json.dumps({"jobs": {"report": {"timeout": None}}}), "options.json")
    found = Jobs(timeout="9s").resolved({"timeout": 5}, CONFIG="options.json")
    assert (found.of_job("report").timeout, found.of_job("price-tick").timeout) == (None, 9)
    assert Jobs().resolved({"timeout": 5}, JOBS__REPORT__TIMEOUT="None").of_job("report").timeout is None


# -- options of one shape ------------------------------------------------------------------------------------------


def test_options_of_one_shape_come_from_environment_and_file_below_code() -> None:
    write(
        '[jobs.price-tick]\noffset = "100ms"\n[jobs.report]\ntz = "Europe/Berlin"\nlate_limit = 30\ncatch_up_limit = 4'
    )
    found = Jobs().resolved(JOBS__REPORT__MISFIRE="catch_up", JOBS__REPORT__CATCH_UP_LIMIT="3")
    tick, report = (job.schedule for job in found.jobs)
    assert isinstance(tick, FixedRateSchedule)
    assert isinstance(report, CronSchedule)
    assert tick.offset == 100_000
    assert (report.cron.tz, report.misfire, report.catch_up_limit) == ("Asia/Singapore", "catch_up", 3)
    assert report.late_limit == 30
    assert found.of_jobs["report"]["tz"] == ("Asia/Singapore", "code")


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("REPORT__TZ", "Europe/Berln", "time zone 'Europe/Berln' is not known"),
        ("REPORT__TZ", "EST5", "time zone 'EST5' is not known"),
        ("REPORT__TZ", "", "time zone '' is not known"),
        ("REPORT__MISFIRE", "sometimes", "'sometimes' is not known; write skip"),
        ("REPORT__CATCH_UP_LIMIT", "0", "0 is no number of slots"),
        ("REPORT__CATCH_UP_LIMIT", "ten", "'ten' is no number of slots"),
        ("REPORT__CATCH_UP_LIMIT", "100000", "100000 is out of range"),
        ("REPORT__LATE_LIMIT", "0", "must be greater than zero"),
        ("PRICE_TICK__OFFSET", "-1s", "'-1s' is not a duration"),
    ],
)
def test_c106_p17_a_bad_value_of_a_schedule_names_its_variable(variable: str, text: str, expected: str) -> None:
    jobs = Jobs()
    jobs.cron("@hourly", name="other")(body("other"))
    # A value that code overrides is a bad value all the same.
    with pytest.raises(ConfigError) as caught:
        jobs.resolved(**{f"JOBS__{variable}": text})
    assert str(caught.value).startswith(f"environment SINGLETONJOB_JOBS__{variable}: ")
    assert expected in str(caught.value)


def test_c106_a_zone_from_the_file_is_not_a_guess_either() -> None:
    write('[jobs.hourly]\ntz = "Mars/Olympus"')
    jobs = Jobs()
    jobs.cron("@hourly", name="hourly")(body("hourly"))
    with pytest.raises(ScheduleError, match=r"^file singletonjob.toml: jobs.hourly.tz: time zone 'Mars/Olympus'"):
        jobs.resolved()


# -- what is wrong, and where it is written --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('lock_expiri = "3s"', "lock_expiri: there is no such option; did you mean lock_expiry?"),
        ('lock_expiry = "3 parsecs"', "lock_expiry: '3 parsecs' is not a duration"),
        ("lock_expiry = nan", "lock_expiry: nan is not a duration"),
        ("enabled = 2", "enabled: 2 is neither on nor off"),
        ("enabled = 1.0", "enabled: 1.0 is neither on nor off"),
        ("store = 3", "store: 3 is no store"),
        ('project = "a:b"', "project: 'a:b' cannot be a name"),
        ('project = " "', "project: project: missing or blank"),
        ('tz = "UTC"', "tz: this is an option of one job; write it below [jobs.NAME]"),
        ('[app]\nenabled = "no"', "app: there is no such option"),
        ("jobs = 3", "jobs: 3 is no table; write [jobs.NAME]"),
        ("[jobs]\nprice-tick = 3", "jobs.price-tick: 3 is no table; write [jobs.price-tick]"),
        ("[jobs.price-tick]\ntimeuot = 3", "jobs.price-tick.timeuot: there is no such option; did you mean timeout?"),
        ('[jobs.price-tick]\ntimeout = "soon"', "jobs.price-tick.timeout: 'soon' is not a duration"),
        ('[jobs.price-tick]\nevery = "1s"', "jobs.price-tick.every: this is written in code only"),
        ('[jobs.report]\nexpression = "@daily"', "jobs.report.expression: this is written in code only"),
        ('[jobs.price-tick]\nname = "x"', "jobs.price-tick.name: this is written in code only"),
        ("[jobs.price-tick]\nstall_limit = 9", "jobs.price-tick.stall_limit: this is an option of the app"),
        ('[jobs.price-tick]\ntz = "UTC"', "jobs.price-tick.tz: fixed_rate jobs have no such option"),
        ("lock_expiry = ", "Invalid value"),
        ("a = 1\na = 2", "Cannot overwrite"),
    ],
)
def test_p17_an_error_names_the_file_the_job_and_the_key(text: str, expected: str) -> None:
    write(text)
    with pytest.raises(ConfigError) as caught:
        Jobs().resolved()
    assert str(caught.value).startswith("file singletonjob.toml: ")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("LOCK_EXPIRI", "3s", "there is no such option; did you mean lock_expiry?"),
        ("LOCK_EXPIRY", "", "'' is not a duration"),
        ("PROJECT", "a:b", "'a:b' cannot be a name"),
        ("NODE_ID", "", "'' cannot be a node id"),
        ("STALL_LIMIT", "2s", "2 s is too short"),
        ("EVERY", "3s", "this is written in code only"),
        ("JOBS__PRICE_TICK", "3s", "names no job's option; write SINGLETONJOB_JOBS__JOB__OPTION"),
        ("JOBS__PRICE_TICK__", "3s", "names no job's option"),
        ("JOBS__PRICE_TICK__TIMEUOT", "3s", "there is no such option; did you mean timeout?"),
        ("JOBS__PRICE_TICK__EVERY", "3s", "this is written in code only"),
        ("JOBS__PRICE_TICK__PROJECT", "x", "this is an option of the app"),
    ],
)
def test_p17_an_error_names_the_variable(variable: str, text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Jobs().resolved(**{variable: text})
    assert str(caught.value).startswith(f"environment SINGLETONJOB_{variable}: ")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_c103_an_expiry_too_short_for_its_heartbeat_says_where_it_is_written() -> None:
    write('[jobs.price-tick]\nlock_expiry = "45s"')
    with pytest.raises(ValueError, match=r"^\[Job: price-tick\] lock_expiry: 45 s is too short") as caught:
        Jobs().resolved({"heartbeat_interval": 30, "lock_expiry": 90, "max_backoff_delay": 60}).options()
    assert str(caught.value).endswith("(lock_expiry is from file singletonjob.toml: jobs.price-tick.lock_expiry)")


@pytest.mark.parametrize(("heartbeat", "expiry"), [("30", "45s"), ("10s", "10s"), ("10", "3"), ("0", "10"), ("3", "0")])
def test_c103_bad_pairs_from_the_environment_are_refused(heartbeat: str, expiry: str) -> None:
    with pytest.raises(ValueError, match=r"SINGLETONJOB_(HEARTBEAT_INTERVAL|LOCK_EXPIRY)"):
        Jobs().resolved(HEARTBEAT_INTERVAL=heartbeat, LOCK_EXPIRY=expiry, MAX_BACKOFF_DELAY="60s").options()


# -- the file ------------------------------------------------------------------------------------------------------


def test_a_file_named_by_the_environment_is_read_instead_of_the_usual_one(directory: Path) -> None:
    write("stall_limit = 70")
    (directory / "etc").mkdir()
    write("stall_limit = 80", "etc/jobs.toml")
    write('{"stall_limit": "90s"}', "etc/jobs.json")
    assert Jobs().resolved().app["stall_limit"].value == 70
    assert Jobs().resolved(CONFIG=" ").app["stall_limit"].value == 70
    assert Jobs().resolved(CONFIG="etc/jobs.toml").app["stall_limit"].value == 80
    assert Jobs().resolved(CONFIG="etc/jobs.json").app["stall_limit"] == (90, "file etc/jobs.json: stall_limit")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("absent.toml", None, "SINGLETONJOB_CONFIG: there is no file 'absent.toml'"),
        ("jobs.yaml", "a: 1", "SINGLETONJOB_CONFIG: 'jobs.yaml' is neither TOML nor JSON"),
        ("jobs.json", "[1]", "file jobs.json: its outermost value is no object"),
        ("jobs.json", "{", "file jobs.json: "),
        ("jobs.json", '{"stall_limit": 5, "stall_limit": 6}', "file jobs.json: 'stall_limit' is there twice"),
        ("jobs.toml", "\udcff", "file jobs.toml: "),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(name: str, text: str | None, expected: str, directory: Path) -> None:
    if text is not None:
        (directory / name).write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigError) as caught:
        Jobs().resolved(CONFIG=name)
    assert str(caught.value).startswith(expected)
    assert "\n" not in str(caught.value)


def test_a_directory_in_the_place_of_the_file_is_told(directory: Path) -> None:
    (directory / "singletonjob.toml").mkdir()
    with pytest.raises(ConfigError, match=r"^file singletonjob.toml: cannot be read \(Is a directory\)"):
        Jobs().resolved()


def test_what_kubernetes_sets_for_a_service_of_our_name_is_no_option() -> None:
    Jobs().resolved(
        SERVICE_HOST="10.0.0.1",
        SERVICE_PORT="80",
        SERVICE_PORT_HTTP="80",
        PORT="tcp://10.0.0.1:80",
        PORT_80_TCP="tcp://10.0.0.1:80",
        PORT_80_TCP_ADDR="10.0.0.1",
        DEMO_SERVICE_HOST="10.0.0.2",
        DEMO_PORT_6379_TCP_PROTO="tcp",
    )


# -- what is told --------------------------------------------------------------------------------------------------


def test_a_weaker_source_that_says_something_else_is_named_once() -> None:
    write('lock_expiry = "20s"\nshutdown_grace = 3')
    found = Jobs().resolved({"lock_expiry": 20}, LOCK_EXPIRY="30s")
    assert [(note.event, note.job, note.text) for note in found.notes] == [
        (
            "option-overridden",
            None,
            "lock_expiry is 20 s by code; environment SINGLETONJOB_LOCK_EXPIRY says 30 s and is weaker",
        )
    ]


def test_a_value_of_the_app_that_a_job_overrides_from_elsewhere_is_named_for_that_job() -> None:
    found = Jobs(shutdown_grace=1).resolved(SHUTDOWN_GRACE="0s")
    (note,) = found.notes
    assert note.job == "price-tick"
    assert note.text == "shutdown_grace is 1 s by code; environment SINGLETONJOB_SHUTDOWN_GRACE says 0 s and is weaker"


def test_a_job_s_own_value_beside_the_app_s_is_nothing_to_tell_where_both_stand_in_code() -> None:
    assert Jobs(lock_expiry=12).resolved({"lock_expiry": 20}).notes == ()


def test_an_unknown_job_is_a_warning_that_names_the_place() -> None:
    write("[jobs.price-tik]\ntimeout = 3\n[jobs.empty]")
    found = Jobs().resolved(JOBS__OLD__ANYTHING="1")
    assert [(note.event, note.text) for note in found.notes] == [
        (
            "unknown-job",
            "environment SINGLETONJOB_JOBS__OLD__ANYTHING: there is no job 'OLD'; write one of PRICE_TICK, REPORT",
        ),
        (
            "unknown-job",
            "file singletonjob.toml: jobs.price-tik.timeout: there is no job 'price-tik'; did you mean price-tick?",
        ),
        ("unknown-job", "the file's jobs.empty: there is no job 'empty'; write one of price-tick, report"),
    ]


def test_two_jobs_with_one_name_in_the_environment_are_refused_naming_both_places() -> None:
    jobs = Jobs()
    jobs.interval("1s", name="price.tick")(body("x"))
    with pytest.raises(ConfigError, match=r"\[Job: price.tick\] SINGLETONJOB_JOBS__PRICE_TICK__") as caught:
        jobs.resolved()
    assert str(caught.value).count("test_sources.py:") == 2


def test_the_password_of_a_store_is_never_told() -> None:
    found = Jobs().resolved({"store": "redis://u:one@a:1/0"}, STORE="redis://:t@wo@b:2/0")
    (note,) = found.notes
    assert note.text == (
        "store is redis://***@a:1/0 by code; environment SINGLETONJOB_STORE says redis://***@b:2/0 and is weaker"
    )
    assert told("store", "redis://cache:6379/0") == "redis://cache:6379/0"
    assert "secret" not in told("store", "redis:secret@cache")
    assert "secret" not in told("store", "redis://cache/0?password=secret")
    for password in ("sec?ret", "sec@ret?more", "sec?ret@more"):
        assert told("store", f"redis://user:{password}@cache/0") == "redis://***"


async def test_the_log_says_it_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    write('lock_expiry = "30s"\n[jobs.gone]\ntimeout = 3')
    app = SingletonJobs("pricing", "memory", lock_expiry=10)
    app.interval("1h", name="tick")(body("tick"))
    with caplog.at_level(logging.INFO, "singletonjob"):
        async with app:
            pass
    said = [(r.levelname, r.event) for r in caplog.records if r.event in {"option-overridden", "unknown-job"}]  # type: ignore[attr-defined]  # each has it
    assert sorted(said) == [("INFO", "option-overridden"), ("WARNING", "unknown-job")]


def test_a_start_with_a_bad_option_in_the_environment_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINGLETONJOB_LOCK_EXPIRY", "soon")
    app = SingletonJobs("pricing", "memory")
    with pytest.raises(ConfigError, match=r"^environment SINGLETONJOB_LOCK_EXPIRY: 'soon' is not a duration"):
        app.start()


@pytest.mark.parametrize("off", ["both", "one", "none at all"])
def test_an_app_of_which_all_jobs_are_off_needs_no_store(off: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINGLETONJOB_JOBS__PRICE_TICK__ENABLED", "no" if off != "none at all" else "yes")
    monkeypatch.setenv("SINGLETONJOB_JOBS__REPORT__ENABLED", "no" if off == "both" else "yes")
    app = SingletonJobs("pricing")
    app.fixed_rate("500ms")(body("price_tick"))
    app.cron("0 3 * * *")(body("report"))
    if off != "both":
        with pytest.raises(ConfigError, match="store: missing"):
            app.start()
        return
    with app.in_thread():
        assert app.health().ready
        assert set(app.health().jobs.values()) == {"disabled"}
