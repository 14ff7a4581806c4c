"""What becomes of a run in flight when its term ends, by cause: one test per cell of the table in the documentation.

Bodies here look up every 50 ms, async ones by `asyncio.sleep`, sync ones in their thread by `nap`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import pytest

from singletonjob import IntervalJob, LeadershipLost, Run, SingletonJobs, Term
from singletonjob.stores.memory import MemoryStore
from singletonjob.stores.protocol import Release
from virtual_loop import (
    Capture,
    Gate,
    Replica,
    VirtualClock,
    VirtualLoop,
    holder,
    memory,
    nap,
    run_virtually,
    running,
    the_loop,
)

if TYPE_CHECKING:
    from singletonjob.stores import LeaseStore
    from singletonjob.stores.rules import Record

KINDS = ("async", "sync")
Kind = Literal["async", "sync"]

STEP = 0.05

CUT = 4.0
"""The moment at which a test does its deed; the run began at once, and was renewed since."""


class Story:
    """One body that takes `lasts` seconds, or ends `obeys` seconds after it was told to; what it saw, and when."""

    def __init__(self, lasts: float = 1000.0, *, obeys: float | None = None, swallows: bool = False) -> None:
        self.lasts = lasts
        self.obeys = obeys
        self.swallows = swallows
        self.started: list[float] = []
        self.ended: list[float] = []
        self.cancelled: list[float] = []
        self.told: list[float] = []
        self.refused: list[float] = []
        self.loop: VirtualLoop = the_loop()

    def add_to(self, app: SingletonJobs, kind: Kind, name: str = "job") -> None:
        app.interval("1h", name=name)(self.on_loop if kind == "async" else self.in_thread)

    async def on_loop(self, run: Run) -> None:
        until = self._begin()
        try:
            while not self._look(run, until):
                try:
                    await asyncio.sleep(STEP)
                except asyncio.CancelledError:
                    self.cancelled.append(self.loop.time())
                    if not self.swallows:
                        raise
        finally:
            self.ended.append(self.loop.time())

    def in_thread(self, run: Run) -> None:
        until = self._begin()
        while not self._look(run, until):
            nap(STEP)
        self.ended.append(self.loop.time())

    def _begin(self) -> float:
        self.started.append(self.loop.time())
        return self.loop.time() + self.lasts

    def _look(self, run: Run, until: float) -> bool:
        now = self.loop.time()
        if run.stopping and len(self.told) < len(self.started):
            self.told.append(now)
        try:
            run.check()
        except LeadershipLost:
            if len(self.refused) < len(self.started):
                self.refused.append(now)
        return now >= until or (self.obeys is not None and bool(self.told) and now >= self.told[-1] + self.obeys)


class Stage:
    """One replica with one job, whose run is in flight at `CUT`."""

    def __init__(self, kind: Kind, story: Story, **options: Any) -> None:
        self.memory = memory()
        self.gate = Gate(self.memory)
        self.switch = True
        self.story = story
        self.app = SingletonJobs("pricing", store=self.gate, **options)
        story.add_to(self.app, kind)

    def enabled(self) -> bool:
        return self.switch

    async def play(self) -> Replica:
        self.replica = Replica(self.app).start()
        await asyncio.sleep(CUT)
        assert self.story.started
        assert not self.story.ended
        return self.replica

    @property
    def record(self) -> Record:
        return self.memory._records["pricing", "job"]

    @property
    def held(self) -> bool:
        """Whether the store still keeps the lease for this replica."""
        record = self.record
        clock = int(VirtualClock(the_loop()).boot() * 1e6)
        return record.holder == self.replica.service.node and (record.expires or 0) > clock

    def releases(self) -> int:
        return sum(isinstance(request, Release) for batch in self.gate.batches for request in batch.requests)

    def steal(self) -> None:
        """Somebody else writes himself into the store."""
        self.record.holder = "somebody-else"
        self.record.expires = int((VirtualClock(the_loop()).boot() + 60) * 1e6)
        self.record.token += 1


async def steal(stage: Stage) -> float:
    """The lease is another's: known with the next beat."""
    stage.steal()
    return 3.0


