"""Electors against the reference rules of a store, under loss, delay, duplication, pauses and crashes.

Each example is a small world in true time. Replicas read clocks of their own rate and offset; the store runs requests
late, twice or never, and replies get lost. Checked at every instant: at most one replica inside a valid term (S1),
tokens that grow (S5), no release while a body may run (S4).
"""

from __future__ import annotations

import heapq
import random
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from singletonjob._core.elector import Began, Draining, Elector, Ended, Extended
from singletonjob._jobs.options import JOB_READERS, read, resolve
from singletonjob.stores.protocol import Progress, Reply
from singletonjob.stores.rules import Record, apply

if TYPE_CHECKING:
    from collections.abc import Callable

    from singletonjob.stores.protocol import Batch

OPTIONS = resolve(read({"heartbeat_interval": 0.3, "lock_expiry": 1.0, "max_backoff_delay": 1.0}, JOB_READERS))


class World:
    """True time, a queue of things to come, one store and the terms that replicas believe in."""

    def __init__(self, seed: int, replicas: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.record = Record()
        self.store_rate = self.random.uniform(0.995, 1.005)
        self.trouble = 0.0  # probability that a request or a reply meets something
        self.terms: list[int] = []
        self.fleet = [Member(self, index) for index in range(replicas)]

    def at(self, when: float, call: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (max(when, self.now), self._count, call))

    def run(self, until: float) -> None:
        while self._queue and self._queue[0][0] <= until:
            self.now, _, call = heapq.heappop(self._queue)
            call()
            self.check()
        self.now = until

    def check(self) -> None:
        leading = [m.node for m in self.fleet if m.inside()]
        assert len(leading) <= 1, f"at {self.now:.6f} these lead: {leading}"

    def store_clock(self) -> int:
        return int((500 + self.now * self.store_rate) * 1e6)

    def execute(self, batch: Batch) -> Reply:
        clock = self.store_clock()
        if not batch.requests:
            return Reply(clock=clock, up_for=inf)
        if batch.void_at is not None and clock > batch.void_at:
            return Reply(clock=clock, void=True)
        verdicts = tuple(apply(self.record, r, node=batch.node, clock=clock, wall=clock) for r in batch.requests)
        return Reply(clock=clock, verdicts=verdicts)


class Member:
    """One replica: an elector, a clock, and a body that may take its time to end."""

    def __init__(self, world: World, index: int) -> None:
        self.world = world
        self.node = f"n-{index}"
        self.rate = world.random.uniform(0.995, 1.005)
        self.offset = world.random.uniform(0, 1000)
        self.paused_until = 0.0
        self.slow = False  # its next reply arrives just in time, and then nothing does until `cut_until`
        self.cut_until = 0.0
        self.born(world.now)

    def born(self, when: float) -> None:
        self.life = object()
        self.node = self.node.split("/")[0] + f"/{self.world.random.random():.6f}"
        self.deadline = 0.0
        self.token = 0
        self.draining = False
        self.in_flight: object = None
        self.elector = Elector(
            project="p", node=self.node, jobs={"a": OPTIONS}, enabled=["a"], random=self.world.random.random
        )
        self.world.at(when, self.step_of(self.life))

    # the elector's `Liveness`
    def alive_until(self, job: str) -> float:
        return inf

    def progress(self, job: str, now: float) -> Progress:
        return Progress()

    def clock(self) -> float:
        return self.offset + self.world.now * self.rate

    def inside(self) -> bool:
        """Whether a body may start or run now: the time check that the runner makes. A paused one runs nothing."""
        return self.clock() < self.deadline and self.world.now >= self.paused_until

    def step_of(self, life: object) -> Callable[[], None]:
        return lambda: self.step() if self.life is life else None

    def step(self) -> None:
        world = self.world
        if world.now < self.paused_until:
            world.at(self.paused_until, self.step_of(self.life))
            return
        step = self.elector.poll(self.clock(), self)
        self.carry_out()
        if step.batch is not None:
            self.send(step.batch)
        if step.wake_at < inf:
            world.at(world.now + max(step.wake_at - self.clock(), 1e-6) / self.rate, self.step_of(self.life))

    def send(self, batch: Batch) -> None:
        world, life, call = self.world, self.life, object()
        self.in_flight = call
        replied = False

        def answer(reply: Reply | None) -> None:
            nonlocal replied
            if replied or self.life is not life or self.in_flight is not call:
                return
            if world.now < self.paused_until:
                world.at(self.paused_until, lambda: answer(reply))
                return
            replied = True
            self.in_flight = None
            self.elector.receive(self.clock(), reply, "" if reply else "lost")
            self.carry_out()
            world.at(world.now, self.step_of(life))

        def execute() -> None:
            reply = world.execute(batch)
            if self.slow:
                self.slow, self.cut_until = False, world.now + 2.0
                world.at(world.now + 0.9 * batch.bound, lambda: answer(reply))
            elif not world.random.random() < world.trouble:
                world.at(world.now + world.random.expovariate(1 / 0.005), lambda: answer(reply))

        troubled = world.random.random() < world.trouble
        copies = 0 if world.now < self.cut_until else world.random.choice([0, 1, 1, 2]) if troubled else 1
        for _ in range(copies):
            delay = world.random.expovariate(1 / 0.3) if troubled else world.random.expovariate(1 / 0.005)
            world.at(world.now + delay, execute)
        world.at(world.now + batch.bound / self.rate, lambda: answer(None))

    def carry_out(self) -> None:
        self.elector.check()
        for effect in self.elector.take_effects():
            if isinstance(effect, Began):
                token = effect.term.token
                assert token > max(self.world.terms, default=0), "a token that does not grow"
                self.world.terms.append(token)
                self.deadline, self.token, self.draining = effect.term.deadline, token, False
            elif isinstance(effect, Extended):
                self.deadline = effect.term.deadline
            elif isinstance(effect, Ended):
                self.deadline = 0.0
                self.say_drained(effect.token)
            elif isinstance(effect, Draining):
                self.say_drained(effect.token)

    def say_drained(self, token: int) -> None:
        life, world = self.life, self.world

        def drained() -> None:
            if self.life is life and self.token == token:
                if world.now < self.paused_until:
                    world.at(self.paused_until, drained)
                    return
                if self.deadline:
                    self.deadline = 0.0  # the body has ended; none starts any more
                self.elector.drained(self.clock(), "a", token)
                self.carry_out()
                self.step()

        world.at(world.now + world.random.expovariate(1 / 0.1), drained)


def switch(member: Member, on: bool) -> None:
    member.elector.set_enabled(member.clock(), "a", on)
    member.carry_out()
    member.step()


def act(world: World, action: tuple[Any, ...]) -> None:
    kind, index, length = action
    member = world.fleet[index % len(world.fleet)]
    if kind == "pause":
        member.paused_until = world.now + length
    elif kind == "crash":
        member.deadline = 0.0
        member.born(world.now + length)
    elif kind == "stop":
        member.elector.stop(member.clock())
        member.carry_out()
        member.step()
        world.at(world.now + length + 1, lambda: member.born(world.now) if member.elector.finished else None)
    elif kind == "switch":
        for delay, on in ((0.0, False), (length, True)):
            world.at(world.now + delay, partial(switch, member, on))
    elif kind == "slow, then cut":
        for each in world.fleet:
            each.slow = each.inside()
    elif kind == "trouble":
        world.trouble = 0.6
        world.at(world.now + length, lambda: setattr(world, "trouble", 0.0))
    elif kind == "notice":
        for each in world.fleet:
            each.elector.notice(each.clock(), ["a"])
            each.step()


ACTIONS = st.tuples(
    st.sampled_from(["pause", "crash", "stop", "switch", "trouble", "slow, then cut", "notice"]),
    st.integers(0, 3),
    st.floats(0.01, 3.0),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 2**32),
    replicas=st.integers(2, 4),
    script=st.lists(st.tuples(st.floats(0.05, 2.0), ACTIONS), max_size=25),
)
def test_s1_s5_at_no_instant_two_replicas_are_inside_a_term_and_tokens_grow(
    seed: int, replicas: int, script: list[tuple[float, tuple[Any, ...]]]
) -> None:
    world = World(seed, replicas)
    for pause, action in script:
        world.run(world.now + pause)
        act(world, action)
    world.trouble = 0.0
    world.run(world.now + 10)
    alive = [m for m in world.fleet if not m.elector._stopping and m.world.now >= m.paused_until]
    if alive:
        assert any(m.inside() or m.deadline for m in world.fleet), "nobody leads although the store answers"
