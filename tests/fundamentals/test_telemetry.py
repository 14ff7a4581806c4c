"""Metrics and spans through OpenTelemetry, as an SDK with an in-memory reader and exporter sees them."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import StatusCode

from singletonjob import ConfigError, Run, SingletonJobs
from singletonjob._telemetry.measures import BUCKETS, MEASURES
from singletonjob.prometheus import exposition
from singletonjob.stores.memory import MemoryStore
from singletonjob.telemetry import instrument
from virtual_loop import Gate, memory, run_virtually, running, the_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path


class Sdk:
    """Providers of the SDK, and what they got."""

    def __init__(self, *, sampler: Any = None) -> None:
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.tracers.get_tracer("of the user")

    def instrument(self, app: SingletonJobs, **options: Any) -> None:
        instrument(app, meter_provider=self.meters, tracer_provider=self.tracers, **options)

    def metrics(self) -> dict[str, Any]:
        data = self.reader.get_metrics_data()
        assert data is not None
        return {
            metric.name: metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]


def app_of(body: Callable[..., object], sdk: Sdk, *, store: Any = None, spans: bool | None = None) -> SingletonJobs:
    """An app that runs `body` each second as the job `work`."""
    app = SingletonJobs("pricing", store=store or memory(), node_id="here")
    sdk.instrument(app, spans=spans)
    app.fixed_rate(1, name="work")(body)
    return app


def after(seconds: float, app: Callable[[], SingletonJobs]) -> None:
    """Run the app for so long in virtual time; sync bodies take none."""

    async def main() -> None:
        async with running(app()):
            await asyncio.sleep(seconds)

    run_virtually(main())


# -- metrics -------------------------------------------------------------------------------------------------------


def test_a_reader_sees_every_metric_with_its_unit_and_its_attributes() -> None:
    async def main() -> None:
        sdk = Sdk()

        async def work() -> None:
            await asyncio.sleep(0.3)

        async with running(app_of(work, sdk)) as one:
            await asyncio.sleep(5.5)
            metrics = sdk.metrics()
            stats = one.app.stats()["work"]
        assert set(metrics) == {measure.name for measure in MEASURES}
        for measure in MEASURES:
            found = metrics[measure.name]
            assert (found.unit, found.description) == (measure.unit, measure.text)
            names = {f"singletonjob.{attribute}" for attribute in ("project", *measure.attributes)}
            assert found.data.data_points
            for point in found.data.data_points:
                assert set(point.attributes) == names
                assert point.attributes["singletonjob.project"] == "pricing"
        (leader,) = metrics["singletonjob.leader"].data.data_points
        assert (leader.value, leader.attributes["singletonjob.job"]) == (1, "work")
        (duration,) = metrics["singletonjob.run.duration"].data.data_points
        assert duration.explicit_bounds == BUCKETS
        assert duration.count == stats.runs == 5
        assert duration.sum == pytest.approx(1.5)

    run_virtually(main())


def test_opentelemetry_and_prometheus_tell_the_same() -> None:
    async def main() -> None:
        sdk = Sdk()

        async def work(run: Run) -> None:
            await asyncio.sleep(2.5 if run.tick and run.tick % 5 == 0 else 0)

        async with running(app_of(work, sdk)) as one:
            await asyncio.sleep(30.5)
            metrics, text = sdk.metrics(), exposition(one.app)[0].decode()
        for measure in MEASURES:
            if measure.kind == "histogram":
                name = f"{measure.name.replace('.', '_')}_seconds_count"
                counts = [point.count for point in metrics[measure.name].data.data_points]
            else:
                name = measure.name.replace(".", "_") + ("_seconds" if measure.unit == "s" else "")
                name += "_total" if measure.kind == "counter" else ""
                counts = [point.value for point in metrics[measure.name].data.data_points]
            lines = [line for line in text.splitlines() if line.startswith(f"{name}{{")]
            assert [float(line.split()[-1]) for line in lines] == pytest.approx(counts), measure.name

    run_virtually(main())


def test_the_gauge_of_a_follower_is_there_and_0_and_so_it_is_when_the_app_has_stopped() -> None:
    async def main() -> None:
        sdk, store = Sdk(), memory()

        async def work() -> None:
            pass

        async with running(app_of(work, Sdk(), store=store)):
            await asyncio.sleep(2)
            async with running(app_of(work, sdk, store=store)):
                await asyncio.sleep(10)
                assert [point.value for point in sdk.metrics()["singletonjob.leader"].data.data_points] == [0]
        metrics = sdk.metrics()
        assert [point.value for point in metrics["singletonjob.leader"].data.data_points] == [0]
        assert "singletonjob.store.up" not in metrics

    run_virtually(main())


def test_each_beat_is_recorded_once_however_often_somebody_collects_and_anew_after_another_start() -> None:
    async def main() -> None:
        sdk = Sdk()

        async def work() -> None:
            pass

        app, beats = app_of(work, sdk), 0
        for _ in range(2):
            async with running(app):
                for _ in range(5):
                    await asyncio.sleep(7)
                    sdk.metrics()
                told = app.beats()
                assert told is not None
                beats += told.duration.count
                (point,) = sdk.metrics()["singletonjob.beat.duration"].data.data_points
                assert point.count == beats > 10
            beats = point.count  # the last beats, the releasing one among them, came when nobody could ask any more

    run_virtually(main())


def test_a_collection_never_fails_while_the_app_starts_and_stops(caplog: pytest.LogCaptureFixture) -> None:
    sdk = Sdk()
    app = SingletonJobs("pricing", store=MemoryStore(), heartbeat_interval=0.3, lock_expiry=1)
    sdk.instrument(app)
    for number in range(20):
        app.interval(1, name=f"poll-{number}")(lambda: None)
    over = threading.Event()
    leaders: list[int] = []

    def collect() -> None:
        while not over.is_set():
            leaders.append(len(sdk.metrics()["singletonjob.leader"].data.data_points))

    collector = threading.Thread(target=collect)
    collector.start()
    with caplog.at_level(logging.WARNING, "opentelemetry"):
        for _ in range(10):
            with app.in_thread():
                over.wait(0.03)
    over.set()
    collector.join()
    assert set(leaders) == {20}
    assert [record for record in caplog.records if record.name.startswith("opentelemetry")] == []


# -- spans ---------------------------------------------------------------------------------------------------------


def test_the_span_of_a_run_is_the_current_one_inside_the_body_and_says_which_run_it_was() -> None:
    sdk, runs = Sdk(), list[Run]()

    async def work(run: Run) -> None:
        runs.append(run)
        with sdk.tracer.start_as_current_span("inner"):
            await asyncio.sleep(0.25)

    after(2.5, lambda: app_of(work, sdk))
    spans, inner = sdk.spans("run work"), sdk.spans("inner")
    assert len(spans) == len(inner) == len(runs) == 2
    for span, below, run in zip(spans, inner, runs, strict=True):
        assert span.parent is None
        assert below.parent is not None
        assert span.context is not None
        assert (below.parent.trace_id, below.parent.span_id) == (span.context.trace_id, span.context.span_id)
        assert span.attributes is not None
        assert dict(span.attributes) == {
            "singletonjob.project": "pricing",
            "singletonjob.job": "work",
            "singletonjob.node": run.node_id,
            "singletonjob.token": run.token,
            "singletonjob.scheduled_at": run.scheduled_at.isoformat(),
            "singletonjob.lateness": 0.0,
            "singletonjob.tick": run.tick,
            "singletonjob.outcome": "ok",
        }
        assert span.status.status_code is StatusCode.UNSET


def test_after_a_run_its_span_is_the_current_one_of_nobody() -> None:
    async def main() -> None:
        sdk, between, within = Sdk(), list[trace.Span](), list[trace.Span]()

        def every() -> float:  # asked between the runs, in the task that makes them
            between.append(trace.get_current_span())
            return 1.0

        async def work() -> None:
            within.append(trace.get_current_span())
            if len(within) == 2:
                raise ValueError("once")

        app = SingletonJobs("pricing", store=memory())
        sdk.instrument(app)
        app.interval(every, name="work")(work)
        async with running(app):
            await asyncio.sleep(5.5)
        assert len(between) >= len(within) >= 5
        assert set(between) == {trace.INVALID_SPAN}
        assert trace.INVALID_SPAN not in within

    run_virtually(main())


def test_a_run_is_no_part_of_the_trace_in_which_the_app_was_started() -> None:
    sdk = Sdk()

    async def work() -> None:
        pass

    with sdk.tracer.start_as_current_span("start"):
        after(1.5, lambda: app_of(work, sdk))
    (span,) = sdk.spans("run work")
    assert span.parent is None


def test_a_body_that_raises_fails_its_span_with_the_exception() -> None:
    sdk = Sdk()

    async def work() -> None:
        raise LookupError("no prices")

    after(1.5, lambda: app_of(work, sdk))
    (span,) = sdk.spans("run work")
    assert span.attributes is not None
    assert span.attributes["singletonjob.outcome"] == "failed"
    assert span.attributes["error.type"] == "LookupError"
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "no prices")
    assert [event.name for event in span.events] == ["exception"]


def test_a_run_that_is_cancelled_or_asks_too_late_ends_its_span_as_cancelled() -> None:
    async def main(*, asks: bool) -> list[ReadableSpan]:
        sdk, gate = Sdk(), Gate(memory())

        async def work(run: Run) -> None:
            if not asks:
                await asyncio.sleep(1000)
            while True:
                await asyncio.shield(asyncio.sleep(1))
                run.check()

        app = SingletonJobs("pricing", store=gate, cancel_on_lost_leadership=not asks)
        sdk.instrument(app)
        app.fixed_rate(1, name="work")(work)
        async with running(app):
            await asyncio.sleep(5)
            gate.hang = True
            await asyncio.sleep(20)
        return sdk.spans("run work")

    for asks in (False, True):
        (span,) = run_virtually(main(asks=asks))
        assert span.attributes is not None
        assert span.attributes["singletonjob.outcome"] == "cancelled"
        assert span.status.status_code is StatusCode.UNSET
        assert span.events == ()


def sync_app(body: Callable[..., object], sdk: Sdk) -> Coroutine[Any, Any, None]:
    async def main() -> None:
        app = app_of(body, sdk)
        async with running(app):
            await asyncio.sleep(1.5)

    return main()


def test_a_sync_body_has_its_span_in_its_thread() -> None:
    sdk, threads = Sdk(), set[int]()

    def work() -> None:
        threads.add(threading.get_ident())
        with sdk.tracer.start_as_current_span("inner"):
            pass

    run_virtually(sync_app(work, sdk))
    (span,), (inner,) = sdk.spans("run work"), sdk.spans("inner")
    assert threads != {threading.get_ident()}
    assert inner.parent is not None
    assert span.context is not None
    assert inner.parent.span_id == span.context.span_id
    assert span.attributes is not None
    assert span.attributes["singletonjob.outcome"] == "ok"


def test_what_a_sync_wrapper_of_an_async_body_awaits_is_in_the_same_span() -> None:
    sdk = Sdk()

    async def inner() -> None:
        with sdk.tracer.start_as_current_span("inner"):
            await asyncio.sleep(0.1)
        raise KeyError("late")

    def work() -> object:
        return inner()

    run_virtually(sync_app(work, sdk))
    (span,), (below,) = sdk.spans("run work"), sdk.spans("inner")
    assert below.parent is not None
    assert span.context is not None
    assert below.parent.span_id == span.context.span_id
    assert span.attributes is not None
    assert span.attributes["singletonjob.outcome"] == "failed"


def test_a_span_that_is_not_sampled_keeps_those_below_from_being_sampled() -> None:
    sdk, flags = Sdk(sampler=ALWAYS_OFF), list[bool]()

    async def work() -> None:
        context = trace.get_current_span().get_span_context()
        flags.extend((context.is_valid, context.trace_flags.sampled))

    after(1.5, lambda: app_of(work, sdk))
    assert flags == [True, False]
    assert sdk.spans("run work") == []


@pytest.mark.parametrize(("spans", "named"), [(None, {"run slow", "run asked"}), (True, None), (False, set())])
def test_jobs_below_a_second_have_spans_only_where_they_are_asked_for(
    spans: bool | None, named: set[str] | None
) -> None:
    async def main() -> set[str]:
        sdk, app = Sdk(), SingletonJobs("pricing", store=memory())

        async def work() -> None:
            pass

        app.fixed_rate("999ms", name="fast")(work)
        app.interval("500ms", name="often")(work)
        sdk.instrument(app, spans=spans)  # for those before and those after
        app.fixed_rate("1s", name="slow")(work)
        app.interval(lambda: 0.5, name="asked")(work)  # nobody knows for how long that holds
        async with running(app):
            await asyncio.sleep(3)
        return {span.name for span in sdk.exporter.get_finished_spans()}

    assert run_virtually(main()) == ({"run slow", "run asked", "run fast", "run often"} if named is None else named)


class Slow(SpanProcessor):
    """One that takes its time when a span starts, and the loop with it."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        the_loop().advance(self.seconds)


