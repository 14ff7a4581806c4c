"""What a fleet costs its server in steady state: 3 replicas of 5 jobs, all leases on one replica, then on all three.

The promise: at most 0.7 script calls per second in total with all leases on one replica, at most 1.2 with leases on all
three.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from redis_replicas import RedisFleet, old_enough
from replicas import boot
from servers import Server
from soak._evidence import arguments, conclude, say
from waiting import wait_for

SECONDS = 60.0
JOBS = ("j0", "j1", "j2", "j3", "j4")
KIND = "valkey-9"
MOST_ON_ONE, MOST_ON_THREE = 0.7, 1.2

FIVE_JOBS = """
app = SingletonJobs("pricing", **options)

def add(number):
    # A replica competes for its own jobs only, until all may have all: so each gets a share.
    @app.fixed_rate("500ms", name=f"j{number}", enabled=lambda: mine(number) or Path("all").exists())
    async def job() -> None: ...

def mine(number):
    return number % 3 == int(name[1:]) - 1

for number in range(5):
    add(number)
"""


def measured(*, spread_out: bool) -> tuple[float, int, int]:
    """Script calls per second; how many replicas hold leases; how many terms there were."""
    with (
        tempfile.TemporaryDirectory() as directory,
        Server(KIND, Path(directory)) as server,
        RedisFleet(Path(directory), server) as fleet,
    ):
        old_enough(server, 11)
        if spread_out:
            for _ in range(3):
                fleet.start(FIVE_JOBS)
        else:
            (Path(directory) / "all").touch()
            fleet.start(FIVE_JOBS)
        wait_for(lambda: all(fleet.lease(job).holder for job in JOBS), 30, what="a leader for each job")
        (Path(directory) / "all").touch()
        if not spread_out:
            fleet.start_followers(2, FIVE_JOBS)
        time.sleep(15)  # one lock_expiry and more: all take part, and know when to ask again
        tokens = [fleet.lease(job).token for job in JOBS]
        began, before = boot(), fleet.calls()
        time.sleep(SECONDS)
        rate = (fleet.calls() - before) / (boot() - began)
        terms = len({*zip(JOBS, tokens, strict=True), *((job, fleet.lease(job).token) for job in JOBS)})
        return rate, len({fleet.lease(job).holder for job in JOBS}), terms


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    say(f"all leases on one replica, {SECONDS:g} s ...")
    one, on_one, terms_of_one = measured(spread_out=False)
    say(f"leases on three replicas, {SECONDS:g} s ...")
    three, on_three, terms_of_three = measured(spread_out=True)
    conclude(
        "redis_calls",
        [
            f"3 processes with 5 jobs each, {KIND}, script calls by `INFO commandstats` over {SECONDS:g} s",
            f"all leases on {on_one} replica: {one:.2f} script calls per s (promised: at most {MOST_ON_ONE:g})",
            f"leases on {on_three} replicas: {three:.2f} script calls per s (promised: at most {MOST_ON_THREE:g})",
            f"terms during the two measurements: {terms_of_one} and {terms_of_three} (5: nobody lost a lease)",
        ],
        good=(on_one, on_three, terms_of_one, terms_of_three) == (1, 3, 5, 5)
        and one <= MOST_ON_ONE
        and three <= MOST_ON_THREE,
        record=options.record,
    )


if __name__ == "__main__":
    main()