async def cut_off(stage: Stage) -> float:
    """The store does not answer: known at the deadline."""
    stage.gate.hang = True
    return 9.0


CAUSES = {"lost": steal, "expired": cut_off}


# -- lost, expired -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cause", CAUSES)
def test_an_async_run_is_cancelled_when_the_lease_is_gone_and_nothing_is_released_before_it_ended(cause: str) -> None:
    async def main() -> None:
        stage = Stage("async", Story())
        await stage.play()
        within = await CAUSES[cause](stage)
        await asyncio.sleep(within + 0.01)
        story = stage.story
        assert story.cancelled == story.ended
        assert story.ended[0] <= CUT + within
        assert stage.releases() == 0
        await stage.replica.stop()
        assert not stage.app._service

    run_virtually(main())


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("cancels", [True, False])
def test_an_async_run_that_was_cancelled_already_and_still_unwinds_is_cancelled_once_more_when_the_lease_is_gone(
    cause: str, cancels: bool
) -> None:
    async def main() -> None:
        stage = Stage("async", Story(20, swallows=True), timeout=3, cancel_on_lost_leadership=cancels)
        await stage.play()
        story = stage.story
        assert story.cancelled == [pytest.approx(3, abs=0.01)]
        within = await CAUSES[cause](stage)
        await asyncio.sleep(within + 0.01)
        assert len(story.cancelled) == 1 + cancels
        assert story.cancelled[-1] <= CUT + within
        await asyncio.sleep(30)
        assert len(story.cancelled) == 1 + cancels
        await stage.replica.stop()

    run_virtually(main())


@pytest.mark.parametrize("kind", KINDS)
def test_the_deadline_holds_although_the_heartbeat_itself_hangs(kind: Kind) -> None:
    async def main() -> None:
        stage = Stage(kind, Story(obeys=0 if kind == "sync" else None))
        thaw = asyncio.Event()
        await stage.play()
        heartbeat = stage.replica.service._heartbeat

        async def freeze(seconds: float) -> None:
            await thaw.wait()

        heartbeat._sleep = freeze  # type: ignore[method-assign]  # what a thread that hangs looks like
        await asyncio.sleep(3)  # the sleep under way ends in one last beat
        left = heartbeat.leases["job"].remaining
        assert left > 5
        deadline = the_loop().time() + left
        await asyncio.sleep(left + 2 * STEP)
        assert stage.story.ended == [pytest.approx(deadline, abs=STEP)]
        await asyncio.sleep(30)
        assert len(stage.story.started) == 1
        del heartbeat._sleep
        thaw.set()
        await stage.replica.stop()

    run_virtually(main())


@pytest.mark.parametrize("cause", CAUSES)
def test_a_sync_run_is_told_when_the_lease_is_gone_and_check_raises(cause: str) -> None:
    async def main() -> None:
        stage = Stage("sync", Story(obeys=2))
        with Capture() as logs:
            await stage.play()
            within = await CAUSES[cause](stage)
            await asyncio.sleep(within + 2 * STEP)
            story = stage.story
            assert story.told == story.refused
            assert story.told[0] <= CUT + within + STEP
            assert not stage.app.is_leader("job")
            assert not story.ended
            assert stage.releases() == 0
            await asyncio.sleep(2)
            assert story.ended
            assert logs.events("job").count("run-without-lease") == 1
            assert stage.app.stats()["job"].runs == 1
        await stage.replica.stop()

    run_virtually(main())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cause", CAUSES)