def test_a_term_that_ends_while_the_span_is_made_lets_no_body_begin() -> None:
    async def main() -> None:
        sdk, slow, begun = Sdk(), Slow(), list[float]()
        sdk.tracers.add_span_processor(slow)

        async def work(run: Run) -> None:
            begun.append(run.remaining)

        async with running(app_of(work, sdk)) as one:
            await asyncio.sleep(3.5)
            assert len(begun) == 3
            slow.seconds = 20.0
            await asyncio.sleep(0.6)
            assert one.app.stats()["work"].cancelled == 1
        assert len(begun) == 3
        assert all(left > 0 for left in begun)
        assert [dict(span.attributes or {})["singletonjob.outcome"] for span in sdk.spans("run work")][3:] == [
            "cancelled"
        ]

    run_virtually(main())


# -- what it costs, and how it is asked for ------------------------------------------------------------------------


def test_without_an_sdk_a_run_pays_about_a_microsecond_and_no_event_is_made() -> None:
    def cost(call: Callable[[Any], object]) -> float:
        rounds = []
        for _ in range(9):
            begun = time.process_time()
            for _ in range(2000):
                call(None)
            rounds.append((time.process_time() - begun) / 2000)
        return min(rounds)

    app = SingletonJobs("pricing", store="memory")
    app.interval(1, name="work")(lambda: None)
    bare = app._jobs["work"].body
    instrument(app)
    spanned = app._jobs["work"].body
    assert spanned is not bare
    assert cost(spanned) - cost(bare) < 8e-6  # 2 us are promised, 0.8 us measured
    assert app._callbacks == []


