from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from singletonjob._core.errors import ConfigError
from singletonjob._jobs.options import APP_READERS, JOB_READERS, JobOptions, node_id, read, resolve, resolve_app

NAMED = {"project": "pricing", "store": "sqlite"}


def job_options(**given: object) -> JobOptions:
    return resolve(read(given, JOB_READERS))


def test_p04_only_project_and_store_are_needed_all_else_has_defaults() -> None:
    app = resolve_app(read(NAMED, APP_READERS))
    assert (app.project, app.store, app.node_id) == ("pricing", "sqlite", None)
    assert (app.stall_limit, app.amnesia_guard) == (60.0, True)
    job = app.of_job("price-tick", {})
    assert (job.heartbeat_interval, job.lock_expiry, job.margin, job.max_backoff_delay) == (3, 10, 1, 10)
    assert (job.enabled, job.cancel_on_lost_leadership, job.timeout) == (True, True, None)
    assert (job.shutdown_grace, job.warn_on_long_run, job.warning) == (20, True, None)
    assert job.call_timeout == 2


@pytest.mark.parametrize("blank", ["", " ", "\t", " \n "])
@pytest.mark.parametrize("name", ["project", "store"])
def test_p03_a_blank_project_or_store_is_refused_where_it_is_written(name: str, blank: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: missing or blank"):
        read({name: blank}, APP_READERS)


@pytest.mark.parametrize("name", ["project", "store"])
def test_p03_a_missing_project_or_store_is_one_error_that_tells_every_way_to_set_it(name: str) -> None:
    code = read({k: v for k, v in NAMED.items() if k != name} | {name: None}, APP_READERS)
    with pytest.raises(ConfigError) as caught:
        resolve_app(code)
    text = str(caught.value)
    for way in (
        f"{name}: missing",
        "SingletonJobs(",
        f"SINGLETONJOB_{name.upper()}=",
        f"--{name} ",
        "singletonjob.toml",
    ):
        assert way in text
    assert "\n" not in text


@pytest.mark.parametrize("name", ["a:b", "a b", "-a", ".a", "_a", "a\n", "é", "a" * 101, "{a}", "a/b", "١", 3, True])
def test_c22_a_project_name_that_could_blur_two_keys_is_refused(name: object) -> None:
    with pytest.raises(ConfigError, match=r"^project: .* cannot be a name; write 1 to 100 of"):
        read({"project": name}, APP_READERS)


@pytest.mark.parametrize("name", ["a", "7", "A.b_c-D", "a" * 100])
def test_a_plain_project_name_is_taken(name: str) -> None:
    assert read({"project": name}, APP_READERS) == {"project": name}


def test_a_store_object_is_taken_as_it_is() -> None:
    class Store:
        async def exchange(self) -> None: ...

    store = Store()
    assert read({"store": store}, APP_READERS)["store"] is store
    with pytest.raises(ConfigError, match=r"^store: 3 is no store; write a URL"):
        read({"store": 3}, APP_READERS)


@pytest.mark.parametrize(
    ("heartbeat", "expiry"), [(3, 10), (3, 7), (0.1, 0.3), ("250ms", "1s"), (timedelta(seconds=2), "PT5S")]
)
def test_c103_an_expiry_of_two_beats_and_a_margin_is_accepted(heartbeat: object, expiry: object) -> None:
    job_options(heartbeat_interval=heartbeat, lock_expiry=expiry)


@pytest.mark.parametrize(("heartbeat", "expiry"), [(30, 45), (10, 10), (10, 3), (0, 10), (3, 0), (3, 6.6)])
def test_c103_p07_an_expiry_too_short_for_its_heartbeat_is_a_value_error(heartbeat: float, expiry: float) -> None:
    with pytest.raises(ValueError, match=r"^(heartbeat_interval|lock_expiry): "):
        job_options(heartbeat_interval=heartbeat, lock_expiry=expiry, max_backoff_delay=60)


def test_p07_an_expiry_below_three_beats_is_allowed_with_a_warning() -> None:
    assert job_options(heartbeat_interval=3, lock_expiry=9).warning is None
    warning = job_options(heartbeat_interval=3, lock_expiry=8).warning
    assert warning is not None
    assert "lock_expiry (8 s) is below 3 x heartbeat_interval (3 s)" in warning


def test_the_margin_is_a_tenth_of_the_expiry_that_holds_in_the_end() -> None:
    assert resolve({"lock_expiry": 20.0}, {"lock_expiry": 60.0}).margin == 2
    assert resolve({}, {"lock_expiry": 60.0}).margin == 6
    assert resolve({"margin": 4.0}, {"lock_expiry": 60.0}).margin == 4


@pytest.mark.parametrize("margin", [0.5, 3.9])
def test_a_margin_from_a_twentieth_to_below_a_half_of_the_expiry_is_accepted(margin: float) -> None:
    assert job_options(margin=margin).margin == margin


@pytest.mark.parametrize("margin", [0.49, 5, 7])
def test_a_margin_outside_of_that_is_refused_with_the_bounds(margin: float) -> None:
    text = f"margin: {margin:g} s does not suit a lock_expiry of 10 s; write from lock_expiry / 20 (0.5 s)"
    with pytest.raises(ConfigError, match=f"^{re.escape(text)}"):
        job_options(margin=margin)


def test_a_sum_that_floats_cannot_hold_is_not_refused() -> None:
    assert 2 * 0.1 + 0.1 > 0.3
    job_options(heartbeat_interval=0.1, lock_expiry=0.3, margin=0.1)


def test_p08_a_back_off_limit_below_the_heartbeat_is_refused_naming_both() -> None:
    with pytest.raises(ConfigError, match=r"^max_backoff_delay: 10 s is below the heartbeat_interval of 12 s; write"):
        job_options(heartbeat_interval=12, lock_expiry=60)
    job_options(heartbeat_interval=12, lock_expiry=60, max_backoff_delay=12)


def test_what_a_refused_expiry_is_told_to_write_is_accepted() -> None:
    for given in ({"lock_expiry": 5}, {"lock_expiry": 6, "margin": 2.5}, {"heartbeat_interval": 8}):
        with pytest.raises(ConfigError, match=r"better [0-9.]+ s") as caught:
            job_options(**given)
        better = re.search(r"better ([0-9.]+) s", str(caught.value))
        assert better is not None
        job_options(**{**given, "lock_expiry": float(better[1])})


@pytest.mark.parametrize("name", ["heartbeat_interval", "lock_expiry", "margin", "max_backoff_delay", "timeout"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "3 seconds"])
def test_p06_p17_a_duration_that_cannot_be_used_is_refused_and_never_a_default(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"^\[Job: a\] {name}: "):
        read({name: value}, JOB_READERS, prefix="[Job: a] ")


def test_zero_grace_is_accepted_and_no_timeout_is_none() -> None:
    options = job_options(shutdown_grace=0, timeout=None)
    assert (options.shutdown_grace, options.timeout) == (0, None)


@pytest.mark.parametrize("value", [1, 0, "true", None])
@pytest.mark.parametrize("name", ["cancel_on_lost_leadership", "warn_on_long_run", "amnesia_guard"])
def test_a_flag_in_code_is_true_or_false(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: .* write True or False"):
        read({name: value}, APP_READERS)


async def live() -> bool:
    return True


@pytest.mark.parametrize("value", [True, False, live, lambda: False, lambda flag=True: flag])
def test_enabled_is_a_bool_or_a_function_without_parameters(value: Any) -> None:
    assert job_options(enabled=value).enabled is value


@pytest.mark.parametrize("value", [None, 1, "yes", lambda job: True])
def test_any_other_switch_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match=r"^enabled: .* is no switch; write True, False or a function"):
        job_options(enabled=value)


@pytest.mark.parametrize("value", [2.9, "2s", 0])
def test_a_stall_limit_below_three_seconds_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match=r"^stall_limit: .* write at least 3 s"):
        read({"stall_limit": value}, APP_READERS)
    assert read({"stall_limit": 3}, APP_READERS) == {"stall_limit": 3.0}


