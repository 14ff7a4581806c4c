"""The verbs on real stores and real processes; `sh scripts/soak verbs` measures them at default settings."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from operated import OPERATED, give, many, paused, stepped_down, triggered
from redis_replicas import RedisFleet, old_enough
from replicas import TICK, Fleet, boot
from servers import OLDEST, Server
from singletonjob._core.errors import ConfigError, StoreError
from singletonjob.cli import main
from singletonjob.cli.demo_report import overlaps
from singletonjob.control import Control
from waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).parents[2] / "docs"

OPTIONS = {"lock_expiry": "1s", "heartbeat_interval": "300ms", "max_backoff_delay": "1s"}

RIGHTS = (DOCS / "operate.md").read_text().partition("ACL SETUSER operator")[2].partition("\n")[0]
DOCUMENTED = re.findall(r"\+(\w+)", RIGHTS)

SOON = 1.5
"""Several times what is promised, for a busy machine."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(OLDEST, tmp_path_factory.mktemp("server")) as server:
        old_enough(server, 2)
        yield server


@pytest.fixture
def redis_fleet(tmp_path: Path, server: Server) -> Iterator[RedisFleet]:
    with RedisFleet(tmp_path, server, **OPTIONS) as fleet:
        fleet.client.flushall()
        yield fleet


