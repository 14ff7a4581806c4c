"""What the probes answer, and the same answers through ASGI and WSGI by calls that follow the specifications."""

from __future__ import annotations

import importlib
import json
import re
import sys
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest

from singletonjob import Health, SingletonJobs
from singletonjob._reporting.health import HealthState
from singletonjob.probes import ROUTES, HealthASGI, HealthWSGI, answer

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

STUCK = Health.of({"a": "stuck", "b": "leading"}, ready=True)
FINE = Health.of({"a": "following"}, ready=True)
NEW = Health.of({"a": "disabled"}, ready=False)


@pytest.fixture
def app() -> SingletonJobs:
    return SingletonJobs("pricing", store="memory")


def body_of(health: Health) -> dict[str, object]:
    return {"status": health.status, "live": health.live, "ready": health.ready, "jobs": dict(health.jobs)}


# -- the answers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("health", "livez", "readyz"),
    [
        (FINE, 200, 200),
        (NEW, 200, 503),
        (STUCK, 503, 200),
        (Health.of({"a": "store_down"}, ready=True), 200, 200),
        (Health.of({"a": "starved"}, ready=True), 200, 200),
        (Health.of({"a": "paused"}, ready=True), 200, 200),
    ],
)
def test_livez_fails_for_stuck_alone_and_readyz_for_not_ready_alone_and_healthz_never(
    health: Health, livez: int, readyz: int, app: SingletonJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "health", lambda: health)
    found = {path: answer(app, "GET", path) for path in ("/livez", "/readyz", "/healthz")}
    assert {path: one.status for path, one in found.items()} == {"/livez": livez, "/readyz": readyz, "/healthz": 200}
    for one in found.values():
        assert one.content_type == "application/json"
        assert json.loads(one.body) == body_of(health)


@pytest.mark.parametrize("path", ["", "/", "/live", "/livez/", "/LIVEZ", "/health/livez", "/metrics/x"])
def test_any_other_path_is_not_found_and_the_answer_names_those_there_are(path: str, app: SingletonJobs) -> None:
    found = answer(app, "GET", path)
    assert found.status == 404
    assert found.body == b"there are /livez, /readyz, /healthz and /metrics\n"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "get", ""])
def test_any_method_but_get_and_head_is_not_allowed_wherever_it_goes(method: str, app: SingletonJobs) -> None:
    for path in ("/livez", "/metrics", "/nowhere"):
        found = answer(app, method, path)
        assert found.status == 405
        assert ("Allow", "GET, HEAD") in found.headers


def test_no_answer_may_be_kept_by_a_cache_and_each_says_how_long_it_is(app: SingletonJobs) -> None:
    for path in ("/livez", "/readyz", "/healthz", "/nowhere"):
        found = answer(app, "GET", path)
        assert {("Cache-Control", "no-store"), ("Content-Length", str(len(found.body)))} <= set(found.headers)