def test_without_cancel_on_lost_leadership_the_run_goes_on_and_the_lease_is_not_asked_for_meanwhile(
    cause: str, kind: Kind
) -> None:
    async def main() -> None:
        stage = Stage(kind, Story(40), cancel_on_lost_leadership=False)
        await stage.play()
        within = await CAUSES[cause](stage)
        await asyncio.sleep(within + 2 * STEP)
        assert stage.story.told
        assert stage.story.refused
        stage.gate.hang = False
        stage.record.holder = None
        await asyncio.sleep(20)
        assert not stage.story.cancelled
        assert not stage.story.ended
        assert not stage.held
        await asyncio.sleep(40)
        assert stage.story.ended == [pytest.approx(40, abs=2 * STEP)]
        assert stage.held, "its body has ended, so it competes again"
        await stage.replica.stop()

    run_virtually(main())


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_goes_on_without_its_lease_does_not_see_the_next_term_as_its_own(kind: Kind) -> None:
    async def main() -> None:
        stage = Stage(kind, Story(30), cancel_on_lost_leadership=False)
        other = SingletonJobs("pricing", store=stage.memory)
        later = Story(0.05)
        later.add_to(other, "async")
        await stage.play()
        second = Replica(other).start()
        await cut_off(stage)
        await asyncio.sleep(12)
        assert other.is_leader("job")
        assert later.started, "the successor does not wait for a body that runs without the lease"
        assert not stage.story.ended
        stage.gate.hang = False
        await asyncio.sleep(5)
        await second.stop()
        await asyncio.sleep(20)
        assert stage.story.refused[0] <= CUT + 9 + STEP
        assert stage.app.is_leader("job")
        await stage.replica.stop()

    run_virtually(main())


# -- disabled ------------------------------------------------------------------------------------------------------


def test_disabled_an_async_run_is_cancelled_at_once_and_the_lease_is_released() -> None:
    async def main() -> None:
        switch = [True]
        stage = Stage("async", Story(), enabled=lambda: switch[0])
        await stage.play()
        switch[0] = False
        await asyncio.sleep(3.1)
        assert stage.story.cancelled == stage.story.ended
        assert not stage.held
        assert stage.releases() == 1
        assert stage.app.health().jobs == {"job": "disabled"}
        await stage.replica.stop()

    run_virtually(main())


@pytest.mark.parametrize("kind", KINDS)
def test_disabled_a_run_that_is_not_cancelled_is_told_and_goes_on_and_then_the_lease_is_released(kind: Kind) -> None:
    """A sync run cannot be cancelled; an async one is not with `cancel_on_lost_leadership=False`."""

    async def main() -> None:
        switch = [True]
        story = Story(50)
        stage = Stage(kind, story, enabled=lambda: switch[0], cancel_on_lost_leadership=kind == "sync")
        await stage.play()
        switch[0] = False
        await asyncio.sleep(3.1)
        assert story.told
        assert not story.refused, "the term is still valid: it is renewed until the body has ended"
        for _ in range(40):
            await asyncio.sleep(1)
            assert stage.held
        assert not story.ended
        await asyncio.sleep(10)
        assert story.ended == [pytest.approx(50, abs=2 * STEP)]
        assert not story.cancelled
        assert not stage.held
        await stage.replica.stop()

    run_virtually(main())


@pytest.mark.parametrize("kind", KINDS)
def test_enabled_again_during_the_drain_it_is_released_first_and_then_competes(kind: Kind) -> None:
    async def main() -> None:
        switch = [True]
        story = Story(20)
        stage = Stage(kind, story, enabled=lambda: switch[0], cancel_on_lost_leadership=False)
        await stage.play()
        token = stage.record.token
        switch[0] = False
        await asyncio.sleep(3.1)
        switch[0] = True
        await asyncio.sleep(5)
        assert stage.releases() == 0
        assert stage.record.token == token, "no new term begins while a body of the old one runs"
        await asyncio.sleep(20)
        assert story.ended == [pytest.approx(20, abs=2 * STEP)]
        assert stage.releases() == 1
        assert stage.held
        assert stage.record.token > token
        await stage.replica.stop()

    run_virtually(main())


# -- shutdown ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_at_shutdown_a_run_is_told_and_goes_on_within_its_grace_and_is_released_as_soon_as_it_has_ended(
    kind: Kind,
) -> None:
    async def main() -> None:
        stage = Stage(kind, Story(obeys=15))
        await stage.play()
        stopping = asyncio.create_task(stage.replica.stop())
        for _ in range(14):
            await asyncio.sleep(1)
            assert stage.held
        assert stage.story.told == [pytest.approx(CUT, abs=STEP)]
        assert not stage.story.refused
        await stopping
        assert not stage.story.cancelled
        assert stage.story.ended == [pytest.approx(CUT + 15, abs=2 * STEP)]
        assert the_loop().time() == pytest.approx(CUT + 15, abs=0.2)
        assert not stage.held
        assert not stage.replica.service.abandoned

    run_virtually(main())


