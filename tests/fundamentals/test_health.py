"""What health says of an app, in virtual time: which state when, and what the probes make of it.

The rule behind all of it: a probe that fails makes Kubernetes restart a process (`/livez`) or hold up a rollout
(`/readyz`). So only what a restart mends may fail the one, and nothing that waits for another replica the other.
"""

from __future__ import annotations

import asyncio
import itertools
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from singletonjob import Health, SingletonJobs, StoreUnavailable
from singletonjob.control import Control
from singletonjob.probes import answer
from singletonjob.stores.protocol import Failed
from virtual_loop import Gate, Replica, memory, run_virtually, running, the_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from singletonjob._reporting.health import HealthState, Status
    from singletonjob.stores import LeaseStore
    from singletonjob.stores.protocol import Batch, JobView, Reply


async def idle() -> None: ...


def replica_of(
    store: LeaseStore, body: Callable[[], object] = idle, *, every: str = "1s", **options: Any
) -> SingletonJobs:
    app = SingletonJobs("pricing", store=store)
    app.interval(every, name="job", **options)(body)
    return app


def status(app: SingletonJobs, path: str) -> int:
    return answer(app, "GET", path).status


def probes(app: SingletonJobs) -> tuple[int, int]:
    """What `/livez` and `/readyz` answer."""
    return status(app, "/livez"), status(app, "/readyz")


@contextmanager
def silent(replica: Replica) -> Iterator[None]:
    """Its job loop gives no sign of life: all that other threads see of one that is blocked by a body in flight."""
    replica.service._heartbeat.alive()
    replica.service._stamp_timer.cancel()
    yield
    replica.service._stamp()


