"""Hand-over storms in short; `scripts/soak redis_storm` is the full form, and holds it to the promised times."""

from __future__ import annotations

import signal

from soak.redis_storm import AFTER_EXPIRY, FAST, JOBS, KIND, STORM, fleet_on, kills, storms


def test_a_thousand_jobs_of_a_replica_that_stops_or_dies_are_taken_over_in_a_few_calls() -> None:
    slower: dict[str, object] = {"lock_expiry": "3s", "heartbeat_interval": "900ms", "max_backoff_delay": "1s"}
    with fleet_on(KIND, **slower, amnesia_guard=False) as fleet:
        for number, done in storms(fleet):
            assert sum(done.by_follower) == JOBS
            assert done.calls < JOBS / 5
            assert max(done.gaps) < 5 * STORM
            assert number == signal.SIGKILL or done.since_free < 5 * STORM


def test_of_fifty_followers_one_leads_soon_after_the_leader_was_killed() -> None:
    with fleet_on(KIND, **FAST, amnesia_guard=False) as fleet:
        found = kills(fleet, 6, 10, 2)
    assert all(-0.01 < seconds < 5 * AFTER_EXPIRY for seconds in found)