def test_at_the_end_of_its_grace_an_async_run_is_cancelled_and_released() -> None:
    async def main() -> None:
        stage = Stage("async", Story())
        await stage.play()
        await stage.replica.stop()
        assert stage.story.cancelled == stage.story.ended == [pytest.approx(CUT + 20, abs=2 * STEP)]
        assert not stage.held
        assert not stage.replica.service.abandoned

    run_virtually(main())


def test_without_a_grace_a_run_in_flight_is_cancelled_at_once() -> None:
    async def main() -> None:
        stage = Stage("async", Story(), shutdown_grace=0)
        await stage.play()
        await stage.replica.stop()
        assert stage.story.cancelled == stage.story.ended == [pytest.approx(CUT, abs=2 * STEP)]
        assert not stage.held

    run_virtually(main())


def test_without_a_grace_a_sync_run_still_has_the_margin_to_end_in_good_order() -> None:
    async def main() -> None:
        stage = Stage("sync", Story(obeys=0.5), shutdown_grace=0)
        await stage.play()
        await stage.replica.stop()
        assert stage.story.ended == [pytest.approx(CUT + 0.5, abs=2 * STEP)]
        assert not stage.held
        assert not stage.replica.service.abandoned

    run_virtually(main())


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_has_not_ended_a_margin_after_its_grace_is_left_behind_and_its_lease_left_to_expire(
    kind: Kind,
) -> None:
    async def main() -> None:
        stage = Stage(kind, Story(60, swallows=True), shutdown_grace=2)
        with Capture() as logs:
            await stage.play()
            await stage.replica.stop()
            assert the_loop().time() == pytest.approx(CUT + 3, abs=1)
            assert stage.replica.service.abandoned == ["job"]
            assert stage.releases() == 0
            assert stage.held, "nobody else may begin while this body runs"
            record = logs.of("run-did-not-stop")
            assert [(r.levelname, r.job) for r in record] == [("ERROR", "job")]
            assert "released" not in logs.events()
            await asyncio.sleep(60)
            assert stage.story.ended
            assert stage.releases() == 0

    run_virtually(main())


def test_lost_while_it_drains_an_async_run_is_cancelled_before_its_grace_is_over() -> None:
    async def main() -> None:
        stage = Stage("async", Story())
        await stage.play()
        stopping = asyncio.create_task(stage.replica.stop())
        await asyncio.sleep(1)
        stage.steal()
        await asyncio.sleep(3)
        assert stage.story.cancelled
        await stopping
        assert stage.record.holder == "somebody-else"

    run_virtually(main())


# -- resigned ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_resigned_a_run_has_its_grace_and_then_another_replica_leads(kind: Kind) -> None:
    async def main() -> None:
        stage = Stage(kind, Story(obeys=10))
        other = SingletonJobs("pricing", store=stage.memory)
        later = Story(0.05)
        later.add_to(other, "async")
        await stage.play()
        second = Replica(other).start()
        await asyncio.sleep(1)
        service, token = stage.replica.service, stage.record.token
        service._heartbeat.post(lambda _now: service._elector.resign("job", token))
        await asyncio.sleep(9)
        assert stage.held
        await asyncio.sleep(1.3)
        assert stage.story.ended
        assert other.is_leader("job")
        await second.stop()
        await stage.replica.stop()

    run_virtually(main())


# -- stuck ---------------------------------------------------------------------------------------------------------


def test_past_its_timeout_an_async_run_is_cancelled_and_the_schedule_goes_on() -> None:
    async def main() -> None:
        stage = Stage("async", Story(), timeout=6)
        await stage.play()
        await asyncio.sleep(3)
        assert stage.story.cancelled == stage.story.ended == [pytest.approx(6, abs=2 * STEP)]
        assert stage.app.is_leader("job")
        assert stage.app.stats()["job"].timeout == 1
        assert stage.app.health().status == "ok"
        await stage.replica.stop()

    run_virtually(main())


