"""One job of each shape. Start as many workers as you like: each job runs in one of them.

The store comes from SINGLETONJOB_STORE; `singletonjob run worker_jobs:app` sends what is logged here to stderr.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from singletonjob import SingletonJobs

if TYPE_CHECKING:
    from singletonjob import Run

__all__ = ["app"]

log = logging.getLogger("pricing")

app = SingletonJobs("pricing")


@app.fixed_rate("500ms")
async def price_tick(run: Run) -> None:
    """A tick on the grid that all workers share."""
    log.info("price-tick %s on %s, token %d", run.tick, run.node_id, run.token)


@app.interval("5s")
def tidy_up(run: Run) -> None:
    """Plain functions get a thread of their own. Five seconds lie between the end of a run and the next one."""
    time.sleep(0.2)
    log.info("tidy-up on %s, token %d", run.node_id, run.token)


@app.cron("* * * * *", tz="Asia/Singapore", misfire="fire_once")
async def minute_report(run: Run) -> None:
    """Each minute, and once after a time in which nobody led."""
    log.info("minute-report of %s on %s, token %d", run.scheduled_at.isoformat(), run.node_id, run.token)