def test_a_job_that_has_no_spans_keeps_its_body_as_it_is() -> None:
    app = SingletonJobs("pricing", store="memory")
    app.fixed_rate("1ms", name="work")(lambda: None)
    bare = app._jobs["work"].body
    instrument(app)
    assert app._jobs["work"].body is bare


def test_an_app_is_instrumented_once_and_before_it_starts() -> None:
    async def main() -> None:
        async def work() -> None:
            pass

        app = app_of(work, Sdk())
        with pytest.raises(ConfigError, match="instrumented already"):
            instrument(app)
        late = SingletonJobs("pricing", store=memory())
        async with running(late):
            with pytest.raises(ConfigError, match="has started"):
                instrument(late)

    run_virtually(main())


def test_without_the_api_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match=r"singletonjob\[otel\]"):
        instrument(SingletonJobs("pricing", store="memory"))


def test_the_api_that_is_not_there_beside_others_of_its_namespace_is_told_from_one_that_cannot_be_imported(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)
    package = workplace / "opentelemetry"
    package.mkdir()  # a namespace package, as the SDK's and the exporters' packages leave it
    monkeypatch.setattr(sys, "path", [str(workplace)])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    app = SingletonJobs("pricing", store="memory")
    with pytest.raises(ConfigError, match=r"needs opentelemetry-api \(cannot import name .*singletonjob\[otel\]"):
        instrument(app)
    (package / "metrics.py").write_text("import a_library_of_the_api\n")
    with pytest.raises(ConfigError) as raised:
        instrument(app)
    said = (
        "instrument: cannot import opentelemetry-api, although it is installed: No module named 'a_library_of_the_api'"
    )
    assert str(raised.value) == said


LATE = """
import os, signal
from singletonjob import Run, SingletonJobs

app = SingletonJobs("pricing", store="memory")
runs = 0

@app.fixed_rate("50ms")
async def work(run: Run) -> None:
    global runs
    runs += 1
    if runs == 3:
        from opentelemetry import metrics
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        app.reader = InMemoryMetricReader()
        metrics.set_meter_provider(MeterProvider([app.reader]))
        app.reader.get_metrics_data()
    if runs == 10:
        for scope in app.reader.get_metrics_data().resource_metrics[0].scope_metrics:
            print(*sorted(metric.name for metric in scope.metrics))
        os.kill(os.getpid(), signal.SIGTERM)
"""


def test_the_command_line_asks_for_it_and_an_sdk_that_comes_later_is_served_from_its_first_collection(
    tmp_path: Path,
) -> None:
    (tmp_path / "jobs.py").write_text(LATE)
    command = [sys.executable, "-m", "singletonjob", "run", "jobs:app", "--otel"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == sorted(measure.name for measure in MEASURES)
