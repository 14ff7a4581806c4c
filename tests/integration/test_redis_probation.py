"""A server that loses a lease while it runs, under replicas that follow: they wait until the lost term must be over.

The leader is cut off from the server just before the loss, right after a renewal. So it does not hear of the loss, and
runs on for nearly a whole lease. A notice wakes the followers, so that they find the lease lost at once.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from integration.test_redis_apps import HEARTBEAT, One, proxied, started
from proxy import Proxy
from redis_replicas import lock, state
from replicas import boot
from waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import redis

    from servers import Server
    from virtual_loop import Capture

    Forget = Callable[[redis.Redis], object]

LEASE, USABLE = 1.0, 0.9
"""Of FAST: the `lock_expiry`, and the part of it that a leader uses, in seconds."""

BUSY = 1.0
"""What a busy machine may add to a bound, in seconds."""


async def renewed(leader: One) -> None:
    """Wait until the leader has just heard of a renewal."""
    await until(lambda: leader.remaining[0] > USABLE - 0.05, what="a renewal")


@asynccontextmanager
async def following(server: Server, who: str = "b") -> AsyncIterator[tuple[One, list[One]]]:
    """A leader, which is cut off when the block begins, and its followers."""
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(Proxy(server.port))
        leader, others = One("a", proxied(proxy)), [One(name, server.url) for name in who]
        await stack.enter_async_context(started(leader, *others))
        await renewed(leader)
        proxy.hold()
        yield leader, others
        proxy.hang_up()
        proxy.let_through()


def forget(client: redis.Redis, what: Forget) -> float:
    """Let the server lose the lease and wake the followers. Return a moment just before."""
    at = boot()
    what(client)
    client.publish("pricing:notice", "tick")
    return at


async def one_leader_after_the_other(leader: One, others: list[One], lost: float, logs: Capture) -> None:
    await until(lambda: any(one.starts(lost) for one in others), what="the next leader's run")
    (new,) = [one for one in others if one.starts(lost)]
    await until(lambda: not leader.leads, what="the end of the lost term")
    first = new.starts(lost)[0]
    assert leader.last < first, f"two leaders for {leader.last - first:.3f} s"
    assert leader.last > lost + LEASE / 2, "the old leader was to run on after the loss"
    assert first - lost < 2.2 * LEASE + BUSY
    assert len(logs.of("probation")) == 1


def old_state(client: redis.Redis) -> Callable[[redis.Redis, int | None], None]:
    """Return a function that puts the keys back as they are now.

    Its second argument is the time that the lease has left then, in milliseconds; None for a lease that has ended.
    """
    kept: Any = client.get(lock()), client.hgetall(state())
    holder, fields = kept

    def restore(client: redis.Redis, left: int | None) -> None:
        with client.pipeline() as together:
            together.delete(lock(), state())
            together.hset(state(), mapping=fields)
            if left is not None:
                together.set(lock(), holder, px=left)
            together.execute()

    return restore


@pytest.mark.parametrize(
    "what", [lambda client: client.flushdb(), lambda client: client.delete(lock())], ids=["FLUSHDB", "DEL"]
)
async def test_s8_a_lease_that_a_running_server_lost_makes_no_second_leader_of_those_that_were_following(
    server: Server, client: redis.Redis, logs: Capture, what: Forget
) -> None:
    async with following(server, "bc") as (leader, others):
        lost = forget(client, what)
        await one_leader_after_the_other(leader, others, lost, logs)


@pytest.mark.parametrize("left", [None, 400], ids=["ended", "lasting"])
async def test_s8_a_server_that_goes_back_to_the_lease_of_an_earlier_leader_makes_no_second_leader(
    server: Server, client: redis.Redis, logs: Capture, left: int | None
) -> None:
    async with One("z", server.url).app:
        await until(lambda: client.exists(lock()))
        restore = old_state(client)
    async with following(server) as (leader, others):
        lost = forget(client, lambda client: restore(client, left))
        await one_leader_after_the_other(leader, others, lost, logs)


async def test_s8_a_server_that_goes_back_to_when_an_earlier_leader_had_given_its_lease_back_makes_no_second_leader(
    server: Server, client: redis.Redis, logs: Capture
) -> None:
    async with One("z", server.url).app:
        await until(lambda: client.exists(lock()))
    assert not client.exists(lock())
    restore = old_state(client)
    async with following(server) as (leader, others):
        lost = forget(client, lambda client: restore(client, None))
        await one_leader_after_the_other(leader, others, lost, logs)


async def test_s8_a_follower_needs_no_notice_to_find_out_that_a_lease_was_lost(
    server: Server, client: redis.Redis, logs: Capture
) -> None:
    async with following(server) as (leader, others):
        lost = boot()
        client.delete(lock())
        await one_leader_after_the_other(leader, others, lost, logs)


async def test_s8_l1_a_release_whose_notice_is_never_published_is_no_loss(
    server: Server, client: redis.Redis, logs: Capture
) -> None:
    without_publish = server.user("~*", "&*", "+@all", "-publish")
    leader, other = One("a", without_publish), One("b", server.url)
    async with AsyncExitStack() as stack:
        async with leader.app:
            await until(lambda: leader.runs)
            await stack.enter_async_context(other.app)
            await asyncio.sleep(HEARTBEAT)  # it was refused by now
            await renewed(leader)
        stopped = boot()
        await until(lambda: other.starts(stopped))
    assert logs.of("publish-failed")
    assert other.starts(stopped)[0] - stopped < LEASE
    assert not logs.of("probation")
