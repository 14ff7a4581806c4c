"""Every line that the library logs: when, at which level, with which attributes, and how often."""

from __future__ import annotations

import asyncio
import logging
import logging.config
import re
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from singletonjob import Run, SingletonJobs, StoreUnavailable
from singletonjob.control import Control
from singletonjob.stores.memory import MemoryStore
from singletonjob.stores.protocol import Reply
from virtual_loop import Capture, Gate, Replica, memory, run_virtually, running, the_loop
from waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from singletonjob.stores import LeaseStore
    from singletonjob.stores.protocol import Batch

INFO, WARNING, ERROR, DEBUG = logging.INFO, logging.WARNING, logging.ERROR, logging.DEBUG


def gate() -> Gate:
    return Gate(memory())


def app_on(store: LeaseStore, **options: Any) -> SingletonJobs:
    return SingletonJobs("pricing", store=store, **options)


def lasting(seconds: float) -> Callable[[], Any]:
    async def body() -> None:
        await asyncio.sleep(seconds)

    return body


def the_one(logs: Capture, event: str) -> Any:
    """The only record of that event."""
    records = logs.of(event)
    assert len(records) == 1, [record.getMessage() for record in records]
    return records[0]


def said(record: Any) -> tuple[int, str | None, str | None]:
    return record.levelno, record.job, record.reason


def minutes_apart(records: list[Any], times: dict[int, float]) -> bool:
    moments = [times[id(record)] for record in records]
    return all(later - earlier >= 60 for earlier, later in zip(moments, moments[1:], strict=False))


