"""What type checkers say about the registration API: read by mypy and pyright, never run.

A wrong use carries a `type: ignore`; the checkers warn about an ignore without an error, so each must stay one.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, assert_type

from singletonjob import CronJob, FixedRateJob, Histogram, IntervalJob, SingletonJobs
from singletonjob.testing import FlakyStore, OneRun, VirtualRun, run_once, virtual_time

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from singletonjob import Run, Term
    from singletonjob._core.values import Reason

app = SingletonJobs("pricing", store="sqlite", lock_expiry="20s", enabled=lambda: True, node_id=None, stall_limit=60)
SingletonJobs()
SingletonJobs(5)  # type: ignore[arg-type]
SingletonJobs("pricing", lock_expiri=20)  # type: ignore[call-arg]
SingletonJobs("pricing", stall_limit=[3])  # type: ignore[arg-type]


# -- bodies that are right, and stay what they are -----------------------------------------------------------------


@app.fixed_rate("500ms")
async def price_tick(run: Run) -> None: ...


@app.interval(1, name="heartbeat")
def heartbeat() -> None: ...


@app.cron("0 3 * * *", tz="Asia/Singapore", misfire="fire_once", timeout="10m", catch_up_limit=3, late_limit=None)
async def daily_report(run: Run) -> int:
    return run.token


@app.interval(every=lambda: timedelta(seconds=1), lock_expiry=20, enabled=False, shutdown_grace=0, timeout=None)
def by_name(*, run: Run) -> None: ...


@app.fixed_rate(every=0.5, offset="100ms")
def more_with_defaults(run: Run, size: int = 3) -> str:
    return run.job * size


@app.cron(expression="* * * * *")
def varied(*args: object, **kwargs: object) -> None: ...


async def live() -> bool:
    return True


def feed_tick(feed: str, run: Run) -> None: ...


app.interval(1, enabled=live)(partial(feed_tick, "eu"))
app.interval(1, enabled=lambda: True)(lambda: None)


async def check_kept_types(run: Run) -> None:
    assert_type(heartbeat(), None)
    assert_type(more_with_defaults(run, 4), str)
    assert_type(await run.to_thread(more_with_defaults, run, size=4), str)
    await run.to_thread(more_with_defaults, run, sized=4)  # type: ignore[call-arg]
    kept: Callable[[Run], Awaitable[int]] = daily_report
    assert_type(await kept(run), int)


# -- bodies that are wrong -----------------------------------------------------------------------------------------


@app.interval(1)  # type: ignore[type-var]
def wrong_type(run: int) -> None: ...


@app.fixed_rate(1)  # type: ignore[type-var]
async def one_too_many(run: Run, feed: str) -> None: ...


@app.cron("* * * * *")  # type: ignore[type-var]
def no_run(*, size: int) -> None: ...


app.interval(1)(3)  # type: ignore[type-var]


# -- options that are wrong ----------------------------------------------------------------------------------------

app.interval()  # type: ignore[call-arg]
app.interval(None)  # type: ignore[arg-type]
app.interval(1, offset=1)  # type: ignore[call-arg]
app.interval(1, lock_expiri=1)  # type: ignore[call-arg]
app.interval(1, enabled="yes")  # type: ignore[arg-type]
app.interval(lambda job: 1)  # type: ignore[arg-type, misc]
app.fixed_rate(lambda: 1)  # type: ignore[arg-type]
app.fixed_rate(1, lock_expiry=[1])  # type: ignore[arg-type]
app.cron(5)  # type: ignore[arg-type]
app.cron("* * * * *", misfire="never")  # type: ignore[arg-type]
app.cron("* * * * *", catch_up_limit="3")  # type: ignore[arg-type]


# -- class forms ---------------------------------------------------------------------------------------------------


class Base(FixedRateJob, lock_expiry="20s"):
    """A base without a schedule."""


class Snapshot(Base, every="500ms", name="snapshot"):
    def __init__(self, feed: str) -> None:
        self.feed = feed

    async def is_enabled(self) -> bool:
        return True

    async def on_elected(self, term: Term) -> None: ...

    def on_stepped_down(self, reason: Reason) -> None: ...

    async def execute(self, run: Run) -> None: ...


class Poll(IntervalJob, every=lambda: 1.5):
    def is_enabled(self) -> bool:
        return False

    def execute(self, run: Run) -> None: ...


class Report(CronJob, expression="0 3 * * *", tz="UTC", misfire="skip"):
    def execute(self, run: Run) -> None: ...


assert_type(app.stats()["tick"].lateness, Histogram)
assert_type(app.stats()["tick"].lateness.quantile(0.99), float)
app.add(Snapshot("eu"))
app.add(Poll())
app.add(Report())
app.add(Base())  # type: ignore[abstract]
app.add(Snapshot)  # type: ignore[arg-type]
app.add(heartbeat)  # type: ignore[arg-type]


class WrongKeyword(IntervalJob, every=1, lock_expiri=3):  # type: ignore[call-arg]
    def execute(self, run: Run) -> None: ...


class WrongValue(CronJob, expression="* * * * *", misfire="never"):  # type: ignore[arg-type]
    def execute(self, run: Run) -> None: ...


class WrongBody(IntervalJob, every=1):
    def execute(self, run: Run, feed: str) -> None: ...  # type: ignore[override]


class WrongHook(IntervalJob, every=1):
    def execute(self, run: Run) -> None: ...

    async def on_elected(self, reason: int) -> None: ...  # type: ignore[override]


# -- the kit for tests ---------------------------------------------------------------------------------------------

assert_type(run_once(price_tick, token=3, scheduled_at="2026-03-01T00:00Z", lose_after=0, timeout="1s"), OneRun)
run_once(heartbeat)
run_once(by_name)
run_once(Snapshot("eu"), reraise=False)
run_once(partial(feed_tick, "eu"))
run_once(feed_tick)  # type: ignore[arg-type]
run_once(Snapshot)  # type: ignore[arg-type]
run_once(heartbeat, lose_after=[1])  # type: ignore[arg-type]
run_once(heartbeat, timeuot=1)  # type: ignore[call-arg]


async def check_awaited() -> None:
    assert_type(await run_once(price_tick), OneRun)


with virtual_time("2026-03-01T00:00Z", app) as world:
    world.run_for("1d")
    world.run_for(5, 6)  # type: ignore[call-arg]
    world.run_until(3)  # type: ignore[arg-type]
    assert_type(world.runs_of("price-tick"), list[VirtualRun])
    assert_type(world.run(live()), bool)

SingletonJobs("pricing", store=FlakyStore("sqlite", delay="10ms", rule=lambda batch: "fail"))
FlakyStore(rule=lambda batch: "explode")  # type: ignore[arg-type, return-value]
FlakyStore().down("explode")  # type: ignore[arg-type]
