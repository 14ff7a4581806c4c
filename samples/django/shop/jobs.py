"""One job of each shape, on the ORM. Imported when the models are loaded; settings.py names this module."""

from __future__ import annotations

import logging
import random
from decimal import Decimal
from typing import TYPE_CHECKING

from shop.models import Quote
from singletonjob import SingletonJobs

if TYPE_CHECKING:
    from singletonjob import Run

__all__ = ["jobs"]

log = logging.getLogger("shop")

jobs = SingletonJobs("shop")


@jobs.fixed_rate("500ms")
def quote(run: Run) -> None:
    """Django opens a connection for the run; the integration closes it at the end, as after a request.

    A tick that was running when its replica crashed may run again on the next one: so not `create`.
    """
    price = Decimal(random.randint(399_000, 401_000)) / 100  # noqa: S311 - a made-up price
    Quote.objects.get_or_create(at=run.scheduled_at, defaults={"price": price, "token": run.token})


@jobs.interval("1m")
def tidy_up(run: Run) -> None:
    """Keep the newest thousand."""
    for newest in Quote.objects.order_by("-at")[1000:1001]:
        gone, _ = Quote.objects.filter(at__lte=newest.at).delete()
        log.info("tidy-up on %s: %d quotes are gone", run.node_id, gone)


@jobs.cron("0 18 * * mon-fri", tz="Asia/Singapore", misfire="fire_once")
def closing(run: Run) -> None:
    """On weekdays at six, or as soon as somebody leads after that."""
    last = Quote.objects.order_by("-at").first()
    log.info("closing of %s: %s", run.scheduled_at.isoformat(), last and last.price)