def test_without_prometheus_client_metrics_are_not_implemented_and_the_answer_names_the_extra(
    app: SingletonJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "singletonjob.prometheus", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "prometheus_client"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    found = answer(app, "GET", "/metrics")
    assert found.status == 501
    assert found.content_type.startswith("text/plain")
    assert found.body.decode() == "/metrics needs prometheus-client: pip install 'singletonjob[prometheus]'\n"


def test_an_import_of_the_collector_without_prometheus_client_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "singletonjob.prometheus", raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    for name in [name for name in sys.modules if name.startswith("prometheus_client.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'singletonjob\[prometheus\]'"):
        importlib.import_module("singletonjob.prometheus")


def test_with_prometheus_client_metrics_are_its_text(app: SingletonJobs) -> None:
    pytest.importorskip("prometheus_client")
    app.interval(1, name="poll")(lambda: None)
    found = answer(app, "GET", "/metrics")
    assert found.status == 200
    assert found.content_type.startswith("text/plain; version=")
    assert b"singletonjob_leader" in found.body


def test_a_module_that_is_missing_for_another_reason_is_no_missing_extra(
    app: SingletonJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "singletonjob.prometheus", None)
    with pytest.raises(ModuleNotFoundError, match=r"singletonjob\.prometheus"):
        answer(app, "GET", "/metrics")


# -- ASGI ----------------------------------------------------------------------------------------------------------


async def over_asgi(app: SingletonJobs, method: str, path: str, **scope: Any) -> tuple[int, dict[str, str], bytes]:
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        raise AssertionError("the body of a request is nobody's business here")

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    full = {"type": "http", "asgi": {"version": "3.0"}, "method": method, "path": path, "headers": [], **scope}
    await HealthASGI(app)(full, receive, send)
    start, body = sent
    assert (start["type"], body["type"]) == ("http.response.start", "http.response.body")
    assert type(start["status"]) is int
    assert all(type(part) is bytes for header in start["headers"] for part in header)
    return start["status"], {name.decode(): value.decode() for name, value in start["headers"]}, body["body"]


async def test_asgi_gives_the_same_answers(app: SingletonJobs) -> None:
    for method, path in [("GET", "/livez"), ("GET", "/readyz"), ("GET", "/nowhere"), ("POST", "/livez")]:
        expected = answer(app, method, path)
        status, headers, body = await over_asgi(app, method, path)
        assert (status, body) == (expected.status, expected.body)
        assert headers == {name.lower(): value for name, value in expected.headers}


async def test_asgi_answers_head_with_the_headers_of_get_alone(app: SingletonJobs) -> None:
    status, headers, body = await over_asgi(app, "HEAD", "/livez")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) == len(answer(app, "GET", "/livez").body)


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("/health/livez", "/health"),  # the specification
        ("/livez", "/health"),  # Starlette before 0.33
        ("/health/livez", "/api/health"),  # behind a proxy that took /api away, under a server that was told so
        ("/health/livez", "/health/"),
        ("/livez", ""),
    ],
)
async def test_asgi_answers_under_any_prefix(path: str, root: str, app: SingletonJobs) -> None:
    status, _, body = await over_asgi(app, "GET", path, root_path=root)
    assert status == 200
    assert json.loads(body)["live"] is True


@pytest.mark.parametrize("kind", ["websocket", "lifespan"])
async def test_asgi_serves_http_alone(kind: str, app: SingletonJobs) -> None:
    with pytest.raises(ValueError, match=f"serves http, not {kind}"):
        await over_asgi(app, "GET", "/livez", type=kind)


# -- WSGI ----------------------------------------------------------------------------------------------------------


def over_wsgi(app: SingletonJobs, method: str, path: str, prefix: str = "") -> tuple[str, dict[str, str], bytes]:
    environ: dict[str, Any] = {"REQUEST_METHOD": method, "PATH_INFO": path, "SCRIPT_NAME": prefix, "QUERY_STRING": ""}
    setup_testing_defaults(environ)
    started: list[tuple[str, dict[str, str]]] = []

    def start_response(status: str, headers: list[tuple[str, str]], _: object = None) -> Callable[[bytes], object]:
        started.append((status, dict(headers)))
        return lambda _: None

    parts = validator(HealthWSGI(app))(environ, start_response)
    body = b"".join(parts)
    parts.close()  # type: ignore[attr-defined]  # the validator's iterator has it
    return *started[0], body


def test_wsgi_gives_the_same_answers(app: SingletonJobs) -> None:
    for method, path in [("GET", "/livez"), ("GET", "/readyz"), ("GET", "/nowhere"), ("POST", "/livez")]:
        expected = answer(app, method, path)
        status, headers, body = over_wsgi(app, method, path)
        assert status == f"{expected.status.value} {HTTPStatus(expected.status).phrase}"
        assert body == expected.body
        assert headers == dict(expected.headers)


def test_wsgi_answers_head_with_the_headers_of_get_alone(app: SingletonJobs) -> None:
    status, headers, body = over_wsgi(app, "HEAD", "/livez")
    assert (status, body) == ("200 OK", b"")
    assert int(headers["Content-Length"]) == len(answer(app, "GET", "/livez").body)


@pytest.mark.parametrize(("prefix", "path"), [("/health", "/livez"), ("", "/health/livez"), ("/a/b", "/livez")])
def test_wsgi_answers_under_any_prefix(prefix: str, path: str, app: SingletonJobs) -> None:
    status, _, _ = over_wsgi(app, "GET", path, prefix)
    assert status == "200 OK"


# -- the documentation ---------------------------------------------------------------------------------------------


def test_the_page_on_health_has_every_state_and_every_path() -> None:
    page = (Path(__file__).parents[2] / "docs" / "health.md").read_text()
    first = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert sorted(first) == sorted([*get_args(HealthState), *ROUTES])
