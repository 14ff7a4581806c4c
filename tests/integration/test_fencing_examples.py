"""The examples of docs/fencing.md, as they stand on the page, against a real PostgreSQL and a real Redis."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from code_blocks import blocks
from postgres import postgres
from servers import KINDS, Server
from singletonjob import RunFinished, SingletonJobs
from singletonjob.stores.memory import MemoryStore
from singletonjob.testing import FlakyStore, run_once

if TYPE_CHECKING:
    from collections.abc import Generator

    import redis

    from singletonjob import Event

PAGE = Path(__file__).parents[2] / "docs/fencing.md"
BLOCKS = blocks(PAGE.read_text(), "docs/fencing.md")
TABLES = "\n".join(
    line for block in BLOCKS if block.language == "sql" for line in block.text.splitlines() if line.startswith("CREATE")
)
STATEMENT = next(block.text for block in BLOCKS if "INSERT INTO price" in block.text and block.language == "sql")
PATIENCE = 20.0


def module(title: str) -> Any:
    """The names that a file of the page defines."""
    (text,) = [block.text for block in BLOCKS if block.title == title]
    names: dict[str, Any] = {"__name__": title}
    exec(compile(text, title, "exec"), names)  # noqa: S102 - to run it is the point
    return names


@pytest.fixture(scope="module")
def uri() -> Generator[str]:
    with postgres(idle=60) as (found, _):
        yield found


class Database:
    """Connections to empty tables, closed at the end of the test."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self.open: list[Any] = []
        self._own = self.connect()
        self._own.autocommit = True
        self.execute(f"DROP TABLE IF EXISTS price, fence; {TABLES}")

    def connect(self) -> Any:
        import psycopg2

        connection = psycopg2.connect(self._uri)
        self.open.append(connection)
        return connection

    def execute(self, text: str) -> int:
        """How many rows it changed."""
        with self._own.cursor() as cursor:
            cursor.execute(text)
            return int(cursor.rowcount)

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        with self._own.cursor() as cursor:
            cursor.execute(text)
            return list(cursor.fetchall())

    @property
    def prices(self) -> list[tuple[Any, ...]]:
        return self.rows("SELECT symbol, value, token FROM price ORDER BY symbol")


@pytest.fixture
def database(uri: str) -> Generator[Database]:
    found = Database(uri)
    yield found
    for connection in found.open:
        connection.close()


@pytest.fixture(scope="module", params=KINDS)
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[redis.Redis]:
    with (
        Server(request.param, tmp_path_factory.mktemp("redis")) as server,
        server.client(decode_responses=True) as found,
    ):
        yield found


# -- PostgreSQL ----------------------------------------------------------------------------------------------------


def test_the_guarded_statement_changes_no_row_that_a_newer_term_has_written(database: Database) -> None:
    (insert,) = [part for part in STATEMENT.split(";") if "INSERT" in part]
    newer, older = insert.replace("33", "34").replace("41.5", "42.0"), insert
    assert database.execute(older) == 1
    assert database.execute(older) == 1, "the same term may write again"
    assert database.execute(newer) == 1
    assert database.execute(older) == 0
    assert database.prices == [("ACME", 42.0, 34)]


def test_a_run_of_an_older_term_fails_and_writes_nothing_not_even_a_row_that_is_not_there_yet(
    database: Database,
) -> None:
    page = module("prices.py")
    connection = database.connect()

    def tick(token: int, **prices: float) -> Any:
        return run_once(page["PriceTick"](connection, lambda: prices), token=token, reraise=False)

    big = 1_795_000_000_000_000  # a token of our days
    assert tick(big, ACME=1.0).outcome == "ok"
    assert tick(big, ACME=2.0).outcome == "ok", "the same term may write again"
    assert tick(big + 1, ACME=3.0).outcome == "ok"
    refused = tick(big, ACME=4.0, BOLT=4.0)
    assert (refused.outcome, type(refused.error)) == ("failed", page["StaleToken"])
    assert database.prices == [("ACME", 3.0, big + 1)]
    assert tick(big + 1, ACME=5.0, BOLT=5.0).outcome == "ok", "the connection is usable after a refusal"
    assert database.rows("SELECT job, token FROM fence") == [("price-tick", big + 1)]