def test_past_its_timeout_a_sync_run_is_told_and_counts_as_timed_out() -> None:
    async def main() -> None:
        stage = Stage("sync", Story(obeys=1), timeout=6)
        with Capture() as logs:
            await stage.play()
            await asyncio.sleep(4)
            assert stage.story.told == [pytest.approx(6, abs=2 * STEP)]
            assert not stage.story.refused
            assert stage.story.ended
            stats = stage.app.stats()["job"]
            assert (stats.runs, stats.timeout) == (1, 1)
            assert stage.app.is_leader("job")
            await stage.replica.stop()
            assert logs.events().count("run-timeout") == 1

    run_virtually(main())


@pytest.mark.parametrize("kind", KINDS)
def test_past_timeout_and_grace_the_job_is_stuck_and_its_lease_neither_renewed_nor_released(kind: Kind) -> None:
    async def main() -> None:
        stage = Stage(kind, Story(100, swallows=True), timeout=6, shutdown_grace=4)
        with Capture() as logs:
            await stage.play()
            await asyncio.sleep(6.1)  # 6 s timeout and 4 s grace are over
            assert stage.app.health().jobs == {"job": "stuck"}
            assert stage.app.health().status == "stuck"
            assert not stage.app.is_leader("job")
            await asyncio.sleep(10)
            assert not stage.held
            assert stage.releases() == 0
            stuck = logs.of("stuck")
            assert [(r.levelname, r.job, r.reason) for r in stuck] == [("ERROR", "job", "stuck")]
            await asyncio.sleep(70)
            assert not stage.held, "it is not asked for while the body runs"
            await asyncio.sleep(12)
            assert stage.story.ended
            assert stage.held
            assert stage.app.health().status == "ok"
            await stage.replica.stop()

    run_virtually(main())


def test_a_dead_job_loop_loses_its_lease_and_competes_again_when_it_turns_and_the_body_has_ended() -> None:
    async def main() -> None:
        stage = Stage("async", Story(30, swallows=True), stall_limit=5)
        with Capture() as logs:
            await stage.play()
            token = stage.record.token
            stage.replica.service._stamp_timer.cancel()  # what a loop in a dead lock is to the heartbeat
            await asyncio.sleep(6.1)
            assert stage.app.health().jobs == {"job": "stuck"}
            assert not stage.app.is_leader("job")
            assert "stuck" in logs.events("job")
            stage.replica.service._stamp()
            await asyncio.sleep(15)
            assert not stage.story.ended
            assert not stage.held
            assert stage.record.token == token, "turning is not enough: the body still runs"
            await asyncio.sleep(6)
            assert stage.story.ended
            assert stage.app.health().jobs == {"job": "leading"}
            await asyncio.sleep(10)
            assert stage.app.stats()["job"].terms == 2
            await stage.replica.stop()

    run_virtually(main())


# -- several jobs, suspend -----------------------------------------------------------------------------------------


def test_each_job_is_released_as_soon_as_its_own_body_has_ended() -> None:
    async def main() -> None:
        store = memory()
        app = SingletonJobs("pricing", store=store)
        stories = {"quick": Story(obeys=0), "slow": Story(obeys=5), "slower": Story(obeys=15)}
        for name, story in stories.items():
            story.add_to(app, "sync" if name == "slow" else "async", name)
        app.interval("1h", name="idle")(partial(asyncio.sleep, 0))
        replica = Replica(app).start()
        await asyncio.sleep(CUT)
        stopping = asyncio.create_task(replica.stop())

        def held() -> set[str]:
            return {job for (_, job), record in store._records.items() if record.holder == replica.service.node}

        assert held() == {"idle", "quick", "slow", "slower"}
        await asyncio.sleep(0.1)
        assert held() == {"slow", "slower"}
        await asyncio.sleep(5.3)
        assert held() == {"slower"}
        await stopping
        assert held() == set()

    run_virtually(main())


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_suspend_beyond_the_lease_the_run_in_flight_ends_within_half_a_margin(kind: Kind) -> None:
    async def main() -> None:
        clock = VirtualClock(the_loop())
        app = SingletonJobs("pricing", store=MemoryStore(clock))
        story = Story(obeys=0 if kind == "sync" else None)
        story.add_to(app, kind)
        replica = Replica(app, clock).start()
        await asyncio.sleep(CUT)
        clock.slept += 3600.0
        assert not app.is_leader("job"), "a time check, not a remembered flag"
        await asyncio.sleep(0.6)
        assert story.ended
        assert story.ended[0] <= CUT + 0.5 + STEP
        await asyncio.sleep(5)
        assert app.is_leader("job")
        await replica.stop()

    run_virtually(main())


