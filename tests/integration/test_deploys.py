"""Two ways of docs/deploys.md to one hand-over, with real processes: the leader last, and a pause around it all."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

from replicas import Fleet, boot
from singletonjob.control import Control
from waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from replicas import Replica


def elections(fleet: Fleet) -> int:
    return sum(len(replica.log("elected")) for replica in fleet.replicas.values())


def replace(fleet: Fleet, replica: Replica) -> None:
    """A new one first, then the old one goes, as with a surge of one."""
    fleet.start_followers(1)
    replica.signal(signal.SIGTERM)
    assert replica.end() == 0


def test_a_deploy_that_stops_the_leader_last_makes_one_hand_over(tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        fleet.start()
        leader = fleet.leader()
        for follower in fleet.start_followers(2):
            replace(fleet, follower)
        assert elections(fleet) == 1
        assert fleet.leader() is leader
        replace(fleet, leader)
        wait_for(lambda: elections(fleet) == 2, what="the next leader")
        done = boot()
        wait_for(lambda: fleet.starts(after=done), what="its run")
        assert elections(fleet) == 2


def test_a_deploy_inside_a_pause_makes_one_hand_over_and_no_run_between(tmp_path: Path) -> None:
    with Fleet(tmp_path) as fleet:
        old = [fleet.start()]
        fleet.leader()
        old += fleet.start_followers(1)
        control = Control("pricing", fleet.store)
        asyncio.run(control.pause("tick"))
        wait_for(lambda: fleet.lease().holder is None, what="its release")
        paused = boot()
        for replica in old:
            replace(fleet, replica)
        assert fleet.starts(after=paused) == []
        asyncio.run(control.resume("tick"))
        wait_for(lambda: fleet.starts(after=paused), what="a run")
        assert elections(fleet) == 2
