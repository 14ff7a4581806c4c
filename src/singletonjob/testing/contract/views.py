"""The contract on what a look shows of a job: how its runs end, and how many replicas stand by."""

# ruff: noqa: S101 - asserts are what tests are made of

from __future__ import annotations

from contextlib import aclosing

from ..._core.protocol import JobView, Progress, Refused, Renewed
from .base import SECOND, Replica, StoreTests, on_a_loop
from .notices import heard, subscription

__all__ = ["Views"]


async def seen(replica: Replica) -> JobView:
    view = await replica.view()
    assert view is not None
    return view


class Views(StoreTests):
    """What people see, who look into the store while replicas work."""

    @on_a_loop
    async def test_a_look_shows_who_leads_and_changes_nothing(self, a: Replica, b: Replica) -> None:
        assert await a.renew(7, job="other") == Refused(holder=None, expires_in=None)
        token = await a.token()
        view = await b.view()
        assert view is not None
        assert (view.holder, view.token) == ("a", token)
        assert view.expires_in is not None
        assert 5 < view.expires_in <= 10
        assert await b.view("other") is None  # nobody ever led it
        assert await a.renew(token) == Renewed()
        await a.release()
        view = await b.view()
        assert view is not None
        assert view._replace(standby=None, wall=None) == JobView(job="j")

    @on_a_loop
    async def test_a_look_shows_how_the_last_run_ended_and_when_one_last_ended_well(self, a: Replica) -> None:
        token = await a.token()
        view = await seen(a)
        assert (view.outcome, view.good, view.runs, view.failures) == ("", None, 0, 0)
        await a.renew(token, Progress(ended_ago=2.0, outcome="ok", runs=3, failures=1, good_ago=2.0))
        view = await seen(a)
        assert (view.outcome, view.runs, view.failures) == ("ok", 3, 1)
        assert view.wall is not None
        assert view.good == view.ended
        assert view.ended is not None
        assert -1 <= (view.wall - view.ended) / SECOND - 2 < 60
        good = view.ended
        await a.renew(token, Progress(ended_ago=0.5, outcome="failed", runs=5, failures=2, good_ago=1.0))
        view = await seen(a)
        assert (view.outcome, view.runs, view.failures) == ("failed", 5, 2)
        assert view.good is not None
        assert view.ended is not None
        assert good < view.good < view.ended

    @on_a_loop
    async def test_a_term_in_which_no_run_ended_well_keeps_the_last_good_end_that_was_known(
        self, a: Replica, b: Replica
    ) -> None:
        await a.token()
        await a.release(progress=Progress(ended_ago=0.0, outcome="ok", runs=1, good_ago=0.0))
        good = (await seen(a)).ended
        token = await b.token()
        for runs in (1, 2):
            await self.later(0.01)
            await b.renew(token, Progress(ended_ago=0.0, outcome="timeout", runs=runs, failures=runs))
            view = await seen(b)
            assert (view.outcome, view.good, view.runs, view.failures) == ("timeout", good, runs, runs)
        assert view.ended is not None
        assert good is not None
        assert view.ended > good

    @on_a_loop
    async def test_what_is_known_of_the_runs_outlives_a_report_without_any(self, a: Replica, b: Replica) -> None:
        await a.token()
        await a.release(progress=Progress(ended_ago=0.0, outcome="failed", runs=7, failures=7))
        await b.release(progress=Progress(tick=5))
        await b.renew(await b.token(), Progress(tick=SECOND))
        view = await seen(b)
        assert (view.outcome, view.good, view.runs, view.failures) == ("failed", None, 7, 7)

    @on_a_loop
    async def test_a_look_shows_how_many_replicas_stand_by(self, a: Replica, b: Replica) -> None:
        """None is right for a store that does not know who listens."""
        await a.token()
        await b.acquire()
        async with aclosing(subscription(a)) as first, aclosing(subscription(b)) as second:
            await heard(first)
            await heard(second)
            assert (await seen(a)).standby in {1, None}
            await a.release()
            assert (await seen(a)).standby in {2, None}