class Timed(Capture):
    """Keeps the virtual moment of each record too."""

    def __init__(self) -> None:
        super().__init__()
        self.times: dict[int, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        self.times[id(record)] = the_loop().time()

    def moments(self, event: str) -> list[float]:
        return [self.times[id(record)] for record in self.of(event)]


# -- INFO ----------------------------------------------------------------------------------------------------------


def test_a_life_without_trouble_is_told_at_info_and_each_record_carries_its_attributes() -> None:
    async def main() -> None:
        app = app_on(gate(), node_id="pod-1")
        app.interval(60, name="price-tick")(lasting(0))
        with Capture() as logs:
            replica = Replica(app).start()
            await asyncio.sleep(5)
            await replica.stop()
        node = replica.service.node
        assert node.startswith("pod-1-")
        for record in logs.records:
            assert record.name == "singletonjob"
            assert record.node == node
            assert {"event", "job", "token", "reason"} <= vars(record).keys()
            assert record.exc_info is None
            assert record.levelno in {INFO, DEBUG}
        lines = [r for r in logs.records if r.levelno == INFO]
        assert [r.event for r in lines] == ["started", "elected", "released"]
        assert [r.job for r in lines] == ["price-tick"] * 3
        started, elected, released = lines
        assert started.getMessage() == f"price-tick: started with key pricing:price-tick:lock as {node} in Gate"
        assert elected.getMessage() == "price-tick: became LEADER for pricing:price-tick:lock"
        assert released.getMessage() == "price-tick: leadership released"
        assert started.token is None
        assert elected.token == released.token > 0

    run_virtually(main())


def test_a_cron_job_names_its_zone_and_its_next_instant_there_and_in_utc_when_it_starts() -> None:
    async def main() -> None:
        app = app_on(gate())
        app.cron("0 3 * * *", name="report", tz="Asia/Singapore")(lasting(0))
        with Capture() as logs:
            async with running(app):
                pass
        text = the_one(logs, "started").getMessage()
        assert "(Asia/Singapore)" in text
        assert "T03:00:00+08:00" in text
        assert "T19:00:00+00:00 in UTC" in text

    run_virtually(main())


def test_a_job_that_is_disabled_by_configuration_says_so_once_and_nothing_else() -> None:
    async def main() -> None:
        app = app_on(gate(), enabled=False)
        app.interval(60, name="job")(lasting(0))
        with Capture() as logs:
            async with running(app):
                await asyncio.sleep(60)
        assert [(said(r), r.event) for r in logs.records] == [((INFO, "job", None), "disabled")]

    run_virtually(main())


def test_a_live_switch_is_told_at_info_in_both_directions() -> None:
    async def main() -> None:
        switch = [True]
        app = app_on(gate(), enabled=lambda: switch[0])
        app.interval(60, name="job")(lasting(0))
        with Capture() as logs:
            async with running(app):
                await asyncio.sleep(5)
                switch[0] = False
                await asyncio.sleep(5)
                switch[0] = True
                await asyncio.sleep(5)
        assert said(the_one(logs, "switched-off")) == (INFO, "job", None)
        assert said(the_one(logs, "enabled")) == (INFO, "job", None)
        told = [r.event for r in logs.records if r.levelno == INFO]
        assert told == ["started", "elected", "switched-off", "released", "enabled", "elected", "released"]

    run_virtually(main())


class YoungStore(Gate):
    """A store that restarted a moment ago; `tells` whether it says so."""

    def __init__(self, *, tells: bool) -> None:
        super().__init__(memory())
        self.tells = tells

    async def exchange(self, batch: Batch) -> Reply:
        reply = await super().exchange(batch)
        return reply if batch.requests else Reply(clock=reply.clock, up_for=4.0 if self.tells else None)


def test_waiting_because_the_store_restarted_is_told_with_the_seconds() -> None:
    async def main() -> None:
        app = app_on(YoungStore(tells=True))
        app.interval(60, name="job")(lasting(0))
        with Capture() as logs:
            async with running(app):
                await asyncio.sleep(6.9)
                assert not app.is_leader("job")
                await asyncio.sleep(0.2)
                assert app.is_leader("job")
        record = the_one(logs, "store-restarted")
        assert record.levelno == INFO
        assert "7.0 s because the store restarted" in record.getMessage()

    run_virtually(main())


def test_a_store_that_does_not_tell_its_up_time_is_one_warning() -> None:
    async def main() -> None:
        app = app_on(YoungStore(tells=False))
        app.interval(60, name="job")(lasting(0))
        with Capture() as logs:
            async with running(app):
                await asyncio.sleep(200)
        assert the_one(logs, "no-uptime").levelno == WARNING

    run_virtually(main())


def test_a_replica_that_finds_its_job_paused_says_so_once_and_a_leader_that_is_paused_says_that_it_leaves() -> None:
    async def main() -> None:
        store = memory()
        control = Control("pricing", store)
        leader, late = app_on(store), app_on(store)
        for app in (leader, late):
            app.interval(60, name="job")(lasting(0))
        with Capture() as logs:
            async with running(leader) as one:
                await asyncio.sleep(5)
                token = one.service.leases["job"].token
                await control.pause("job", reason="feed is down", by="ann@ops")
                await asyncio.sleep(5)
                async with running(late) as other:
                    await asyncio.sleep(60)
                    nodes = [one.service.node, other.service.node]
        assert [said(record) for record in logs.of("paused")] == [(INFO, "job", None)] * 2
        assert [(record.node, record.token) for record in logs.of("paused")] == [(nodes[0], token), (nodes[1], None)]
        first, second = [record.getMessage() for record in logs.of("paused")]
        assert first == "job: paused by ann@ops: feed is down; giving up the lease"
        assert second == "job: is paused by ann@ops: feed is down"

    run_virtually(main())


# -- a lease is lost -----------------------------------------------------------------------------------------------


def test_a_lost_lease_is_one_warning_with_its_reason_and_the_cancelled_run_is_told_at_info_without_a_traceback() -> (
    None
):
    async def main() -> None:
        store = gate()
        app = app_on(store)
        app.interval(60, name="job")(lasting(1000))
        with Capture() as logs:
            async with running(app):
                await asyncio.sleep(5)
                token = logs.of("elected")[0].token
                record = store.store._records["pricing", "job"]  # type: ignore[attr-defined]  # a MemoryStore
                record.holder, record.token = "other", record.token + 1
                await asyncio.sleep(4)
        lost = the_one(logs, "lost")
        assert said(lost) == (WARNING, "job", "lost")
        assert lost.token == token
        assert "lost leadership" in lost.getMessage()
        cancelled = the_one(logs, "run-cancelled")
        assert said(cancelled) == (INFO, "job", "lost")
        assert cancelled.token == token
        assert all(r.exc_info is None for r in logs.records)
        assert not [r for r in logs.records if r.levelno == ERROR]

    run_virtually(main())


def test_a_lease_that_could_not_be_renewed_is_one_warning_that_says_so() -> None:
    async def main() -> None:
        store = gate()
        app = app_on(store)
        app.interval(60, name="job")(lasting(0))
        with Capture() as logs:
            async with running(app):
                await asyncio.sleep(5)
                store.error = StoreUnavailable("connection refused")
                await asyncio.sleep(12)
                store.error = None
        lost = the_one(logs, "lost")
        assert said(lost) == (WARNING, "job", "expired")
        assert re.search(r"could not renew.* \(last renewed 9\.\d s ago\)$", lost.getMessage())
        assert all(r.exc_info is None for r in logs.records)

    run_virtually(main())


def test_a_sync_run_that_goes_on_without_the_lease_is_told_once() -> None:
    store = MemoryStore()
    app = SingletonJobs("pricing", store=store, lock_expiry=1.0, heartbeat_interval=0.3)
    over = threading.Event()
    begun = threading.Event()

    @app.interval("1h", name="job")
    def job(run: Run) -> None:
        begun.set()
        over.wait(5)

    with Capture() as logs, app.in_thread():
        assert begun.wait(5)
        record = store._records["pricing", "job"]
        record.holder, record.token = "other", record.token + 1
        wait_for(lambda: logs.of("run-without-lease"))
        time.sleep(0.5)
        over.set()
    goes_on = the_one(logs, "run-without-lease")
    assert said(goes_on) == (WARNING, "job", None)
    assert goes_on.token == logs.of("elected")[0].token
    assert said(the_one(logs, "lost")) == (WARNING, "job", "lost")


# -- a stop that does not go well ----------------------------------------------------------------------------------


def test_a_failed_release_is_an_error_and_never_says_released() -> None:
    async def main() -> None:
        store = gate()
        app = app_on(store)
        app.interval(60, name="job")(lasting(0))
        with Capture() as logs:
            replica = Replica(app).start()
            await asyncio.sleep(5)
            store.error = StoreUnavailable("connection refused")
            await replica.stop()
        failed = the_one(logs, "release-failed")
        assert said(failed) == (ERROR, "job", None)
        assert failed.token == logs.of("elected")[0].token
        assert "released" not in logs.events()

    run_virtually(main())


def test_a_run_that_does_not_stop_is_an_error_that_names_it() -> None:
    async def main() -> None:
        app = app_on(gate(), shutdown_grace=1)

        @app.interval(60, name="job")
        async def job() -> None:
            while True:
                try:
                    await asyncio.sleep(1000)
                except asyncio.CancelledError:
                    if the_loop().time() > 100:
                        raise

        with Capture() as logs:
            replica = Replica(app).start()
            await asyncio.sleep(5)
            await replica.stop()
            await asyncio.sleep(100)
        record = the_one(logs, "run-did-not-stop")
        assert said(record) == (ERROR, "job", None)
        assert record.token == logs.of("elected")[0].token
        assert "released" not in logs.events()
        assert "release-failed" not in logs.events()

    run_virtually(main())


# -- the store does not answer -------------------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", [1, 5])
def test_heartbeat_errors_are_told_with_their_number_first_and_then_at_most_once_a_minute_for_all_jobs_together(
    jobs: int,
) -> None:
    async def main() -> None:
        store = gate()
        app = app_on(store)
        for number in range(jobs):
            app.interval(60, name=f"job-{number}")(lasting(0))
        with Timed() as logs:
            async with running(app):
                await asyncio.sleep(10)
                store.error = StoreUnavailable("connection refused")
                await asyncio.sleep(300)
                store.error = None
                await asyncio.sleep(20)
                assert all(app.is_leader(f"job-{number}") for number in range(jobs))
        errors = logs.of("heartbeat-error")
        assert 4 <= len(errors) <= 6
        assert minutes_apart(errors, logs.times)
        assert {r.levelno for r in errors} == {ERROR}
        assert "(attempt 1)" in errors[0].getMessage()
        assert "connection refused" in errors[0].getMessage()
        assert "(attempt 1)" not in errors[1].getMessage()
        up = the_one(logs, "store-up")
        assert up.levelno == INFO
        assert all(r.exc_info is None for r in logs.records)

    run_virtually(main())


def test_a_store_that_fails_every_other_call_is_an_error_once_a_minute_and_no_more() -> None:
    async def main() -> None:
        store = gate()
        app = app_on(store)
        app.interval(60, name="job")(lasting(0))
        with Timed() as logs:
            async with running(app):
                await asyncio.sleep(4)
                for _ in range(60):
                    store.error = None if store.error else StoreUnavailable("now and then")
                    await asyncio.sleep(1.7)
                store.error = None
                await asyncio.sleep(4)
                assert app.stats()["job"].terms == 1
        errors = logs.of("heartbeat-error")
        assert errors
        assert minutes_apart(errors, logs.times)

    run_virtually(main())


# -- runs ----------------------------------------------------------------------------------------------------------


def test_a_failed_run_is_an_error_with_the_traceback_of_the_users_code() -> None:
    async def main() -> None:
        app = app_on(gate())

        @app.interval(60, name="job")
        async def job() -> None:
            raise ValueError("no price for XAU")

        with Capture() as logs:
            async with running(app):
                await asyncio.sleep(1)
        record = the_one(logs, "run-failed")
        assert said(record) == (ERROR, "job", None)
        assert record.token == logs.of("elected")[0].token
        text = logs.text(record)
        assert 'raise ValueError("no price for XAU")' in text
        assert "run failed: ValueError('no price for XAU')" in text

    run_virtually(main())


def test_an_exception_that_cannot_be_shown_is_a_failed_run_like_any_other_and_costs_no_leadership() -> None:
    class UnshowableError(Exception):
        def __repr__(self) -> str:
            raise OSError("gone")

        __str__ = __repr__

    async def main() -> None:
        app = app_on(gate())

        @app.interval(1, name="job")
        async def job() -> None:
            raise UnshowableError

        with Capture() as logs:
            async with running(app):
                await asyncio.sleep(3.5)
                assert app.stats()["job"].terms == 1
        assert {said(r) for r in logs.of("run-failed")} == {(ERROR, "job", None)}
        assert "raise UnshowableError" in logs.text(logs.of("run-failed")[0])
        assert "schedule-failed" not in logs.events()

    run_virtually(main())


def test_each_run_is_told_at_debug_when_it_starts_and_when_it_ends_with_its_duration() -> None:
    async def main() -> None:
        app = app_on(gate())
        app.fixed_rate(2, name="job")(lasting(0.25))
        with Capture() as logs:
            async with running(app):
                await asyncio.sleep(7)
        starts, ends = logs.of("run-started"), logs.of("run-ended")
        assert len(starts) == len(ends) == 3
        assert {said(r) for r in starts + ends} == {(DEBUG, "job", None)}
        assert all("250.0" in r.getMessage() for r in ends)
        assert {r.levelno for r in logs.of("beat")} == {DEBUG}

    run_virtually(main())


def test_a_run_cut_at_its_timeout_is_a_warning_that_names_the_limit() -> None:
    async def main() -> None:
        app = app_on(gate(), timeout=3)
        app.interval(60, name="job")(lasting(100))
        with Capture() as logs:
            async with running(app):
                await asyncio.sleep(5)
        record = the_one(logs, "run-timeout")
        assert said(record) == (WARNING, "job", None)
        assert record.token == logs.of("elected")[0].token
        assert "3 s" in record.getMessage()

    run_virtually(main())


def test_a_long_run_is_told_of_at_80_percent_of_the_lease_while_it_still_runs_and_then_every_minute() -> None:
    async def main() -> None:
        app = app_on(gate())
        app.interval("1h", name="job")(lasting(200))
        with Timed() as logs:
            async with running(app):
                await asyncio.sleep(199)
                assert app.stats()["job"].runs == 0, "it still runs"
                moments = logs.moments("run-long")
                assert moments == [pytest.approx(at, abs=1) for at in (8, 68, 128, 188)]
                await asyncio.sleep(200)
        assert len(logs.of("run-long")) == 4
        assert {said(r) for r in logs.of("run-long")} == {(WARNING, "job", None)}

    run_virtually(main())


def test_with_a_timeout_a_long_run_is_told_of_once_and_not_at_all_when_the_warning_is_off() -> None:
    async def main() -> None:
        app = app_on(gate(), timeout=300)
        app.interval("1h", name="bounded")(lasting(200))
        app.interval("1h", name="quiet", warn_on_long_run=False, timeout=None)(lasting(200))
        with Capture() as logs:
            async with running(app):
                await asyncio.sleep(250)
        assert the_one(logs, "run-long").job == "bounded"

    run_virtually(main())


def test_a_run_just_below_80_percent_of_the_lease_is_not_told_of() -> None:
    async def main() -> None:
        app = app_on(gate())
        app.interval(1, name="job")(lasting(7.9))
        with Capture() as logs:
            async with running(app):
                await asyncio.sleep(100)
                assert app.stats()["job"].runs > 10
        assert not logs.of("run-long")

    run_virtually(main())


# -- drops and misfires --------------------------------------------------------------------------------------------


def test_drops_are_told_at_the_first_and_then_at_most_once_a_minute_and_together_they_name_every_one() -> None:
    async def main() -> None:
        app = app_on(gate())
        app.fixed_rate("100ms", name="job")(lasting(0.25))
        with Timed() as logs:
            async with running(app):
                await asyncio.sleep(200)
                dropped = app.stats()["job"].dropped_overlap
        lines = logs.of("ticks-dropped")
        assert {said(r) for r in lines} == {(WARNING, "job", "overlap")}
        assert len(lines) == 4
        assert minutes_apart(lines, logs.times)
        assert logs.moments("ticks-dropped")[0] < 1
        told = sum(int(r.getMessage().split("dropped ")[1].split()[0]) for r in lines)
        assert dropped * 0.85 < told <= dropped, "all but those after the last line"

    run_virtually(main())


def test_c27_ten_drops_in_a_row_are_an_error_while_the_run_hangs_and_are_told_once() -> None:
    async def main() -> None:
        app = app_on(gate())
        runs: list[int] = []

        @app.fixed_rate("1s", name="job", warn_on_long_run=False)
        async def job() -> None:
            runs.append(1)
            await asyncio.sleep(1000 if len(runs) == 3 else 0)

        with Timed() as logs:
            async with running(app):
                await asyncio.sleep(50)
                assert len(runs) == 3
                assert app.stats()["job"].dropped_overlap >= 44, "counted while it hangs"
                assert len(logs.of("ticks-dropped")) == 2, "the first drop, and the tenth"
        errors = [r for r in logs.of("ticks-dropped") if r.levelno == ERROR]
        assert len(errors) == 1
        assert said(errors[0]) == (ERROR, "job", "overlap")
        begun = logs.moments("run-started")[2]
        assert logs.times[id(errors[0])] - begun <= 12

    run_virtually(main())


def test_c27_with_a_time_limit_the_hanging_run_is_cancelled_and_the_next_tick_runs() -> None:
    async def main() -> None:
        app = app_on(gate())
        runs: list[float] = []

        @app.fixed_rate("1s", name="job", timeout=5)
        async def job() -> None:
            runs.append(the_loop().time())
            await asyncio.sleep(1000 if len(runs) == 3 else 0)

        async with running(app):
            await asyncio.sleep(20)
            stats = app.stats()["job"]
        assert stats.timeout == 1
        assert runs[3] - runs[2] == pytest.approx(6, abs=0.01)
        assert stats.dropped_overlap == 5

    run_virtually(main())


def test_a_job_that_drops_ten_ticks_with_every_run_is_an_error_at_most_once_a_minute() -> None:
    async def main() -> None:
        app = app_on(gate())
        app.fixed_rate("100ms", name="job")(lasting(3))
        with Timed() as logs:
            async with running(app):
                await asyncio.sleep(200)
        lines = logs.of("ticks-dropped")
        errors = [r for r in lines if r.levelno == ERROR]
        warnings = [r for r in lines if r.levelno == WARNING]
        assert 1 <= len(errors) <= 4
        assert minutes_apart(errors, logs.times)
        assert minutes_apart(warnings, logs.times)

    run_virtually(main())


def test_of_a_slot_missed_each_second_the_first_is_told_and_then_a_summary_a_minute() -> None:
    async def main() -> None:
        app = app_on(gate())
        app.cron("* * * * * *", name="job")(lasting(1.5))
        with Timed() as logs:
            async with running(app):
                await asyncio.sleep(200.5)
                missed = app.stats()["job"].misfired
        lines = logs.of("misfired")
        assert missed == pytest.approx(100, abs=2)
        assert len(lines) == 4
        assert minutes_apart(lines, logs.times)
        counts = [int(re.search(r"missed (\d+) slot", line.getMessage())[1]) for line in lines]  # type: ignore[index]  # it is there
        assert counts == [1, 30, 30, 30]
        assert {line.reason for line in lines} == {"overlap"}

    run_virtually(main())


def test_misfires_are_warnings_with_cause_and_slots() -> None:
    async def main() -> None:
        app = app_on(gate())
        app.cron("* * * * * *", name="job")(lasting(3.5))
        with Capture() as logs:
            async with running(app):
                await asyncio.sleep(4.9)
        lines = logs.of("misfired")
        assert lines
        assert {said(r) for r in lines} == {(WARNING, "job", "overlap")}
        assert "missed 3 slots" in lines[0].getMessage()
        assert "+00:00" in lines[0].getMessage()

    run_virtually(main())


def test_followers_do_not_log_what_only_a_leader_knows() -> None:
    async def main() -> None:
        store = gate()
        replicas = []
        with Capture() as logs:
            for _ in range(3):
                app = app_on(store)
                app.fixed_rate("100ms", name="tick")(lasting(0.35))
                app.cron("* * * * * *", name="cron")(lasting(2.5))
                replicas.append(Replica(app).start())
                await asyncio.sleep(0.01)
            await asyncio.sleep(90)
            leaders = [r.service.node for r in replicas if r.app.is_leader("tick")]
            assert leaders == [r.service.node for r in replicas if r.app.is_leader("cron")]
            for replica in replicas[::-1]:
                await replica.stop()
        assert len(leaders) == 1
        for event in ("misfired", "ticks-dropped", "run-started", "run-ended", "run-long"):
            assert {r.node for r in logs.of(event)} <= set(leaders), event
        assert logs.of("misfired")
        assert logs.of("ticks-dropped")

    run_virtually(main())


# -- who does not turn ---------------------------------------------------------------------------------------------


def test_a_loop_that_is_blocked_for_half_the_stall_limit_is_a_warning_that_names_body_and_place() -> None:
    app = SingletonJobs("pricing", store=MemoryStore(), stall_limit="3s", lock_expiry=1.0, heartbeat_interval=0.3)

    @app.interval("1h", name="blocking")
    async def blocks_the_loop() -> None:
        time.sleep(2.2)  # noqa: ASYNC251 - that is the point

    with Capture() as logs, app.in_thread():
        wait_for(lambda: logs.of("loop-blocked"))
        assert app.is_leader("blocking"), "a body that blocks does not lose the lease by that alone"
        assert app.stats()["blocking"].runs == 0, "told while it still blocks"
    record = the_one(logs, "loop-blocked")
    assert said(record) == (WARNING, "blocking", None)
    assert "blocks_the_loop" in record.getMessage()
    assert "running: blocking" in record.getMessage()


def test_a_job_that_nobody_vouches_for_is_an_error_named_stuck() -> None:
    async def main() -> None:
        app = app_on(gate(), stall_limit=5)
        app.interval(60, name="job")(lasting(0))
        with Capture() as logs:
            async with running(app) as replica:
                await asyncio.sleep(4)
                replica.service._stamp_timer.cancel()
                await asyncio.sleep(7)
                replica.service._stamp()
        record = the_one(logs, "stuck")
        assert said(record) == (ERROR, "job", "stuck")
        assert record.token == logs.of("elected")[0].token
        assert record.exc_info is None

    run_virtually(main())


def test_a_heartbeat_that_does_not_beat_is_an_error_of_the_job_loop() -> None:
    async def main() -> None:
        app = app_on(gate())
        app.interval(60, name="job")(lasting(0))
        with Capture() as logs:
            async with running(app) as replica:
                await asyncio.sleep(4)
                thaw, heartbeat = asyncio.Event(), replica.service._heartbeat

                async def freeze(seconds: float) -> None:
                    await thaw.wait()

                heartbeat._sleep = freeze  # type: ignore[method-assign]  # what a thread that hangs looks like
                await asyncio.sleep(30)
                assert app.health().status == "stuck"
                assert not app.is_leader("job")
                del heartbeat._sleep
                thaw.set()
                await asyncio.sleep(2)
                assert app.health().status == "ok"
        record = the_one(logs, "heartbeat-silent")
        assert said(record) == (ERROR, None, None)

    run_virtually(main())


# -- switches, schedules, options ----------------------------------------------------------------------------------


def test_a_live_switch_that_raises_is_a_warning_and_its_last_answer_is_kept() -> None:
    async def main() -> None:
        asked: list[int] = []

        def switch() -> bool:
            asked.append(1)
            if len(asked) == 3:
                raise OSError("no flag service")
            return True

        app = app_on(gate(), enabled=switch)
        app.interval(60, name="job")(lasting(0))
        with Capture() as logs:
            async with running(app):
                await asyncio.sleep(20)
        record = the_one(logs, "switch-failed")
        assert said(record) == (WARNING, "job", None)
        assert "no flag service" in record.getMessage()
        assert "stays on" in record.getMessage()

    run_virtually(main())


def test_a_lease_shorter_than_three_heartbeats_is_a_warning_at_start() -> None:
    async def main() -> None:
        app = app_on(gate(), lock_expiry=8, heartbeat_interval=3)
        app.interval(60, name="job")(lasting(0))
        with Capture() as logs:
            async with running(app):
                await asyncio.sleep(1)
        record = the_one(logs, "options-warning")
        assert said(record) == (WARNING, "job", None)
        assert "lock_expiry" in record.getMessage()

    run_virtually(main())


def test_a_hook_and_a_subscriber_that_raise_are_errors_with_their_traceback() -> None:
    async def main() -> None:
        from singletonjob import IntervalJob

        class Job(IntervalJob, every="1s"):
            async def on_stepped_down(self, reason: str) -> None:
                raise OSError("cannot close the feed")

            async def execute(self, run: Run) -> None: ...

        app = app_on(gate())
        app.add(Job())

        def listen(event: object) -> None:
            if type(event).__name__ == "Elected":
                raise LookupError("no such dashboard")

        app.subscribe(listen)
        with Capture() as logs:
            async with running(app):
                await asyncio.sleep(1)
        hook = the_one(logs, "hook-failed")
        assert said(hook) == (ERROR, "job", None)
        assert "cannot close the feed" in logs.text(hook)
        assert "Traceback" in logs.text(hook)
        subscriber = the_one(logs, "subscriber-failed")
        assert said(subscriber) == (ERROR, None, None)
        assert "no such dashboard" in logs.text(subscriber)

    run_virtually(main())


# -- what an operator wants to know first -------------------------------------------------------------------------


def test_a_store_that_is_down_at_the_start_is_said_to_stop_all_jobs_and_a_later_outage_is_not() -> None:
    async def main() -> None:
        store = Gate(memory())
        store.error = StoreUnavailable("connection refused")
        app = SingletonJobs("pricing", store=store, max_backoff_delay="7s")
        app.interval("1s", name="job")(lasting(0))
        with Capture() as logs:
            replica = Replica(app).start()
            await asyncio.sleep(30)
            store.error = None
            await asyncio.sleep(60)
            store.error = StoreUnavailable("connection refused")
            await asyncio.sleep(30)
            await replica.stop()
        first, later = (record.getMessage() for record in logs.of("heartbeat-error"))
        told = "; no job runs here until the store answers, which is asked again each 7 s or sooner"
        assert first == f"heartbeat error (attempt 1): connection refused{told}"
        assert later == "heartbeat error (attempt 1): connection refused"

    run_virtually(main())


def test_a_follower_says_once_whom_it_follows_and_again_after_a_term_of_its_own() -> None:
    async def main() -> None:
        store = memory()
        apps = [SingletonJobs("pricing", store=store) for _ in range(2)]
        for app in apps:
            app.interval("1s", name="job")(lasting(0))
        with Capture() as logs:
            first = Replica(apps[0]).start()
            await asyncio.sleep(1)
            second = Replica(apps[1]).start()
            await asyncio.sleep(100)
            (line,) = logs.of("following")
            assert said(line) == (INFO, "job", None)
            assert line.getMessage() == f"job: standing by; {first.service.node} leads"
            await first.stop()
            await asyncio.sleep(1)
            third = Replica(apps[0]).start()
            await asyncio.sleep(1)
            assert [record.node for record in logs.of("following")] == [second.service.node, third.service.node]
            await second.stop()
            await third.stop()

    run_virtually(main())


@pytest.mark.parametrize(("timeout", "level"), [(None, WARNING), ("30s", INFO)])
def test_a_long_run_says_how_to_limit_it_unless_it_is_limited(timeout: str | None, level: int) -> None:
    async def main() -> None:
        app = SingletonJobs("pricing", store=memory())

        async def long() -> None:
            await asyncio.sleep(20)

        app.interval("1h", name="job", timeout=timeout)(long)
        with Capture() as logs:
            replica = Replica(app).start()
            await asyncio.sleep(15)
            record = the_one(logs, "run-long")
            await replica.stop()
        assert record.levelno == level
        cure = "write timeout= to limit it, or warn_on_long_run=False if runs may last"
        assert record.getMessage().endswith(cure if timeout is None else "its timeout is 30 s")

    run_virtually(main())


def test_a_stop_says_which_runs_it_waits_for_and_how_long() -> None:
    async def main() -> None:
        app = app_on(gate(), shutdown_grace="7s")
        for number in range(3):
            app.interval("1h", name=f"job-{number}")(lasting(3 * number))
        with Capture() as logs:
            replica = Replica(app).start()
            await asyncio.sleep(1)
            await replica.stop()
        text = (
            "stopping; 2 runs in flight may take 7 s more: job-1, job-2"  # no signal handlers of ours: no more to say
        )
        assert the_one(logs, "stopping").getMessage() == text

    run_virtually(main())


def test_a_stop_that_waits_for_no_run_says_nothing_of_it() -> None:
    async def main() -> None:
        app = app_on(gate())
        app.interval("1h", name="job")(lasting(0))
        with Capture() as logs:
            replica = Replica(app).start()
            await asyncio.sleep(1)
            await replica.stop()
        assert logs.of("stopping") == []

    run_virtually(main())


def test_an_app_without_jobs_and_a_fixed_rate_of_a_day_or_more_are_warned_of_at_the_start() -> None:
    async def main() -> None:
        with Capture() as logs:
            await Replica(app_on(gate())).start().stop()
            assert said(the_one(logs, "no-jobs")) == (WARNING, None, None)
            app = app_on(gate())
            app.fixed_rate("23h", name="short")(lasting(0))
            app.fixed_rate("1d", name="daily")(lasting(0))
            await Replica(app).start().stop()
            assert said(the_one(logs, "schedule-warning")) == (WARNING, "daily", None)

    run_virtually(main())


def test_a_start_with_a_logger_that_dict_config_has_disabled_says_so_once_by_a_warning() -> None:
    app = SingletonJobs("pricing", store="memory")
    app.interval("1s", name="job")(lasting(0))
    loggers = [one for one in logging.Logger.manager.loggerDict.values() if isinstance(one, logging.Logger)]
    before = [one.disabled for one in loggers]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        logging.config.dictConfig({"version": 1})
        try:
            for _ in range(2):
                with app.in_thread():
                    pass
        finally:
            for one, disabled in zip(loggers, before, strict=True):
                one.disabled = disabled
    assert [one.category for one in caught] == [RuntimeWarning]
    assert "'disable_existing_loggers': False" in str(caught[0].message)
