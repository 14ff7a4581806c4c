"""The metrics as Prometheus sees them: of whole apps in virtual time, read by prometheus-client's own parser."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest
from prometheus_client.core import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from singletonjob import Run, SingletonJobs
from singletonjob._core.values import MisfireCause, Outcome, Reason
from singletonjob._reporting.heartbeat_counters import VERDICTS
from singletonjob._telemetry.measures import MEASURES
from singletonjob.prometheus import collector, exposition
from singletonjob.stores.memory import MemoryStore
from virtual_loop import Gate, Replica, holder, memory, run_virtually, running

if TYPE_CHECKING:
    from collections.abc import Iterable

    from singletonjob.stores import LeaseStore

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


class Scrape:
    """What one replica tells at this moment."""

    def __init__(self, app: SingletonJobs) -> None:
        text, self.content_type = exposition(app)
        self.families = {family.name: family for family in text_string_to_metric_families(text.decode())}

    def all(self, sample: str) -> list[tuple[dict[str, str], float]]:
        samples = (one for family in self.families.values() for one in family.samples)
        return [(one.labels, one.value) for one in samples if one.name == sample]

    def one(self, sample: str, **labels: str) -> float:
        found = [value for told, value in self.all(sample) if labels.items() <= told.items()]
        assert len(found) == 1, (sample, labels, found)
        return found[0]


def replica(store: LeaseStore, who: str, **options: Any) -> SingletonJobs:
    app = SingletonJobs("pricing", store=store, node_id=who, **options)

    @app.fixed_rate(1)
    async def price_tick() -> None:
        pass

    return app


def test_the_text_parses_and_holds_every_metric_with_its_kind_and_the_project() -> None:
    async def main() -> Scrape:
        async with running(replica(memory(), "a")) as one:
            await asyncio.sleep(30.5)
            return Scrape(one.app)

    scrape = run_virtually(main())
    assert scrape.content_type.startswith("text/plain; version=")
    names = {
        measure.name.replace(".", "_") + ("_seconds" if measure.unit == "s" else ""): measure.kind
        for measure in MEASURES
    }
    assert {name: family.type for name, family in scrape.families.items()} == names
    for family in scrape.families.values():
        assert family.samples
        assert {sample.labels["project"] for sample in family.samples} == {"pricing"}
    assert scrape.one("singletonjob_leader", job_name="price-tick") == 1
    assert scrape.one("singletonjob_terms_total") == 1
    assert scrape.one("singletonjob_runs_total", outcome="ok") == scrape.one("singletonjob_run_lateness_seconds_count")
    assert 0 < scrape.one("singletonjob_lease_remaining_seconds") <= 9
    assert scrape.one("singletonjob_stale_seconds") == pytest.approx(0.5)
    assert scrape.one("singletonjob_store_up") == 1


def test_the_buckets_of_a_histogram_count_what_is_at_most_so_long() -> None:
    async def main() -> Scrape:
        app = SingletonJobs("pricing", store=memory())
        durations = iter([0.001, 0.3, 0.3, 0.7, 1000.0])

        @app.interval(1)
        async def work() -> None:
            await asyncio.sleep(next(durations))

        async with running(app) as one:
            await asyncio.sleep(1006)
            return Scrape(one.app)

    scrape = run_virtually(main())
    name = "singletonjob_run_duration_seconds"
    buckets = {labels["le"]: value for labels, value in scrape.all(f"{name}_bucket")}
    assert buckets["0.0005"] == 0
    assert buckets["0.002"] == buckets["0.2"] == 1
    assert buckets["0.5"] == 3
    assert buckets["1.0"] == buckets["500.0"] == 4
    assert buckets["+Inf"] == scrape.one(f"{name}_count") == 5
    assert scrape.one(f"{name}_sum") == pytest.approx(1001.301)


def test_counters_are_there_from_the_start_at_0_for_each_value_of_their_label() -> None:
    async def main() -> Scrape:
        store = memory()
        async with running(replica(store, "a")):
            await asyncio.sleep(1)
            async with running(replica(store, "b")) as other:
                return Scrape(other.app)

    scrape = run_virtually(main())

    def labels(sample: str, label: str) -> dict[str, float]:
        return {told[label]: value for told, value in scrape.all(sample)}

    assert labels("singletonjob_runs_total", "outcome") == dict.fromkeys(get_args(Outcome), 0)
    assert labels("singletonjob_step_downs_total", "reason") == dict.fromkeys(get_args(Reason), 0)
    assert labels("singletonjob_misfires_total", "cause") == dict.fromkeys(get_args(MisfireCause), 0)
    assert labels("singletonjob_ticks_dropped_total", "cause") == {"overlap": 0, "late": 0}
    assert labels("singletonjob_beats_total", "verdict") == dict.fromkeys(VERDICTS, 0)


def test_c110_the_leader_gauge_is_always_there_and_its_sum_is_at_most_1_across_ten_fail_overs() -> None:
    async def main() -> None:
        store = memory()
        alive = {who: Replica(replica(store, who)).start() for who in "abc"}
        led: list[str] = []
        for change in range(10):
            for _ in range(20):
                await asyncio.sleep(1)
                scrapes = {who: Scrape(one.app) for who, one in alive.items()}
                gauges = {who: scrape.one("singletonjob_leader") for who, scrape in scrapes.items()}
                assert sum(gauges.values()) <= 1
            (leader,) = (who for who, gauge in gauges.items() if gauge)
            ((labels, info),) = scrapes[leader].all("singletonjob_replica_info")
            assert info == 1
            assert labels["node"] == holder(store, "price-tick") == alive[leader].service.node
            assert scrapes[leader].one("singletonjob_lease_remaining_seconds") > 0
            led.append(labels["node"])
            gone = alive.pop(leader)
            if change % 2:
                gone.crash()
            else:
                await gone.stop()
                assert Scrape(gone.app).all("singletonjob_leader") == [
                    ({"job_name": "price-tick", "project": "pricing"}, 0)
                ]
            alive[leader] = Replica(replica(store, leader)).start()
        assert len(set(led)) == 10
        for one in alive.values():
            await one.stop()

    run_virtually(main())


def test_c110_terms_drops_and_lateness_tell_what_a_gauge_of_the_moment_cannot() -> None:
    async def main() -> Scrape:
        app = SingletonJobs("pricing", store=memory())

        @app.fixed_rate(1)
        async def slow(run: Run) -> None:
            await asyncio.sleep(2.5)

        async with running(app) as one:
            await asyncio.sleep(60.7)  # just after a run that began at 58
            return Scrape(one.app)

    scrape = run_virtually(main())
    assert scrape.one("singletonjob_runs_total", outcome="ok") == 20
    assert scrape.one("singletonjob_ticks_dropped_total", cause="overlap") == 2 * 20
    assert scrape.one("singletonjob_run_lateness_seconds_bucket", le="0.001") == 20
    assert scrape.one("singletonjob_terms_total") == 1


def test_c111_a_standby_shows_0_and_is_in_all_else_as_well_as_the_leader() -> None:
    async def main() -> None:
        store = memory()
        async with running(replica(store, "a")) as leader, running(replica(store, "b")) as standby:
            await asyncio.sleep(60)
            gauges = [Scrape(one.app).one("singletonjob_leader") for one in (leader, standby)]
            assert sorted(gauges) == [0, 1]
            for one in (leader, standby):
                assert Scrape(one.app).one("singletonjob_store_up") == 1
                assert one.app.health().status == "ok"
                assert one.app.health().ready
            idle = standby if gauges[1] == 0 else leader
            assert Scrape(idle.app).one("singletonjob_lease_remaining_seconds") == 0
            assert Scrape(idle.app).one("singletonjob_beats_total", verdict="refused") > 0
            assert Scrape(idle.app).all("singletonjob_stale_seconds") == []

    run_virtually(main())


def test_an_outage_shows_in_the_verdicts_the_store_gauge_and_the_reason_of_the_step_down() -> None:
    async def main() -> None:
        gate = Gate(memory())
        async with running(replica(gate, "a")) as one:
            await asyncio.sleep(10)
            assert Scrape(one.app).one("singletonjob_beat_failures_total") == 0
            gate.hang = True
            await asyncio.sleep(30)
            scrape = Scrape(one.app)
            assert scrape.one("singletonjob_beats_total", verdict="unknown") == 1  # the others only asked for the time
            assert scrape.one("singletonjob_beat_failures_total") >= 4
            assert scrape.one("singletonjob_store_up") == 0
            assert scrape.one("singletonjob_leader") == 0
            assert scrape.one("singletonjob_step_downs_total", reason="expired") == 1
            gate.hang = False
            await asyncio.sleep(30)
            assert Scrape(one.app).one("singletonjob_store_up") == 1
            assert Scrape(one.app).one("singletonjob_terms_total") == 2

    run_virtually(main())


def test_a_step_down_counts_once_by_what_came_first() -> None:
    async def main() -> None:
        on, gate = True, Gate(memory())
        app = SingletonJobs("pricing", store=gate, enabled=lambda: on, cancel_on_lost_leadership=False)

        @app.interval(1)
        async def work() -> None:
            await asyncio.sleep(60)

        async with running(app) as one:
            await asyncio.sleep(5)
            on = False
            await asyncio.sleep(5)
            gate.hang = True  # it drains for the switch, and meanwhile its lease expires
            await asyncio.sleep(30)
            ended = {labels["reason"]: value for labels, value in Scrape(one.app).all("singletonjob_step_downs_total")}
            assert ended == dict.fromkeys(get_args(Reason), 0) | {"disabled": 1}

    run_virtually(main())


def test_misfires_are_told_by_cause_though_the_log_holds_them_back() -> None:
    async def main() -> None:
        app = SingletonJobs("pricing", store=memory())

        @app.cron("* * * * * *")
        async def each_second() -> None:
            await asyncio.sleep(2.5)

        async with running(app) as one:
            await asyncio.sleep(30)
            stats, scrape = one.app.stats()["each-second"], Scrape(one.app)
            assert stats.misfired > 10
            assert scrape.one("singletonjob_misfires_total", cause="overlap") == stats.misfired
            assert scrape.one("singletonjob_misfires_total", cause="late") == 0

    run_virtually(main())


def test_how_long_the_store_took_is_told_for_answers_alone() -> None:
    async def main() -> None:
        gate = Gate(memory())
        gate.delay = 0.04
        async with running(replica(gate, "a")) as one:
            await asyncio.sleep(10)
            scrape = Scrape(one.app)
            answers = scrape.one("singletonjob_beat_duration_seconds_count")
            assert answers == len(gate.batches)
            assert scrape.one("singletonjob_beat_duration_seconds_bucket", le="0.02") == 0
            assert scrape.one("singletonjob_beat_duration_seconds_bucket", le="0.05") == answers
            gate.hang = True
            await asyncio.sleep(5)
            assert Scrape(one.app).one("singletonjob_beat_duration_seconds_count") == answers

    run_virtually(main())


def test_an_app_that_does_not_run_tells_that_it_leads_nothing() -> None:
    app = SingletonJobs("pricing", store="memory")
    app.interval(1, name="poll")(lambda: None)
    scrape = Scrape(app)
    assert scrape.all("singletonjob_leader") == [({"job_name": "poll", "project": "pricing"}, 0)]
    assert {name for name, family in scrape.families.items() if family.samples} == {"singletonjob_leader"}


def test_an_app_without_a_project_yet_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    app = SingletonJobs()
    app.interval(1, name="poll")(lambda: None)
    assert Scrape(app).one("singletonjob_leader", project="") == 0
    monkeypatch.setenv("SINGLETONJOB_LOCK_EXPIRY", "soon")
    assert Scrape(app).one("singletonjob_leader", project="") == 0


@pytest.mark.usefixtures("_often_switched")
def test_the_metrics_can_be_asked_for_at_any_moment_of_starts_and_stops() -> None:
    app = SingletonJobs("pricing", store=MemoryStore(), heartbeat_interval=0.3, lock_expiry=1)
    for number in range(100):
        app.interval(1, name=f"poll-{number}")(lambda: None)
    failures: list[BaseException] = []
    sizes: list[int] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            try:
                for _ in range(200):
                    app.stats()
                sizes.append(len(exposition(app)[0].split(b"\nsingletonjob_leader{")) - 1)
            except BaseException as error:
                failures.append(error)
                return

    asker = threading.Thread(target=ask)
    asker.start()
    for _ in range(10):
        with app.in_thread():
            over.wait(0.05)
    over.set()
    asker.join()
    assert failures == []
    assert set(sizes) == {100}


def test_a_registry_of_the_users_takes_one_app_and_reads_it_when_it_is_asked() -> None:
    async def main() -> None:
        app = replica(memory(), "a")
        registry = CollectorRegistry()
        registry.register(collector(app))
        assert registry.get_sample_value("singletonjob_leader", {"project": "pricing", "job_name": "price-tick"}) == 0
        async with running(app):
            await asyncio.sleep(2)
            told = {"project": "pricing", "job_name": "price-tick"}
            assert registry.get_sample_value("singletonjob_leader", told) == 1
        with pytest.raises(ValueError, match="Duplicated"):
            registry.register(collector(replica(memory(), "b")))

    run_virtually(main())


def rows() -> Iterable[list[str]]:
    for line in DOCS.read_text().splitlines():
        if line.startswith("| `singletonjob."):
            yield [cell.strip() for cell in re.split(r" ?\| ?", line)[1:-1]]


def test_the_documentation_lists_exactly_the_metrics_there_are() -> None:
    def row(measure: Any) -> list[str]:
        total = "_total" if measure.kind == "counter" else "_seconds" if measure.unit == "s" else ""
        return [
            f"`{measure.name}`",
            f"`{measure.name.replace('.', '_')}{total}`",
            measure.kind,
            f"`{measure.unit}`",
            ", ".join(f"`{attribute}`" for attribute in measure.attributes),
            measure.text,
        ]

    assert list(rows()) == [row(measure) for measure in MEASURES]


def test_the_documentation_names_every_value_of_the_attributes() -> None:
    text = DOCS.read_text()
    for value in (*VERDICTS, *get_args(Reason), *get_args(Outcome), *get_args(MisfireCause)):
        assert f"`{value}`" in text