def test_a_sync_body_that_hands_back_work_when_its_term_is_over_has_been_cancelled_and_leaves_no_warning() -> None:
    async def main() -> None:
        gate = Gate(memory())
        app = SingletonJobs("pricing", store=gate)
        awaited: list[str] = []

        async def more() -> None:
            awaited.append("more")

        def body() -> object:
            nap(20)
            return more()

        app.interval("1h", name="job")(body)
        replica = Replica(app).start()
        await asyncio.sleep(1)
        gate.hang = True
        await asyncio.sleep(30)
        stats = app.stats()["job"]
        assert (stats.runs, stats.cancelled) == (1, 1)
        assert not awaited
        gate.hang = False
        await replica.stop()

    run_virtually(main())


def test_without_a_grace_a_run_that_unwinds_at_its_timeout_keeps_its_term() -> None:
    async def main() -> None:
        app = SingletonJobs("pricing", store=memory(), timeout=5, shutdown_grace=0, heartbeat_interval=0.1)

        @app.interval(1, name="job")
        async def job() -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                await asyncio.sleep(0.5)  # within a margin

        replica = Replica(app).start()
        await asyncio.sleep(21)
        stats = app.stats()["job"]
        assert stats.timeout == 3
        assert stats.terms == 1
        await replica.stop()

    run_virtually(main())


# -- the hook at the end of a term ---------------------------------------------------------------------------------


class Held(IntervalJob, every="1s", name="job"):
    """One whose runs go on for so long, and whose hook hangs until it is cancelled."""

    def __init__(self, runs_for: float) -> None:
        self.runs_for = runs_for
        self.switch = True
        self.entered: list[float] = []
        self.left: list[float] = []

    def is_enabled(self) -> bool:
        return self.switch

    async def on_stepped_down(self, reason: str) -> None:
        self.entered.append(the_loop().time())
        try:
            await asyncio.Event().wait()
        finally:
            self.left.append(the_loop().time())

    async def execute(self, run: Run) -> None:
        await asyncio.sleep(self.runs_for)


def holding(job: Held, store: LeaseStore, **options: Any) -> SingletonJobs:
    app = SingletonJobs("pricing", store=store, **options)
    app.add(job)
    return app


@pytest.mark.parametrize(
    ("runs_for", "grace", "run_ends", "hook_ends"),
    [(0.0, 20.0, 0.0, 20.5), (15.0, 20.0, 10.0, 20.5), (100.0, 20.0, 20.0, 20.5), (100.0, 0.0, 0.0, 0.5)],
    ids=["idle", "a run that ends", "a run that uses the whole grace", "no grace"],
)
def test_at_a_stop_a_hook_that_hangs_has_what_is_left_of_the_grace_and_the_lease_is_released_after_it(
    runs_for: float, grace: float, run_ends: float, hook_ends: float
) -> None:
    async def main() -> None:
        store, job = memory(), Held(runs_for)
        app = holding(job, store, shutdown_grace=grace)
        with Capture() as logs:
            replica = Replica(app).start()
            await asyncio.sleep(5.25)
            stop = the_loop().time()
            await replica.stop()
        assert job.entered == [pytest.approx(stop + run_ends, abs=0.3)]
        assert job.left == [pytest.approx(stop + hook_ends, abs=0.01)]
        assert the_loop().time() == pytest.approx(job.left[0], abs=0.2)
        assert holder(store, "job") is None
        assert not replica.service.abandoned
        (cut,) = logs.of("hook-failed")
        assert (cut.levelname, cut.job, cut.token) == ("WARNING", "job", logs.of("released")[0].token)
        assert "on_stepped_down" in cut.getMessage()

    run_virtually(main())