@pytest.fixture
def sqlite_fleet(tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(tmp_path, **OPTIONS) as fleet:
        yield fleet


@pytest.fixture(params=["redis", "sqlite"])
def fleet(request: pytest.FixtureRequest) -> Fleet:
    found: Fleet = request.getfixturevalue(f"{request.param}_fleet")
    return found


def control(fleet: Fleet) -> Control:
    return Control("pricing", fleet.store)


def test_a_pause_lets_no_run_start_outlives_every_replica_and_ends_when_it_is_resumed(fleet: Fleet) -> None:
    first = [fleet.start(OPERATED) for _ in range(2)]
    wait_for(fleet.runs, what="the first run")
    done = paused(fleet, rest=1.0)
    assert done.latest is None or done.latest < SOON / 2
    assert done.resumed < SOON
    give(control(fleet).pause("tick", reason="feed is down"))
    wait_for(lambda: fleet.lease().holder is None, what="the release")
    for replica in first:
        replica.signal(signal.SIGKILL)
        replica.end()
    killed = boot()
    fleet.start(OPERATED)
    wait_for(lambda: fleet.lease("hourly").since > killed, what="a leader of the other job, which is not paused")
    time.sleep(1)
    assert fleet.starts(after=killed) == []
    give(control(fleet).resume("tick"))
    wait_for(lambda: fleet.starts(after=killed), what="a run")


def test_stepping_down_moves_the_lease_to_another_replica_and_two_never_run(fleet: Fleet) -> None:
    for _ in range(3):
        fleet.start(OPERATED)
    wait_for(lambda: all(replica.log("started") for replica in fleet.replicas.values()), what="all")
    wait_for(fleet.runs, what="the first run")
    time.sleep(0.5)  # they hear notices now
    for _ in range(4):
        done = stepped_down(fleet)
        assert done.new != done.old
        assert done.taken < SOON
    assert overlaps(fleet.runs()) == []


def test_a_sole_replica_that_steps_down_is_idle_for_its_lease_at_most_and_the_verb_says_so(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.start(TICK)
    wait_for(fleet.runs, what="the first run")
    given = boot()
    assert main(["step-down", "tick", "--project", "pricing", "--store", fleet.store]) == 0
    assert "nobody else took it" in capsys.readouterr().out
    wait_for(lambda: fleet.starts(after=given + 0.9), what="a run, when its time is over")


def test_a_trigger_makes_one_extra_run_and_none_while_one_is_in_flight(fleet: Fleet) -> None:
    fleet.start(
        OPERATED
        + """
@app.interval("1h", name="endless")
async def endless() -> None:
    with stamped("endless"):
        await asyncio.sleep(3600)
"""
    )
    for job in ("hourly", "endless"):
        wait_for(lambda job=job: fleet.runs(job), what="the first run")  # type: ignore[misc]  # binds it
    for _ in range(3):
        result, starts = triggered(fleet)
        assert result.outcome == "started"
        assert result.holder is not None
        time.sleep(0.7)  # more than two beats: taken twice, it would have run by now
        assert len(starts) == 1
    assert len(fleet.runs("hourly")) == 4
    result, starts = triggered(fleet, job="endless")
    assert (result.outcome, starts) == ("busy", [])


def test_a_trigger_that_nobody_takes_is_withdrawn_and_never_runs(fleet: Fleet) -> None:
    leader = fleet.start(OPERATED)
    wait_for(lambda: fleet.runs("hourly"), what="the first run")
    given = fleet.freeze(leader) if not isinstance(fleet, RedisFleet) else leader.signal(signal.SIGSTOP)
    result = give(control(fleet).trigger("hourly", wait="200ms"))
    assert result.outcome == "withdrawn"
    leader.signal(signal.SIGCONT)
    wait_for(lambda: fleet.starts(after=given + 0.3), what="a tick")
    time.sleep(0.7)
    assert fleet.starts("hourly", after=given) == []
    assert give(control(fleet).trigger("hourly")).outcome == "started"


def test_a_pattern_reaches_two_hundred_jobs_in_one_call(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    fleet.start(many(200))
    words = ("--project", "pricing", "--store", fleet.store, "--json")
    wait_for(lambda: fleet.lease("many-199").holder, what="the last job's leader")
    assert main(["pause", "many-*", "--reason", "all", "--for", "2h", *words]) == 0
    results = json.loads(capsys.readouterr().out)
    assert [result["outcome"] for result in results] == ["paused"] * 200
    wait_for(lambda: fleet.lease("many-0").holder is None and fleet.lease("many-199").holder is None, what="all")
    assert main(["status", *words]) == 0
    jobs = json.loads(capsys.readouterr().out)
    assert {job["paused"]["reason"] for job in jobs} == {"all"}
    assert [job["leader"] for job in jobs] == [None] * 200
    assert main(["resume", "--all", *words]) == 0
    capsys.readouterr()
    wait_for(lambda: fleet.lease("many-0").holder and fleet.lease("many-199").holder, what="leaders again")


def test_a_name_that_is_no_jobs_and_a_store_that_does_not_answer_are_told(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.start(TICK)
    wait_for(fleet.runs, what="the first run")
    for verb in ("pause", "resume", "step-down", "trigger"):
        assert main([verb, "tock", "--project", "pricing", "--store", fleet.store]) == 2
        assert "'tock' is no job of the project pricing; its jobs are: tick" in capsys.readouterr().err
        assert main([verb, "tick", "--project", "pricing", "--store", "redis://127.0.0.1:1"]) == 1
        assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(ConfigError, match="is a pattern; name one job"):
        give(control(fleet).trigger("t*"))
    with pytest.raises(StoreError):
        give(Control("pricing", "redis://127.0.0.1:1").pause("tick"))
    assert main(["resume", "tick", "--project", "pricing", "--store", fleet.store]) == 0
    assert "was not paused" in capsys.readouterr().out


def test_an_operators_rights_are_enough_for_orders_and_not_for_a_lease(redis_fleet: RedisFleet) -> None:
    fleet = redis_fleet
    fleet.client.acl_setuser(
        "operator",
        enabled=True,
        passwords=["+secret"],
        keys=["pricing:*", "{pricing:*"],
        reset_channels=True,
        channels=["pricing:*"],
        commands=[f"+{name}" for name in DOCUMENTED],
    )
    operator = Control("pricing", fleet.store.replace("redis://", "redis://operator:secret@"))
    for _ in range(2):
        fleet.start(OPERATED)
    wait_for(lambda: fleet.runs("hourly") and fleet.runs(), what="the first runs")
    assert give(operator.trigger("hourly")).outcome == "started"
    assert give(operator.step_down("tick")).outcome in {"handed-over", "idle"}
    assert [one.outcome for one in give(operator.pause("*"))] == ["paused", "paused"]
    assert [one.outcome for one in give(operator.resume("*"))] == ["resumed", "resumed"]
