"""Fault profiles: what goes wrong in a simulation, how often, and at whom it aims."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from simulation.sim_store import Network

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PROFILES", "Profile"]

BODIES: dict[str, float] = {"quick": 12, "long": 3, "blocking": 0.6, "wedged": 0.1, "endless": 0.3, "rude": 0.2}

SYNC_BODIES: dict[str, float] = {"quick": 10, "long": 3, "endless": 1, "checks": 1, "deaf": 0.5}

NOISY = Network(
    lost_request=0.02,
    lost_reply=0.02,
    duplicated=0.05,
    slow_request=0.04,
    slow_reply=0.04,
    slow=3.0,
    late=6.0,
    deaf=0.1,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """`faults`, `bodies` and `sync_bodies` are weights by kind; `number` of faults per simulation, on average,
    each lasting up to `longest` lock_expiries. `sync` is the chance that a job's bodies run in a thread.

    Faults of a process: crash, stop, pause (SIGSTOP), suspend (the machine's loop clocks stand still, the others do
    not), nap (one of both, between the last check before a run and the first statement of its body), block (something
    else in the process holds its job loop), stall (its heartbeat stands still, and nothing else), end_task (the task
    that runs a job is cancelled from outside), cut,
    cut_requests, cut_replies, deaf (no notices), wall_step, switch (a job is disabled for a while). Of all processes:
    stop_all (each stops, nearly at once). Of the store: refuse, freeze, silence, restart, restart_old (with a state
    from some time ago), store_step (its clock jumps by up to half the margin). Of an operator: order_pause (a job is
    paused, and resumed later), order_step_down, order_trigger.

    Of a store that forgets: flush (FLUSHALL), delete (DEL of one lock), evict (of all locks), fail_over (to a server
    with another clock and a state from some time ago), hidden_restart (behind a proxy, connections live on), no_up_time
    (the store does not tell it, and mostly has just restarted), negative_up_time (its clock is set back at a start).
    store_back and store_ahead: its clock jumps by up to five `lock_expiry`s. half_void: the second half of each batch
    comes too late. foreign: another implementation competes for a job. log_raises, log_slow: a process's log handler
    does so. no_threads: a machine starts no new ones.

    `unlike`: jobs, or replicas, have leases of different lengths. `logs`: log lines are made, and go to a handler.

    `aim` is the chance that a fault hits a leader; `at_limit` the chance that the clock rates are as far apart as is
    promised, the leader's slow, the store's and the others' fast; `skew` how wrong wall clocks are, in seconds.
    """

    name: str
    faults: Mapping[str, float]
    bodies: Mapping[str, float] = field(default_factory=lambda: BODIES)
    sync_bodies: Mapping[str, float] = field(default_factory=lambda: SYNC_BODIES)
    network: Network = field(default_factory=Network)
    sync: float = 0.3
    number: float = 8.0
    longest: float = 2.5
    aim: float = 0.6
    at_limit: float = 0.2
    skew: float = 0.5
    unlike: Literal["", "jobs", "replicas"] = ""
    logs: bool = False


ALL: dict[str, float] = {
    "crash": 3,
    "stop": 3,
    "pause": 2,
    "suspend": 2,
    "nap": 1,
    "block": 2,
    "end_task": 1,
    "cut": 2,
    "cut_requests": 1,
    "cut_replies": 1,
    "deaf": 1,
    "wall_step": 2,
    "switch": 2,
    "refuse": 1,
    "freeze": 1,
    "silence": 1,
    "restart": 0.7,
    "restart_old": 0.7,
    "store_step": 1,
}

PROFILES: Mapping[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile(name="mixed", faults=ALL),
        Profile(name="noisy", faults=ALL, network=NOISY),
        # Hand-overs and nothing else: what the bounds on them are measured by.
        Profile(
            name="handover", faults={"crash": 2, "stop": 3}, bodies={"quick": 4, "long": 1, "endless": 0.3}, skew=60.0
        ),
        # A leader cut off while all others and the store are as fast as promised: the margin at its limit.
        Profile(
            name="cut-off",
            faults={"cut": 2, "cut_replies": 3, "store_step": 1},
            bodies={"long": 1, "endless": 3, "quick": 1},
            at_limit=1.0,
            aim=1.0,
        ),
        # A reply that arrives just in time, and then silence.
        Profile(
            name="last-moment",
            faults={"cut": 3, "silence": 1},
            bodies={"long": 1, "endless": 2, "quick": 1},
            network=Network(last_moment=0.5),
            at_limit=0.5,
            aim=1.0,
        ),
        # Calls that run long after they were given up: late releases across a new term, late acquisitions of the gone.
        Profile(
            name="late-calls",
            faults={"stop": 3, "switch": 4, "crash": 1, "freeze": 2, "cut_replies": 2},
            network=Network(duplicated=0.5, reset=0.05, slow_request=0.2, lost_reply=0.1, slow=8.0, late=12.0),
            number=10.0,
        ),
        # Replicas that leave while they are asking.
        Profile(
            name="leaving",
            faults={"stop": 2, "stop_all": 3, "switch": 3, "crash": 1},
            bodies={"quick": 3, "long": 1},
            network=Network(slow_request=0.5, lost_reply=0.1, reset=0.2, slow=1.0),
            number=12.0,
            aim=0.4,
        ),
        Profile(
            name="frozen",
            faults={"pause": 3, "suspend": 4, "block": 3},
            bodies={"quick": 3, "long": 3, "endless": 1, "wedged": 0.3, "blocking": 1},
            aim=0.9,
        ),
        # A store that forgets: restarts with nothing, or with keys that name former holders.
        Profile(
            name="amnesia",
            faults={"restart": 3, "restart_old": 4, "crash": 1, "stop": 1, "cut": 1, "refuse": 0.5},
            bodies={"quick": 4, "long": 2, "endless": 1},
            network=Network(slow_request=0.5, slow=0.6),
        ),
        # Few faults, one at a time: what the bounds on a hand-over and on an outage are measured by.
        Profile(
            name="outage",
            faults={"refuse": 1, "freeze": 1, "silence": 1, "stop": 0.7},
            bodies={"quick": 3, "long": 1},
            number=6.5,
            longest=1.0,
        ),
        # Replies that come when their lease is over: to a process that was frozen meanwhile.
        Profile(
            name="late-replies",
            faults={"pause": 4, "suspend": 2, "cut_replies": 1, "stop": 0.5},
            bodies={"quick": 2, "long": 1, "endless": 2},
            network=Network(slow_reply=0.4, last_moment=0.3, slow=1.5),
            number=12.0,
            longest=1.2,
            aim=1.0,
        ),
        # Frozen at the worst of moments: the check was good, and the body has not begun.
        Profile(
            name="check-to-start",
            faults={"nap": 8, "stop": 1, "crash": 0.5, "cut_replies": 0.5},
            bodies={"quick": 3, "long": 1, "endless": 1},
            sync=0.5,
            number=12.0,
            longest=2.0,
            aim=1.0,
        ),
        # A loop that stands still while terms come and go.
        Profile(
            name="blocked",
            faults={"block": 6, "stall": 4, "cut_requests": 3, "switch": 2, "stop": 1},
            bodies={"quick": 3, "long": 2, "blocking": 1, "wedged": 0.5},
            number=12.0,
            longest=3.0,
            aim=1.0,
        ),
        # Bodies that do not end when they are told to.
        Profile(
            name="stubborn",
            faults={"stop": 3, "switch": 3, "cut": 3, "end_task": 3, "crash": 1},
            bodies={"rude": 3, "wedged": 0.5, "endless": 1, "quick": 2},
            sync_bodies={"deaf": 3, "long": 2, "endless": 1, "quick": 2},
        ),
        # Jobs that are switched off and on again, at once or during their drain.
        Profile(
            name="switched",
            faults={"switch": 8, "cut_replies": 1, "crash": 1},
            bodies={"quick": 3, "long": 3, "endless": 1},
            number=14.0,
            longest=1.0,
            aim=0.9,
        ),
        # An operator who gives one order after the other, some while a hand-over is under way.
        Profile(
            name="ordered",
            faults={
                "order_pause": 5,
                "order_step_down": 4,
                "order_trigger": 8,
                "stop": 1,
                "crash": 1,
                "cut_replies": 1,
                "deaf": 1,
                "switch": 1,
                "block": 1,
            },
            bodies={"quick": 4, "long": 2, "endless": 0.5, "blocking": 0.5},
            number=20.0,
            longest=1.5,
        ),
        # Sync bodies only: nothing can cancel them.
        Profile(name="threads", faults={**ALL, "end_task": 2, "nap": 2}, sync=1.0),
        # A store that loses leases and does not restart, or not so that anybody can see it.
        Profile(
            name="forgetful",
            faults={"flush": 3, "delete": 4, "evict": 2, "hidden_restart": 3, "crash": 1, "stop": 1},
            bodies={"quick": 3, "long": 3, "endless": 2},
            number=7.0,
        ),
        Profile(
            name="no-up-time",
            faults={"no_up_time": 4, "negative_up_time": 2, "restart_old": 2, "crash": 1, "stop": 1},
            bodies={"quick": 3, "long": 3, "endless": 2},
            number=7.0,
        ),
        Profile(
            name="fail-over",
            faults={"fail_over": 4, "crash": 1, "stop": 2, "cut": 1},
            bodies={"quick": 3, "long": 3, "endless": 2},
            number=7.0,
        ),
        Profile(
            name="store-clock",
            faults={"store_back": 3, "store_ahead": 3, "store_step": 1, "crash": 2, "stop": 2, "cut": 1},
            bodies={"quick": 3, "long": 2, "endless": 1},
            number=7.0,
        ),
        Profile(
            name="half-void",
            faults={"half_void": 6, "crash": 1, "stop": 2, "switch": 1},
            bodies={"quick": 3, "long": 2, "endless": 1},
        ),
        Profile(
            name="unlike-jobs",
            faults={"crash": 2, "stop": 2, "cut": 2, "pause": 1, "restart": 1, "refuse": 1, "store_step": 1},
            unlike="jobs",
        ),
        Profile(
            name="unlike-replicas",
            faults={"crash": 2, "stop": 2, "cut": 2, "pause": 1, "silence": 1, "store_step": 1},
            unlike="replicas",
        ),
        Profile(
            name="foreign",
            faults={"foreign": 6, "crash": 1, "stop": 2, "cut": 1, "pause": 1},
            bodies={"quick": 3, "long": 2, "endless": 1},
            number=12.0,
        ),
        Profile(
            name="logging",
            faults={"log_raises": 4, "log_slow": 4, "crash": 1, "stop": 2, "refuse": 1, "cut": 1},
            bodies={"quick": 3, "long": 2, "endless": 1},
            number=12.0,
            logs=True,
        ),
        Profile(
            name="no-threads",
            faults={"no_threads": 5, "crash": 2, "stop": 2, "end_task": 2, "cut": 1},
            sync=1.0,
            number=12.0,
        ),
        Profile(name="clocks", faults={"wall_step": 5, "suspend": 1, "crash": 1, "stop": 2}, skew=200.0),
    )
}
"""The profiles that there are, by name."""