@pytest.mark.parametrize("newer_first", [True, False])
def test_of_two_terms_that_write_at_the_same_moment_the_newer_one_has_the_last_word(
    database: Database, *, newer_first: bool
) -> None:
    page = module("prices.py")
    first, second = (34, 33) if newer_first else (33, 34)
    connection = database.connect()
    with connection.cursor() as cursor:  # the first one is in the middle of its transaction
        cursor.execute(page["FENCE"], ("tick", first))
        cursor.execute(page["PRICE"], ("ACME", float(first), first))
    outcomes: list[str] = []

    def write() -> None:
        try:
            page["publish"](database.connect(), "tick", second, {"ACME": float(second)})
        except page["StaleToken"]:
            outcomes.append("refused")
        else:
            outcomes.append("written")

    other = threading.Thread(target=write)
    other.start()
    blocked = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    while not database.rows(blocked):
        assert not outcomes, "it did not wait for the transaction before it"
    connection.commit()
    other.join(PATIENCE)
    assert outcomes == ["refused" if newer_first else "written"]
    assert database.prices == [("ACME", 34.0, 34)]


def test_a_leader_that_was_cut_off_and_writes_after_its_successor_is_refused(database: Database) -> None:
    page = module("prices.py")
    leases = MemoryStore()
    successor_wrote, in_its_run, refused = threading.Event(), threading.Event(), threading.Event()

    def cut_off_in_the_middle() -> dict[str, float]:
        in_its_run.set()
        assert successor_wrote.wait(PATIENCE)  # a sync body cannot be interrupted: its lease ends meanwhile
        return {"ACME": 33.0}

    def app(fetch: Any) -> tuple[SingletonJobs, FlakyStore]:
        way = FlakyStore(leases)
        jobs = SingletonJobs("pricing", store=way, lock_expiry=1, heartbeat_interval=0.3, shutdown_grace=5)
        jobs.add(page["PriceTick"](database.connect(), fetch))
        return jobs, way

    def was_refused(event: Event) -> None:
        if isinstance(event, RunFinished) and isinstance(event.error, page["StaleToken"]):
            refused.set()

    def wrote(event: Event) -> None:
        if isinstance(event, RunFinished) and event.outcome == "ok":
            successor_wrote.set()

    old, way = app(cut_off_in_the_middle)
    new, _ = app(lambda: {"ACME": 34.0})
    old.subscribe(was_refused)
    new.subscribe(wrote)
    with old.in_thread():
        assert in_its_run.wait(PATIENCE)
        way.down()
        with new.in_thread():
            assert successor_wrote.wait(PATIENCE)
            assert refused.wait(PATIENCE)
    assert [value for _, value, _ in database.prices] == [34.0]


# -- Redis ---------------------------------------------------------------------------------------------------------


def test_a_snapshot_of_an_older_term_is_refused_as_a_whole(client: redis.Redis) -> None:
    client.flushall()
    publish = module("snapshot.py")["publish_snapshot"]
    older = 1_795_000_000_000_001
    assert publish(client, "tick", older, {"bid": "1", "ask": "2"})
    assert publish(client, "tick", older, {"bid": "3", "ask": "4"}), "the same term may write again"
    assert publish(client, "tick", older + 1, {"bid": "5"})
    assert not publish(client, "tick", older, {"bid": "7", "ask": "8", "last": "9"})
    keys = ["{tick}:fence", "{tick}:bid", "{tick}:ask", "{tick}:last"]
    assert client.mget(keys) == [str(older + 1), "5", "4", None], "the token is kept digit for digit"


def test_each_job_has_a_fence_of_its_own(client: redis.Redis) -> None:
    client.flushall()
    publish = module("snapshot.py")["publish_snapshot"]
    assert publish(client, "tick", 34, {"bid": "1"})
    assert publish(client, "other", 33, {"bid": "2"})
    assert client.get("{other}:bid") == "2"
