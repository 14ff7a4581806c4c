"""A user with exactly the rights that docs/redis.md lists: all works with them, and `check` names a missing one."""

from __future__ import annotations

import json
import re
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.test_redis_store import RIGHTS
from servers import KINDS, Server
from singletonjob.cli import main
from singletonjob.stores.protocol import Granted, Released
from singletonjob.stores.redis.address import address_from_url
from singletonjob.stores.redis.store import RedisStore
from store_calls import acquire, ask, opened, release, token_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis

DOCS = Path(__file__).parents[2] / "docs" / "redis.md"

(LINE,) = re.findall(r"^ACL SETUSER worker (.*)$", DOCS.read_text(), re.MULTILINE)
LISTED = [right.replace("pricing:", "p:") for right in LINE.split() if right not in {"on", ">secret"}]
"""The rights of project `p`, as the docs list them."""

APP = """
from singletonjob import SingletonJobs
app = SingletonJobs("p")

@app.fixed_rate("1s")
async def j() -> None: ...
"""


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(request.param, tmp_path_factory.mktemp("server")) as server:
        yield server


def test_the_docs_list_the_rights_that_the_tests_of_the_store_use() -> None:
    assert {*LISTED, "+select"} == set(RIGHTS)
    assert {"+select", "+smembers"} <= set(re.findall(r"`(\+\w+)`", DOCS.read_text()))


async def test_c88_with_the_documented_rights_leases_notices_status_and_check_all_work(
    server: Server, client: redis.Redis
) -> None:
    url = server.user(*LISTED, "+smembers")
    async with opened(url) as store, aclosing(store.notices("p")) as notices:
        assert await anext(notices) == frozenset()
        token = await token_of(store)
        assert [(view.job, view.holder, view.token) for view in await store.peek("p")] == [("j", "me", token)]
        assert {finding.level for finding in await store.inspect("p")} == {"ok"}
        assert await ask(store, release()) == Released(mine=True)
        heard = await anext(notices)
        while heard != {"j"}:  # the inspection published something, too
            heard = await anext(notices)
        assert isinstance(await ask(store, acquire(2)), Granted)
    assert client.keys("p:check*") == []


@pytest.mark.parametrize("right", [right for right in LISTED if right.startswith("+") and right != "+eval"])
async def test_c88_each_missing_command_is_named_by_an_inspection(
    server: Server, client: redis.Redis, right: str
) -> None:
    url = server.user(*(one for one in LISTED if one != right), "+smembers")
    store = RedisStore(address_from_url(url))
    level = "warning" if right == "+info" else "error"
    texts = [finding.text for finding in await store.inspect("p") if finding.level == level]
    assert len(texts) == 1
    assert right[1:].upper() in texts[0]
    await store.close()


async def test_without_the_right_to_list_the_names_status_fails_and_check_warns_of_that_alone(
    server: Server, client: redis.Redis
) -> None:
    store = RedisStore(address_from_url(server.user(*LISTED)))
    findings = await store.inspect("p")
    assert [finding.text for finding in findings if finding.level == "error"] == []
    (warning,) = [finding.text for finding in findings if finding.level == "warning"]
    assert warning.startswith("`singletonjob status` will fail: ")
    assert "has not the right for SMEMBERS" in warning
    await store.close()


@pytest.mark.parametrize(
    ("missing", "named"), [("+eval", "EVAL"), ("+publish", "PUBLISH"), ("&p:*", "SUBSCRIBE"), ("~p:*", "EVAL")]
)
def test_c88_check_and_status_name_what_is_missing(
    server: Server,
    client: redis.Redis,
    missing: str,
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "rights_jobs.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    url = server.user(*(right for right in LISTED if right != missing))
    assert main(["check", "rights_jobs:app", "--store", url, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["store"]
    errors = [finding["text"] for finding in found if finding["level"] == "error"]
    assert any(f"has not the right for {named}" in text for text in errors), errors
    assert main(["status", "--store", url, "--project", "p"]) == 1
    said = capsys.readouterr()
    assert "has not the right for SMEMBERS" in said.out + said.err