class Stubborn:
    """A body that goes on for so long, whatever is done to it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.ended = False

    async def __call__(self) -> None:
        until = the_loop().time() + self.seconds
        while the_loop().time() < until:
            try:
                await asyncio.sleep(until - the_loop().time())
            except asyncio.CancelledError:
                continue
        self.ended = True


# -- the sum -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("states", "worst"),
    [
        ([], "ok"),
        (["leading", "following", "disabled", "paused"], "ok"),
        (["leading", "store_down"], "store_down"),
        (["store_down", "starved"], "starved"),
        (["stuck", "starved", "store_down", "leading"], "stuck"),
    ],
)
def test_the_status_is_the_worst_of_the_jobs_and_only_stuck_is_not_live(
    states: list[HealthState], worst: Status
) -> None:
    health = Health.of(dict(zip("abcd", states, strict=False)), ready=True)
    assert health.status == worst
    assert health.live is (worst != "stuck")


# -- leading, following, the store ---------------------------------------------------------------------------------


def test_c111_a_follower_is_as_live_and_ready_as_the_leader() -> None:
    async def main() -> None:
        store = memory()
        leader, standby = replica_of(store), replica_of(store)
        async with running(leader):
            await asyncio.sleep(1)
            async with running(standby):
                await asyncio.sleep(1)
                assert leader.health().jobs == {"job": "leading"}
                assert standby.health().jobs == {"job": "following"}
                assert leader.health().status == standby.health().status == "ok"
                assert probes(leader) == probes(standby) == (200, 200)

    run_virtually(main())


def test_c111_a_rolling_update_that_waits_for_each_new_pod_to_be_ready_finishes() -> None:
    async def main() -> None:
        store = memory()
        pods = [Replica(replica_of(store)).start() for _ in range(3)]
        await asyncio.sleep(5)
        began = the_loop().time()
        for _ in range(3):  # max surge 1, max unavailable 0
            new = Replica(replica_of(store)).start()
            while status(new.app, "/readyz") != 200:
                assert the_loop().time() - began < 60, "the new pod waits for the old one, which waits for the new one"
                await asyncio.sleep(0.1)
            assert new.app.health().jobs == {"job": "following"}
            await pods.pop(0).stop()
            pods.append(new)
        await asyncio.sleep(1)
        assert [pod.app.health().jobs["job"] for pod in pods].count("leading") == 1
        for pod in pods:
            await pod.stop()

    run_virtually(main())


def test_c110_over_ten_fail_overs_at_most_one_replica_says_that_it_leads() -> None:
    async def main() -> None:
        store = memory()
        pods = [Replica(replica_of(store)).start() for _ in range(3)]
        seen = set()
        for number in range(10):
            await asyncio.sleep(12)
            states = [pod.app.health().jobs["job"] for pod in pods]
            assert states.count("leading") == 1
            gone = pods.pop(states.index("leading"))
            if number % 2:
                gone.crash()
            else:
                await gone.stop()
            pods.append(Replica(replica_of(store)).start())
            for _ in range(120):
                seen.add([pod.app.health().jobs["job"] for pod in pods].count("leading"))
                await asyncio.sleep(0.1)
        assert seen == {0, 1}
        for pod in pods:
            await pod.stop()

    run_virtually(main())


def test_c86_through_an_outage_of_five_minutes_leader_and_follower_stay_live_and_ready() -> None:
    async def main() -> None:
        gate = Gate(memory())
        async with AsyncExitStack() as stack:
            apps = [replica_of(gate) for _ in range(2)]
            for app in apps:
                await stack.enter_async_context(running(app))
            await asyncio.sleep(5)
            gate.error, told = StoreUnavailable("gone"), set()
            for _ in range(300):
                await asyncio.sleep(1)
                assert [probes(app) for app in apps] == [(200, 200)] * 2
                told.add(tuple(app.health().status for app in apps))
            assert told >= {("ok", "ok"), ("store_down", "store_down")}, (
                "health knows of it, and the probes do not mind"
            )
            gate.error = None
            await asyncio.sleep(20)
            assert [app.health().status for app in apps] == ["ok", "ok"]

    run_virtually(main())


def test_a_store_that_hangs_instead_of_failing_makes_nothing_stuck_either() -> None:
    async def main() -> None:
        gate = Gate(memory())
        app = replica_of(gate)
        async with running(app):
            await asyncio.sleep(5)
            gate.hang = True
            for _ in range(300):
                await asyncio.sleep(1)
                assert probes(app) == (200, 200)
            assert app.health().jobs == {"job": "store_down"}
            gate.hang = False

    run_virtually(main())


def test_ready_is_started_and_the_store_seen_once() -> None:
    async def main() -> None:
        gate = Gate(memory())
        app = replica_of(gate)
        assert probes(app) == (200, 503), "it has not started"
        gate.error = StoreUnavailable("gone")
        replica = Replica(app).start()
        await asyncio.sleep(30)
        assert probes(app) == (200, 503), "the store was never seen"
        gate.error = None
        await asyncio.sleep(15)
        assert probes(app) == (200, 200)
        gate.error = StoreUnavailable("gone again")
        await asyncio.sleep(60)
        assert probes(app) == (200, 200), "a pod taken out of service would not bring the store back"
        gate.error = None
        await replica.stop()
        assert probes(app) == (200, 503)
        assert app.health().jobs == {"job": "disabled"}

    run_virtually(main())


def test_an_app_whose_jobs_are_all_off_is_ready_without_a_store() -> None:
    async def main() -> None:
        gate = Gate(memory())
        gate.error = StoreUnavailable("gone")
        app = replica_of(gate, enabled=False)
        async with running(app):
            assert probes(app) == (200, 200)
            assert app.health().jobs == {"job": "disabled"}

    run_virtually(main())


def test_a_paused_job_is_told_by_every_replica_and_costs_neither_liveness_nor_readiness() -> None:
    async def main() -> None:
        store = memory()
        gate = Gate(store)
        apps = [replica_of(gate) for _ in range(2)]
        control = Control("pricing", store)
        async with AsyncExitStack() as stack:
            for app in apps:
                await stack.enter_async_context(running(app))
            await asyncio.sleep(5)
            await control.pause("job")
            await asyncio.sleep(15)
            for app in apps:
                assert app.health() == Health(status="ok", ready=True, jobs={"job": "paused"})
                assert probes(app) == (200, 200)
            gate.error = StoreUnavailable("gone")
            await asyncio.sleep(15)
            assert [app.health().status for app in apps] == ["store_down"] * 2
            gate.error = None
            await control.resume("job")
            await asyncio.sleep(15)
            assert sorted(app.health().jobs["job"] for app in apps) == ["following", "leading"]

    run_virtually(main())


class Choosy:
    """A store that cannot serve some jobs."""

    def __init__(self, store: LeaseStore) -> None:
        self.store = store
        self.broken: set[str] = set()

    async def exchange(self, batch: Batch) -> Reply:
        wanted = tuple(request for request in batch.requests if request.job not in self.broken)
        reply = await self.store.exchange(batch._replace(requests=wanted) if wanted else batch._replace(requests=()))
        answers = iter(reply.verdicts)
        failed = Failed(error="WRONGTYPE")
        verdicts = [failed if request.job in self.broken else next(answers) for request in batch.requests]
        return reply._replace(verdicts=tuple(verdicts))

    def notices(self, project: str) -> AsyncIterator[frozenset[str]]:
        return self.store.notices(project)

    async def peek(self, project: str) -> tuple[JobView, ...]:
        return await self.store.peek(project)

    async def close(self) -> None: ...


def test_a_job_that_the_store_cannot_serve_is_store_down_alone_until_it_is_served_again() -> None:
    async def main() -> None:
        store = Choosy(memory())
        app = replica_of(store)
        app.interval("1s", name="other")(idle)
        async with running(app):
            await asyncio.sleep(5)
            store.broken = {"job"}
            await asyncio.sleep(4)
            assert app.health().jobs == {"job": "leading", "other": "leading"}  # its lease lives
            await asyncio.sleep(20)
            assert app.health() == Health(
                status="store_down", ready=True, jobs={"job": "store_down", "other": "leading"}
            )
            assert probes(app) == (200, 200)
            store.broken = set()
            await asyncio.sleep(15)
            assert app.health().jobs == {"job": "leading", "other": "leading"}

    run_virtually(main())


# -- a job loop or a heartbeat that is silent ----------------------------------------------------------------------


def test_a_silent_job_loop_is_starved_after_half_of_its_stall_limit_and_stuck_after_all_of_it() -> None:
    async def main() -> None:
        store, body = memory(), Stubborn(85)
        app, other = replica_of(store, body, every="1h"), replica_of(store)
        app.interval("1s", name="off", enabled=False)(idle)
        async with running(app) as replica:
            await asyncio.sleep(5)
            async with running(other):
                with silent(replica):
                    await asyncio.sleep(29.9)
                    assert app.health().jobs == {"job": "leading", "off": "disabled"}
                    await asyncio.sleep(0.2)
                    assert app.health().jobs == {"job": "starved", "off": "disabled"}
                    assert app.health().status == "starved"
                    assert probes(app) == (200, 200), "a body may block for a while and keep its lease"
                    await asyncio.sleep(29.8)
                    assert app.health().jobs["job"] == "starved"
                    await asyncio.sleep(0.2)
                    assert app.health().jobs == {"job": "stuck", "off": "disabled"}
                    assert probes(app) == (503, 200), "only a restart helps"
                    await asyncio.sleep(13)
                    assert other.health().jobs == {"job": "leading"}, "another replica went on meanwhile"
                    assert probes(app) == (503, 200)
                assert probes(app) == (503, 200), "it turns again, but the body still runs"
                await asyncio.sleep(10)
                assert body.ended
                assert app.health().jobs["job"] == "following"
                assert probes(app) == (200, 200)

    run_virtually(main())


def test_a_follower_whose_job_loop_is_silent_is_stuck_as_well() -> None:
    async def main() -> None:
        store = memory()
        async with running(replica_of(store)):
            await asyncio.sleep(1)
            follower = replica_of(store)
            async with running(follower) as replica:
                await asyncio.sleep(5)
                with silent(replica):
                    await asyncio.sleep(59.9)
                    assert follower.health().jobs == {"job": "starved"}
                    await asyncio.sleep(0.2)
                    assert follower.health().jobs == {"job": "stuck"}
                    assert probes(follower) == (503, 200)
                assert follower.health().jobs == {"job": "following"}

    run_virtually(main())


def test_a_starved_loop_is_told_before_a_store_that_is_gone() -> None:
    async def main() -> None:
        gate = Gate(memory())
        app = replica_of(gate, Stubborn(50), every="1h")
        async with running(app) as replica:
            await asyncio.sleep(5)
            gate.error = StoreUnavailable("gone")
            with silent(replica):
                await asyncio.sleep(40)
                assert app.health().status == "starved"
            assert app.health().status == "store_down"
            gate.error = None

    run_virtually(main())


def test_a_heartbeat_that_has_not_beaten_for_a_lock_expiry_is_stuck() -> None:
    async def main() -> None:
        app = replica_of(memory())
        async with running(app) as replica:
            await asyncio.sleep(5)
            heartbeat, thaw = replica.service._heartbeat, asyncio.Event()

            async def frozen(seconds: float) -> None:
                await thaw.wait()

            heartbeat._sleep = frozen  # type: ignore[method-assign]  # what a thread that hangs looks like
            await asyncio.sleep(3)
            silent_since = replica.service._signs.beat_at
            await asyncio.sleep(silent_since + 9.9 - replica.clock.boot())
            assert probes(app) == (200, 200)
            await asyncio.sleep(0.2)
            assert app.health().jobs == {"job": "stuck"}
            assert probes(app) == (503, 200)
            del heartbeat._sleep
            thaw.set()
            await asyncio.sleep(15)
            assert probes(app) == (200, 200)
            assert app.health().jobs == {"job": "leading"}

    run_virtually(main())


# -- a run in flight -----------------------------------------------------------------------------------------------


def test_c27_a_run_that_hangs_without_a_time_limit_leaves_its_process_live() -> None:
    async def main() -> None:
        app = replica_of(memory(), lambda: asyncio.sleep(10_000), shutdown_grace=0)
        async with running(app):
            for _ in range(60):
                await asyncio.sleep(60)
                assert probes(app) == (200, 200)
                assert app.health().jobs == {"job": "leading"}

    run_virtually(main())


def test_c27_a_run_that_outlives_its_timeout_and_grace_is_not_live_until_it_has_ended() -> None:
    async def main() -> None:
        body = Stubborn(40)
        app = replica_of(memory(), body, every="1h", timeout=5, shutdown_grace=4)
        app.interval("1s", name="well")(idle)
        async with running(app):
            await asyncio.sleep(0.5)
            await asyncio.sleep(8)
            assert probes(app) == (200, 200)
            await asyncio.sleep(1)
            assert app.health().jobs == {"job": "stuck", "well": "leading"}
            assert probes(app) == (503, 200)
            await asyncio.sleep(30)
            assert not body.ended
            assert probes(app) == (503, 200)
            await asyncio.sleep(2)
            assert body.ended
            assert probes(app) == (200, 200)

    run_virtually(main())


def test_a_run_that_outlives_its_limit_after_its_term_was_lost_is_not_live_either() -> None:
    async def main() -> None:
        gate = Gate(memory())
        body = Stubborn(40)
        app = replica_of(gate, body, every="1h", timeout=20, shutdown_grace=4)
        async with running(app):
            await asyncio.sleep(1)
            gate.error = StoreUnavailable("gone")
            await asyncio.sleep(12)
            gate.error = None
            await asyncio.sleep(8)
            assert not app.is_leader("job")
            assert probes(app) == (200, 200), "the term expired; the body has some time left to see it"
            await asyncio.sleep(4)
            assert app.health().jobs == {"job": "stuck"}
            assert probes(app) == (503, 200), "this process never leads again as long as that body runs"
            await asyncio.sleep(16)
            assert body.ended
            assert probes(app) == (200, 200)

    run_virtually(main())


def test_a_job_that_was_switched_off_is_stuck_all_the_same_while_its_run_outlives_its_limit() -> None:
    async def main() -> None:
        on = [True]
        app = replica_of(memory(), Stubborn(40), every="1h", timeout=20, shutdown_grace=4, enabled=lambda: on[0])
        async with running(app):
            await asyncio.sleep(5)
            on[0] = False
            await asyncio.sleep(5)
            assert app.health().jobs == {"job": "disabled"}
            await asyncio.sleep(16)
            assert app.health().jobs == {"job": "stuck"}
            await asyncio.sleep(16)
            assert app.health().jobs == {"job": "disabled"}

    run_virtually(main())


def test_c26_a_body_that_raises_again_and_again_leaves_its_process_live_and_leading() -> None:
    async def main() -> None:
        errors = itertools.cycle([ValueError(), SystemExit(), GeneratorExit(), asyncio.CancelledError()])

        async def fails() -> None:
            raise next(errors)

        app = replica_of(memory(), fails)
        async with running(app):
            await asyncio.sleep(1)
            for _ in range(30):
                await asyncio.sleep(1)
                assert probes(app) == (200, 200)
                assert app.health().jobs == {"job": "leading"}
            assert app.stats()["job"].failed >= 25

    run_virtually(main())


def test_c46_a_replica_that_lost_its_lease_in_the_middle_of_a_run_is_live_and_says_that_it_follows() -> None:
    async def main() -> None:
        gate = Gate(memory())
        app, other = replica_of(gate, lambda: asyncio.sleep(60)), replica_of(gate.store)
        async with running(app):
            await asyncio.sleep(5)
            gate.error = StoreUnavailable("gone for this one alone")
            async with running(other):
                await asyncio.sleep(12)
                assert app.health().jobs == {"job": "store_down"}
                gate.error = None
                await asyncio.sleep(12)
                assert other.health().jobs == {"job": "leading"}
                assert app.health().jobs == {"job": "following"}
                assert probes(app) == (200, 200)

    run_virtually(main())