def test_switched_off_a_hook_that_hangs_keeps_the_lease_for_its_grace_alone_and_the_job_is_led_again() -> None:
    async def main() -> None:
        store, job = memory(), Held(0.0)
        async with running(holding(job, store, shutdown_grace=20)) as replica:
            await asyncio.sleep(5)
            job.switch = False
            await asyncio.sleep(18)
            assert holder(store, "job") == replica.service.node  # renewed: the hook may still need it
            await asyncio.sleep(7)
            assert holder(store, "job") is None
            assert job.left == [pytest.approx(job.entered[0] + 20.5, abs=0.01)]
            job.switch = True
            await asyncio.sleep(5)
            assert replica.app.is_leader("job")

    run_virtually(main())


def test_after_a_loss_a_hook_that_hangs_holds_the_next_term_back_for_its_grace_alone() -> None:
    async def main() -> None:
        gate, job = Gate(memory()), Held(0.0)
        async with running(holding(job, gate, shutdown_grace=20)) as replica:
            await asyncio.sleep(5)
            gate.hang = True
            await asyncio.sleep(12)
            gate.hang = False
            assert len(job.entered) == 1
            await asyncio.sleep(20.5 + 10)
            assert job.left == [pytest.approx(job.entered[0] + 20.5, abs=0.01)]
            assert replica.app.is_leader("job")
            assert replica.app.stats()["job"].terms == 2

    run_virtually(main())


def test_a_stop_that_comes_while_a_run_outlives_its_switch_leaves_the_hook_no_time_beyond_it() -> None:
    async def main() -> None:
        store, job = memory(), Held(100.0)
        replica = Replica(holding(job, store, shutdown_grace=20, cancel_on_lost_leadership=False)).start()
        await asyncio.sleep(5)
        job.switch = False
        await asyncio.sleep(5)
        stop = the_loop().time()
        await replica.stop()
        assert job.left == [pytest.approx(stop + 20.5, abs=0.01)]
        assert not replica.service.abandoned
        assert holder(store, "job") is None

    run_virtually(main())


class Deaf(IntervalJob, every="1s", name="job", timeout="5s", shutdown_grace="5s"):
    """One whose hooks heed no cancellation."""

    def __init__(self, at: Literal["begin", "end"]) -> None:
        self.at: str = at
        self.switch = True

    def is_enabled(self) -> bool:
        return self.switch

    async def on_elected(self, term: Term) -> None:
        if self.at == "begin":
            await self._hang()

    async def on_stepped_down(self, reason: str) -> None:
        if self.at == "end":
            await self._hang()

    async def _hang(self) -> None:
        until = the_loop().time() + 60
        while the_loop().time() < until:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(until - the_loop().time())

    async def execute(self, run: Run) -> None: ...


@pytest.mark.parametrize("at", ["begin", "end"])
def test_a_hook_that_heeds_no_cancellation_is_stuck_past_its_time_and_its_lease_goes_to_another(
    at: Literal["begin", "end"],
) -> None:
    async def main() -> None:
        store, job, peer = memory(), Deaf(at), Held(0.0)
        app = SingletonJobs("pricing", store=store)
        app.add(job)
        async with running(app) as replica, running(holding(peer, store)) as other:
            await asyncio.sleep(3)
            job.switch = at == "begin"  # else nothing ends its term
            await asyncio.sleep(3)
            assert holder(store, "job") == replica.service.node
            await asyncio.sleep(16)  # the hook's limit, and a lease
            assert holder(store, "job") == other.service.node
            assert app.health().jobs["job"] == "stuck"
            await asyncio.sleep(45)
            job.at = "never"

    run_virtually(main())
