"""Parity with the .NET original: who leads, when it is asked for, how it ends. Whole apps on virtual time."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest

from singletonjob import Elected, IntervalJob, Run, SingletonJobs
from singletonjob.stores.protocol import Acquire, Release, Renew
from virtual_loop import Capture, Gate, Replica, holder, memory, run_virtually, running, the_loop

if TYPE_CHECKING:
    from singletonjob.stores import LeaseStore
    from singletonjob.stores.protocol import Batch, Reply


class TimedGate(Gate):
    """A gate that keeps when each batch left."""

    def __init__(self, store: LeaseStore) -> None:
        super().__init__(store)
        self.sent: list[tuple[float, Batch]] = []

    async def exchange(self, batch: Batch) -> Reply:
        self.sent.append((the_loop().time(), batch))
        return await super().exchange(batch)

    def times(self, kind: type) -> list[float]:
        return [at for at, batch in self.sent if any(isinstance(request, kind) for request in batch.requests)]


def counting(store: LeaseStore, who: str, starts: list[tuple[str, float]], *, every: str = "1s") -> SingletonJobs:
    app = SingletonJobs("pricing", store=store, node_id=who)

    @app.interval(every, name="poll")
    async def poll() -> None:
        starts.append((who, the_loop().time()))

    return app


def test_p05_two_apps_in_one_process_are_two_replicas() -> None:
    async def main() -> None:
        store = memory()
        starts: list[tuple[str, float]] = []
        async with running(counting(store, "a", starts)) as a, running(counting(store, "a", starts)) as b:
            await asyncio.sleep(5)
            assert [a.app.is_leader("poll"), b.app.is_leader("poll")] == [True, False]
            assert a.service.node != b.service.node

    run_virtually(main())


def test_p09_without_a_node_id_the_lease_names_the_host_and_eight_hex(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POD_NAME", raising=False)
    monkeypatch.setattr("socket.gethostname", lambda: "trader-7")

    async def main() -> None:
        store = memory()
        app = SingletonJobs("pricing", store=store)
        app.interval(1, name="poll")(lambda: None)
        async with running(app):
            await asyncio.sleep(0.1)
            assert re.fullmatch(r"trader-7-[0-9a-f]{8}", holder(store, "poll") or "")

    run_virtually(main())


def test_p21_the_first_attempt_is_made_at_once_and_then_every_heartbeat() -> None:
    async def main() -> None:
        store = memory()
        leader, follower = TimedGate(store), TimedGate(store)
        starts: list[tuple[str, float]] = []
        async with running(counting(leader, "a", starts)), running(counting(follower, "b", starts)):
            await asyncio.sleep(300)
        assert leader.times(Acquire)[0] < 0.05
        assert follower.times(Acquire)[0] < 0.05
        beats = leader.times(Renew)
        gaps = [later - earlier for earlier, later in zip(beats, beats[1:], strict=False)]
        assert 2.7 <= min(gaps) <= max(gaps) <= 3.0 + 1e-6
        # Ours asks again when the lease ends instead of on every heartbeat; two renewals go by meanwhile.
        assert len(follower.times(Acquire)) <= 300 / 6 + 2

    run_virtually(main())


def test_p22_one_instance_becomes_leader_and_runs() -> None:
    async def main() -> None:
        starts: list[tuple[str, float]] = []
        async with running(counting(memory(), "a", starts)) as a:
            await asyncio.sleep(10.5)
            assert a.app.is_leader("poll")
        assert len(starts) == 11

    run_virtually(main())


def test_p23_of_two_instances_only_one_runs() -> None:
    async def main() -> None:
        store = memory()
        starts: list[tuple[str, float]] = []
        async with running(counting(store, "a", starts)), running(counting(store, "b", starts)):
            await asyncio.sleep(30.5)
        assert {who for who, _ in starts} == {"a"}
        assert len(starts) == 31

    run_virtually(main())


def test_p24_when_the_leader_stops_the_other_takes_over() -> None:
    async def main() -> None:
        store = memory()
        starts: list[tuple[str, float]] = []
        a = Replica(counting(store, "a", starts, every="100ms")).start()
        async with running(counting(store, "b", starts, every="100ms")) as b:
            await asyncio.sleep(4.25)
            stopped = the_loop().time()
            await a.stop()
            await asyncio.sleep(1)
            assert b.app.is_leader("poll")
            assert min(at for who, at in starts if who == "b") - stopped < 0.1
            assert max(at for who, at in starts if who == "a") <= stopped

    run_virtually(main())


def test_p25_a_leader_that_hears_nothing_from_the_store_stops_its_runs_by_itself() -> None:
    async def main() -> None:
        store = memory()
        gate = TimedGate(store)
        starts: list[tuple[str, float]] = []
        async with running(counting(gate, "a", starts, every="100ms")) as a:
            await asyncio.sleep(10)
            fence = max(gate.times(Renew)) + 10 - 1
            gate.hang = True
            await asyncio.sleep(30)
            assert not a.app.is_leader("poll")
            assert fence - 0.2 < starts[-1][1] < fence

    run_virtually(main())


def test_p25_the_term_is_counted_from_before_the_call_and_not_from_its_answer() -> None:
    async def main() -> None:
        gate = TimedGate(memory())
        gate.delay, gate.reply_delay = 0.4, 1.2
        starts: list[tuple[str, float]] = []
        async with running(counting(gate, "a", starts, every="100ms")) as a:
            await asyncio.sleep(20)
            gate.hang, cut = True, the_loop().time()
            await asyncio.sleep(2)  # what was on its way has arrived
            answered = [at for at in gate.times(Renew) if at < cut]
            remaining = a.service._heartbeat.leases["poll"].remaining
            assert remaining == pytest.approx(max(answered) + 9 - the_loop().time(), abs=0.01)

    run_virtually(main())


def test_p26_a_refused_renewal_and_a_local_lapse_each_demote_with_one_warning() -> None:
    async def main() -> None:
        store = memory()
        gate = Gate(store)
        starts: list[tuple[str, float]] = []
        with Capture() as logs:
            async with running(counting(gate, "a", starts)) as a:
                await asyncio.sleep(5)
                store._records["pricing", "poll"].holder = "somebody-else"
                await asyncio.sleep(3.1)
                assert not a.app.is_leader("poll")
                assert [r.reason for r in logs.of("lost")] == ["lost"]
                await asyncio.sleep(15)
                assert a.app.is_leader("poll")
                gate.hang = True
                await asyncio.sleep(12)
                assert not a.app.is_leader("poll")
                gate.hang = False
        assert [(r.reason, r.levelname) for r in logs.of("lost")] == [("lost", "WARNING"), ("expired", "WARNING")]

    run_virtually(main())


@pytest.mark.parametrize("broken", [0, -1, float("nan"), "soon"])
def test_p29_a_job_whose_interval_cannot_be_used_frees_its_key_at_once_and_backs_off(broken: float | str) -> None:
    async def main() -> None:
        store = memory()
        gate = TimedGate(store)
        faulty = SingletonJobs("pricing", store=gate)
        answers: list[float | str] = [broken]
        runs: list[float] = []

        @faulty.interval(lambda: answers[0], name="poll")
        async def poll() -> None:
            runs.append(the_loop().time())

        starts: list[tuple[str, float]] = []
        with Capture() as logs:
            async with running(faulty) as a, running(counting(store, "b", starts)) as b:
                await asyncio.sleep(0.5)
                assert len(runs) == 1
                assert not a.app.is_leader("poll")
                assert b.app.is_leader("poll")
                await b.stop()
                await asyncio.sleep(60)
                # Alone it tries again and again, with back-off.
                assert len(gate.times(Acquire)) < 20
                answers[0] = 1
                await asyncio.sleep(15)
                assert a.app.is_leader("poll")
                assert len(runs) > 2
        assert "[Job: poll] every" in logs.of("schedule-failed")[0].getMessage()
        assert logs.of("schedule-failed")[0].levelname == "ERROR"
        assert not logs.of("lost")
        assert not logs.of("runner-died")

    run_virtually(main())


def test_p30_at_stop_the_run_ends_first_and_the_release_is_the_last_word_to_the_store() -> None:
    async def main() -> None:
        store = memory()
        gate = TimedGate(store)
        app = SingletonJobs("pricing", store=gate)
        ended: list[float] = []

        @app.interval(60, name="poll")
        async def poll() -> None:
            await asyncio.sleep(15)
            ended.append(the_loop().time())

        a = Replica(app).start()
        await asyncio.sleep(2)
        await a.stop()
        assert the_loop().time() == pytest.approx(15, abs=0.1)
        assert holder(store, "poll") is None
        (released,) = gate.times(Release)
        assert released >= ended[0]
        assert 2 < max(gate.times(Renew)) <= ended[0]  # renewed while it drained, and never after
        before = len(gate.sent)
        await asyncio.sleep(30)
        assert len(gate.sent) == before

    run_virtually(main())


def test_p30_an_idle_leader_releases_at_once_although_its_renewal_is_still_on_its_way() -> None:
    async def main() -> None:
        store = memory()
        gate = TimedGate(store)
        starts: list[tuple[str, float]] = []
        a = Replica(counting(gate, "a", starts, every="1h")).start()
        await asyncio.sleep(2)
        gate.delay = 1.0
        while not gate.times(Renew):
            await asyncio.sleep(0.05)
        await a.stop()
        assert gate.times(Release)[0] >= max(gate.times(Renew)) + 1.0
        await asyncio.sleep(30)
        assert holder(store, "poll") is None

    run_virtually(main())


def test_p31_whoever_sees_the_leader_can_also_end_its_term() -> None:
    async def main() -> None:
        store = memory()
        starts: list[tuple[str, float]] = []
        a = Replica(counting(store, "a", starts)).start()
        while not a.app.is_leader("poll"):
            await asyncio.sleep(0)
        seen = the_loop().time()
        await a.stop()
        assert the_loop().time() == seen
        assert not starts
        assert holder(store, "poll") is None

    run_virtually(main())


def test_p31_the_hook_and_the_event_come_when_the_term_can_be_seen() -> None:
    async def main() -> None:
        seen: list[tuple[str, bool]] = []
        app = SingletonJobs("pricing", store=memory())

        class Poll(IntervalJob, every=1):
            async def on_elected(self, term: object) -> None:
                seen.append(("hook", app.is_leader("poll")))

            async def execute(self, run: Run) -> None:
                seen.append(("run", run.remaining > 8))

        app.add(Poll())
        app.subscribe(lambda e: seen.append(("event", app.is_leader("poll"))) if isinstance(e, Elected) else None)
        async with running(app):
            await asyncio.sleep(0.5)
        assert sorted(seen) == [("event", True), ("hook", True), ("run", True)]

    run_virtually(main())
