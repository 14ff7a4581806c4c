"""The reference pages against the program: nothing that is there is missing, and nothing else is told."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pytest

import singletonjob
from docs.cli_page import PAGE, written
from servers import OLDEST, Server
from singletonjob import ConfigError, SingletonJobs
from singletonjob._core.values import MisfireCause, Outcome, Reason
from singletonjob.stores import from_url
from singletonjob.stores.orders import Pause, StepDown, Trigger
from singletonjob.stores.protocol import Progress, TakeTrigger
from singletonjob.testing.contract.base import Replica

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).parents[2] / "docs"


def table(page: str, heading: str) -> dict[str, list[str]]:
    """The cells of the table whose first head is this, by the names in code in its first column."""
    text = (DOCS / page).read_text()
    _, _, rest = text.partition(f"\n| {heading} |")
    assert rest, f"{page} has no table headed {heading!r}"
    rows = [line.strip("|").split(" | ") for line in rest.partition("\n\n")[0].splitlines()[2:]]
    return {name: row[1:] for row in rows for name in re.findall(r"`([^`]+)`", row[0])}


def test_the_page_on_the_command_line_is_what_the_parsers_know() -> None:
    assert PAGE.read_text() == written(PAGE.read_text()), "run: sh scripts/docs cli"


def test_the_page_on_events_has_each_event_with_its_fields() -> None:
    events = {cls.__name__: [field.name for field in dataclasses.fields(cls)] for cls in get_args(singletonjob.Event)}
    told = {event: re.findall(r"`(\w+)`", cells[0]) for event, cells in table("events.md", "event").items()}
    assert told == events


def test_the_page_on_events_has_each_field_outcome_cause_and_reason() -> None:
    text = (DOCS / "events.md").read_text()
    fields = {field.name for cls in get_args(singletonjob.Event) for field in dataclasses.fields(cls)}
    assert fields == set(table("events.md", "field"))
    assert list(get_args(Reason)) == list(table("events.md", "reason"))
    assert [value for value in (*get_args(Outcome), *get_args(MisfireCause)) if f"`{value}`" not in text] == []


def test_the_page_on_errors_has_each_error_and_its_base() -> None:
    errors = {
        name: cls.__bases__[0]
        for name in singletonjob.__all__
        if isinstance(cls := getattr(singletonjob, name), type) and issubclass(cls, singletonjob.SingletonJobError)
    }
    text = (DOCS / "errors.md").read_text()
    for name, base in errors.items():
        row = rf"^\| `{name}`(.*?)\|"
        found = re.search(row, text, re.MULTILINE)
        assert found, f"errors.md lacks {name}"
        assert base in {Exception, singletonjob.SingletonJobError} or f"`{base.__name__}`" in found[1]


def test_the_error_that_the_page_shows_reads_so() -> None:
    with pytest.raises(ConfigError) as caught:
        SingletonJobs().fixed_rate("500ms", name="price-tick", lock_expiri=20)(print)  # type: ignore[call-arg]  # the slip
    assert f"```text\n{caught.value}\n```" in (DOCS / "errors.md").read_text()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(OLDEST, tmp_path) as server:
        yield server


async def test_the_page_on_keys_has_each_key_and_each_field_that_is_ever_written(server: Server) -> None:
    replica = Replica(from_url(server.url), "a")
    await replica.reply()
    await replica.token(number=1)
    await replica.release(number=1)
    token = await replica.token(number=2)
    await replica.claim(token, token)
    await replica.renew(token, Progress(done=token, ended_ago=0.1, outcome="ok", runs=1, finished="id;ok"))
    for order in (Trigger("j", "id", 5), StepDown("j"), Pause("j", "me"), TakeTrigger("j", token, "id")):
        await replica.ask(order)
    with server.client(decode_responses=True) as client:
        keys = {re.sub("^({?)p:", r"\1pricing:", str(key)).replace(":j:", ":price-tick:") for key in client.scan_iter()}
        fields = {str(field) for field in client.hkeys("{p:j:lock}:state")}
    await replica.store.close()
    assert keys | {"pricing:notice"} == set(table("redis-keys.md", "key"))
    assert fields == set(table("redis-keys.md", "field"))


def test_the_page_on_keys_explains_each_right_that_a_line_grants() -> None:
    lines = [
        line
        for page in ("redis.md", "operate.md", "redis-cluster.md")
        for line in re.findall(r"^ACL SETUSER .*", (DOCS / page).read_text(), re.MULTILINE)
    ]
    # On a Cluster the braces are around the project, in every key.
    lines = [line.replace("{pricing}", "pricing") for line in lines]
    granted = {right for line in lines for right in re.findall(r"[~&+][^ ]+", line) if "|" not in right}
    granted |= {"+select", "+srem", "+pubsub"}
    assert granted == set(table("redis-keys.md", "part"))