def test_an_unknown_option_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"^lock_expiri: there is no such option; did you mean lock_expiry\?"):
        read({"lock_expiri": 3}, APP_READERS)
    with pytest.raises(ConfigError, match=r"^\[Job: a\] zzz: there is no such option; write one of heartbeat_interval"):
        read({"zzz": 3}, JOB_READERS, prefix="[Job: a] ")


def test_p13_a_value_of_the_job_beats_the_app_s_and_the_rest_is_inherited() -> None:
    code = read({**NAMED, "lock_expiry": "20s", "timeout": "5m", "stall_limit": 10}, APP_READERS)
    app = resolve_app(code)
    job = app.of_job("a", read({"timeout": None, "heartbeat_interval": 2}, JOB_READERS))
    assert (job.lock_expiry, job.timeout, job.heartbeat_interval) == (20, None, 2)
    assert app.of_job("b", {}).timeout == 300
    assert app.stall_limit == 10


def test_p15_the_app_s_own_options_are_checked_even_if_no_job_uses_them() -> None:
    with pytest.raises(ConfigError, match=r"^lock_expiry: 4 s is too short"):
        resolve_app(read({**NAMED, "lock_expiry": 4}, APP_READERS))


def test_p15_a_rule_broken_for_one_job_names_it() -> None:
    app = resolve_app(read(NAMED, APP_READERS))
    with pytest.raises(ConfigError, match=r"^\[Job: price-tick\] lock_expiry: 4 s is too short"):
        app.of_job("price-tick", {"lock_expiry": 4.0})


def test_p14_options_are_frozen() -> None:
    with pytest.raises(AttributeError):
        job_options().lock_expiry = 3  # type: ignore[misc]  # the fault


def test_p02_a_node_id_is_the_option_else_the_pod_else_the_host_and_eight_hex(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "host")
    monkeypatch.delenv("POD_NAME", raising=False)
    assert re.fullmatch("host-[0-9a-f]{8}", node_id(None))
    monkeypatch.setenv("POD_NAME", " ")
    assert re.fullmatch("host-[0-9a-f]{8}", node_id(None))
    monkeypatch.setenv("POD_NAME", "pod-1")
    assert re.fullmatch("pod-1-[0-9a-f]{8}", node_id(None))
    assert re.fullmatch("rack-7-[0-9a-f]{8}", node_id("rack-7"))
    assert len({node_id("rack-7") for _ in range(20)}) == 20


@pytest.mark.parametrize("value", ["", " ", "a\nb", 3])
def test_a_node_id_that_cannot_be_read_back_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match=r"^node_id: .* cannot be a node id"):
        read({"node_id": value}, APP_READERS)


@pytest.mark.parametrize("expiry", [0.0004, 0.05, 0.0999])
def test_a_lease_that_a_late_timer_would_cost_is_refused(expiry: float) -> None:
    with pytest.raises(
        ConfigError, match=rf"^\[Job: tick\] lock_expiry: {expiry:g} s is too short, .* at least 0\.1 s$"
    ):
        resolve(
            {"lock_expiry": expiry, "heartbeat_interval": expiry / 4, "max_backoff_delay": 1.0}, prefix="[Job: tick] "
        )
    resolve({"lock_expiry": 0.1, "heartbeat_interval": 0.03})
